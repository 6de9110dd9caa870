// A server with one hidden cause: see README.md. C, and C++ with its threads, locks and memory.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __cplusplus
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#endif

#define THREADS 0
#define POOL 1
#define LOOP 2
#define TURNS 3
#define FORKED 4
#define CPU 0
#define LOCK 1
#define ALLOCATOR 2
#define FAULTS 3
#define READ 4
#define NEIGHBOUR 5
#define DEPENDENCY 6
#define QUEUE 7
#define CACHE 8
#define CALLEE 9
#define NOTHING 10
#define SHAPE @SHAPE@
#define CAUSE @CAUSE@
#define WORKERS @WORKERS@
#define PERIOD_NS @PERIOD_NS@ULL   // mean time between two items
#define RUN_NS @RUN_NS@ULL
#define SEED @SEED@ULL
#define SLOW_PPM @SLOW_PPM@u
#define KIND @KIND@u               // the kind of request that is slow, where kinds are
#define EXTRA @EXTRA@              // how much of the cause, in its own unit
#define BURST @BURST@
#define LENGTHS @LENGTHS@             // items are of so many lengths in turn and come at equal times; 0: by chance
#define MAX_ITEMS (RUN_NS / PERIOD_NS * 2 + 100000)
#define NOINLINE __attribute__((noinline, noclone))

struct request {
  uint64_t id;
  uint32_t kind;
  uint32_t size;
  uint32_t slow;
  uint32_t step;
  uint64_t begin, cause_ns, sum;
};

struct entry {
  uint64_t id, slow, cause_ns, duration_ns;
};

static struct {
  uint64_t n;
} *counter;
static struct entry *entries;

static inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

static inline uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static inline uint64_t thread_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

// Units of work of one function for one item: `spread` percent more or less than `base`.
static inline uint64_t span(const struct request *r, uint64_t function, uint64_t base, uint64_t spread) {
  uint64_t least = base - base * spread / 100;
  uint64_t turn = LENGTHS ? r->id % (LENGTHS + !LENGTHS) : r->id;
  uint64_t u = mix(turn * 64 + function + SEED) >> 44;
  return least + (base * spread / 50 * u >> 20);
}

static struct request make(uint64_t id) {
  struct request r;
  memset(&r, 0, sizeof r);
  uint64_t u = mix(id ^ SEED);
  r.id = id;
  r.slow = u % 1000000 < SLOW_PPM && CAUSE != NOTHING;
  r.kind = (u >> 32) % 7;
  if (CAUSE == LOCK) {  // it is the others that wait
    r.step = r.slow;
    r.slow = 0;
  }
  if (CAUSE == CPU) r.kind = r.slow ? KIND : r.kind == KIND ? 7 : r.kind;
  r.size = 100 + (u >> 40) % 900;
  return r;
}

static void enter(const struct request *done, uint64_t begin) {
  uint64_t at = __atomic_fetch_add(&counter->n, 1, __ATOMIC_RELAXED);
  if (at >= MAX_ITEMS) return;
  struct entry e = {done->id, done->slow, done->cause_ns, now() - begin};
  entries[at] = e;
}

static unsigned char bytes[4096];
static const char *path, *address;
static int cached, direct;

#if CAUSE == CACHE
// Lines of 64 bytes, each with the number of the next: few of them, and many.
struct line {
  uint64_t next, pad[7];
};
#define LINES (1u << 20)
static struct line *near_lines, *far_lines;
static struct line *ring(uint64_t lines) {
  struct line *all = (struct line *)aligned_alloc(64, lines * sizeof *all);
  for (uint64_t i = 0; i < lines; i++) all[i].next = i;
  for (uint64_t i = lines - 1; i > 0; i--) {
    uint64_t j = mix(i + SEED) % i, swapped = all[i].next;
    all[i].next = all[j].next;
    all[j].next = swapped;
  }
  return all;
}
#endif

#if CAUSE == DEPENDENCY
static int dial(void) {
  struct sockaddr_un to;
  memset(&to, 0, sizeof to);
  to.sun_family = AF_UNIX;
  strncpy(to.sun_path, address, sizeof to.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
    perror("connect");
    exit(2);
  }
  return fd;
}
static __thread int peer = -1;
#endif

