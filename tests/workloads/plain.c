// Items one after the other on one thread: plain [ITEMS] [EXIT_CODE] [PART]
// With PART, says "handled N items" after each so many but the last, and waits for a line on stdin.
// Also built stripped, as a static PIE, without debug information, and setuid.
#include "truth.h"

static uint64_t checksum;

PROBED int handle(struct item *it) {
  it->enter_ns = truth_now();
  checksum ^= truth_work(it->id, 500 + it->n * 100);
  it->leave_ns = truth_now();
  return (int)(it->id % 7);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 1000);
  uint32_t part = truth_arg(argc, argv, 3, 0);
  truth_init();
  static const char *names[] = {"get", "set", "del"};
  long sum = 0;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = 1000000 + i, .kind = i % 3, .n = i % 10, .name = names[i % 3]};
    uint64_t before = truth_now();
    sum += handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    if (part && i % part == 0 && i < items) {
      char line[16];
      fprintf(stderr, "handled %u items\n", i);
      if (!fgets(line, sizeof line, stdin)) return 98;
    }
  }
  truth_write();
  printf("handled %u items, sum %ld, checksum %016llx\n", items, sum, (unsigned long long)checksum);
  return (int)truth_arg(argc, argv, 2, 0);
}
