// Calls a function of a shared library of its own: shared_lib [ITEMS]
#include "truth.h"

uint64_t lib_handle(struct item *it);

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 500);
  truth_init();
  uint64_t checksum = 0;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 2, .n = i, .name = "lib"};
    uint64_t before = truth_now();
    checksum ^= lib_handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
