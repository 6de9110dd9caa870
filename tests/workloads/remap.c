// Moves its code to anonymous memory half-way, as programs do that put it on huge pages: remap [ORDER]
// ORDER 0: a copy is made executable, and moved over the code. 1: memory that is writable and executable takes the
// code's place, the copy is copied back, and it is made read-only.
// Handles items 1 to 2,000; those from 1,001 on by the moved code.
#include "truth.h"

#include <sys/mman.h>

#define ITEMS 1000
#define PAGE 4096

// On pages of its own, so that what moves it is not moved.
PROBED __attribute__((section("moved"), aligned(PAGE))) uint64_t handle(uint64_t id) {
  uint64_t sum = id;
  for (int i = 0; i < 2000; i++) sum = sum * 6364136223846793005 + id;
  return sum;
}

static void *anonymous(void *at, int protection, int fixed) {
  void *got = mmap(at, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  if (got == MAP_FAILED) exit(90);
  return got;
}

static void move(int order) {
  void *code = (void *)((uintptr_t)handle & ~(uintptr_t)(PAGE - 1));
  void *copy = anonymous(0, PROT_READ | PROT_WRITE, 0);
  memcpy(copy, code, PAGE);
  if (order) {
    anonymous(code, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_FIXED);
    memcpy(code, copy, PAGE);
    if (mprotect(code, PAGE, PROT_READ | PROT_EXEC)) exit(91);
  } else {
    if (mprotect(copy, PAGE, PROT_READ | PROT_EXEC)) exit(91);
    if (mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code) == MAP_FAILED) exit(92);
  }
}

int main(int argc, char **argv) {
  truth_init();
  uint64_t sum = 0;
  for (uint64_t id = 1; id <= ITEMS; id++) sum += handle(id);
  move((int)truth_arg(argc, argv, 1, 0));
  for (uint64_t id = ITEMS + 1; id <= 2 * ITEMS; id++) sum += handle(id);
  truth_note("moved", 1);
  truth_write();
  printf("handled %d items, sum %016llx\n", 2 * ITEMS, (unsigned long long)sum);
  return 0;
}
