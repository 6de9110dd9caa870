// SPDX-License-Identifier: GPL-2.0
/*
 * `ibs_op` and `ibs_fetch`: one event each, an interrupt for each sample, registers in the raw part; from
 * arch/x86/events/amd/ibs.c (Linux 6.12): `perf_ibs_init`, `perf_ibs_handle_irq`.
 */
#include <linux/module.h>
#include <linux/percpu.h>
#include "softpmu.h"

/* What the registers of an op and of a fetch are; see asm/amd-ibs.h. */
#define OP_REGISTERS 8
#define FETCH_REGISTERS 4

/* IBS_CAPS_*: available, fetches, ops, counting of ops, branch target, 27 bits of count, RIP invalid,
 * extended fetch control. */
#define CAPS (BIT(0) | BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(9))

#define OP_CNT_CTL BIT_ULL(19)
#define OP_VALID BIT_ULL(18)
#define FETCH_RAND_EN BIT_ULL(57)
#define FETCH_VALID BIT_ULL(49)
#define FETCH_COMPLETE BIT_ULL(50)
#define FETCH_PHYSICAL_VALID BIT_ULL(52)

/* Completion to retirement 10 cycles, tagging to retirement 50. */
#define OP_DATA (10ULL | 50ULL << 16)
#define OP_BRANCH_TAKEN BIT_ULL(35)
#define OP_BRANCH BIT_ULL(37)
/* Of loads and stores of 8 bytes, whose address is valid. All miss the first level, and hit the second. */
#define OP_LOAD BIT_ULL(0)
#define OP_STORE BIT_ULL(1)
#define OP_LOCKED BIT_ULL(15)
#define OP_ACCESS (BIT_ULL(7) | BIT_ULL(17) | 4ULL << 22)

/* IBS_OP_CUR_CNT_RAND: the hardware counts from a random number. */
#define JITTER 128

#define P(a, b) PERF_MEM_S(a, b)
#define LOAD_L2 (P(OP, LOAD) | P(LVL, HIT) | P(LVL, L2) | P(LVLNUM, L2) | P(TLB, HIT) | P(TLB, L1))
#define STORE_L1 (P(OP, STORE) | P(LVL, HIT) | P(LVL, L1) | P(LVLNUM, L1) | P(TLB, HIT) | P(TLB, L1))

struct raw {
	u32 caps;
	u64 registers[OP_REGISTERS];
} __packed;

struct ibs {
	struct perf_event *event;
};

static DEFINE_PER_CPU(struct ibs, op_events);
static DEFINE_PER_CPU(struct ibs, fetch_events);
static struct pmu ibs_fetch;

static struct perf_event **place(struct perf_event *event)
{
	return event->pmu == &ibs_fetch ? &this_cpu_ptr(&fetch_events)->event : &this_cpu_ptr(&op_events)->event;
}

static size_t fill(struct perf_event *event, struct pt_regs *regs, const struct op *op, struct raw *raw)
{
	memset(raw, 0, sizeof(*raw));
	raw->caps = CAPS;
	if (event->pmu == &ibs_fetch) {
		raw->registers[0] = FETCH_VALID | FETCH_COMPLETE | event->attr.config;
		raw->registers[1] = regs->ip;
		return FETCH_REGISTERS;
	}
	raw->registers[0] = OP_VALID | event->attr.config;
	raw->registers[1] = regs->ip;
	raw->registers[2] = OP_DATA | (op->branch ? OP_BRANCH : 0) | (op->taken ? OP_BRANCH_TAKEN : 0);
	if (op->load || op->store)
		raw->registers[4] = OP_ACCESS | (op->load ? OP_LOAD : 0) | (op->store ? OP_STORE : 0) |
				    (op->locked ? OP_LOCKED : 0);
	raw->registers[5] = op->address;
	return OP_REGISTERS;
}

