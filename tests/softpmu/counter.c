// SPDX-License-Identifier: GPL-2.0
/* Counting and intervals: time stands for events, at a rate that each event has. */
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/clock.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <asm/irq_regs.h>
#include "softpmu.h"

/* Rate of the events of the program's own speed, in thousandths of the usual one: a program sets it for the code that
 * follows, on the CPU that it runs on. */
static unsigned int pace = 1000;

static struct rate rate_of(struct soft_event *soft)
{
	if (!soft->has_pace)
		return soft->rate;
	return (struct rate){ soft->rate.events * pace, soft->rate.ns * 1000 };
}

static u64 interval_ns(struct soft_event *soft, u64 events)
{
	struct rate rate = rate_of(soft);

	return max(mul_u64_u64_div_u64(events, rate.ns, rate.events), 1000ULL);
}

/* The events to the next sample. */
static u64 next_events(struct soft_event *soft)
{
	u64 events = soft->event->hw.sample_period;

	if (soft->jitter && events > soft->jitter)
		events = events - soft->jitter / 2 + get_random_u32_below(soft->jitter);
	return events;
}

/* Whether the event counts where the interval ended. The modes are looked at there only: a real counter
 * stands still in the others. */
static bool is_counted(struct perf_event *event, struct pt_regs *regs)
{
	if (is_idle_task(current))
		return false;
	return user_mode(regs) ? !event->attr.exclude_user : !event->attr.exclude_kernel;
}

/* Events that count on a CPU: four of the cores, and one of each of IBS's. */
#define ACTIVE 6

static DEFINE_PER_CPU(struct soft_event *[ACTIVE], active);

static void replace_active(struct soft_event *old, struct soft_event *new)
{
	struct soft_event **all = *this_cpu_ptr(&active);
	int i;

	for (i = 0; i < ACTIVE; i++) {
		if (all[i] == old) {
			all[i] = new;
			return;
		}
	}
	WARN_ON_ONCE(1);
}

void soft_each(void (*visit)(struct soft_event *soft))
{
	struct soft_event **all = *this_cpu_ptr(&active);
	int i;

	for (i = 0; i < ACTIVE; i++)
		if (all[i])
			visit(all[i]);
}

void soft_stand_still(struct hrtimer *running, u64 ns)
{
	struct soft_event **all = *this_cpu_ptr(&active);
	int i;

	for (i = 0; i < ACTIVE; i++) {
		if (!all[i])
			continue;
		all[i]->since += ns;
		if (&all[i]->timer != running && hrtimer_try_to_cancel(&all[i]->timer) > 0) {
			hrtimer_add_expires_ns(&all[i]->timer, ns);
			hrtimer_start_expires(&all[i]->timer, HRTIMER_MODE_ABS_PINNED_HARD);
		}
	}
	count(STOOD_STILL, ns);
}

/* From the end of a timer's function back to the interrupted code: the kernel's own work, none of the event's. */
static unsigned int return_ns = 1000;
module_param(return_ns, uint, 0644);

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct soft_event *soft = container_of(timer, struct soft_event, timer);
	struct hw_perf_event *hwc = &soft->event->hw;
	struct pt_regs *regs = get_irq_regs();
	ktime_t from = hrtimer_get_expires(timer);
	u64 stood;

	if (hwc->state & PERF_HES_STOPPED || soft->event->state != PERF_EVENT_STATE_ACTIVE)
		return HRTIMER_NORESTART;
	/* What the kernel does with interrupts off before is work like any other. */
	if (!regs || !user_mode(regs))
		from = hrtimer_cb_get_time(timer);
	hwc->last_period = hwc->sample_period;
	if (regs && is_counted(soft->event, regs))
		soft->sample(soft, regs);
	stood = ktime_to_ns(ktime_sub(hrtimer_cb_get_time(timer), from)) + READ_ONCE(return_ns);
	soft_stand_still(timer, stood);
	if (hwc->state & PERF_HES_STOPPED)
		return HRTIMER_NORESTART;
	hrtimer_add_expires_ns(timer, interval_ns(soft, next_events(soft)) + stood);
	return HRTIMER_RESTART;
}

static void destroy(struct perf_event *event)
{
	kfree(event->pmu_private);
}

