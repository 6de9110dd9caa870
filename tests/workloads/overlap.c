// An event loop: items begin and end on one thread, in turn or interleaved: overlap [ITEMS] [WINDOW]
// WINDOW items are open at a time and end in an order of their own; WINDOW 1: one after the other.
// The line `item` has the times around begin_item and around end_item: before and enter around the
// one, leave and after around the other.
#include "truth.h"

struct open_item {
  uint64_t id, before, enter;
};

PROBED void begin_item(uint64_t id) { __asm__ volatile("" ::"r"(truth_work(id, 200))); }

PROBED void step(uint64_t id) { __asm__ volatile("" ::"r"(truth_work(id, 2000))); }

PROBED void end_item(uint64_t id) { __asm__ volatile("" ::"r"(truth_work(id, 200))); }

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 300), window = truth_arg(argc, argv, 2, 3);
  if (window < 1 || window > 16) return 2;
  truth_init();
  struct open_item open[16];
  uint32_t used = 0, next = 1, ended = 0;
  while (ended < items) {
    while (used < window && next <= items) {
      struct open_item o = {.id = 7000000 + next, .before = truth_now(), .enter = 0};
      begin_item(o.id);
      o.enter = truth_now();
      open[used++] = o;
      next++;
    }
    for (uint32_t i = 0; i < used; i++) step(open[i].id);
    uint32_t k = (ended * 7) % used;
    struct open_item o = open[k];
    uint64_t leave = truth_now();
    end_item(o.id);
    truth_item(o.id, o.before, o.enter, leave, truth_now());
    open[k] = open[--used];
    ended++;
  }
  truth_write();
  printf("ended %u\n", ended);
  return 0;
}
