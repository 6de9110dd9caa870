// Items that come as regularly as samples might: regular [ITEMS] [ROUNDS] [LENGTHS] [TIMER_US] [EVERY] [EXTRA] [GAP]
// Each item calls three functions that do the same step 9, 7 and 4 x ROUNDS times, so their shares of the time are those
// of the steps. Lengths: an item has 1, 2, .. LENGTHS times the steps, in turn. With TIMER_US items begin when the
// clock passes the next multiple of it, which they wait for by looking. Every EVERY-th item does EXTRA x ROUNDS more steps
// in `seven` (0: none does). Between items are GAP steps (0: 2 x ROUNDS). The log has the steps of each function, and what
// a step takes, in femtoseconds: by the first steps of each gap, the median and the first quarter of those that nothing
// interrupted; and by the thread's CPU time, the mean of all steps.
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

static uint64_t extra;

PROBED int handle(struct item *it) {
  nine(9ull * it->n);
  seven(7ull * it->n + it->kind * extra);
  four(4ull * it->n);
  return (int)(it->id & 1);
}

// Steps that are timed: so few that a sample is among them rarely, so many that the clock's error does not matter.
#define TIMED 6000u

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// What reading the clock takes: the least of many.
static uint64_t reading_ns(void) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 1000; i++) {
    uint64_t begin = truth_now(), took = truth_now() - begin;
    if (took < least) least = took;
  }
  return least;
}

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 20000);
  uint32_t rounds = truth_arg(argc, argv, 2, 1000);
  uint32_t lengths = truth_arg(argc, argv, 3, 1);
  uint64_t timer_ns = 1000ull * truth_arg(argc, argv, 4, 0);
  uint32_t every = truth_arg(argc, argv, 5, 0);
  extra = (uint64_t)truth_arg(argc, argv, 6, 0) * rounds;
  uint64_t gap = truth_arg(argc, argv, 7, 0);
  if (!gap) gap = 2ull * rounds;
  uint64_t timed = gap < TIMED ? gap : TIMED;
  uint32_t *gaps_ns = calloc(items ? items : 1, sizeof *gaps_ns);
  if (!gaps_ns) return 99;
  truth_init();
  uint64_t reading = reading_ns();
  long sum = 0;
  uint64_t cpu_begin = cpu_ns();
  for (uint32_t i = 0; i < items; i++) {
    struct item it = {.id = i + 1, .kind = every && i % every == every - 1, .n = rounds * (1 + i % lengths)};
    if (timer_ns) {
      uint64_t next = (truth_now() / timer_ns + 1) * timer_ns;
      while (truth_now() < next)
        ;
    }
    sum += handle(&it);
    uint64_t begin = truth_now();
    work(timed);
    gaps_ns[i] = (uint32_t)(truth_now() - begin - reading);
    work(gap - timed);
  }
  truth_note("nine", steps[0]);
  truth_note("seven", steps[1]);
  truth_note("four", steps[2]);
  uint64_t all = steps[0] + steps[1] + steps[2] + gap * items;
  if (items) {
    truth_note("mean_fs", (cpu_ns() - cpu_begin) * 1000000ull / all);
    qsort(gaps_ns, items, sizeof *gaps_ns, by_size);
    // An interrupt takes a microsecond or more.
    uint32_t whole = 0;
    while (whole < items && gaps_ns[whole] < gaps_ns[items / 10] * 13ull / 10) whole++;
    truth_note("step_low_fs", gaps_ns[whole / 4] * 1000000ull / timed);
    truth_note("step_fs", gaps_ns[whole / 2] * 1000000ull / timed);
  }
  truth_write();
  printf("handled %u items, sum %ld\n", items, sum);
  return 0;
}
