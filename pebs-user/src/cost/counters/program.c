/* What it costs a program of its own to start, read and stop counters, when it calls the C library for the first time.
 *
 *     program read|syscall TYPE CONFIG [CONFIG..]
 *
 * Opens a group of these events, starts it, reads it ten times, stops it, and prints the ticks that each call took.
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { READS = 10, MOST_EVENTS = 8, CALLS = READS + 2 };

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
#endif
}

/* A system call in line, without the C library. */
static inline long call(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c);
#endif
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc - 3 > MOST_EVENTS)
        return 2;
    int is_read = !strcmp(argv[1], "read");
    int leader = -1;
    for (int n = 3; n < argc; n++) {
        struct perf_event_attr attr;
        memset(&attr, 0, sizeof attr);
        attr.size = sizeof attr;
        attr.type = strtoul(argv[2], NULL, 10);
        attr.config = strtoull(argv[n], NULL, 10);
        attr.disabled = leader == -1;
        attr.exclude_kernel = 1;
        attr.exclude_hv = 1;
        attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_ID;
        long fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
        if (fd < 0)
            return 1;
        if (leader == -1)
            leader = fd;
    }
    static uint64_t counts[3 + 2 * MOST_EVENTS];
    uint64_t at[CALLS + 1];
    long failed = 0;
    if (is_read) {
        at[0] = ticks();
        failed |= ioctl(leader, PERF_EVENT_IOC_ENABLE, 0) < 0;
        at[1] = ticks();
        for (int n = 0; n < READS; n++) {
            failed |= read(leader, counts, sizeof counts) <= 0;
            at[n + 2] = ticks();
        }
        failed |= ioctl(leader, PERF_EVENT_IOC_DISABLE, 0) < 0;
        at[CALLS] = ticks();
    } else {
        at[0] = ticks();
        failed |= call(SYS_ioctl, leader, PERF_EVENT_IOC_ENABLE, 0) < 0;
        at[1] = ticks();
        for (int n = 0; n < READS; n++) {
            failed |= call(SYS_read, leader, (long)counts, sizeof counts) <= 0;
            at[n + 2] = ticks();
        }
        failed |= call(SYS_ioctl, leader, PERF_EVENT_IOC_DISABLE, 0) < 0;
        at[CALLS] = ticks();
    }
    if (failed)
        return 1;
    for (int n = 0; n < CALLS; n++)
        printf("%llu ", (unsigned long long)(at[n + 1] - at[n]));
    return 0;
}
