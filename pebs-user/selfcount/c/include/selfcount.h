/* Self-monitoring: a thread counts its own hardware and software events.
 *
 * Counters are read by rdpmc without a system call where the CPU, the kernel and the event allow it, else by one
 * read() for the whole group. Link with -lselfcount (static: also -lpthread -ldl -lm).
 */
#ifndef SELFCOUNT_H
#define SELFCOUNT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Events of one thread that start, stop and take turns together. It may be used in the thread that opened it alone, and
 * not in a child of fork(). */
typedef struct selfcount_group selfcount_group;

typedef struct selfcount_count {
    /* Events counted (for clocks: ns). */
    uint64_t value;
    /* ns for which it was to count, and for which it did: less where groups take turns. */
    uint64_t enabled_ns;
    uint64_t running_ns;
    /* 1 if it was on a hardware counter when rdpmc read it. */
    uint64_t is_running;
} selfcount_count;

/* Flags of selfcount_open. */
/* Count threads and processes, too, that this thread starts later; never read by rdpmc. */
#define SELFCOUNT_INHERIT 1u
/* Touch the kernel's page once instead of mapping it populated. */
#define SELFCOUNT_TOUCH 2u
/* Neither: on kernels before 6.14 or so the first read is a page fault. */
#define SELFCOUNT_ON_DEMAND 4u
/* Always read by read(). */
#define SELFCOUNT_NO_RDPMC 8u

/* Opens a group, stopped. Names are perf's, with commas between: "cycles:u,page-faults,mem:0x401000:x".
 * NULL if it can't. */
selfcount_group *selfcount_open(const char *names, unsigned flags);
void selfcount_close(selfcount_group *group);

/* 0, or -1 if it can't. Starting goes on from where it stopped; reset makes it count from 0 again, times included. */
int selfcount_start(selfcount_group *group);
int selfcount_stop(selfcount_group *group);
int selfcount_reset(selfcount_group *group);

/* Fills `counts`, which has room for `room` of them, in the order of the events. Their number, or -1 if it can't. */
int selfcount_read(selfcount_group *group, selfcount_count *counts, size_t room);
size_t selfcount_events(const selfcount_group *group);
/* 1 if the last read went by rdpmc. */
int selfcount_is_rdpmc(const selfcount_group *group);

/* Events between two reads. */
selfcount_count selfcount_since(selfcount_count later, selfcount_count earlier);
/* Events, those estimated that came in others' turns. NaN if it never counted: unknown, not 0. */
double selfcount_scaled(selfcount_count count);

/* Why the last call in this thread failed, and what to do about it ("" if nothing helps). Valid until the next that
 * fails. */
const char *selfcount_error(void);
const char *selfcount_hint(void);

#ifdef __cplusplus
}
#endif

#endif
