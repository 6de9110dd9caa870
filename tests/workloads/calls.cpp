// As calls.c, with methods: calls_cpp [ITEMS]
// Every item runs handle > shop::Cart::total > shop::Cart::price > leaf, for 1 ms.
#include "truth.h"

static volatile uint64_t sink;

PROBED void leaf(uint32_t rounds) {
#ifdef FRAMES
  // Else GCC omits the frame pointer in a function without calls, whatever the options.
  __asm__ volatile("" ::"r"(__builtin_frame_address(0)));
#endif
  sink = sink + truth_work(sink, rounds);
  __asm__ volatile("" ::: "memory");
}

namespace shop {

struct Cart {
  uint32_t rounds;
  PROBED void price() {
    leaf(rounds);
    __asm__ volatile("" ::: "memory");
  }
  PROBED void total() {
    price();
    __asm__ volatile("" ::: "memory");
  }
};

}  // namespace shop

extern "C" PROBED void handle(item *it) {
  it->enter_ns = truth_now();
  shop::Cart cart{1000 * 1000};
  cart.total();
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 50);
  truth_init();
  for (uint32_t i = 1; i <= items; i++) {
    item it{};
    it.id = i;
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  return 0;
}