#ifdef __cplusplus
namespace @space@ {
static std::mutex guard;
#define TAKE() guard.lock()
#define GIVE() guard.unlock()
#else
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
#define TAKE() pthread_mutex_lock(&guard)
#define GIVE() pthread_mutex_unlock(&guard)
#endif

@FUNCTIONS@

#ifdef __cplusplus
}
using namespace @space@;
#endif

#if SHAPE != TURNS
static void serve(struct request *r, uint64_t begin) {
#if CAUSE == NEIGHBOUR
  uint64_t cpu = thread_time();
#endif
  @handler@(r);
#if CAUSE == NEIGHBOUR
  uint64_t wall = now() - begin;
  cpu = thread_time() - cpu;
  r->cause_ns = wall > cpu ? wall - cpu : 0;
  r->slow = r->cause_ns > 200000;
#endif
  enter(r, begin);
}
#endif

// Sleeps until an item is due; exponential times between items, or equal ones.
struct source {
  uint64_t id, due, until;
};
static struct source start(uint64_t first) {
  struct source s = {first, now() + PERIOD_NS, now() + RUN_NS};
  return s;
}
static int next(struct source *s) {
  uint64_t t;
  while ((t = now()) < s->due) {
    struct timespec d = {(time_t)((s->due - t) / 1000000000), (long)((s->due - t) % 1000000000)};
    nanosleep(&d, NULL);
  }
  s->id++;
  if (LENGTHS) {
    s->due += PERIOD_NS;
    return t < s->until;
  }
  // Some items come together with the one before them.
  if (!BURST || mix(s->id / (BURST + !BURST) + SEED) % 1000000 >= SLOW_PPM) {
    // -ln(u) by its bits: within a few percent, and without libm.
    uint64_t u = mix(s->id * 7 + SEED), zeros = u ? __builtin_clzll(u) : 63;
    uint64_t part = (u << 1 << zeros) >> 44;
    s->due += (zeros * 693 + 693 - (693 * part >> 20)) * PERIOD_NS / 1000;
  }
  return t < s->until;
}

#if SHAPE == THREADS
static void *thread_main(void *arg) {
  struct request r = *(struct request *)arg;
  free(arg);
  serve(&r, now());
#if CAUSE == DEPENDENCY
  close(peer);
#endif
  return NULL;
}
static void run(void) {
  struct source s = start(0);
  while (next(&s)) {
    struct request *r = (struct request *)malloc(sizeof *r);
    *r = make(s.id);
#ifdef __cplusplus
    std::thread(thread_main, r).detach();
#else
    pthread_t t;
    if (pthread_create(&t, NULL, thread_main, r) == 0) pthread_detach(t);
#endif
  }
  usleep(300000);
}
#elif SHAPE == POOL
#define ROOM 512  // more than these are turned away
static struct request waiting[ROOM];
static uint64_t head, tail;
static int closed;
static pthread_mutex_t room = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;

#ifdef __cplusplus
namespace @space@ {
#endif
NOINLINE void @submit@(struct request *r) {
  r->begin = now();
  pthread_mutex_lock(&room);
  if (tail - head < ROOM) waiting[tail++ % ROOM] = *r;
  pthread_mutex_unlock(&room);
  pthread_cond_signal(&come);
}
#ifdef __cplusplus
}
#endif

