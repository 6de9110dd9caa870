// Stacks that are hard to unwind: unwinding [ITEMS [THREADS]]
//
// Each item runs one shape of stack, by its number, for about 200 us in `work`; shapes and the callers of `work` up to
// `handle` are in SHAPES below and in the test. Built without frame pointers.
#include "truth.h"

#include <csignal>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

static thread_local volatile uint64_t sink;

extern "C" PROBED void work(uint32_t rounds) {
  sink = sink + truth_work(sink, rounds);
  __asm__ volatile("" ::: "memory");
}

#define KEEP __asm__ volatile("" ::: "memory")
static const uint32_t ROUNDS = 200 * 1000;

// Virtual calls.
struct shape {
  virtual ~shape() {}
  virtual void draw() = 0;
};
struct circle : shape {
  void draw() override;
};
PROBED void circle::draw() {
  work(ROUNDS);
  KEEP;
}
extern "C" PROBED void by_virtual() {
  std::unique_ptr<shape> it(new circle);
  it->draw();
  KEEP;
}

// An exception: work is done while it is thrown below, and in its handler.
extern "C" PROBED void thrower(int n) {
  if (n > 0) throw std::runtime_error("no");
  KEEP;
}
extern "C" PROBED void by_exception() {
  try {
    thrower(sink != 1);
  } catch (const std::exception &) {
    work(ROUNDS);
    KEEP;
  }
  KEEP;
}

// A callback from the C library, through its stub.
extern "C" PROBED int compare(const void *a, const void *b) {
  work(ROUNDS / 8);
  int x = *(const int *)a, y = *(const int *)b;
  KEEP;
  return (x > y) - (x < y);
}
extern "C" PROBED void by_callback() {
  int numbers[4] = {4, 3, 2, 1};
  qsort(numbers, 4, sizeof *numbers, compare);
  KEEP;
}

// A frame of variable size.
extern "C" PROBED void by_alloca(uint32_t n) {
  volatile char *room = (volatile char *)__builtin_alloca(64 + n % 7 * 32);
  room[n % 64] = 1;
  work(ROUNDS);
  KEEP;
}

// A realigned stack.
extern "C" PROBED void by_alignment(uint32_t n) {
  alignas(128) volatile uint64_t room[16];
  room[n % 16] = n;
  work(ROUNDS + (uint32_t)(room[n % 16] - n));
  KEEP;
}

// A tail call: the caller of `work` is the caller of `by_tail`.
extern "C" PROBED void by_tail(uint32_t n) { work(ROUNDS + n % 2); }

// A signal handler, on the thread's stack.
extern "C" PROBED void on_signal(int) {
  work(ROUNDS);
  KEEP;
}
extern "C" PROBED void by_signal() {
  raise(SIGUSR1);
  KEEP;
}

// Recursion with large frames: more than is copied by default for the deepest.
extern "C" PROBED void by_depth(uint32_t depth) {
  volatile char room[160];
  room[depth % 160] = 1;
  if (depth == 0)
    work(ROUNDS);
  else
    by_depth(depth - 1);
  KEEP;
}

// Assembly with a table, that pushes and pops around the call.
extern "C" void by_assembly(uint32_t n);
__asm__(".text\n.globl by_assembly\n.type by_assembly, @function\nby_assembly:\n.cfi_startproc\n"
        "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbx, 0\n"
        "push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r12, 0\n"
        "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
        "mov $200000, %edi\ncall work@PLT\n"
        "add $24, %rsp\n.cfi_adjust_cfa_offset -24\n"
        "pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore r12\n"
        "pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx\n"
        "ret\n.cfi_endproc\n.size by_assembly, .-by_assembly\n");

// A function object, called by the library's templates.
extern "C" PROBED void by_function(uint32_t n) {
  std::vector<std::function<void(uint32_t)>> all;
  all.emplace_back([](uint32_t m) {
    work(ROUNDS + m % 2);
    KEEP;
  });
  for (auto &one : all) one(n);
  KEEP;
}

static const uint32_t SHAPES = 10;

extern "C" PROBED void handle(item *it) {
  it->enter_ns = truth_now();
  switch (it->id % SHAPES) {
    case 0: by_virtual(); break;
    case 1: by_exception(); break;
    case 2: by_callback(); break;
    case 3: by_alloca(it->n); break;
    case 4: by_alignment(it->n); break;
    case 5: by_tail(it->n); break;
    case 6: by_signal(); break;
    case 7: by_depth(20); break;
    case 8: by_assembly(it->n); break;
    default: by_function(it->n); break;
  }
  it->leave_ns = truth_now();
}

extern "C" PROBED void serve(uint32_t first, uint32_t items) {
  for (uint32_t i = first; i < first + items; i++) {
    item it{};
    it.id = i;
    it.n = i;
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 500), threads = truth_arg(argc, argv, 2, 1);
  truth_init();
  signal(SIGUSR1, on_signal);
  serve(1, items);
  std::vector<std::thread> all;
  for (uint32_t t = 1; t < threads; t++)
    all.emplace_back([=] { serve(1 + t * items, items); });
  for (auto &one : all) one.join();
  truth_write();
  return 0;
}
