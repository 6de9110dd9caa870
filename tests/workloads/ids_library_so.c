// The library of ids_library: only it knows the current item.
#include "truth.h"

static volatile uint64_t lib_id;

void lib_work(struct item *it, uint64_t ns) {
  lib_id = it->id;
  it->enter_ns = truth_now();
  truth_spin(ns);
  it->leave_ns = truth_now();
  lib_id = 0;
}
