// Threads whose counts over time are known: intervals [ROUNDS] [THREADS]
// Of THREADS + 1 threads, each of another pace, each does ROUNDS bursts: calls of `hit` and touches of fresh pages, mostly with a nap
// or work in between that counts nothing. A burst's lines `call hits N` and `call pages N` have their number as N, and when it began
// and ended. The last thread makes no mark, and neither do the short ones that the first one starts and waits for, one a burst; of
// the others each burst is an item in `handle`. The lines `call task` have the CPU time of the thread as leave, and how often it left the
// CPU as enter.
#include "truth.h"

#include <sys/mman.h>
#include <sys/resource.h>

static long page;
static uint32_t rounds;
static volatile uint64_t hits;

PROBED void hit(void) { hits++; }

static void burst(uint32_t calls, uint32_t pages, char **fresh) {
  uint64_t enter = truth_now();
  for (uint32_t i = 0; i < calls; i++) hit();
  for (uint32_t i = 0; i < pages; i++) {
    *(volatile char *)*fresh = 1;
    *fresh += page;
  }
  uint64_t leave = truth_now();
  truth_call("hits", calls, enter, leave);
  truth_call("pages", pages, enter, leave);
}

PROBED void handle(struct item *it, char **fresh) {
  burst(it->kind, it->n, fresh);
  __asm__ volatile("" ::: "memory");
}

static char *reserve(size_t pages) {
  size_t size = (size_t)page * pages;
  char *at =
      (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || madvise(at, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    exit(1);
  }
  return at;
}

static void rest(uint32_t of) {
  if (of % 3 == 0) {
    uint64_t until = truth_now() + 3000000;
    while (truth_now() < until) {
    }
  } else if (of % 3 == 1) {
    struct timespec t = {.tv_nsec = 2500000};
    nanosleep(&t, NULL);
  }
}

static void ends(void) {
  struct timespec t;
  struct rusage use;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  getrusage(RUSAGE_THREAD, &use);
  truth_call("task", 0, (uint64_t)(use.ru_nvcsw + use.ru_nivcsw),
             (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec);
}

struct mine {
  uint32_t number;
  int marks;
};

static void *shortly(void *arg) {
  char *fresh = (char *)arg;
  burst(4, 3, &fresh);
  ends();
  return NULL;
}

static void *works(void *arg) {
  struct mine *m = (struct mine *)arg;
  char *fresh = reserve((size_t)rounds * 64), *others = reserve((size_t)rounds * 4);
  for (uint32_t i = 0; i < rounds; i++) {
    struct item it = {.id = m->number * 1000000ull + i, .kind = i % 11, .n = (i + m->number) % 60};
    uint64_t before = truth_now();
    if (m->marks) {
      handle(&it, &fresh);
      truth_item(it.id, before, 0, 0, truth_now());
    } else {
      burst(it.kind, it.n, &fresh);
    }
    if (m->number == 0) {
      pthread_t thread;
      pthread_create(&thread, NULL, shortly, others);
      pthread_join(thread, NULL);
      others += 4 * page;
    }
    rest(i + m->number);
  }
  ends();
  return NULL;
}

int main(int argc, char **argv) {
  rounds = truth_arg(argc, argv, 1, 100);
  uint32_t threads = truth_arg(argc, argv, 2, 2);
  pthread_t all[64];
  struct mine mine[64];
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  if (threads >= 64) threads = 63;
  for (uint32_t i = 0; i <= threads; i++) {
    mine[i] = (struct mine){.number = i, .marks = i < threads};
    pthread_create(&all[i], NULL, works, &mine[i]);
  }
  for (uint32_t i = 0; i <= threads; i++) pthread_join(all[i], NULL);
  truth_write();
  printf("done %u\n", rounds);
  return 0;
}
