// Items that wait for others, which wait in turn: chains MODE [ITEMS]
// Every tenth item of the main thread ("get") waits for a chain; the others are short. MODE:
//   nested   for an item "commit", which holds a lock and waits for a second one of the thread "flusher", which sleeps
//   convoy   for the lock that three items "update" take one after the other
//   inversion for an item "update" that holds a lock and loses its CPU to the thread "hog" (TRUTH_REALTIME is not needed)
//   pool     for the thread "pool", which works for it at no item
//   between  for a lock that an item "lock" took; its thread sleeps at no item before the item "commit" releases it
//   pipe     for the answer of the thread "server" through pipes, which sleeps
// Truth: `call NAME ID ENTER LEAVE` for what was waited for during item ID.
#include "truth.h"
#include <errno.h>
#include <semaphore.h>

#define OTHERS 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static sem_t go[OTHERS + 1], done;
static pthread_barrier_t together;
static volatile int held, over;
static volatile uint64_t current;
static int ask[2], answer[2];

static void waits(sem_t *s) {
  while (sem_wait(s)) {
  }
}

static void naps(const char *name, long us) {
  struct timespec t = {0, us * 1000};
  uint64_t enter = truth_now();
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
  truth_call(name, current, enter, truth_now());
}

PROBED void update(const char *name, uint64_t ns) {
  uint64_t enter = truth_now();
  truth_spin_own(ns);
  truth_call(name, current, enter, truth_now());
}

enum step { GET, NESTED, CONVOY, INVERSION, POOL, BETWEEN, PIPE, LOCK, UNLOCK, COMMIT, UPDATE };

static const char *const modes[] = {"", "nested", "convoy", "inversion", "pool", "between", "pipe"};

// An item does what its kind says.
PROBED void handle(struct item *it) {
  char byte = 0;
  it->enter_ns = truth_now();
  switch (it->kind) {
    case NESTED:
    case CONVOY:
    case INVERSION:
    case BETWEEN:
      pthread_mutex_lock(&lock);
      pthread_mutex_unlock(&lock);
      break;
    case POOL:
      sem_post(&go[0]);
      waits(&done);
      break;
    case PIPE:
      if (write(ask[1], &byte, 1) != 1 || read(answer[0], &byte, 1) != 1) abort();
      break;
    case LOCK:
      pthread_mutex_lock(&lock);
      held = 1;
      break;
    case UNLOCK:
      pthread_mutex_unlock(&lock);
      break;
    case COMMIT:
      pthread_mutex_lock(&lock);
      held = 1;
      pthread_mutex_lock(&second);
      pthread_mutex_unlock(&second);
      pthread_mutex_unlock(&lock);
      break;
    case UPDATE:
      pthread_mutex_lock(&lock);
      held = 1;
      update("update", it->n * 1000ull);
      pthread_mutex_unlock(&lock);
      break;
  }
  it->leave_ns = truth_now();
}

static void item(uint64_t id, uint32_t kind, uint32_t n, const char *name) {
  struct item it = {.id = id, .kind = kind, .n = n, .name = name};
  uint64_t before = truth_now();
  handle(&it);
  truth_item(it.id, before, it.enter_ns, it.leave_ns, truth_now());
}

static void named(const char *name) {
  pthread_setname_np(pthread_self(), name);
  truth_note(name, (uint64_t)truth_tid());
}

