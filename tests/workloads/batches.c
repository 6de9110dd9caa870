// Items that are served together: batches [BATCHES]
// A batch is admitted item by item, served as a whole, and answered item by item. The sizes are 1, 8, 0, 32 and
// 40 in turn; every hundredth batch has 300 items. Ids count from 1; those of items that live at the same time
// have addresses of their own. The truth's items are the batches, from 1.
#include "truth.h"

#define MOST 300

struct burst {
  uint16_t n;
  uint32_t ids[MOST];
  struct item *items[MOST];
};

static uint64_t checksum;

PROBED void admit(struct item *it) {
  checksum ^= truth_work(it->id, 100);
}

// `times`: first and last instant inside.
PROBED void serve(struct burst *b, const uint64_t *ids, int n, uint64_t times[2]) {
  times[0] = truth_now();
  for (int i = 0; i < n; i++) checksum ^= truth_work(ids[i] + b->n, 300);
  times[1] = truth_now();
}

PROBED void answer(struct item *it) {
  checksum ^= truth_work(it->id, 50);
}

int main(int argc, char **argv) {
  uint32_t batches = truth_arg(argc, argv, 1, 200);
  truth_init();
  static const int sizes[] = {1, 8, 0, 32, 40};
  static struct item items[MOST];
  static struct burst burst;
  static uint64_t ids[MOST];
  uint64_t next = 1;
  for (uint32_t b = 1; b <= batches; b++) {
    int n = b % 100 ? sizes[b % 5] : MOST;
    burst.n = (uint16_t)n;
    for (int i = 0; i < n; i++) {
      items[i].id = ids[i] = next++;
      burst.ids[i] = (uint32_t)ids[i];
      burst.items[i] = &items[i];
      admit(&items[i]);
    }
    uint64_t times[2], before = truth_now();
    serve(&burst, ids, n, times);
    truth_item(b, before, times[0], times[1], truth_now());
    for (int i = 0; i < n; i++) answer(&items[i]);
  }
  truth_note("items", next - 1);
  truth_write();
  printf("checksum %016llx\n", (unsigned long long)checksum);
  return 0;
}
