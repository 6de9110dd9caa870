// Target of cargo xtask bench: calls a function CALLS times, then spins SPIN times, and writes
// the CPU time that each took, and that of the process, to FILE. The tracer's cost is the difference to a run without one.
//
//     marks CALLS SPIN FILE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void touch(void) { sink++; }

// Begins with a push, because i has to survive the call (and no endbr64 stands before it, see the
// compiler's flags): the cheap case for every tracer, also for those that can't choose the
// instruction.
__attribute__((noinline)) void mark_me(unsigned long i) {
  touch();
  sink += i;
}

// Never called: a probe for runs that only sample.
__attribute__((noinline)) void never(unsigned long i) { sink -= i; }

static double cpu_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s CALLS SPIN FILE\n", argv[0]);
    return 2;
  }
  unsigned long calls = strtoul(argv[1], NULL, 10), spin = strtoul(argv[2], NULL, 10);
  if (calls == ~0ul) never(calls);
  for (unsigned long i = 0; i < calls / 100; i++) mark_me(i);

  double begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  for (unsigned long i = 0; i < calls; i++) mark_me(i);
  double between = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  for (unsigned long i = 0; i < spin; i++) sink += i;
  double end = cpu_ns(CLOCK_THREAD_CPUTIME_ID);

  FILE *file = fopen(argv[3], "w");
  if (!file) {
    perror(argv[3]);
    return 1;
  }
  fprintf(file, "%.0f %.0f %.0f\n", between - begin, end - between,
          cpu_ns(CLOCK_PROCESS_CPUTIME_ID));
  return fclose(file) != 0;
}
