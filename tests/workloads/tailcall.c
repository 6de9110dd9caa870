// A probed function that ends in a jump to another one: tailcall [ITEMS]
// Odd items leave by the tail jump, even ones by a return of its own.
#include "truth.h"

PROBED uint64_t finish(struct item *it) {
  uint64_t x = truth_work(it->id, 2000);
  it->leave_ns = truth_now();
  return x;
}

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  if (it->id % 2) return finish(it);
  return it->id;
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 500);
  truth_init();
  uint64_t checksum = 0;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = 0, .name = "tail"};
    uint64_t before = truth_now();
    checksum ^= handle(&it);
    // The code after the jump is no longer the probed function.
    truth_item(it.id, before, it.enter_ns, 0, truth_now());
  }
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
