// Shared by all workloads: items, work of a known length, and the log of the truth.
//
// The log is kept in memory and appended to the file named by TRUTH_FILE (else to stdout) by
// truth_write(), so that logging does not disturb what is measured. Line formats: README.md.
// All times are ns on CLOCK_MONOTONIC. Works in C and in C++. Include it first.
#ifndef TRUTH_H
#define TRUTH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A function that a probe can be put on: emitted once, under its own name, never inlined,
// cloned or reduced to what its callers need.
#ifdef __cplusplus
#define PROBED __attribute__((noinline, used))
#else
#define PROBED __attribute__((noinline, noclone, noipa, used))
#endif

// The item that most workloads handle: id at +0, kind at +8, n at +12, name at +16.
struct item {
  uint64_t id;
  uint32_t kind;
  uint32_t n;
  const char *name;
  // Filled in by the handler: first and last instant inside it.
  uint64_t enter_ns, leave_ns;
};

enum truth_kind { TRUTH_ITEM, TRUTH_BEGIN, TRUTH_CALL, TRUTH_NOTE };

struct truth_line {
  enum truth_kind kind;
  int pid, tid;
  const char *name;
  uint64_t v[5];
};

#define TRUTH_LINES (1u << 20)
static struct truth_line *truth_lines;
static uint32_t truth_used;

static inline uint64_t truth_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline int truth_tid(void) {
  static __thread int pid, tid;
  // getpid() is cheap next to a wrong tid in a forked child.
  if (!tid || pid != getpid()) {
    pid = getpid();
    tid = (int)syscall(SYS_gettid);
  }
  return tid;
}

// Reserves room for the log. With TRUTH_REALTIME set, runs before all other programs, and so do
// threads started from here on. With TRUTH_WAIT set, says "ready PID" and waits for a line on
// stdin, so that a tracer can attach first. Lines behind it are left to whoever reads stdin next.
static inline void truth_init(void) {
  truth_lines = (struct truth_line *)calloc(TRUTH_LINES, sizeof *truth_lines);
  if (!truth_lines) {
    perror("calloc");
    exit(99);
  }
  if (getenv("TRUTH_REALTIME")) {
    struct sched_param first = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &first)) perror("sched_setscheduler");
  }
  if (getenv("TRUTH_WAIT")) {
    char line[16];
    setvbuf(stdin, NULL, _IONBF, 0);
    fprintf(stderr, "ready %d\n", getpid());
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin)) exit(98);
  }
}

static inline void truth_add(enum truth_kind kind, const char *name, uint64_t a, uint64_t b,
                             uint64_t c, uint64_t d, uint64_t e) {
  uint32_t i = __atomic_fetch_add(&truth_used, 1, __ATOMIC_RELAXED);
  if (i >= TRUTH_LINES) {
    fprintf(stderr, "truth: log is full\n");
    _exit(97);
  }
  struct truth_line *l = &truth_lines[i];
  l->kind = kind;
  l->name = name;
  l->pid = getpid();
  l->tid = truth_tid();
  l->v[0] = a, l->v[1] = b, l->v[2] = c, l->v[3] = d, l->v[4] = e;
}

// An item was handled: `before` and `after` were read by the caller around the probed call,
// `enter` and `leave` inside it. 0: not known.
static inline void truth_item(uint64_t id, uint64_t before, uint64_t enter, uint64_t leave,
                              uint64_t after) {
  truth_add(TRUTH_ITEM, NULL, id, before, enter, leave, after);
}

// An item is about to begin whose end may never come.
static inline void truth_begin(uint64_t id, uint64_t before) {
  truth_add(TRUTH_BEGIN, NULL, id, before, 0, 0, 0);
}

// Within an item a function ran from `enter` to `leave`.
static inline void truth_call(const char *name, uint64_t id, uint64_t enter, uint64_t leave) {
  truth_add(TRUTH_CALL, name, id, enter, leave, 0, 0);
}

// Anything else: a named number.
static inline void truth_note(const char *name, uint64_t value) {
  truth_add(TRUTH_NOTE, name, value, 0, 0, 0, 0);
}

// Appends the log to its file and clears it. One thread at a time.
static inline void truth_write(void) {
  const char *path = getenv("TRUTH_FILE");
  FILE *out = path ? fopen(path, "a") : stdout;
  if (!out) {
    perror(path);
    exit(96);
  }
  for (uint32_t i = 0; i < truth_used; i++) {
    const struct truth_line *l = &truth_lines[i];
    const uint64_t *v = l->v;
    typedef unsigned long long u;
    switch (l->kind) {
      case TRUTH_ITEM:
        fprintf(out, "item %llu %d %d %llu %llu %llu %llu\n", (u)v[0], l->pid, l->tid, (u)v[1],
                (u)v[2], (u)v[3], (u)v[4]);
        break;
      case TRUTH_BEGIN:
        fprintf(out, "begin %llu %d %d %llu\n", (u)v[0], l->pid, l->tid, (u)v[1]);
        break;
      case TRUTH_CALL:
        fprintf(out, "call %s %llu %d %llu %llu\n", l->name, (u)v[0], l->tid, (u)v[1], (u)v[2]);
        break;
      case TRUTH_NOTE:
        fprintf(out, "note %s %llu\n", l->name, (u)v[0]);
        break;
    }
  }
  truth_used = 0;
  if (path)
    fclose(out);
  else
    fflush(out);
}

// A number that only `rounds` dependent multiplications give: work that can't be optimized away
// and whose result is the same in every run.
static inline uint64_t truth_work(uint64_t seed, uint32_t rounds) {
  uint64_t x = seed | 1;
  for (uint32_t i = 0; i < rounds; i++) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    __asm__ volatile("" : "+r"(x));
  }
  return x;
}

// Keeps the CPU busy until `ns` have passed.
static inline void truth_spin(uint64_t ns) {
  uint64_t until = truth_now() + ns;
  while (truth_now() < until) __asm__ volatile("" ::: "memory");
}

// The same by the thread's CPU clock: no shorter for a preempted thread.
static inline void truth_spin_own(uint64_t ns) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  uint64_t until = (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec + ns;
  do {
    truth_work(until, 1000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while ((uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec < until);
}

// Returns once a thread of this process sleeps: it waits for something, and is no longer only about to.
static inline void truth_until_asleep(int tid) {
  char path[64], stat[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  for (;;) {
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, stat, sizeof stat - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return;
    stat[n] = 0;
    // The state stands behind the name, which is in parentheses.
    char *name_end = strrchr(stat, ')');
    if (name_end && name_end[2] == 'S') return;
    usleep(100);
  }
}

// Pins the calling thread to that CPU.
static inline int truth_pin_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

// Pins the calling thread to the n-th CPU that it may run on; false where there are fewer.
static inline int truth_pin(int n) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all)) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all) && n-- == 0) return truth_pin_to(cpu);
  return 0;
}

// argv[n] as a number, or `otherwise`.
static inline uint32_t truth_arg(int argc, char **argv, int n, uint32_t otherwise) {
  return argc > n ? (uint32_t)strtoul(argv[n], NULL, 0) : otherwise;
}

#endif
