// Even items move to another CPU in the middle, odd ones stay: migrate [ITEMS]
// Prints "skip" and exits 77 where there is only one CPU.
#include "truth.h"

static void burn(void) { truth_spin(100 * 1000); }

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  burn();
  if (it->id % 2 == 0) truth_pin_to((int)it->n);
  burn();
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  if (CPU_COUNT(&all) < 2) {
    printf("skip\n");
    return 77;
  }
  int cpu[2], found = 0;
  for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
    if (CPU_ISSET(i, &all)) cpu[found++] = i;
  truth_init();
  int at = 0;
  truth_pin_to(cpu[at]);
  for (uint32_t i = 1; i <= items; i++) {
    // n is the CPU on which the item ends.
    int to = i % 2 == 0 ? !at : at;
    struct item it = {.id = i, .kind = (uint32_t)cpu[at], .n = (uint32_t)cpu[to], .name = "move"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    at = to;
  }
  truth_write();
  return 0;
}