int soft_init(struct perf_event *event, struct rate rate)
{
	struct soft_event *soft = kzalloc(sizeof(*soft), GFP_KERNEL);

	if (!soft)
		return -ENOMEM;
	soft->event = event;
	soft->rate = rate;
	soft->counter = -1;
	hrtimer_init(&soft->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	soft->timer.function = expired;
	event->pmu_private = soft;
	event->destroy = destroy;
	return 0;
}

/* Adds what was counted up to now; all of it in one mode. */
void soft_update_in(struct soft_event *soft, bool user)
{
	struct perf_event *event = soft->event;
	struct rate rate = rate_of(soft);
	u64 now = local_clock();
	u64 events;

	if (event->hw.state & PERF_HES_STOPPED || (s64)(now - soft->since) <= 0)
		return;
	if (soft->counts_calls || (user ? event->attr.exclude_user : event->attr.exclude_kernel)) {
		soft->since = now;
		return;
	}
	events = mul_u64_u64_div_u64(now - soft->since, rate.events, rate.ns);
	/* What is less than an event counts later. */
	soft->since += mul_u64_u64_div_u64(events, rate.ns, rate.events);
	local64_add(events, &event->count);
}

/* Whether what runs is a program's own code, as far as it concerns counting: interrupts and exceptions are part of
 * the code that they come from, and kernel mode is a system call. */
static bool is_user(void)
{
	return !(current->flags & PF_KTHREAD) && (long)task_pt_regs(current)->orig_ax < 0;
}

void soft_update(struct perf_event *event)
{
	soft_update_in(soft_of(event), is_user());
}

/* Starts the timer with the events that are left. */
static void start_timer(struct soft_event *soft)
{
	struct hw_perf_event *hwc = &soft->event->hw;
	s64 left = local64_read(&hwc->period_left);

	if (left <= 0 || left > hwc->sample_period)
		left = hwc->sample_period;
	hrtimer_start(&soft->timer, ns_to_ktime(interval_ns(soft, left)), HRTIMER_MODE_REL_PINNED_HARD);
}

/* Stops the timer and keeps the events that are left. Interrupts are off, and it is not running here: it is pinned
 * to this CPU. */
static void stop_timer(struct soft_event *soft)
{
	s64 left = ktime_to_ns(hrtimer_get_remaining(&soft->timer));
	struct rate rate = rate_of(soft);

	hrtimer_try_to_cancel(&soft->timer);
	left = left > 0 ? mul_u64_u64_div_u64(left, rate.events, rate.ns) : 1;
	local64_set(&soft->event->hw.period_left, max(left, 1LL));
}

static void before_pace(struct soft_event *soft)
{
	if (!soft->has_pace)
		return;
	soft_update(soft->event);
	if (is_sampling_event(soft->event))
		stop_timer(soft);
}

static void after_pace(struct soft_event *soft)
{
	if (soft->has_pace && is_sampling_event(soft->event))
		start_timer(soft);
}

static int set_pace(const char *text, const struct kernel_param *kp)
{
	unsigned long flags;
	unsigned int value;
	int error = kstrtouint(text, 0, &value);

	if (error || !value)
		return error ?: -EINVAL;
	local_irq_save(flags);
	soft_each(before_pace);
	pace = value;
	soft_each(after_pace);
	local_irq_restore(flags);
	return 0;
}

static const struct kernel_param_ops pace_ops = { .get = param_get_uint, .set = set_pace };
module_param_cb(pace, &pace_ops, &pace, 0644);

void soft_start(struct perf_event *event, int flags)
{
	struct soft_event *soft = soft_of(event);
	struct hw_perf_event *hwc = &event->hw;

	if (!(hwc->state & PERF_HES_STOPPED))
		return;
	hwc->state = 0;
	soft->since = local_clock();
	replace_active(NULL, soft);
	if (is_sampling_event(event))
		start_timer(soft);
	perf_event_update_userpage(event);
}

void soft_pause(struct perf_event *event)
{
	soft_update(event);
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	replace_active(soft_of(event), NULL);
	local64_set(&event->hw.period_left, event->hw.sample_period);
}

void soft_stop(struct perf_event *event, int flags)
{
	struct soft_event *soft = soft_of(event);

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	soft_update(event);
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	replace_active(soft, NULL);
	if (is_sampling_event(event))
		stop_timer(soft);
}
