// Functions that retire uops at rates of their own: rates [ITEMS] [STAYS] [SEED]
// An item goes through STAYS stays in `fast`, `usual` and `slow`, never twice in a row in the same one, drawn from SEED. The
// PMU in software is told before each that 4, 1 or 0.1 uops pass in a ns; in every tenth item `usual` has 0.3, and takes as
// much longer. A stay is 2 to 8 times 100,003 uops. The log has the calls, by the clock of
// the thread's CPU time; those of item 0 warm up.
#include "truth.h"

static volatile uint64_t sink;
static int pace = -1;

// A step is two instructions of 2 ns each where those are counted.
static void steps(uint64_t n) {
  uint64_t value = n | 1;
  for (; n; n--) __asm__ volatile("" : "+r"(value));
  sink = value;
}

static void set_pace(uint32_t thousandths) {
  char text[16];
  int n = snprintf(text, sizeof text, "%u", thousandths);
  if (pace >= 0 && write(pace, text, (size_t)n) != n) {
    perror("pace");
    exit(95);
  }
}

PROBED void fast(uint64_t n) { steps(n); }
PROBED void usual(uint64_t n) { steps(n); }
PROBED void slow(uint64_t n) { steps(n); }

static const struct {
  const char *name;
  void (*call)(uint64_t);
  uint32_t thousandths;
} functions[] = {{"fast", fast, 4000}, {"usual", usual, 1000}, {"slow", slow, 100}};

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t state;

static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)((state >> 33) % n);
}

PROBED void handle(struct item *it, uint32_t stays) {
  uint32_t which = below(3);
  for (uint32_t stay = 0; stay < stays; stay++) {
    uint32_t thousandths = functions[which].thousandths;
    if (it->id % 10 == 9 && which == 1) thousandths = 300;
    uint64_t uops = 2 * 100003 + below(6 * 100003);
    set_pace(thousandths);
    uint64_t enter = cpu_ns();
    functions[which].call(uops * 1000 / thousandths / 4);
    truth_call(functions[which].name, it->id, enter, cpu_ns());
    which = (which + 1 + below(2)) % 3;
  }
  set_pace(1000);
}

int main(int argc, char **argv) {
  uint32_t items = truth_arg(argc, argv, 1, 100);
  uint32_t stays = truth_arg(argc, argv, 2, 12);
  state = truth_arg(argc, argv, 3, 1);
  truth_init();
  pace = open("/sys/module/softpmu/parameters/pace", O_WRONLY);
  for (uint32_t i = 0; i <= items; i++) {
    struct item it = {.id = i};
    handle(&it, stays);
  }
  truth_note("items", items);
  truth_write();
  return 0;
}
