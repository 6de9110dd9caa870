// Threads born one after the other, some by other threads: late_threads [THREADS] [ITEMS]
// The first items are handled by the main thread before any other thread exists.
#include "truth.h"

static uint32_t items, threads;

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 3000);
  it->leave_ns = truth_now();
  return x;
}

static void handle_items(uint64_t first) {
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = first + i, .kind = 0, .n = i, .name = "late"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
}

// Handles items, then gives birth to the next thread: a chain of threads.
static void *worker(void *arg) {
  uintptr_t number = (uintptr_t)arg;
  handle_items(number * 1000000);
  usleep(2000);
  if (number < threads) {
    pthread_t next;
    pthread_create(&next, NULL, worker, (void *)(number + 1));
    pthread_join(next, NULL);
  }
  return NULL;
}

int main(int argc, char **argv) {
  threads = truth_arg(argc, argv, 1, 20);
  items = truth_arg(argc, argv, 2, 20);
  truth_init();
  handle_items(0);
  worker((void *)1);
  truth_write();
  return 0;
}