static void *worker(void *arg) {
  (void)arg;
  for (;;) {
    pthread_mutex_lock(&room);
    while (head == tail && !closed) pthread_cond_wait(&come, &room);
    if (head == tail) {
      pthread_mutex_unlock(&room);
      return NULL;
    }
    struct request r = waiting[head++ % ROOM];
    pthread_mutex_unlock(&room);
    uint64_t begin = now();
#if CAUSE == QUEUE
    r.cause_ns = begin - r.begin;
    r.slow = r.cause_ns > EXTRA;
    begin = r.begin;
#endif
    serve(&r, begin);
  }
}
static void run(void) {
  pthread_t t[WORKERS];
  for (int i = 0; i < WORKERS; i++) pthread_create(&t[i], NULL, worker, NULL);
  struct source s = start(0);
  while (next(&s)) {
    struct request r = make(s.id);
    @submit@(&r);
  }
  pthread_mutex_lock(&room);
  closed = 1;
  pthread_mutex_unlock(&room);
  pthread_cond_broadcast(&come);
  for (int i = 0; i < WORKERS; i++) pthread_join(t[i], NULL);
}
#elif SHAPE == FORKED
static void run(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) exit(2);
  for (int i = 0; i < WORKERS; i++) {
    if (fork() == 0) {
      close(ends[1]);
      struct request r;
      while (read(ends[0], &r, sizeof r) == (ssize_t)sizeof r) serve(&r, now());
      _exit(0);
    }
  }
  close(ends[0]);
  struct source s = start(0);
  while (next(&s)) {
    struct request r = make(s.id);
    if (write(ends[1], &r, sizeof r) < 0) break;
  }
  close(ends[1]);
  while (wait(NULL) > 0) {}
}
#else  // LOOP, TURNS
#define CLIENTS 8
static int clients[CLIENTS], servers[CLIENTS];
static void *client(void *arg) {
  (void)arg;
  struct source s = start(0);
  while (next(&s)) {
    struct request r = make(s.id);
    if (write(clients[s.id % CLIENTS], &r, sizeof r) < 0) break;
  }
  for (int i = 0; i < CLIENTS; i++) close(clients[i]);
  return NULL;
}
static void run(void) {
  int poll = epoll_create1(0), open = CLIENTS, many = 0;
  pthread_t t;
  (void)many;
  for (int i = 0; i < CLIENTS; i++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) exit(2);
    clients[i] = ends[0];
    servers[i] = ends[1];
    struct epoll_event e = {EPOLLIN, {.fd = ends[1]}};
    epoll_ctl(poll, EPOLL_CTL_ADD, ends[1], &e);
  }
  pthread_create(&t, NULL, client, NULL);
#if SHAPE == TURNS
  static struct request active[64];
  uint64_t began[64];
#endif
  while (open > 0 || many > 0) {
    struct epoll_event events[16];
    int n = epoll_wait(poll, events, many < 48 ? 16 : 1, many > 0 ? 0 : -1);
    for (int i = 0; i < n; i++) {
      struct request r;
      ssize_t got = many < 64 ? read(events[i].data.fd, &r, sizeof r) : -1;
      if (got == 0) {
        epoll_ctl(poll, EPOLL_CTL_DEL, events[i].data.fd, NULL);
        open--;
      }
      if (got != (ssize_t)sizeof r) continue;
#if SHAPE == TURNS
      began[many] = now();
      active[many] = r;
      @accept@(&active[many++]);
#else
      serve(&r, now());
#endif
    }
#if SHAPE == TURNS
    for (int i = 0; i < many;) {
      @handler@(&active[i]);
      if (++active[i].step < @STEPS@) {
        i++;
        continue;
      }
      @finish@(&active[i]);
      enter(&active[i], began[i]);
      many--;
      active[i] = active[many];
      began[i] = began[many];
    }
#endif
  }
  pthread_join(t, NULL);
}
#endif

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  path = argv[2];
  address = argv[3];
  size_t size = sizeof(struct entry) * MAX_ITEMS + 4096;
  char *shared = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (shared == MAP_FAILED) return 2;
  counter = (__typeof__(counter))shared;
  entries = (struct entry *)(shared + 4096);
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)mix(i);
#if CAUSE == CACHE
  near_lines = ring(64);
  far_lines = ring(LINES);
#endif
#if CAUSE == READ
  cached = open(path, O_RDWR | O_CREAT, 0600);
  for (int i = 0; i < 8192; i++)
    if (write(cached, bytes, sizeof bytes) < 0) return 2;
  fsync(cached);
  direct = open(path, O_RDONLY | O_DIRECT);
  if (direct < 0) direct = open(path, O_RDONLY);
#endif
  if (@PINNED@) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(@PINNED@ - 1, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  run();
  FILE *out = fopen(argv[1], "w");
  if (!out) return 2;
  uint64_t n = counter->n < MAX_ITEMS ? counter->n : MAX_ITEMS;
  for (uint64_t i = 0; i < n; i++)
    fprintf(out, "%lu %lu %lu %lu\n", entries[i].id, entries[i].slow, entries[i].cause_ns, entries[i].duration_ns);
  return fclose(out) != 0;
}
