// Every fifth item leaves the probed function by longjmp: longjmp [ITEMS]
#include "truth.h"

#include <setjmp.h>

static jmp_buf home;

__attribute__((noinline)) static void maybe_leave(const struct item *it) {
  if (it->id % 5 == 0) longjmp(home, 1);
}

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 1000);
  maybe_leave(it);
  x ^= truth_work(x, 1000);
  it->leave_ns = truth_now();
  return x;
}

static uint64_t checksum, left;

__attribute__((noinline)) static void one(uint64_t id) {
  static struct item it;
  static uint64_t before;
  memset(&it, 0, sizeof it);
  it.id = id;
  before = truth_now();
  if (setjmp(home) == 0)
    checksum ^= handle(&it);
  else
    left++;
  truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 200);
  truth_init();
  for (uint32_t i = 1; i <= items; i++) one(i);
  truth_note("unwound", left);
  truth_write();
  printf("left %llu, checksum %016llx\n", (unsigned long long)left, (unsigned long long)checksum);
  return 0;
}
