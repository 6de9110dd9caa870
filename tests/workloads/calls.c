// Items that work at the end of a chain of calls: calls [ITEMS]
// Every item runs handle > a > b > leaf, for 1 ms; every fourth one also handle > c > leaf. Also built with c inlined.
#include "truth.h"

static volatile uint64_t sink;

// Long between its first and its last instruction.
PROBED void leaf(uint32_t rounds) {
#ifdef FRAMES
  // Else GCC omits the frame pointer in a function without calls, whatever the options.
  __asm__ volatile("" ::"r"(__builtin_frame_address(0)));
#endif
  sink += truth_work(sink, rounds);
  __asm__ volatile("" ::: "memory");
}

// The statement after each call keeps it from becoming a jump.
PROBED void b(uint32_t rounds) {
  leaf(rounds);
  __asm__ volatile("" ::: "memory");
}

PROBED void a(uint32_t rounds) {
  b(rounds);
  __asm__ volatile("" ::: "memory");
}

#ifdef INLINED
static inline __attribute__((always_inline)) void c(uint32_t rounds) {
#else
PROBED void c(uint32_t rounds) {
#endif
  leaf(rounds);
  __asm__ volatile("" ::: "memory");
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  a(1000 * 1000);
  if (it->n) c(1000 * 1000);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 50);
  truth_init();
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = i % 4 == 0, .name = "calls"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  return 0;
}
