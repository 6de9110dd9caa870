// Items that work, sleep a known time, and work again: sleeper [ITEMS]
// Item i sleeps 1 + i % 3 ms, except every fifth, which does not sleep at all.
#include "truth.h"

PROBED void nap(uint32_t ms) {
  struct timespec t = {0, (long)ms * 1000000};
  while (nanosleep(&t, &t)) {
  }
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  truth_spin(200 * 1000);
  if (it->n) {
    uint64_t enter = truth_now();
    nap(it->n);
    truth_call("nap", it->id, enter, truth_now());
  }
  truth_spin(200 * 1000);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  truth_init();
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = i % 5 ? 1 + i % 3 : 0, .name = "sleep"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  return 0;
}
