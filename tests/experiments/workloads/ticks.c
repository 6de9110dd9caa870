// Target of cargo xtask bench ticks: reads the clock for SECONDS, and writes to FILE the time taken by interrupts in
// each window of WINDOW ms, a line in ns each. A gap between two readings that is longer than usual is an interrupt; a
// very long one is another thread's turn, and the rest of that window is scaled to the whole.
//
//     ticks SECONDS WINDOW FILE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

// Gaps that are interrupts, ns; windows at most.
enum { LEAST = 200, MOST = 100000, WINDOWS = 4096 };

static double gone[WINDOWS], off[WINDOWS];
static volatile unsigned long sink;

// Never called: a probe for runs that only count.
__attribute__((noinline)) void never(unsigned long i) { sink -= i; }

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s SECONDS WINDOW FILE\n", argv[0]);
    return 2;
  }
  double seconds = atof(argv[1]), window = atof(argv[2]) * 1e6;
  if (seconds < 0) never((unsigned long)-seconds);

  double wall = now_ns();
  uint64_t begin = __rdtsc();
  while (now_ns() - wall < 2e8) sink++;
  double cycles = (__rdtsc() - begin) / (now_ns() - wall);

  uint64_t last = __rdtsc(), end = (uint64_t)(seconds * 1e9 * cycles), least = (uint64_t)(LEAST * cycles), most = (uint64_t)(MOST * cycles);
  begin = last;
  while (last - begin < end) {
    uint64_t next = __rdtsc();
    if (next - last > least) {
      unsigned n = (unsigned)((last - begin) / (cycles * window));
      if (n < WINDOWS) (next - last > most ? off : gone)[n] += (next - last) / cycles;
    }
    last = next;
  }

  FILE *file = fopen(argv[3], "w");
  if (!file) {
    perror(argv[3]);
    return 1;
  }
  for (unsigned n = 0; n < WINDOWS && (n + 1) * window <= seconds * 1e9; n++)
    if (off[n] < window / 2) fprintf(file, "%.0f\n", gone[n] * window / (window - off[n]));
  return fclose(file) != 0;
}
