// Every item touches a known number of pages for the first time: faults [ITEMS]
// Item i touches 1 + i % 7 pages; its number is in the line `call touch_pages i`, as leave.
// Item 0 touches none: it takes the faults of code that runs for the first time.
#include "truth.h"

#include <sys/mman.h>

static char *fresh;
static long page;

PROBED void touch_pages(uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    *(volatile char *)fresh = 1;
    fresh += page;
  }
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
  size_t size = (size_t)page * 8 * (items + 1);
  fresh = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED || madvise(fresh, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  uint64_t pages = 0;
  for (uint32_t i = 0; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = i ? 1 + i % 7 : 0, .name = "touch"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    truth_call("touch_pages", i, 0, it.n);
    pages += it.n;
  }
  truth_write();
  printf("pages %llu\n", (unsigned long long)pages);
  return 0;
}
