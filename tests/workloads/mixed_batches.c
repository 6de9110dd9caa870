// Batches of items of three kinds: mixed_batches [BATCHES [EQUAL [INSIDE]]]
// Items are admitted one by one, and served together, 0 to 64 at once: a batch takes a part of its own, and the time of
// each item. Those of kind 1, 2 and 3 take 200, 400 and 1,200 rounds of work; with EQUAL all take 400. One item in the
// middle of the run, of kind 1, takes DEAR rounds. With INSIDE the loop calls `handle` for each item, which may be probed.
// The truth's items are the batches, from 1. Notes: what an item of each kind took, the middle one, in ns, by readings of
// the clock between the items (`kind1` ..), and what a batch took beside them (`fixed`); number of items (`items`); the
// dear item, its batch and what it took on the CPU (`dear_item`, `dear_batch`, `dear_ns`).
#include "truth.h"

#define MOST 64
#define DEAR 60000

struct burst {
  int n;
  struct item *items[MOST];
};

static uint64_t checksum;
static int equal;
static uint64_t dear, dear_ns;
// When each item of the batch was done; the first: when the batch began.
static uint64_t done[MOST + 1];

PROBED void admit(struct item *it) {
  checksum ^= it->id;
}

// Time of the thread on the CPU: the dear item may be preempted, too.
static uint64_t on_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline __attribute__((always_inline)) void work(struct item *it) {
  static const uint32_t rounds[] = {200, 400, 1200};
  uint32_t of_kind = equal ? 400 : rounds[it->n - 1];
  if (it->id != dear) {
    checksum ^= truth_work(it->id, of_kind);
    return;
  }
  uint64_t begin = on_cpu();
  checksum ^= truth_work(it->id, DEAR);
  dear_ns = on_cpu() - begin;
}

PROBED void handle(struct item *it) {
  work(it);
}

// `times`: first and last instant inside.
PROBED void serve(struct burst *b, uint64_t times[2]) {
  times[0] = truth_now();
  checksum ^= truth_work(b->n, 1000);
  done[0] = truth_now();
  for (int i = 0; i < b->n; i++) {
    work(b->items[i]);
    done[i + 1] = truth_now();
  }
  times[1] = truth_now();
}

PROBED void serve_each(struct burst *b, uint64_t times[2]) {
  times[0] = truth_now();
  checksum ^= truth_work(b->n, 1000);
  done[0] = truth_now();
  for (int i = 0; i < b->n; i++) {
    handle(b->items[i]);
    done[i + 1] = truth_now();
  }
  times[1] = truth_now();
}

static int smaller(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void note_middle(const char *name, uint64_t *all, uint32_t n) {
  if (!n) return;
  qsort(all, n, sizeof *all, smaller);
  truth_note(name, all[n / 2]);
}

int main(int argc, char **argv) {
  uint32_t batches = truth_arg(argc, argv, 1, 1000);
  equal = truth_arg(argc, argv, 2, 0) != 0;
  int inside = truth_arg(argc, argv, 3, 0) != 0;
  truth_init();
  static struct item items[MOST];
  static struct burst burst;
  // What items of each kind took, and batches beside them.
  uint64_t *took[4];
  uint32_t known[4] = {0};
  for (int k = 0; k < 4; k++) {
    took[k] = (uint64_t *)malloc(sizeof **took * MOST * (batches + 1));
    if (!took[k]) return 99;
    // Its pages are there before the clock is read.
    memset(took[k], 1, sizeof **took * MOST * (batches + 1));
  }
  uint64_t next = 1, seed = 42, dear_batch = batches / 2;
  for (uint32_t b = 1; b <= batches; b++) {
    seed = truth_work(seed, 2);
    burst.n = (int)((seed >> 33) % (MOST + 1));
    if (b == dear_batch && burst.n < 8) burst.n = 8;
    for (int i = 0; i < burst.n; i++) {
      seed = truth_work(seed, 2);
      items[i].id = next++;
      items[i].n = 1 + (uint32_t)((seed >> 33) % 3);
      burst.items[i] = &items[i];
      if (b == dear_batch && i == burst.n / 2) {
        items[i].n = 1;
        dear = items[i].id;
      }
      admit(&items[i]);
    }
    uint64_t times[2], before = truth_now();
    if (inside)
      serve_each(&burst, times);
    else
      serve(&burst, times);
    truth_item(b, before, times[0], times[1], truth_now());
    took[0][known[0]++] = times[1] - times[0] - (done[burst.n] - done[0]);
    for (int i = 0; i < burst.n; i++) {
      if (items[i].id != dear) took[items[i].n][known[items[i].n]++] = done[i + 1] - done[i];
    }
  }
  note_middle("fixed", took[0], known[0]);
  note_middle("kind1", took[1], known[1]);
  note_middle("kind2", took[2], known[2]);
  note_middle("kind3", took[3], known[3]);
  truth_note("items", next - 1);
  truth_note("dear_item", dear);
  truth_note("dear_batch", dear_batch);
  truth_note("dear_ns", dear_ns);
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
