// Two threads that share a cache line, or don't: lines [ITEMS] [ROUNDS] [SHARE] [LAYOUT]
//
// Each item of either thread adds ROUNDS times to a counter: SHARE percent of the times to one where the threads may meet,
// else to the thread's own, which has a line to itself. LAYOUT: 0 the threads meet in one counter (true sharing), 1 in two
// counters on one line (false sharing), 2 nowhere (each counter has a line).
//
// The truth: notes `left_meets`, `left_alone`, `right_meets` and `right_alone`, the additions of each function to each
// kind of counter. Source of the experiment: Sasongko et al. 2023, section V (Write-Volume).
#include "truth.h"

#define LINE 64
#define ALONE __attribute__((aligned(LINE)))

static struct {
  uint64_t left, right;
  char rest[LINE - 16];
} pair ALONE;

static struct {
  uint64_t left;
  char rest[LINE - 8];
  uint64_t right;
  char end[LINE - 8];
} padded ALONE;

static struct {
  uint64_t count;
  char rest[LINE - 8];
} left_own ALONE, right_own ALONE;

static uint32_t items, rounds, share, layout;
static pthread_barrier_t start;
static uint64_t made[4];

static inline void add(uint64_t *counter) {
  __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

// Whether addition n is one where the threads may meet: `share` of each hundred, evenly spread.
static inline int meets(uint64_t n) { return (n + 1) * share / 100 > n * share / 100; }

PROBED void left(uint64_t *shared, uint64_t n) { add(meets(n) ? shared : &left_own.count); }

PROBED void right(uint64_t *shared, uint64_t n) { add(meets(n) ? shared : &right_own.count); }

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t *lefts[] = {&pair.left, &pair.left, &padded.left};
  uint64_t *rights[] = {&pair.left, &pair.right, &padded.right};
  for (uint32_t i = 0; i < it->n; i++) {
    uint64_t n = (it->id / 2) * (uint64_t)it->n + i;
    if (it->kind)
      right(rights[layout], n);
    else
      left(lefts[layout], n);
    __atomic_fetch_add(&made[2 * it->kind + !meets(n)], 1, __ATOMIC_RELAXED);
  }
  it->leave_ns = truth_now();
}

// Items of the left thread have even ids, those of the right odd ones.
static void *thread(void *argument) {
  uint32_t kind = (uint32_t)(uintptr_t)argument;
  truth_pin((int)kind);
  pthread_barrier_wait(&start);
  for (uint64_t i = 0; i < items; i++) {
    struct item it = {.id = 2 * i + kind, .kind = kind, .n = rounds, .name = kind ? "right" : "left"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  return NULL;
}

int main(int argc, char **argv) {
  items = truth_arg(argc, argv, 1, 50), rounds = truth_arg(argc, argv, 2, 100);
  share = truth_arg(argc, argv, 3, 50), layout = truth_arg(argc, argv, 4, 1);
  if (layout > 2 || share > 100) return 2;
  truth_init();
  pthread_barrier_init(&start, NULL, 2);
  pthread_t threads[2];
  for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  truth_note("left_meets", made[0]);
  truth_note("left_alone", made[1]);
  truth_note("right_meets", made[2]);
  truth_note("right_alone", made[3]);
  truth_write();
  uint64_t all = pair.left + pair.right + padded.left + padded.right + left_own.count + right_own.count;
  printf("added %llu\n", (unsigned long long)all);
  return 0;
}
