// User-level threads with their id in r13: fibers [FIBERS] [SLICES] [US_PER_SLICE] [NAPS]
// A timer's signal interrupts the running fiber after varying times; a scheduler then runs the next one on the thread.
// All code but the C library is built with -ffixed-r13, and switching contexts saves it. The scheduler is no item: 0.
// Every other fiber also reads zeros from the kernel; with NAPS those of even number sleep now and then. A line `item`
// is one slice of a fiber: before and after are read by the scheduler, enter and leave by the fiber.
#include "truth.h"

#include <signal.h>
#include <ucontext.h>

#define MOST 64

register uint64_t current __asm__("r13");

struct fiber {
  ucontext_t context;
  uint64_t id, enter, leave, before;
};

static ucontext_t scheduler;
static struct fiber fibers[MOST];
static uint32_t running;
static volatile sig_atomic_t may_switch;
static timer_t timer;
static uint32_t slice_ns;
static int zero;
static uint32_t naps;

static void arm(uint64_t ns) {
  struct itimerspec once = {.it_interval = {0, 0}, .it_value = {0, (long)ns}};
  timer_settime(timer, 0, &once, NULL);
}

static void switched_in(void) {
  fibers[running].enter = truth_now();
  may_switch = 1;
}

static void on_timer(int number) {
  (void)number;
  // Too soon: the fiber is not there yet.
  if (!may_switch) return arm(20000);
  may_switch = 0;
  struct fiber *f = &fibers[running];
  f->leave = truth_now();
  swapcontext(&f->context, &scheduler);
  switched_in();
}

PROBED uint64_t crunch(uint64_t seed) { return truth_work(seed, 500); }

PROBED uint64_t digest(uint64_t seed) { return truth_work(seed, 300); }

static void fiber(void) {
  static char zeros[1 << 16];
  current = fibers[running].id;
  switched_in();
  static const struct timespec nap = {0, 100000};
  for (uint64_t x = 1, round = 1;; round++) {
    x = crunch(x);
    x ^= digest(x);
    // Not by read(), which could need the register.
    if (current & 1) syscall(SYS_read, zero, zeros, sizeof zeros);
    else if (naps && round % 256 == 0) syscall(SYS_nanosleep, &nap, NULL);
  }
}

int main(int argc, char **argv) {
  uint32_t count = truth_arg(argc, argv, 1, 8), slices = truth_arg(argc, argv, 2, 400);
  slice_ns = truth_arg(argc, argv, 3, 500) * 1000;
  naps = truth_arg(argc, argv, 4, 0);
  if (count < 1 || count > MOST) return 2;
  truth_init();
  truth_tid();
  zero = open("/dev/zero", O_RDONLY);
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return 3;
  for (uint32_t i = 0; i < count; i++) {
    struct fiber *f = &fibers[i];
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = malloc(64 << 10);
    f->context.uc_stack.ss_size = 64 << 10;
    f->id = 7000 + i;
    makecontext(&f->context, fiber, 0);
  }
  current = 0;
  uint64_t dice = 1;
  for (uint32_t n = 0; n < slices; n++) {
    running = n % count;
    struct fiber *f = &fibers[running];
    dice = truth_work(dice, 1);
    // Half to one and a half of the length.
    uint64_t length = slice_ns / 2 + (dice >> 33) % slice_ns;
    f->before = truth_now();
    arm(length);
    swapcontext(&scheduler, &f->context);
    truth_item(f->id, f->before, f->enter, f->leave, truth_now());
    if (n % 16 == 15) {
      struct timespec pause = {0, 300000};
      nanosleep(&pause, NULL);
    }
  }
  truth_write();
  printf("slices %u\n", slices);
  return 0;
}
