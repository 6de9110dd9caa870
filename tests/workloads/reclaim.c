// Items that read parts of a file for the first time: reclaim [ITEMS]
// Odd items read 1 MiB that is not in memory, even ones nothing. In a cgroup with less memory than that the kernel has
// to reclaim pages before it can provide others.
#include "truth.h"

#include <fcntl.h>

#define PART (1u << 20)

static int fd;
static char part[PART];

PROBED void read_part(uint32_t n) {
  if (pread(fd, part, PART, (off_t)n * PART) != PART) _exit(95);
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  if (it->kind) read_part(it->n);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  char name[] = "reclaim.XXXXXX";
  fd = mkstemp(name);
  unlink(name);
  if (fd < 0 || ftruncate(fd, (off_t)PART * items)) {
    perror(name);
    return 1;
  }
  truth_init();
  for (uint32_t i = 0; i < items; i++) {
    struct item it = {.id = i, .kind = i % 2, .n = i, .name = "reclaim"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
  return 0;
}
