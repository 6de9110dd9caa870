// Items with marks, in fibers on threads that steal work: marked [ITEMS] [TURNS] [ROUNDS] [SLOW] [THREADS] [OPEN]
// Each item has its id, from 1, in r13, takes TURNS turns of ROUNDS rounds on whichever of the THREADS takes its fiber from their
// one queue next, and begins with `begin_item` and ends with `end_item`, in its own fiber. OPEN items are open at a time. SLOW of
// them, evenly spread, also rebuild in each turn, which takes nine times as long.
// All code but the C library is built with -ffixed-r13. A line `call usual` or `call slow` has the CPU time of an item as enter, as it
// reads it at the ends of its turns, and as leave, as the threads read it before and after them.
#include "truth.h"

#include <ucontext.h>

#define MOST 4096

register uint64_t current __asm__("r13");

struct fiber {
  ucontext_t context;
  // Of the thread that runs it.
  ucontext_t *home;
  uint64_t id, within_ns, around_ns, before, enter, leave, after;
  uint32_t left;
  int is_slow;
};

static struct fiber fibers[MOST];
static uint32_t count, turns, rounds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fiber *queue[MOST];
static uint32_t first, waiting, open_fibers, next;

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void put(struct fiber *f) {
  queue[(first + waiting++) % MOST] = f;
}

PROBED void begin_item(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

PROBED void end_item(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

PROBED uint64_t crunch(uint64_t seed) { return truth_work(seed, 500); }

PROBED uint64_t rebuild(uint64_t seed) { return truth_work(seed, 4500); }

static void fiber(unsigned low, unsigned high) {
  struct fiber *f = (struct fiber *)((uint64_t)high << 32 | low);
  current = f->id;
  f->before = truth_now();
  begin_item(f->id);
  f->enter = truth_now();
  uint64_t x = f->id;
  for (uint32_t turn = 0; turn < turns; turn++) {
    if (turn) swapcontext(&f->context, f->home);
    uint64_t since = cpu_ns();
    for (uint32_t round = 0; round < rounds; round++) {
      x ^= crunch(x);
      if (f->is_slow) x ^= rebuild(x);
    }
    f->within_ns += cpu_ns() - since;
  }
  f->leave = truth_now();
  end_item(f->id);
  f->after = truth_now();
  for (;;) swapcontext(&f->context, f->home);
}

static void *work(void *unused) {
  ucontext_t home;
  current = 0;
  for (;;) {
    pthread_mutex_lock(&lock);
    struct fiber *f = waiting ? queue[first] : NULL;
    if (f) first = (first + 1) % MOST, waiting--;
    uint32_t left = open_fibers;
    pthread_mutex_unlock(&lock);
    if (!left) return unused;
    if (!f) {
      struct timespec pause = {0, 100000};
      nanosleep(&pause, NULL);
      continue;
    }
    f->home = &home;
    uint64_t since = cpu_ns();
    swapcontext(&home, &f->context);
    current = 0;
    f->around_ns += cpu_ns() - since;
    pthread_mutex_lock(&lock);
    if (--f->left) {
      put(f);
    } else {
      open_fibers--;
      if (next < count) put(&fibers[next++]);
    }
    pthread_mutex_unlock(&lock);
  }
}

int main(int argc, char **argv) {
  current = 0;
  count = truth_arg(argc, argv, 1, 1000);
  turns = truth_arg(argc, argv, 2, 10);
  rounds = truth_arg(argc, argv, 3, 300);
  uint32_t slow = truth_arg(argc, argv, 4, 10), threads = truth_arg(argc, argv, 5, 4);
  uint32_t open = truth_arg(argc, argv, 6, 8);
  if (count < 1 || count > MOST || threads < 1 || threads > 64 || open < 1 || open > count) return 2;
  truth_init();
  open_fibers = count;
  for (uint32_t i = 0; i < count; i++) {
    struct fiber *f = &fibers[i];
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = malloc(64 << 10);
    f->context.uc_stack.ss_size = 64 << 10;
    f->id = i + 1;
    f->left = turns;
    f->is_slow = slow && i % (count / slow) == count / slow / 2;
    makecontext(&f->context, (void (*)(void))fiber, 2, (unsigned)(uint64_t)f, (unsigned)((uint64_t)f >> 32));
  }
  for (next = 0; next < open; next++) put(&fibers[next]);
  pthread_t all[64];
  for (uint32_t t = 0; t < threads; t++) pthread_create(&all[t], NULL, work, NULL);
  for (uint32_t t = 0; t < threads; t++) pthread_join(all[t], NULL);
  for (uint32_t i = 0; i < count; i++) {
    const struct fiber *f = &fibers[i];
    truth_item(f->id, f->before, f->enter, f->leave, f->after);
    truth_call(f->is_slow ? "slow" : "usual", f->id, f->within_ns, f->around_ns);
  }
  truth_write();
  return 0;
}
