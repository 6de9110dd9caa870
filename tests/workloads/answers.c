// Handles items until stopped, and answers in between: answers [ITEMS_PER_MS]
// A line "ping N" on stdin is answered by "pong N ITEMS" on stderr; "stop" ends it.
#include "truth.h"

#include <errno.h>
#include <poll.h>

static volatile uint64_t work;

PROBED uint64_t handle(uint64_t id) {
  work += truth_work(id, 2000);
  return id * 3;
}

int main(int argc, char **argv) {
  uint32_t burst = truth_arg(argc, argv, 1, 5);
  truth_init();
  uint64_t items = 0, sum = 0;
  char line[64];
  size_t used = 0;
  for (;;) {
    for (uint32_t i = 0; i < burst; i++) sum += handle(++items);
    struct pollfd in = {.fd = 0, .events = POLLIN};
    if (poll(&in, 1, 1) <= 0) continue;
    ssize_t n = read(0, line + used, sizeof line - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += (size_t)n;
    char *end;
    while ((end = memchr(line, '\n', used))) {
      *end = 0;
      if (!strcmp(line, "stop")) goto stop;
      if (!strncmp(line, "ping ", 5)) {
        fprintf(stderr, "pong %s %llu\n", line + 5, (unsigned long long)items);
        fflush(stderr);
      }
      size_t taken = (size_t)(end - line) + 1;
      memmove(line, line + taken, used -= taken);
    }
    if (used == sizeof line) used = 0;
  }
stop:
  truth_note("items", items);
  truth_write();
  printf("handled %llu items, sum %llu\n", (unsigned long long)items, (unsigned long long)sum);
  return 0;
}
