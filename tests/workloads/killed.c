// Handles items until it is killed, and prints each at once: killed
// An item takes about 1 ms; nearly all of the time one is open.
#include "truth.h"

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  truth_spin(1000 * 1000);
  it->leave_ns = truth_now();
}

int main(void) {
  truth_init();
  for (uint64_t id = 1;; id++) {
    struct item it = {.id = id, .kind = 0, .n = 0, .name = "until"};
    uint64_t before = truth_now();
    truth_begin(id, before);
    truth_write();
    handle(&it);
    truth_item(id, before, it.enter_ns, it.leave_ns, truth_now());
    truth_write();
  }
}
