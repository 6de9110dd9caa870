// Items that touch pages of a file: reads [ITEMS]
// Odd items touch a page that is not in memory, if the file system lets go of it; even ones the page that the item
// before has touched. The note `read` says how many were not in memory before.
#include "truth.h"

#include <fcntl.h>
#include <sys/mman.h>

static char *file;
static long page;
static volatile char sink;

PROBED void touch(uint32_t n) { sink = file[(size_t)n * 64 * page]; }

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  touch(it->n);
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 30);
  char name[] = "reads.XXXXXX";
  int fd = mkstemp(name);
  unlink(name);
  page = sysconf(_SC_PAGESIZE);
  size_t size = (size_t)page * 64 * (items + 1);
  truth_init();
  char *bytes = (char *)malloc(size);
  memset(bytes, 1, size);
  if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || fsync(fd)) {
    perror(name);
    return 1;
  }
  free(bytes);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  file = (char *)mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (file == MAP_FAILED || madvise(file, size, MADV_RANDOM)) {
    perror("mmap");
    return 1;
  }
  uint64_t absent = 0;
  for (uint32_t i = 0; i <= items; i++) {
    struct item it = {.id = i, .kind = i % 2, .n = (i + 1) / 2, .name = "reads"};
    unsigned char there = 1;
    if (i % 2) mincore(file + (size_t)it.n * 64 * page, page, &there);
    absent += !(there & 1);
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_note("read", absent);
  truth_write();
  return 0;
}
