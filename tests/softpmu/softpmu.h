/* SPDX-License-Identifier: GPL-2.0 */
/* A PMU in software: timers in place of counters, the kernel's own treatment of their records. */
#ifndef SOFTPMU_H
#define SOFTPMU_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>

/* Events in so many ns of the time that an event counts: its truth. */
struct rate {
	u64 events;
	u64 ns;
};

/* What an event has beside the kernel's own state. */
struct soft_event {
	struct perf_event *event;
	struct hrtimer timer;
	struct rate rate;
	/* Clock up to which events are counted, ns. */
	u64 since;
	/* Counters that can hold it, a bit each; the one that does. */
	unsigned long allowed;
	int counter;
	/* Events by which an interval may be longer or shorter, a power of two; 0: none. */
	u32 jitter;
	/* It counts system calls, not time. */
	bool counts_calls;
	/* Its rate is that of the program: `pace`. */
	bool has_pace;
	/* It is in PEBS's hands, and it allows many records for one interrupt. */
	bool precise, large;
	/* What an expired interval makes; interrupts are off. */
	void (*sample)(struct soft_event *soft, struct pt_regs *regs);
};

static inline struct soft_event *soft_of(struct perf_event *event)
{
	return event->pmu_private;
}

/* counter.c: counting and intervals, for all PMUs. */
int soft_init(struct perf_event *event, struct rate rate);
void soft_start(struct perf_event *event, int flags);
/* Stops without touching the timer, which may be about to end by itself: for the interrupt's handler. */
void soft_pause(struct perf_event *event);
void soft_stop(struct perf_event *event, int flags);
void soft_update(struct perf_event *event);
void soft_update_in(struct soft_event *soft, bool user);
/* For each event that counts on this CPU. */
void soft_each(void (*visit)(struct soft_event *soft));
/* Nothing counted on this CPU for so long, as hardware's counters are stopped while their interrupt is handled. The
 * timer whose function runs is left alone. */
void soft_stand_still(struct hrtimer *running, u64 ns);

/* calls.c: system calls, at which the mode changes, and which an event counts. */
int calls_init(void);
void calls_exit(void);

/* pmi.c: the interrupt of a counter, an NMI as on hardware. */
int pmi_init(void);
void pmi_exit(void);
/* Has `handle` called in an NMI, with the registers of the interrupted code. */
void pmi_raise(void (*handle)(struct soft_event *soft, struct pt_regs *regs), struct soft_event *soft,
	       struct pt_regs *regs);

/* op.c: what the instruction of a sample does. */
struct op {
	bool load, store, locked, branch, taken;
	/* Of a load or store. */
	u64 address;
};

struct op op_at(const struct pt_regs *regs);

/* pebs.c, ibs.c */
int pebs_init(void);
void pebs_exit(void);
int ibs_init(void);
void ibs_exit(void);
/* The PMU that takes precise events of AMD's cores. */
extern struct pmu ibs_op;

/* main.c: functions that the kernel does not export. */
extern int (*kernel_overflow)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);
extern int (*kernel_output)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);
extern void (*kernel_sched_cb_inc)(struct pmu *);
extern void (*kernel_sched_cb_dec)(struct pmu *);
extern struct perf_callchain_entry *(*kernel_callchain)(struct perf_event *, struct pt_regs *);
extern void (*kernel_log_lost_samples)(struct perf_event *, u64);
extern int (*kernel_account_interrupt)(struct perf_event *);

/* What happened, readable and resettable as parameters of the module. */
enum tally {
	RECORDS,	/* written into the buffer, collisions included */
	COLLISIONS,	/* of them unusable, as two counters overflowed at once */
	OUTPUT,		/* went straight to a ring */
	OVERFLOWS,	/* took the overflow path, which programs see */
	INTERRUPTS,	/* NMIs */
	LATE,		/* NMIs that did not come at once */
	STOOD_STILL,	/* ns in which nothing counted, as records were handled */
	AT_THRESHOLD,	/* drains, by their cause */
	AT_SWITCH,
	AT_STOP,
	AT_READ,
	PAUSES,		/* the overflow path asked to stop: throttled, or the limit of an event */
	TALLIES
};

extern atomic64_t tallies[TALLIES];

static inline void count(enum tally tally, u64 n)
{
	atomic64_add(n, &tallies[tally]);
}

#endif
