// Items that wait for others: partners [ITEMS] [HOG]
// Odd items wait until thread "partner" posts, which it does when they are asleep; even ones sleep 1 ms, and so are
// woken by a timer. With HOG, every item works for 20 ms, and a thread of that name comes first on its CPU (with
// TRUTH_REALTIME; else it wants the same CPU) every other ms.
#include "truth.h"
#include <semaphore.h>

static sem_t asked, answered;
static volatile int over;
static int handler;

static void *partner(void *unused) {
  (void)unused;
  pthread_setname_np(pthread_self(), "partner");
  truth_note("partner", (uint64_t)truth_tid());
  for (;;) {
    while (sem_wait(&asked)) {
    }
    if (over) return NULL;
    truth_until_asleep(handler);
    sem_post(&answered);
  }
}

static void *hog(void *unused) {
  (void)unused;
  pthread_setname_np(pthread_self(), "hog");
  truth_note("hog", (uint64_t)truth_tid());
  if (getenv("TRUTH_REALTIME")) {
    struct sched_param above = {.sched_priority = 2};
    if (sched_setscheduler(0, SCHED_FIFO, &above)) perror("sched_setscheduler");
  }
  truth_pin(0);
  while (!over) {
    truth_spin(1000 * 1000);
    usleep(1000);
  }
  return NULL;
}

PROBED void handle(struct item *it) {
  it->enter_ns = truth_now();
  if (it->n) {
    truth_spin(20 * 1000 * 1000);
  } else if (it->id % 2) {
    sem_post(&asked);
    while (sem_wait(&answered)) {
    }
  } else {
    struct timespec t = {0, 1000 * 1000};
    nanosleep(&t, NULL);
  }
  it->leave_ns = truth_now();
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 40), with_hog = truth_arg(argc, argv, 2, 0);
  pthread_t threads[2];
  truth_init();
  handler = truth_tid();
  sem_init(&asked, 0, 0);
  sem_init(&answered, 0, 0);
  pthread_create(&threads[0], NULL, partner, NULL);
  if (with_hog) {
    pthread_create(&threads[1], NULL, hog, NULL);
    truth_pin(0);
  }
  for (uint32_t i = 1; i <= items; i++) {
    struct item it = {.id = i, .kind = 0, .n = with_hog, .name = "partners"};
    uint64_t before = truth_now();
    handle(&it);
    truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
  }
  over = 1;
  sem_post(&asked);
  pthread_join(threads[0], NULL);
  if (with_hog) pthread_join(threads[1], NULL);
  truth_write();
  return 0;
}
