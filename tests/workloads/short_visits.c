// Very short visits at a steady rate: short_visits [VISITS] [VISITS_PER_SECOND]
// Rate 0: as fast as the machine can, which no ring is meant to keep up with.
#include "truth.h"

PROBED uint64_t handle(uint64_t id) {
  __asm__ volatile("" : "+r"(id));
  return id * 3;
}

int main(int argc, char **argv) {
  uint32_t visits = truth_arg(argc, argv, 1, 30000), rate = truth_arg(argc, argv, 2, 20000);
  truth_init();
  uint64_t sum = 0, start = truth_now();
  for (uint32_t i = 1; i <= visits; i++) {
    if (rate)
      while (truth_now() - start < (uint64_t)i * 1000000000ull / rate) {
      }
    sum += handle(i);
  }
  truth_note("items", visits);
  truth_write();
  printf("sum %llu\n", (unsigned long long)sum);
  return 0;
}
