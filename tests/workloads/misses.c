// Functions that take time, cause page faults, or both, a known number of each: misses [ITEMS]
// Every item spends 60 us in `compute`, without a fault; works and touches fresh pages in `lookup`; touches fresh pages in
// `touch`, which takes next to no time of its own; and calls `hit`, which does nothing. Every 20th item is slow: `lookup` works
// 10 ms rather than 40 us, and touches 100 pages rather than 2.
// The lines `call lookup ITEM`, `call touch ITEM` and `call hit ITEM` have the pages and the calls as leave.
// Item 0 is done once before, outside of `handle`: it takes the faults of code that runs for the first time.
#include "truth.h"

#include <sys/mman.h>

enum { PAGES = 110 };

static char *arena, *fresh;
static long page;
static volatile uint64_t hits;

struct work {
  uint64_t id;
  uint32_t spin_ns, lookup, touch, hits;
};

PROBED void hit(void) { hits++; }

PROBED void compute(void) { truth_spin_own(60000); }

static inline __attribute__((always_inline)) void touch_pages(uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    *(volatile char *)fresh = 1;
    fresh += page;
  }
}

PROBED void lookup(struct work *w) {
  uint64_t x = w->id;
  // In this function itself, and not in the kernel's clock.
  for (uint32_t i = 0; i < w->spin_ns / 1000; i++) x = truth_work(x, 800);
  touch_pages(w->lookup);
  __asm__ volatile("" ::"r"(x));
}

PROBED void touch(struct work *w) { touch_pages(w->touch); }

PROBED void handle(struct work *w) {
  compute();
  lookup(w);
  touch(w);
  for (uint32_t i = 0; i < w->hits; i++) hit();
}

static struct work work(uint64_t id) {
  int is_slow = id % 20 == 10;
  return (struct work){.id = id,
                       .spin_ns = is_slow ? 10000000 : 40000,
                       .lookup = is_slow ? 100 : 2,
                       .touch = is_slow ? 5 : 3,
                       .hits = id % 3};
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 400);
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * PAGES;
  arena = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (arena == MAP_FAILED || madvise(arena, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  fresh = arena;
  struct work once = {.spin_ns = 1000, .lookup = 1, .touch = 1, .hits = 1};
  compute();
  lookup(&once);
  touch(&once);
  hit();
  for (uint32_t i = 1; i <= items; i++) {
    struct work w = work(i);
    // All pages are fresh again.
    if (madvise(arena, size, MADV_DONTNEED)) {
      perror("madvise");
      return 1;
    }
    fresh = arena;
    uint64_t before = truth_now();
    handle(&w);
    truth_item(w.id, before, 0, 0, truth_now());
    truth_call("lookup", w.id, 0, w.lookup);
    truth_call("touch", w.id, 0, w.touch);
    truth_call("hit", w.id, 0, w.hits);
  }
  truth_write();
  printf("done %u\n", items);
  return 0;
}
