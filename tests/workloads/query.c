// The sample application of Akiyama 2018, IV.B: query [ROUNDS]
//
// Thread 0 hands queries (id, n) one by one to thread 1, which applies linear transformations to
// 1000 * n points: f1 reads the input, f2 takes what is cached, f3 computes the rest and caches
// it. Each thread is pinned to a CPU where there are two. n of the ten queries of a round is as in
// Figure 8, so that the 1st has to compute 3000 points, the 5th 2000, and the others none. Every
// round begins with an empty cache.
#include "truth.h"

#define POINTS_PER_N 1000
#define QUERIES 10
static const uint32_t ns[QUERIES] = {3, 3, 1, 3, 5, 1, 5, 3, 5, 1};

struct query {
  uint64_t id;
  uint32_t n;
};
struct point {
  double x, y;
};
#define MAX_POINTS (5 * POINTS_PER_N)
static struct point input[MAX_POINTS], cache[MAX_POINTS], output[MAX_POINTS];
static uint32_t cached;
static uint64_t f_ns[3][2];

// Reads the input: cheap, every point.
PROBED void f1(uint32_t points) {
  f_ns[0][0] = truth_now();
  for (uint32_t i = 0; i < points; i++) {
    uint64_t r = truth_work(i, 8);
    input[i].x = (double)(r >> 40);
    input[i].y = (double)((r >> 16) & 0xffffff);
  }
  f_ns[0][1] = truth_now();
}

// Takes cached results: cheap, cached points.
PROBED void f2(uint32_t points) {
  f_ns[1][0] = truth_now();
  for (uint32_t i = 0; i < points; i++) {
    output[i] = cache[i];
    __asm__ volatile("" ::"r"(truth_work(i, 8)));
  }
  f_ns[1][1] = truth_now();
}

// Computes results that are not cached: expensive.
PROBED void f3(uint32_t from, uint32_t to) {
  f_ns[2][0] = truth_now();
  for (uint32_t i = from; i < to; i++) {
    struct point p = input[i];
    for (int k = 0; k < 250; k++) {
      struct point q = {0.6 * p.x - 0.8 * p.y + 1.0, 0.8 * p.x + 0.6 * p.y - 1.0};
      p = q;
      __asm__ volatile("" ::: "memory");
    }
    cache[i] = output[i] = p;
  }
  f_ns[2][1] = truth_now();
}

PROBED double process_query(struct query *q) {
  uint32_t points = q->n * POINTS_PER_N;
  uint32_t hits = points < cached ? points : cached;
  f1(points);
  f2(hits);
  if (hits < points) {
    f3(hits, points);
    cached = points;
  }
  double sum = 0;
  for (uint32_t i = 0; i < points; i += POINTS_PER_N) sum += output[i].x + output[i].y;
  return sum;
}

static struct query slot;
static int filled, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void give(const struct query *q) {
  pthread_mutex_lock(&lock);
  while (filled) pthread_cond_wait(&changed, &lock);
  if (q)
    slot = *q, filled = 1;
  else
    done = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static int take(struct query *q) {
  pthread_mutex_lock(&lock);
  while (!filled && !done) pthread_cond_wait(&changed, &lock);
  int got = filled;
  if (got) *q = slot, filled = 0;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return got;
}

static void *thread1(void *unused) {
  (void)unused;
  if (!truth_pin(1)) truth_note("unpinned", 1);
  double sum = 0;
  struct query q;
  while (take(&q)) {
    if (q.id % QUERIES == 1) cached = 0;
    memset(f_ns, 0, sizeof f_ns);
    uint64_t before = truth_now();
    sum += process_query(&q);
    uint64_t after = truth_now();
    truth_item(q.id, before, f_ns[0][0], f_ns[f_ns[2][1] ? 2 : 1][1], after);
    static const char *const name[] = {"f1", "f2", "f3"};
    for (int f = 0; f < 3; f++)
      if (f_ns[f][1]) truth_call(name[f], q.id, f_ns[f][0], f_ns[f][1]);
  }
  printf("sum %.6e\n", sum);
  return NULL;
}

int main(int argc, char **argv) {
  uint32_t rounds = truth_arg(argc, argv, 1, 1);
  truth_init();
  // Warms code and memory; not an item.
  f1(MAX_POINTS), f3(0, 1), f2(1), memset(output, 0, sizeof output), memset(cache, 0, sizeof cache);
  pthread_t t;
  pthread_create(&t, NULL, thread1, NULL);
  truth_pin(0);
  for (uint32_t i = 0; i < rounds * QUERIES; i++) {
    struct query q = {i + 1, ns[i % QUERIES]};
    give(&q);
  }
  give(NULL);
  pthread_join(t, NULL);
  truth_write();
  return 0;
}
