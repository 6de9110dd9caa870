// Items of which every 50th is slow for known reasons: mixed [ITEMS] [REASON]
// Every item works in common(); the slow ones also, by REASON: 0: in rehash(), about 600 us, and sleep in
// flush(), about 400 us; 1: touch 500 new pages in touch_pages(). The item's kind is 1 if it is slow.
#include "truth.h"

#include <sys/mman.h>

#define PAGES 500
static uint64_t checksum;
static char *fresh;
static long page;

PROBED void common(uint64_t id) { checksum ^= truth_work(id, 60000); }

PROBED void rehash(uint64_t id) { checksum ^= truth_work(id, 600000); }

PROBED void flush(void) {
  struct timespec t = {0, 400 * 1000};
  while (nanosleep(&t, &t)) {
  }
}

PROBED void touch_pages(void) {
  for (int i = 0; i < PAGES; i++) {
    *(volatile char *)fresh = 1;
    fresh += page;
  }
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  common(it->id);
  if (it->kind && it->n == 0) {
    uint64_t enter = truth_now();
    rehash(it->id);
    uint64_t between = truth_now();
    flush();
    truth_call("rehash", it->id, enter, between);
    truth_call("flush", it->id, between, truth_now());
  } else if (it->kind) {
    uint64_t enter = truth_now();
    touch_pages();
    truth_call("touch_pages", it->id, enter, truth_now());
  }
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 3000), reason = truth_arg(argc, argv, 2, 0);
  truth_init();
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * PAGES * (items / 50 + 1);
  fresh = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED || madvise(fresh, size, MADV_NOHUGEPAGE)) {
    perror("mmap");
    return 1;
  }
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 50 == 25, .n = reason, .name = "mixed"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
