// Items that go through two stages on two threads: stages [ITEMS]
// Main admits an item and hands it over; a server serves it. Items live in four slots, so that their
// addresses are used again and again. Before every twentieth item the server is away for 2 ms.
// Notes: between `queued_least` and `queued_most` ns all items together were in neither function.
#include "truth.h"

#define SLOTS 4

struct slot {
  struct item item;
  int full;
  // Around the two functions: before, enter, leave, after.
  uint64_t admit[4], serve[4];
};

static struct slot slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t items;
static uint64_t checksum, queued_least, queued_most;

PROBED uint64_t admit(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 2000);
  it->leave_ns = truth_now();
  return x;
}

PROBED uint64_t serve(struct item *it) {
  it->enter_ns = truth_now();
  uint64_t x = truth_work(it->id, 8000);
  it->leave_ns = truth_now();
  return x;
}

static uint64_t timed(uint64_t (*stage)(struct item *), struct item *it, uint64_t t[4]) {
  t[0] = truth_now();
  uint64_t x = stage(it);
  t[3] = truth_now();
  t[1] = it->enter_ns;
  t[2] = it->leave_ns;
  return x;
}

static void wait_until(struct slot *slot, int full) {
  pthread_mutex_lock(&lock);
  while (slot->full != full) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void set(struct slot *slot, int full) {
  pthread_mutex_lock(&lock);
  slot->full = full;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void *server(void *unused) {
  (void)unused;
  for (uint32_t i = 0; i < items; i++) {
    struct slot *slot = &slots[i % SLOTS];
    wait_until(slot, 1);
    if (i % 20 == 7) {
      struct timespec away = {.tv_nsec = 2000000};
      nanosleep(&away, NULL);
    }
    checksum ^= timed(serve, &slot->item, slot->serve);
    queued_least += slot->serve[0] - slot->admit[3];
    queued_most += slot->serve[1] - slot->admit[2];
    set(slot, 0);
  }
  return NULL;
}

int main(int argc, char **argv) {
  items = truth_arg(argc, argv, 1, 1000);
  truth_init();
  pthread_t t;
  pthread_create(&t, NULL, server, NULL);
  for (uint32_t i = 0; i < items; i++) {
    struct slot *slot = &slots[i % SLOTS];
    wait_until(slot, 0);
    slot->item = (struct item){.id = i + 1, .kind = i % 3, .n = i, .name = "staged"};
    checksum ^= timed(admit, &slot->item, slot->admit);
    set(slot, 1);
  }
  pthread_join(t, NULL);
  truth_note("queued_least", queued_least);
  truth_note("queued_most", queued_most);
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
