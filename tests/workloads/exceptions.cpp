// Every fifth item leaves the probed function by an exception: exceptions [ITEMS]
// The exception comes from a callee, so that it passes through the probed frame.
#include <stdexcept>
#include "truth.h"

namespace shop {

__attribute__((noinline)) void reject(const item *it) {
  if (it->id % 5 == 0) throw std::runtime_error("no such article");
}

PROBED uint64_t handle(item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 1000);
  reject(it);
  x ^= truth_work(x, 1000);
  it->leave_ns = truth_now();
  return x;
}

}  // namespace shop

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 200);
  truth_init();
  uint64_t checksum = 0, caught = 0;
  for (uint32_t i = 1; i <= items; i++) {
    item it{};
    it.id = i;
    uint64_t before = truth_now();
    try {
      checksum ^= shop::handle(&it);
    } catch (const std::runtime_error &) {
      caught++;
    }
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_note("unwound", caught);
  truth_write();
  printf("caught %llu, checksum %016llx\n", (unsigned long long)caught, (unsigned long long)checksum);
  return 0;
}
