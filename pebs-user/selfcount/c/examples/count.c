/* Counts itself while it touches pages and calls a function.
 *
 *     cc -Iinclude examples/count.c -L<target> -lselfcount -o count && ./count
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selfcount.h"

enum { PAGES = 100, CALLS = 1000, EVENTS = 3 };

_Static_assert(sizeof(selfcount_count) == 32, "as in the library");
_Static_assert(offsetof(selfcount_count, running_ns) == 16, "as in the library");

__attribute__((noinline)) static int counted(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, selfcount_error());
    if (*selfcount_hint())
        fprintf(stderr, "hint: %s\n", selfcount_hint());
    return 2;
}

static void touch_pages(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *block = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return;
    madvise(block, PAGES * page, MADV_NOHUGEPAGE);
    for (int n = 0; n < PAGES; n++)
        block[n * page] = 1;
    munmap(block, PAGES * page);
}

/* Another thread may not read the group. */
static void *read_elsewhere(void *group)
{
    selfcount_count counts[EVENTS];
    if (selfcount_read(group, counts, EVENTS) == -1)
        printf("elsewhere: %s\n", selfcount_error());
    return NULL;
}

int main(int argc, char **argv)
{
    char names[128];
    snprintf(names, sizeof names, "page-faults:u,mem:0x%lx:x:u,task-clock:u", (unsigned long)counted);
    selfcount_group *group = selfcount_open(argc > 1 ? argv[1] : names, SELFCOUNT_TOUCH);
    if (!group)
        return failed("cannot count");
    size_t events = selfcount_events(group);
    if (events != EVENTS) {
        fprintf(stderr, "%zu events are not %d\n", events, EVENTS);
        return 2;
    }
    selfcount_count before[EVENTS], after[EVENTS];
    if (selfcount_read(group, before, EVENTS) == EVENTS)
        printf("stopped: %g\n", selfcount_scaled(before[1]));
    if (selfcount_start(group))
        return failed("cannot start");
    /* Once, so that the code itself is there. */
    touch_pages();
    counted(0);
    if (selfcount_read(group, before, EVENTS) == -1)
        return failed("cannot read");
    touch_pages();
    for (int n = 0; n < CALLS; n++)
        counted(n);
    if (selfcount_read(group, after, EVENTS) == -1)
        return failed("cannot read");
    if (selfcount_stop(group))
        return failed("cannot stop");
    for (int n = 0; n < EVENTS; n++)
        after[n] = selfcount_since(after[n], before[n]);
    printf("page faults: %.0f\n", selfcount_scaled(after[0]));
    printf("calls: %.0f\n", selfcount_scaled(after[1]));
    printf("cpu time: %s\n", selfcount_scaled(after[2]) > 0 ? "some" : "none");
    printf("by: %s\n", selfcount_is_rdpmc(group) ? "rdpmc" : "read()");
    if (selfcount_reset(group) || selfcount_read(group, after, EVENTS) == -1)
        return failed("cannot reset");
    printf("reset: %d\n", (int)(after[0].value + after[0].enabled_ns));
    if (selfcount_read(group, after, 1) == -1)
        printf("no room: %s\n", selfcount_error());
    pthread_t thread;
    if (!pthread_create(&thread, NULL, read_elsewhere, group))
        pthread_join(thread, NULL);
    selfcount_close(group);
    selfcount_close(NULL);
    if (!selfcount_open("cycle", 0))
        printf("unknown: %s\n", selfcount_error());
    return 0;
}