static void overflow(struct soft_event *soft, struct pt_regs *iregs)
{
	struct perf_event *event = soft->event;
	u64 type = event->attr.sample_type;
	struct perf_raw_record raw = {};
	struct perf_sample_data data;
	struct pt_regs regs = *iregs;
	struct op op = op_at(iregs);
	struct raw words;
	size_t n = fill(event, iregs, &op, &words);

	regs.flags |= PERF_EFLAGS_EXACT;
	perf_sample_data_init(&data, 0, event->hw.last_period);
	raw.frag.size = sizeof(u32) + n * sizeof(u64);
	raw.frag.data = &words;
	perf_sample_save_raw_data(&data, event, &raw);
	if (event->pmu == &ibs_op) {
		if (type & PERF_SAMPLE_DATA_SRC && (op.load || op.store)) {
			data.data_src.val = op.load ? LOAD_L2 : STORE_L1;
			data.sample_flags |= PERF_SAMPLE_DATA_SRC;
		}
		if (type & (PERF_SAMPLE_ADDR | PERF_SAMPLE_PHYS_ADDR) && (op.load || op.store)) {
			data.addr = op.address;
			data.sample_flags |= PERF_SAMPLE_ADDR;
		}
	}
	if (type & PERF_SAMPLE_CALLCHAIN) {
		data.callchain = kernel_callchain(event, iregs);
		data.dyn_size += (1 + data.callchain->nr) * sizeof(u64);
		data.sample_flags |= PERF_SAMPLE_CALLCHAIN;
	}
	count(OVERFLOWS, 1);
	if (kernel_overflow(event, &data, &regs)) {
		count(PAUSES, 1);
		soft_pause(event);
	}
}

static void interrupt(struct soft_event *soft, struct pt_regs *regs)
{
	pmi_raise(overflow, soft, regs);
}

static int ibs_event_init(struct perf_event *event, struct pmu *pmu, u64 config)
{
	struct perf_event_attr *attr = &event->attr;
	/* An op of each instruction. */
	struct rate rate = { 1, 2 };
	int error;

	if (attr->type != pmu->type)
		return -ENOENT;
	if (attr->config & ~config)
		return -EINVAL;
	if (attr->precise_ip > 2)
		return -EOPNOTSUPP;
	if (!is_sampling_event(event))
		return -EINVAL;
	if (!attr->freq && event->hw.sample_period & 0xf)
		return -EINVAL;
	event->hw.sample_period = max(event->hw.sample_period & ~0xfULL, 0x10ULL);
	error = soft_init(event, rate);
	if (error)
		return error;
	soft_of(event)->sample = interrupt;
	soft_of(event)->jitter = JITTER;
	return 0;
}

static int op_event_init(struct perf_event *event)
{
	return ibs_event_init(event, &ibs_op, OP_CNT_CTL);
}

static int fetch_event_init(struct perf_event *event)
{
	return ibs_event_init(event, &ibs_fetch, FETCH_RAND_EN);
}

static int ibs_add(struct perf_event *event, int flags)
{
	if (*place(event))
		return -ENOSPC;
	*place(event) = event;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		soft_start(event, PERF_EF_RELOAD);
	return 0;
}

static void ibs_del(struct perf_event *event, int flags)
{
	soft_stop(event, PERF_EF_UPDATE);
	*place(event) = NULL;
	perf_event_update_userpage(event);
}

PMU_FORMAT_ATTR(cnt_ctl, "config:19");
PMU_FORMAT_ATTR(rand_en, "config:57");

static struct attribute *op_format[] = { &format_attr_cnt_ctl.attr, NULL };
static const struct attribute_group op_format_group = { .name = "format", .attrs = op_format };
static const struct attribute_group *op_groups[] = { &op_format_group, NULL };
static struct attribute *fetch_format[] = { &format_attr_rand_en.attr, NULL };
static const struct attribute_group fetch_format_group = { .name = "format", .attrs = fetch_format };
static const struct attribute_group *fetch_groups[] = { &fetch_format_group, NULL };

#define IBS_PMU                                                                                    \
	.module = THIS_MODULE, .task_ctx_nr = perf_hw_context, .capabilities = PERF_PMU_CAP_NO_EXCLUDE, \
	.add = ibs_add, .del = ibs_del, .start = soft_start, .stop = soft_stop, .read = soft_update

struct pmu ibs_op = { IBS_PMU, .event_init = op_event_init, .attr_groups = op_groups };
static struct pmu ibs_fetch = { IBS_PMU, .event_init = fetch_event_init, .attr_groups = fetch_groups };

int ibs_init(void)
{
	int error = perf_pmu_register(&ibs_fetch, "ibs_fetch", -1);

	if (error)
		return error;
	error = perf_pmu_register(&ibs_op, "ibs_op", -1);
	if (error)
		perf_pmu_unregister(&ibs_fetch);
	return error;
}

void ibs_exit(void)
{
	perf_pmu_unregister(&ibs_op);
	perf_pmu_unregister(&ibs_fetch);
}
