// Items that come as regularly as samples might: regular [ITEMS] [ROUNDS] [LENGTHS] [TIMER_US]
// Each item calls three functions that do the same step 9, 7 and 4 x ROUNDS times, so their shares of the time are those
// of the steps. Lengths: an item has 1, 2, .. LENGTHS times the steps, in turn. With TIMER_US items begin when the
// clock passes the next multiple of it, which they wait for by looking. The log has the steps of each function.
#include "truth.h"

static volatile uint64_t sink;
static uint64_t steps[3];

// A step is a multiplication that waits for the one before: wherever the loop stands in memory, it takes the same time.
static inline void work(uint64_t n) {
  uint64_t value = n | 1;
  for (; n; n--) __asm__ volatile("imul %0, %0" : "+r"(value));
  sink = value;
}

#define PART(name, part)           \
  PROBED void name(uint64_t n) {   \
    steps[part] += n;              \
    work(n);                       \
  }
PART(nine, 0)
PART(seven, 1)
PART(four, 2)

PROBED int handle(struct item *it) {
  nine(9ull * it->n);
  seven(7ull * it->n);
  four(4ull * it->n);
  return (int)(it->id & 1);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 20000);
  uint32_t rounds = truth_arg(argc, argv, 2, 1000);
  uint32_t lengths = truth_arg(argc, argv, 3, 1);
  uint64_t timer_ns = 1000ull * truth_arg(argc, argv, 4, 0);
  truth_init();
  long sum = 0;
  for (uint32_t i = 0; i < items; i++) {
    struct item it = {.id = i + 1, .n = rounds * (1 + i % lengths)};
    if (timer_ns) {
      uint64_t next = (truth_now() / timer_ns + 1) * timer_ns;
      while (truth_now() < next)
        ;
    }
    sum += handle(&it);
    work(2 * rounds);
  }
  truth_note("nine", steps[0]);
  truth_note("seven", steps[1]);
  truth_note("four", steps[2]);
  truth_write();
  printf("handled %u items, sum %ld\n", items, sum);
  return 0;
}
