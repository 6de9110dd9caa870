// The library of shared_lib.
#include "truth.h"

PROBED uint64_t lib_handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 2000);
  it->leave_ns = truth_now();
  return x;
}
