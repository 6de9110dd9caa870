// Items in a process, its children, a grandchild, and a child that execs: fork [ITEMS]
// Every process handles ITEMS items; the one that execs handles ITEMS before and ITEMS after.
#include "truth.h"

#include <sys/wait.h>

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 3000);
  it->leave_ns = truth_now();
  return x;
}

static void handle_items(uint64_t who, uint32_t items) {
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = who * 1000000 + i, .kind = (uint32_t)who, .n = i, .name = "fork"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  truth_write();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 50);
  if (argc > 2) {
    // The second life of child 3.
    unsetenv("TRUTH_WAIT");
    truth_init();
    handle_items(5, items);
    return 0;
  }
  truth_init();
  handle_items(1, items);
  int bad = 0;
  for (int child = 2; child <= 3; child++) {
    pid_t pid = fork();
    if (pid == 0) {
      handle_items((uint64_t)child, items);
      if (child == 3) {
        char number[16];
        snprintf(number, sizeof number, "%u", items);
        execl("/proc/self/exe", argv[0], number, "again", (char *)NULL);
        _exit(1);
      }
      if (fork() == 0) {
        handle_items(4, items);
        _exit(0);
      }
      int status;
      wait(&status);
      _exit(status != 0);
    }
    int status;
    waitpid(pid, &status, 0);
    bad |= status;
  }
  handle_items(6, items);
  printf("children %s\n", bad ? "failed" : "ended well");
  return bad != 0;
}
