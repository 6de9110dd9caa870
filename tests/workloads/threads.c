// Threads that all handle items: threads [THREADS] [ITEMS_PER_THREAD] [US_PER_ITEM] [GENERATIONS]
// Item ids are thread * 1000000 + number. `oversubscribed` is the same with more threads than
// CPUs and items longer than a time slice. With GENERATIONS each thread starts another one when it
// has handled its items, and ends; there are so many threads one after the other.
#include "truth.h"

#include <semaphore.h>

static uint32_t threads, items, item_ns, generations;
static uint64_t checksum;
static sem_t ended;

PROBED uint64_t handle(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 100);
  // By CPU time, so that a preempted item is as long as the others on the CPU.
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  uint64_t until = (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec + item_ns;
  do {
    __asm__ volatile("" ::"r"(truth_work(x, 100)));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while ((uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec < until);
  it->leave_ns = truth_now();
  return x;
}

static void *worker(void *arg);

static void start(uintptr_t thread) {
  pthread_t t;
  int error = pthread_create(&t, NULL, worker, (void *)thread);
  if (error) {
    fprintf(stderr, "pthread_create: %s\n", strerror(error));
    _exit(95);
  }
  pthread_detach(t);
}

static void *worker(void *arg) {
  uintptr_t thread = (uintptr_t)arg;
  uint64_t first = (uint64_t)thread * 1000000;
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = first + i, .kind = i % 3, .n = i, .name = "thread"};
    uint64_t before = truth_now();
    uint64_t x = handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
    __atomic_fetch_xor(&checksum, x, __ATOMIC_RELAXED);
  }
  if (thread + threads <= (uintptr_t)threads * generations) start(thread + threads);
  sem_post(&ended);
  return NULL;
}

int main(int argc, char **argv) {
  threads = truth_arg(argc, argv, 1, 24);
  items = truth_arg(argc, argv, 2, 100);
  item_ns = truth_arg(argc, argv, 3, 20) * 1000;
  generations = truth_arg(argc, argv, 4, 1);
  truth_init();
  sem_init(&ended, 0, 0);
  for (uint32_t i = 1; i <= threads; i++) start(i);
  for (uint32_t i = 0; i < threads * generations; i++) sem_wait(&ended);
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
