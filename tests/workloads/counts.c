// Items that touch a known number of fresh pages and move between CPUs a known number of times:
// counts [ITEMS]
// Item i moves i % 3 times, between two CPUs, and touches a page after each move and i % 7 before. The
// lines `call touch i` and `call move i` have the pages and moves as leave. Item 0 does nothing: it takes the faults of code that
// runs for the first time. With one CPU nothing moves.
#include "truth.h"

#include <sys/mman.h>

static char *fresh;
static long page;
static int cpus[2], at;

static void touch(void) {
  *(volatile char *)fresh = 1;
  fresh += page;
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  for (uint32_t i = 0; i < it->n; i++) touch();
  for (uint32_t i = 0; i < it->kind; i++) {
    truth_pin_to(cpus[at = !at]);
    touch();
  }
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  cpu_set_t all;
  int found = 0;
  sched_getaffinity(0, sizeof all, &all);
  for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
    if (CPU_ISSET(i, &all)) cpus[found++] = i;
  truth_init();
  truth_pin_to(cpus[at]);
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * 9 * (items + 1);
  fresh = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED || madvise(fresh, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  for (uint32_t i = 0; i <= items; i++) {
    struct item it = {.id = i, .kind = found > 1 ? i % 3 : 0, .n = i % 7, .name = "counts"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    truth_call("touch", i, 0, it.n + it.kind);
    truth_call("move", i, 0, it.kind);
  }
  truth_write();
  return 0;
}
