// Items of a known number of instructions and system calls: loops [ITEMS] [THREADS]
// Item ITEM of thread THREAD has the id THREAD * 1000000 + ITEM. It runs a loop of `instructions` and makes `calls`; an odd one
// changes to another CPU between the two, if there is one, by one call more. The lines `call instructions ID`
// and `call calls ID` have the number as leave. Every tenth has twenty times as many instructions as the others.
// Threads are started by main, which handles items as thread 0. Other processes make system calls meanwhile.
#include "truth.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static uint32_t items;
static int cpus[2], found;

// Two instructions a round.
static void run(uint64_t instructions) {
  uint64_t rounds = instructions / 2;
  __asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(rounds)::"cc");
}

static void call(void) {
  long result = SYS_getppid;
  __asm__ volatile("syscall" : "+a"(result)::"rcx", "r11", "memory");
}

struct work {
  uint64_t id, instructions;
  uint32_t calls;
  int to;
  uint64_t enter, leave;
};

PROBED void handle(struct work *w) {
  w->enter = truth_now();
  run(w->instructions);
  if (w->to >= 0) truth_pin_to(w->to);
  for (uint32_t i = 0; i < w->calls; i++) call();
  w->leave = truth_now();
}

static void *worker(void *arg) {
  uint64_t first = (uint64_t)(uintptr_t)arg * 1000000;
  int at = 0;
  truth_pin_to(cpus[at]);
  for (uint32_t i = 1; i <= items; i++) {
    struct work w = {.id = first + i,
                     .instructions = (uint64_t)(100000 + 20000 * (i % 5)) * (i % 10 ? 1 : 20),
                     .calls = 3 + i % 7,
                     .to = -1};
    uint32_t moves = i % 2 && found > 1;
    if (moves) w.to = cpus[at = !at];
    uint64_t before = truth_now();
    handle(&w);
    truth_item(w.id, before, w.enter, w.leave, truth_now());
    truth_call("instructions", w.id, 0, w.instructions);
    truth_call("calls", w.id, 0, w.calls + moves);
    // Not part of any item.
    call();
    run(1000);
  }
  return NULL;
}

int main(int argc, char **argv) {
  items = truth_arg(argc, argv, 1, 50);
  uint32_t threads = truth_arg(argc, argv, 2, 1);
  cpu_set_t all;
  pthread_t started[64];
  sched_getaffinity(0, sizeof all, &all);
  for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
    if (CPU_ISSET(i, &all)) cpus[found++] = i;
  truth_init();
  pid_t other = fork();
  if (other < 0 || threads > 64) return 1;
  if (!other) prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (!other) {
    call();
    usleep(100);
  }
  for (uint32_t i = 1; i < threads; i++)
    pthread_create(&started[i], NULL, worker, (void *)(uintptr_t)i);
  worker(NULL);
  for (uint32_t i = 1; i < threads; i++) pthread_join(started[i], NULL);
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
  truth_write();
  printf("done %u\n", items);
  return 0;
}
