// Items that spend their time in a system call: system_calls [ITEMS]
// Those of kind 0 read zeros, the others get random bytes.
#include "truth.h"

#include <fcntl.h>
#include <sys/random.h>

static char bytes[1 << 20];

PROBED void handle(struct item *it, int zeros) {
  it->enter_ns = truth_now();
  ssize_t got = it->kind ? getrandom(bytes, sizeof bytes, 0) : read(zeros, bytes, sizeof bytes);
  if (got <= 0) abort();
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  int zeros = open("/dev/zero", O_RDONLY);
  if (zeros < 0) {
    perror("/dev/zero");
    return 1;
  }
  memset(bytes, 1, sizeof bytes);
  truth_init();
  for (uint32_t i = 0; i < items; i++) {
    struct item it = {.id = i, .kind = i % 2, .name = "system_calls"};
    uint64_t before = truth_now();
    handle(&it, zeros);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  return 0;
}
