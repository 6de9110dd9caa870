// The id of the current item is in variables, and no function is called that could be probed:
// ids [THREADS] [ITEMS_PER_THREAD] [US_PER_ITEM]
// `current_id` and `current_item` have the item of the last thread, `own_id` and `own_item` that of each thread.
// No item: 0, null; of `own_kind`: -1. Every fourth item sleeps in its middle, and after every eighth the
// thread sleeps without one. Before and after enclose the setting of the ids. Items work for a time by the thread's CPU
// clock, so that each half of one has samples, even if it is preempted.
#include "truth.h"

volatile uint64_t current_id;
struct item *volatile current_item;
_Thread_local char padding[72] __attribute__((aligned(64))) = {1};
_Thread_local volatile uint32_t own_id;
_Thread_local volatile int16_t own_kind = -1;
_Thread_local struct item *volatile own_item;

static uint32_t items, item_ns;

static void sleep_us(long us) {
  struct timespec pause = {0, us * 1000};
  nanosleep(&pause, NULL);
}

static void set(struct item *it) {
  current_id = own_id = it ? (uint32_t)it->id : 0;
  own_kind = it ? (int16_t)it->kind : -1;
  current_item = own_item = it;
}

static inline __attribute__((always_inline)) void work(struct item *it) {
  it->enter_ns = truth_now();
  truth_spin_own(item_ns / 2);
  if (it->n % 4 == 0) sleep_us(200);
  truth_spin_own(item_ns / 2);
  it->leave_ns = truth_now();
}

static void *worker(void *arg) {
  uint64_t first = (uint64_t)(uintptr_t)arg * 1000000;
  padding[3] = 1;
  // The variables are the program's: who started this thread is to have left the CPU.
  sleep_us(5000);
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = first + i, .kind = i % 3, .n = i, .name = "id"};
    uint64_t before = truth_now();
    set(&it);
    work(&it);
    set(NULL);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    if (i % 8 == 0) sleep_us(300);
  }
  return NULL;
}

int main(int argc, char **argv) {
  uint32_t threads = truth_arg(argc, argv, 1, 1);
  items = truth_arg(argc, argv, 2, 200);
  item_ns = truth_arg(argc, argv, 3, 400) * 1000;
  truth_init();
  pthread_t *t = (pthread_t *)calloc(threads, sizeof *t);
  for (uint32_t i = 0; i < threads; i++)
    pthread_create(&t[i], NULL, worker, (void *)(uintptr_t)(i + 1));
  for (uint32_t i = 0; i < threads; i++) pthread_join(t[i], NULL);
  truth_write();
  printf("items %u\n", threads * items);
  return 0;
}
