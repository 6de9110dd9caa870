// SPDX-License-Identifier: GPL-2.0
/* Counting and intervals: time stands for events, at a rate that each event has. */
#include <linux/math64.h>
#include <linux/sched/clock.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <asm/irq_regs.h>
#include "softpmu.h"

static u64 interval_ns(struct soft_event *soft, u64 events)
{
	return max(mul_u64_u64_div_u64(events, soft->rate.ns, soft->rate.events), 1000ULL);
}

/* Whether the event counts where the interval ended. The modes are looked at there only: a real counter
 * stands still in the others. */
static bool is_counted(struct perf_event *event, struct pt_regs *regs)
{
	if (is_idle_task(current))
		return false;
	return user_mode(regs) ? !event->attr.exclude_user : !event->attr.exclude_kernel;
}

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct soft_event *soft = container_of(timer, struct soft_event, timer);
	struct hw_perf_event *hwc = &soft->event->hw;
	struct pt_regs *regs = get_irq_regs();
	u64 passed;

	if (hwc->state & PERF_HES_STOPPED || soft->event->state != PERF_EVENT_STATE_ACTIVE)
		return HRTIMER_NORESTART;
	hwc->last_period = hwc->sample_period;
	if (regs && is_counted(soft->event, regs))
		soft->sample(soft, regs);
	if (hwc->state & PERF_HES_STOPPED)
		return HRTIMER_NORESTART;
	passed = hrtimer_forward_now(timer, ns_to_ktime(interval_ns(soft, hwc->sample_period)));
	if (passed > 1)
		count(SKIPPED, passed - 1);
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

void soft_update(struct perf_event *event)
{
	struct soft_event *soft = soft_of(event);
	u64 now = local_clock();
	u64 events;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	events = mul_u64_u64_div_u64(now - soft->since, soft->rate.events, soft->rate.ns);
	/* What is less than an event counts later. */
	soft->since += mul_u64_u64_div_u64(events, soft->rate.ns, soft->rate.events);
	local64_add(events, &event->count);
}

void soft_start(struct perf_event *event, int flags)
{
	struct soft_event *soft = soft_of(event);
	struct hw_perf_event *hwc = &event->hw;
	s64 left = local64_read(&hwc->period_left);

	if (!(hwc->state & PERF_HES_STOPPED))
		return;
	hwc->state = 0;
	soft->since = local_clock();
	if (is_sampling_event(event)) {
		if (left <= 0 || left > hwc->sample_period)
			left = hwc->sample_period;
		hrtimer_start(&soft->timer, ns_to_ktime(interval_ns(soft, left)), HRTIMER_MODE_REL_PINNED_HARD);
	}
	perf_event_update_userpage(event);
}

void soft_pause(struct perf_event *event)
{
	soft_update(event);
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	local64_set(&event->hw.period_left, event->hw.sample_period);
}

void soft_stop(struct perf_event *event, int flags)
{
	struct soft_event *soft = soft_of(event);
	s64 left;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	soft_update(event);
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (!is_sampling_event(event))
		return;
	/* Interrupts are off: it is not running here, and it is pinned to this CPU. */
	left = ktime_to_ns(hrtimer_get_remaining(&soft->timer));
	hrtimer_try_to_cancel(&soft->timer);
	left = left > 0 ? mul_u64_u64_div_u64(left, soft->rate.events, soft->rate.ns) : 1;
	local64_set(&event->hw.period_left, max(left, 1LL));
}
