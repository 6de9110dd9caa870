// Replaces its program in the middle of an item: execs [ITEMS]
// The first life handles ITEMS items and execs itself inside the next one; the second life
// handles ITEMS more. Ids: 1.., then 1000001...
#include "truth.h"

static char *self;
static uint32_t items;

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  __asm__ volatile("" ::"r"(truth_work(it->id, 3000)));
  if (it->kind == 1) {
    char number[16];
    snprintf(number, sizeof number, "%u", items);
    execl("/proc/self/exe", self, number, "again", (char *)NULL);
    _exit(1);
  }
  it->leave_ns = truth_now();
}

static void handle_items(uint64_t first) {
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = first + i, .kind = 0, .n = i, .name = "exec"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
}

int main(int argc, char **argv) {
  self = argv[0];
  items = truth_arg(argc, argv, 1, 50);
  if (argc > 2) {
    unsetenv("TRUTH_WAIT");
    truth_init();
    handle_items(1000000);
    truth_write();
    printf("second life ended well\n");
    return 0;
  }
  truth_init();
  handle_items(0);
  struct item last = {.id = items + 1, .kind = 1, .n = 0, .name = "exec"};
  truth_begin(last.id, truth_now());
  truth_write();
  handle(&last);
  return 1;
}
