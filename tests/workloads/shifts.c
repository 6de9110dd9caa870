// A load that swings a hundredfold: shifts [FEW] [MANY] [PHASE_MS] [US]
// FEW items a second for PHASE_MS, then MANY for as long, and so on until it is killed. An item works for US and every hundredth for ten times as long. There is no log: what is asked is what a recorder takes.
#include "truth.h"

#include <sys/prctl.h>
#include <signal.h>

PROBED void step(struct item *it) { truth_spin(it->n * 1000ull); }

PROBED void handle(struct item *it) { step(it); }

int main(int argc, char **argv) {
  uint32_t few = truth_arg(argc, argv, 1, 5);
  uint32_t many = truth_arg(argc, argv, 2, 500);
  uint64_t phase_ns = 1000000ull * truth_arg(argc, argv, 3, 2000);
  uint32_t us = truth_arg(argc, argv, 4, 100);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  truth_init();
  uint64_t next = truth_now();
  for (uint64_t id = 1;; id++) {
    struct item it = {.id = id, .n = id % 100 ? us : 10 * us, .name = "shift"};
    handle(&it);
    next += 1000000000ull / (next / phase_ns % 2 ? many : few);
    struct timespec t = {(time_t)(next / 1000000000ull), (long)(next % 1000000000ull)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
  }
}
