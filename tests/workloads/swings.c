// A load that swings tenfold: swings [PHASES] [PHASE_MS] [STEPS] [PAGES]
// In every other phase an item does ten times the STEPS, most of them in `odd`, and touches PAGES unmapped pages; in the
// first one and those after them it does STEPS, most of them in `even`, and touches a page in 100 / PAGES items. The log
// has the items, the steps of both functions, the pages, and the thread's CPU time. A step takes the same time everywhere.
#include "truth.h"

#include <sys/mman.h>

static volatile uint64_t sink;
static uint64_t steps[2], touched;
static char *pages;
static long page;

static inline void work(uint64_t n) {
  uint64_t value = n | 1;
  for (; n; n--) __asm__ volatile("imul %0, %0" : "+r"(value));
  sink = value;
}

PROBED void even(uint64_t n) {
  steps[0] += n;
  work(n);
}

PROBED void odd(uint64_t n) {
  steps[1] += n;
  work(n);
}

PROBED void touch_pages(uint32_t n) {
  touched += n;
  for (uint32_t i = 0; i < n; i++) *(volatile char *)(pages + i * page) = 1;
}

PROBED int handle(struct item *it, uint32_t fresh) {
  uint64_t part = it->n / 5;
  if (fresh) touch_pages(fresh);
  even(it->kind ? part : 4 * part);
  odd(it->kind ? 4 * part : part);
  return (int)(it->id & 1);
}

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
  uint32_t phases = truth_arg(argc, argv, 1, 10);
  uint64_t phase_ns = 1000000ull * truth_arg(argc, argv, 2, 300);
  uint32_t few = truth_arg(argc, argv, 3, 30000);
  uint32_t most = truth_arg(argc, argv, 4, 0);
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * (most + 1);
  pages = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || madvise(pages, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  uint64_t items = 0, due = 0, began = cpu_ns();
  long sum = 0;
  for (uint32_t phase = 0; phase < phases; phase++) {
    uint32_t heavy = phase & 1;
    uint64_t until = truth_now() + phase_ns;
    while (truth_now() < until) {
      struct item it = {.id = ++items, .kind = heavy, .n = heavy ? 10 * few : few};
      due += heavy ? 100ull * most : most;
      uint32_t fresh = (uint32_t)(due / 100);
      due %= 100;
      sum += handle(&it, fresh);
      if (fresh) madvise(pages, size, MADV_DONTNEED);
    }
  }
  truth_note("items", items);
  truth_note("even", steps[0]);
  truth_note("odd", steps[1]);
  truth_note("pages", touched);
  truth_note("cpu_ns", cpu_ns() - began);
  truth_write();
  fprintf(stderr, "handled %llu items, sum %ld\n", (unsigned long long)items, sum);
  return 0;
}
