// SPDX-License-Identifier: GPL-2.0
/* The interrupt of a counter: an NMI that this CPU sends to itself. */
#include <linux/cpumask.h>
#include <linux/percpu.h>
#include <asm/apic.h>
#include <asm/nmi.h>
#include "softpmu.h"

/* Loops until an NMI that does not come is given up: far more than any emulator takes. */
#define PATIENCE 1000000

struct pending {
	void (*handle)(struct soft_event *soft, struct pt_regs *regs);
	struct soft_event *soft;
	struct pt_regs *regs;
};

static DEFINE_PER_CPU(struct pending, pending);

static void handle(struct pending *now)
{
	struct pending taken = *now;

	WRITE_ONCE(now->handle, NULL);
	if (taken.handle)
		taken.handle(taken.soft, taken.regs);
}

static int on_nmi(unsigned int cmd, struct pt_regs *regs)
{
	struct pending *now = this_cpu_ptr(&pending);

	if (!READ_ONCE(now->handle))
		return NMI_DONE;
	count(INTERRUPTS, 1);
	handle(now);
	return NMI_HANDLED;
}

void pmi_raise(void (*handler)(struct soft_event *soft, struct pt_regs *regs), struct soft_event *soft,
	       struct pt_regs *regs)
{
	struct pending *now = this_cpu_ptr(&pending);
	int patience = PATIENCE;

	now->soft = soft;
	now->regs = regs;
	WRITE_ONCE(now->handle, handler);
	apic->send_IPI_mask(cpumask_of(smp_processor_id()), NMI_VECTOR);
	while (READ_ONCE(now->handle) && --patience)
		cpu_relax();
	if (READ_ONCE(now->handle)) {
		count(LATE, 1);
		handle(now);
	}
}

int pmi_init(void)
{
	return register_nmi_handler(NMI_LOCAL, on_nmi, 0, "softpmu");
}

void pmi_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, "softpmu");
}