// Thread 0 for nested, pool, between, pipe and inversion; one of three for convoy.
static void *other(void *arg) {
  int mode = (int)((uintptr_t)arg & 15), n = (int)((uintptr_t)arg >> 4);
  static const char *const others[OTHERS] = {"other0", "other1", "other2"};
  char byte;
  named(mode == POOL ? "pool" : mode == PIPE ? "server" : others[n]);
  if (mode == INVERSION) truth_pin(0);
  for (uint64_t round = 1;; round++) {
    if (mode == PIPE) {
      if (read(ask[0], &byte, 1) != 1 || over) return NULL;
    } else {
      waits(&go[n]);
    }
    if (over) return NULL;
    uint64_t id = 1000000 * (uint64_t)(n + 1) + round * 2;
    switch (mode) {
      case NESTED: item(id, COMMIT, 0, "commit"); break;
      case CONVOY:
        pthread_barrier_wait(&together);
        item(id, UPDATE, 3000, "update");
        break;
      case INVERSION: item(id, UPDATE, 3000, "update"); break;
      case POOL:
        update("pool", 5000 * 1000);
        sem_post(&done);
        break;
      case BETWEEN:
        item(id, LOCK, 0, "lock");
        naps("between", 8000);
        item(id + 1, UNLOCK, 0, "commit");
        break;
      case PIPE:
        naps("server", 5000);
        if (write(answer[1], &byte, 1) != 1) abort();
        break;
    }
  }
}

static void *flusher(void *unused) {
  (void)unused;
  named("flusher");
  for (;;) {
    waits(&go[OTHERS]);
    if (over) return NULL;
    pthread_mutex_lock(&second);
    held = 1;
    naps("flusher", 10000);
    pthread_mutex_unlock(&second);
  }
}

static void *hog(void *unused) {
  struct sched_param above = {.sched_priority = 2};
  (void)unused;
  named("hog");
  truth_pin(0);
  if (sched_setscheduler(0, SCHED_FIFO, &above)) perror("sched_setscheduler");
  for (;;) {
    waits(&go[OTHERS]);
    if (over) return NULL;
    uint64_t enter = truth_now();
    truth_spin(8000 * 1000);
    truth_call("hog", current, enter, truth_now());
  }
}

static void until_held(void) {
  while (!held) sched_yield();
  held = 0;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "nested";
  uint32_t items = truth_arg(argc, argv, 2, 100), mode = 0;
  pthread_t threads[OTHERS + 1];
  uint32_t others = 0, more = 0;
  for (uint32_t i = 1; i <= PIPE; i++) {
    if (!strcmp(name, modes[i])) mode = i;
  }
  if (!mode) {
    fprintf(stderr, "chains: no mode %s\n", name);
    return 2;
  }
  truth_init();
  named("main");
  for (int i = 0; i <= OTHERS; i++) sem_init(&go[i], 0, 0);
  sem_init(&done, 0, 0);
  pthread_barrier_init(&together, NULL, OTHERS + 1);
  if (pipe(ask) || pipe(answer)) return 1;
  others = mode == CONVOY ? OTHERS : 1;
  more = mode == NESTED || mode == INVERSION;
  for (uint32_t i = 0; i < others; i++) {
    pthread_create(&threads[i], NULL, other, (void *)(uintptr_t)(mode | i << 4));
  }
  if (more) pthread_create(&threads[others], NULL, mode == NESTED ? flusher : hog, NULL);
  if (mode == INVERSION) truth_pin(1);
  for (uint32_t i = 1; i <= items; i++) {
    if (i % 10) {
      item(i, GET, 0, "get");
      continue;
    }
    current = i;
    held = 0;
    switch (mode) {
      case NESTED:
        sem_post(&go[OTHERS]);
        until_held();
        sem_post(&go[0]);
        until_held();
        break;
      case CONVOY:
        for (uint32_t k = 0; k < OTHERS; k++) sem_post(&go[k]);
        pthread_barrier_wait(&together);
        until_held();
        break;
      case INVERSION:
        sem_post(&go[0]);
        until_held();
        sem_post(&go[OTHERS]);
        break;
      case BETWEEN:
        sem_post(&go[0]);
        until_held();
        break;
    }
    item(i, mode, 0, "get");
    // What the others do behind it is over before the next one.
    usleep(mode == CONVOY || mode == INVERSION ? 20 * 1000 : 2000);
  }
  over = 1;
  for (int i = 0; i <= OTHERS; i++) sem_post(&go[i]);
  if (mode == PIPE && write(ask[1], "", 1) != 1) return 1;
  for (uint32_t i = 0; i < others + more; i++) pthread_join(threads[i], NULL);
  truth_write();
  return 0;
}
