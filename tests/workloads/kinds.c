// Queries for 1 to 50 rows of 2 us each, some of which are not loaded yet: kinds [ITEMS]
//
// Every 500th query, for one row, has to load it first. That takes 90 us: less than a query for 50 rows takes,
// and more than any other query for one row. Its truth has a call of load for each of these.
#include "truth.h"

static const uint32_t ns[] = {1, 2, 5, 20, 50};
static uint32_t step;

// Steps of work that take so many ns.
static uint32_t steps(uint32_t ns) { return (uint64_t)ns * step / 1000000; }

PROBED uint64_t load(uint64_t row) { return truth_work(row, steps(90000)); }

PROBED uint64_t find(uint64_t row) { return truth_work(row, steps(2000)); }

PROBED uint64_t query(struct item *q) {
  uint64_t sum = q->enter_ns = truth_now();
  if (q->kind) {
    uint64_t begin = truth_now();
    sum += load(q->id);
    truth_call("load", q->id, begin, truth_now());
  }
  for (uint32_t i = 0; i < q->n; i++) sum += find(i);
  q->leave_ns = truth_now();
  return sum;
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 1000);
  uint64_t sum = 0, random = 1;
  truth_init();
  truth_pin(0);
  // How much work is a ms.
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 20; i++) {
    uint64_t begin = truth_now();
    sum += truth_work(i, 100000);
    uint64_t took = truth_now() - begin;
    if (took < least) least = took;
  }
  step = 100000 * 1000000ull / least;
  for (uint32_t i = 1; i <= items; i++) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    struct item q = {i, i % 500 == 250, ns[(random >> 33) % 5], "", 0, 0};
    if (q.kind) q.n = 1;
    uint64_t before = truth_now();
    sum += query(&q);
    truth_item(q.id, before, q.enter_ns, q.leave_ns, truth_now());
  }
  printf("sum %d\n", sum != 0);
  truth_write();
  return 0;
}
