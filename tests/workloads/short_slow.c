// Items of 2 us, of which one in 500 takes 30 us, in a function of its own: short_slow [ITEMS]
// How long an item takes does not follow from the clock, so that a sample makes none of them shorter. Which ones are slow is
// drawn anew for each item, always the same way.
#include "truth.h"

static volatile uint64_t sink;
static uint32_t rounds_of_us;

PROBED void short_part(uint32_t rounds) {
  sink += truth_work(sink, rounds);
  __asm__ volatile("" ::: "memory");
}

PROBED void long_part(uint32_t rounds) {
  sink += truth_work(sink, rounds);
  __asm__ volatile("" ::: "memory");
}

PROBED void handle(struct item *it) {
  short_part(2 * rounds_of_us);
  if (it->kind) long_part(28 * rounds_of_us);
  __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 200000), slow = 0;
  uint64_t seed = 1;
  truth_init();
  // The fastest of some rounds: disturbances only make rounds slower.
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 20; i++) {
    uint64_t begin = truth_now();
    sink += truth_work(sink, 100000);
    uint64_t took = truth_now() - begin;
    if (took < best) best = took;
  }
  rounds_of_us = (uint32_t)(100000ull * 1000 / best);
  for (uint32_t i = 1; i <= items; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    struct item it = {.id = i, .kind = (seed >> 33) % 500 == 0, .n = 0, .name = "short_slow"};
    handle(&it);
    slow += it.kind;
    // Log of the slow ones: the others are those without a line.
    if (it.kind) truth_item(i, 0, 0, 0, 0);
  }
  truth_note("slow", slow);
  truth_write();
  return 0;
}
