// A probed function that calls itself and another probed function: recursion [ITEMS]
// Item i recurses i % 5 deep: 1 + i % 5 visits of `outer`, and at the bottom one of `inner`.
// `outer` of every depth carries the same item.
#include "truth.h"

PROBED uint64_t inner(struct item *it) { return truth_work(it->id, 2000); }

PROBED uint64_t outer(struct item *it, uint32_t depth) {
  uint64_t enter = truth_now();
  uint64_t x = truth_work(depth, 500);
  x ^= depth ? outer(it, depth - 1) : inner(it);
  x ^= truth_work(x, 500);
  truth_call("outer", it->id, enter, truth_now());
  return x;
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  truth_init();
  uint64_t checksum = 0;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = i % 5, .name = "deep"};
    uint64_t before = truth_now();
    checksum ^= outer(&it, i % 5);
    truth_item(it.id, before, 0, 0, truth_now());
  }
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
