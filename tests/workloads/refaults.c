// Every item touches 64 unmapped pages and then frees them: refaults [ITEMS]
// Item 0 touches none: it takes the faults of code that runs for the first time.
#include "truth.h"

#include <sys/mman.h>

#define PAGES 64
static char *pages;
static long page;

PROBED void touch_pages(uint32_t n) {
  for (uint32_t i = 0; i < n; i++) *(volatile char *)(pages + i * page) = 1;
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  touch_pages(it->n);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * PAGES;
  pages = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || madvise(pages, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  for (uint32_t i = 0; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = i ? PAGES : 0, .name = "again"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    madvise(pages, size, MADV_DONTNEED);
  }
  truth_write();
  return 0;
}
