// Items that call a function a known number of times: breakpoint [ITEMS] [CALLS_PER_ITEM]
#include "truth.h"

static uint64_t counter;

PROBED void hit(uint64_t n) {
  counter += n;
  __asm__ volatile("" ::: "memory");
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  for (uint32_t i = 0; i < it->n; i++) hit(i);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 10), calls = truth_arg(argc, argv, 2, 100);
  truth_init();
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = calls, .name = "hit"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_note("calls", (uint64_t)items * calls);
  truth_write();
  printf("counter %llu\n", (unsigned long long)counter);
  return 0;
}
