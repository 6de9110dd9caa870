// Items in which a known number of things happen: counted [ITEMS] [HOW]
// Each item calls `hit`, touches fresh pages, sleeps and moves between CPUs, all of them a number of times that the lines
// `call hits ITEM`, `pages`, `moves` and `naps` have as leave. The lines `call cpu` and `call switches` have what the thread said
// of itself within the item as enter and around it as leave: its CPU time in ns, and how often it left the CPU.
// HOW 0: one after the other; every fourth has an item 1000000 + ITEM within it, in `inner`. 1: an event loop, with three requests
// open at a time, that go on in `go_on`, and with work of the loop's own in between. 2: begun by one thread, ended by
// another. 3: as 0, with a call of `inner` that is left by longjmp. 4: batches of 0 to 5 items, which `serve` serves together.
// Meanwhile another thread calls `hit` and touches pages all the time, and main does between items: none of it is an item's.
#include "truth.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>

static char *fresh;
static long page;
static int cpus[2], at, found;
static volatile int stop;
static volatile uint64_t hits;
static jmp_buf out;

PROBED void hit(void) { hits++; }

struct own {
  uint64_t cpu, switches;
};

static struct own own(void) {
  struct timespec t;
  struct rusage use;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  getrusage(RUSAGE_THREAD, &use);
  return (struct own){(uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec,
                      (uint64_t)(use.ru_nvcsw + use.ru_nivcsw)};
}

static void nap(void) {
  struct timespec t = {.tv_nsec = 200000};
  nanosleep(&t, NULL);
}

static void touch(void) {
  *(volatile char *)fresh = 1;
  fresh += page;
}

struct work {
  uint64_t id;
  uint32_t hits, pages, naps, moves;
  int throws;
  struct own enter, leave;
};

static void act(struct work *w) {
  for (uint32_t i = 0; i < w->hits; i++) hit();
  for (uint32_t i = 0; i < w->pages; i++) touch();
  for (uint32_t i = 0; i < w->naps; i++) nap();
  for (uint32_t i = 0; i < w->moves; i++) truth_pin_to(cpus[at = !at]);
  for (uint32_t i = 0; i < w->hits; i++) hit();
}

PROBED void inner(struct work *w) {
  w->enter = own();
  act(w);
  w->leave = own();
  if (w->throws) longjmp(out, 1);
}

PROBED void handle(struct work *w, struct work *within) {
  w->enter = own();
  act(w);
  if (within && !setjmp(out)) inner(within);
  w->leave = own();
}

static struct work work(uint64_t id) {
  return (struct work){.id = id,
                       .hits = id % 7,
                       .pages = id % 5,
                       .naps = id % 3,
                       .moves = found > 1 ? id % 2 : 0};
}

static void say(const struct work *w, uint32_t rounds, struct own before, struct own after) {
  truth_call("hits", w->id, 0, 2ull * w->hits * rounds);
  truth_call("pages", w->id, 0, w->pages * rounds);
  truth_call("naps", w->id, 0, w->naps * rounds);
  truth_call("moves", w->id, 0, w->moves * rounds);
  truth_call("cpu", w->id, w->leave.cpu - w->enter.cpu, after.cpu - before.cpu);
  truth_call("switches", w->id, w->leave.switches - w->enter.switches,
             after.switches - before.switches);
}

static void between(void) {
  hit();
  touch();
  hit();
}

static void *others(void *unused) {
  volatile char *mine = (char *)mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  while (!stop) {
    for (int i = 0; i < 50; i++) hit();
    mine[0] = 1;
    madvise((void *)mine, (size_t)page, MADV_DONTNEED);
    nap();
  }
  return unused;
}

static void calls(uint32_t items, int throws) {
  for (uint32_t i = 0; i < items; i++) {
    struct work w = work(i), within = work(1000000 + i);
    int nests = i % 4 == 3;
    within.throws = throws;
    within.moves = 0;
    struct own before = own();
    uint64_t start = truth_now();
    handle(&w, nests ? &within : NULL);
    uint64_t end = truth_now();
    struct own after = own();
    truth_item(w.id, start, 0, 0, end);
    say(&w, 1, before, after);
    if (nests) say(&within, 1, before, after);
    between();
  }
}

PROBED void begin_item(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

PROBED void end_item(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

// No jump to `act`, which would be probed then.
PROBED void go_on(struct work *w) {
  act(w);
  __asm__ volatile("" ::: "memory");
}

static void loop(uint32_t items) {
  enum { OPEN = 3, ROUNDS = 4 };
  for (uint32_t first = 0; first < items; first += OPEN) {
    struct work open[OPEN];
    uint64_t before[OPEN], after[OPEN];
    for (int i = 0; i < OPEN; i++) {
      open[i] = work(first + (uint32_t)i);
      before[i] = truth_now();
      begin_item(open[i].id);
      after[i] = truth_now();
    }
    for (int round = 0; round < ROUNDS; round++)
      for (int i = 0; i < OPEN; i++) {
        go_on(&open[i]);
        between();
      }
    for (int i = 0; i < OPEN; i++) {
      uint64_t leave = truth_now();
      end_item(open[i].id);
      truth_item(open[i].id, before[i], after[i], leave, truth_now());
      say(&open[i], ROUNDS, (struct own){0, 0}, (struct own){0, 0});
    }
  }
}

PROBED void serve(struct work *w, const uint64_t *ids, uint64_t n) {
  act(w);
  __asm__ volatile("" ::"r"(ids), "r"(n) : "memory");
}

// Batches are numbered from 1.
static void batches(uint32_t number) {
  for (uint32_t i = 1; i <= number; i++) {
    struct work w = work(i);
    uint64_t ids[5] = {10 * i, 10 * i + 1, 10 * i + 2, 10 * i + 3, 10 * i + 4};
    uint64_t before = truth_now();
    serve(&w, ids, i % 6);
    truth_item(i, before, 0, 0, truth_now());
    say(&w, 1, (struct own){0, 0}, (struct own){0, 0});
    between();
  }
}

struct ended {
  uint64_t id;
  pthread_barrier_t *both;
};

static void *ender(void *arg) {
  struct ended *e = (struct ended *)arg;
  for (;;) {
    pthread_barrier_wait(e->both);
    if (e->id == UINT64_MAX) return NULL;
    end_item(e->id);
    pthread_barrier_wait(e->both);
  }
}

// The thread that began an item waits while another ends it; or of odd ones goes on.
static void handed_over(uint32_t items) {
  pthread_barrier_t both;
  pthread_t thread;
  pthread_barrier_init(&both, NULL, 2);
  struct ended e = {.both = &both};
  pthread_create(&thread, NULL, ender, &e);
  for (uint32_t i = 0; i < items; i++) {
    struct work w = work(i);
    e.id = i;
    uint64_t before = truth_now();
    begin_item(i);
    uint64_t enter = truth_now();
    act(&w);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    truth_item(i, before, enter, 0, truth_now());
    say(&w, 1, (struct own){0, 0}, (struct own){0, 0});
    between();
  }
  e.id = UINT64_MAX;
  pthread_barrier_wait(&both);
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100), how = truth_arg(argc, argv, 2, 0);
  cpu_set_t all;
  pthread_t other;
  sched_getaffinity(0, sizeof all, &all);
  for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
    if (CPU_ISSET(i, &all)) cpus[found++] = i;
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * 40 * (items + 4);
  fresh = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED || madvise(fresh, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  pthread_create(&other, NULL, others, NULL);
  truth_pin_to(cpus[at]);
  // Code that runs for the first time causes page faults of its own.
  struct work once = {.hits = 1, .pages = 1, .naps = 1, .moves = found > 1 ? 2 : 0};
  act(&once);
  own();
  switch (how) {
    case 1: loop(items); break;
    case 2: handed_over(items); break;
    case 4: batches(items); break;
    default: calls(items, how == 3); break;
  }
  stop = 1;
  pthread_join(other, NULL);
  truth_write();
  printf("done %u\n", items);
  return 0;
}
