// An event loop: requests that take turns on one thread, in slices:
// loop [REQUESTS] [WINDOW] [SLICES] [UNEQUAL] [ROUNDS]
// ROUNDS: what a slice computes. WINDOW requests are open at a time. Each asks for its next slice by an eventfd, and now and then by a timer, as if it
// waited for a backend. With UNEQUAL a request takes 1 to 4 times SLICES, and slices are of different lengths.
// `call at` is a slice on CLOCK_MONOTONIC; `call slice`, `parse` and `render` are on the clock of the thread's CPU time.
#include "truth.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#define MAX_WINDOW 64

struct request {
  uint64_t id;
  uint32_t left, done;
  uint32_t rounds;
  int event, timer;
  uint64_t before, enter;
};

static uint64_t cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// Work of a request: half of each slice in one function, half in the other.
PROBED uint64_t parse(uint64_t id, uint32_t rounds) { return truth_work(id, rounds); }

PROBED uint64_t render(uint64_t id, uint32_t rounds) { return truth_work(id, rounds); }

PROBED void request_begin(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

PROBED void request_end(uint64_t id) { __asm__ volatile("" ::"r"(id)); }

// Runs a slice of a request; returns whether more are left.
PROBED int request_run(struct request *r) {
  uint64_t cpu = cpu_now(), at = truth_now();
  uint32_t rounds = r->rounds + (r->rounds / 4) * (r->done % 3);
  uint64_t begin = cpu_now();
  uint64_t x = parse(r->id, rounds);
  uint64_t between = cpu_now();
  uint64_t y = render(r->id, rounds);
  uint64_t end = cpu_now();
  __asm__ volatile("" ::"r"(x ^ y));
  r->left--, r->done++;
  truth_call("parse", r->id, begin, between);
  truth_call("render", r->id, between, end);
  truth_call("at", r->id, at, truth_now());
  truth_call("slice", r->id, cpu, cpu_now());
  return r->left > 0;
}

static void ask(struct request *r) {
  if (r->done % 8 == 7) {
    struct itimerspec soon = {.it_value = {.tv_nsec = 300000}};
    timerfd_settime(r->timer, 0, &soon, NULL);
  } else {
    uint64_t one = 1;
    if (write(r->event, &one, sizeof one) != sizeof one) perror("write");
  }
}

int main(int argc, char **argv) {
  uint32_t requests = truth_arg(argc, argv, 1, 200), window = truth_arg(argc, argv, 2, 8);
  uint32_t slices = truth_arg(argc, argv, 3, 20), unequal = truth_arg(argc, argv, 4, 0);
  uint32_t rounds = truth_arg(argc, argv, 5, 9000);
  if (window < 1 || window > MAX_WINDOW) return 2;
  truth_init();
  static struct request open[MAX_WINDOW];
  int poll = epoll_create1(0);
  for (uint32_t i = 0; i < window; i++) {
    open[i].event = eventfd(0, EFD_NONBLOCK);
    open[i].timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
    struct epoll_event t = {.events = EPOLLIN, .data.u64 = i | 1u << 16};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, open[i].event, &e) ||
        epoll_ctl(poll, EPOLL_CTL_ADD, open[i].timer, &t)) {
      perror("epoll_ctl");
      return 1;
    }
  }
  uint32_t next = 1, ended = 0;
  while (ended < requests) {
    for (uint32_t i = 0; i < window && next <= requests; i++) {
      struct request *r = &open[i];
      if (r->left) continue;
      r->id = 9000000 + next;
      r->done = 0;
      r->left = slices * (unequal ? 1 + next % 4 : 1);
      r->rounds = rounds + (unequal ? rounds / 3 * (next % 3) : 0);
      next++;
      r->before = truth_now();
      request_begin(r->id);
      r->enter = truth_now();
      ask(r);
    }
    struct epoll_event ready[MAX_WINDOW];
    int n = epoll_wait(poll, ready, MAX_WINDOW, -1);
    if (n < 0 && errno != EINTR) return 1;
    for (int k = 0; k < n; k++) {
      struct request *r = &open[ready[k].data.u64 & 0xffff];
      uint64_t count;
      int from = ready[k].data.u64 >> 16 ? r->timer : r->event;
      if (read(from, &count, sizeof count) != sizeof count) continue;
      if (request_run(r)) {
        ask(r);
        continue;
      }
      uint64_t leave = truth_now();
      request_end(r->id);
      truth_item(r->id, r->before, r->enter, leave, truth_now());
      ended++;
    }
  }
  truth_write();
  printf("ended %u\n", ended);
  return 0;
}
