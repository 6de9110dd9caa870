// SPDX-License-Identifier: GPL-2.0
/* System calls: the mode changes there, and one event counts them. */
#include <linux/irqflags.h>
#include <linux/tracepoint.h>
#include "softpmu.h"

static struct tracepoint *enter, *leave;

static bool has_one_mode(struct soft_event *soft)
{
	return soft->event->attr.exclude_user != soft->event->attr.exclude_kernel;
}

static void into_kernel(struct soft_event *soft)
{
	if (has_one_mode(soft))
		soft_update_in(soft, true);
	if (soft->counts_calls && !soft->event->attr.exclude_kernel)
		local64_inc(&soft->event->count);
}

static void into_user(struct soft_event *soft)
{
	if (has_one_mode(soft))
		soft_update_in(soft, false);
}

static void on_enter(void *data, struct pt_regs *regs, long id)
{
	unsigned long flags;

	local_irq_save(flags);
	soft_each(into_kernel);
	local_irq_restore(flags);
}

static void on_leave(void *data, struct pt_regs *regs, long ret)
{
	unsigned long flags;

	local_irq_save(flags);
	soft_each(into_user);
	local_irq_restore(flags);
}

static void find(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "sys_enter"))
		enter = tracepoint;
	if (!strcmp(tracepoint->name, "sys_exit"))
		leave = tracepoint;
}

int calls_init(void)
{
	int error;

	for_each_kernel_tracepoint(find, NULL);
	if (!enter || !leave)
		return -ENOENT;
	error = tracepoint_probe_register(enter, on_enter, NULL);
	if (error)
		return error;
	error = tracepoint_probe_register(leave, on_leave, NULL);
	if (error)
		tracepoint_probe_unregister(enter, on_enter, NULL);
	return error;
}

void calls_exit(void)
{
	tracepoint_probe_unregister(leave, on_leave, NULL);
	tracepoint_probe_unregister(enter, on_enter, NULL);
	tracepoint_synchronize_unregister();
}
