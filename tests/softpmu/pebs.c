// SPDX-License-Identifier: GPL-2.0
/*
 * `cpu`: four counters. On Intel they sample into a buffer of records as PEBS does, and the records are
 * treated as in arch/x86/events/intel/{core,ds}.c (Linux 6.12): `intel_pmu_hw_config`,
 * `intel_pmu_large_pebs_flags`, `pebs_update_state`, `intel_pmu_drain_pebs_nhm`,
 * `__intel_pmu_pebs_event`, `setup_pebs_fixed_sample_data`.
 */
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/vmalloc.h>
#include <asm/cpu_device_id.h>
#include <asm/intel-family.h>
#include <asm/processor.h>
#include <asm/segment.h>
#include "softpmu.h"

#define COUNTERS 4

/* `cpu`, or the one of the performance cores. */
static struct pmu core_pmu;
/* Where the CPU says that it is Alder Lake, the other kind of cores: every second CPU. */
static struct pmu atom_pmu;
static bool is_hybrid_cpu;

static bool is_amd(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD;
}

static bool is_on(struct pmu *pmu, int cpu)
{
	return !is_hybrid_cpu || (cpu & 1) == (pmu == &atom_pmu);
}

/* As many records of Skylake's as fit into 64 KiB. */
#define RECORDS_OF_BUFFER (65536 / 200)

/* Records that a CPU's buffer holds, as far as it is used. */
static unsigned int buffer = RECORDS_OF_BUFFER;
module_param(buffer, uint, 0644);

/* Buffer records of events that forbid it. The kernel does not; but hardware may write one more before the
 * interrupt comes. */
static bool always_many;
module_param(always_many, bool, 0644);

/* Every so many records one of two counters that overflowed at once is lost; 0: none. */
static unsigned int collide;
module_param(collide, uint, 0644);

/* The highest precise level, as sysfs has it. */
#define MAX_PRECISE 3

/* The level above which no event is granted, as not every event has the highest. */
static unsigned int granted = MAX_PRECISE;
module_param(granted, uint, 0644);

/* Records that the threshold leaves free, one for each counter that may overflow meanwhile. */
#define RESERVED 8

/* PERF_EFLAGS_EXACT of arch/x86/include/asm/perf_event.h. */
#define EXACT PERF_EFLAGS_EXACT

struct record {
	int counter;
	bool collided;
	u64 time;
	u64 address;
	struct pt_regs regs;
};

/* What a CPU has. */
struct area {
	struct perf_event *events[COUNTERS];
	struct record *buffer;
	unsigned int used, threshold;
	unsigned int n_pebs, n_large;
	unsigned int since_collision;
};

static DEFINE_PER_CPU(struct area, areas);

/* An instruction takes 2 ns of the emulator's time, so that those are counted exactly. */
#define INSTRUCTION_NS 2

/* Rates of events by their code and umask (-1: any), events in so many instructions. Loads, stores and branches are
 * as in ten instructions of the loop of many kinds of `pebs-trace validate`, misses as in its chase with one in 20. */
static const struct {
	u8 code;
	s16 umask;
	u32 events, instructions;
} rates[] = {
	{ 0x3c, -1, 2, 1 },	/* cycles of Intel's cores */
	{ 0x76, -1, 2, 1 },	/* of AMD's */
	{ 0xc0, -1, 1, 1 },	/* instructions */
	{ 0xc2, -1, 2, 1 },	/* retired uops */
	{ 0xc4, 0x08, 1, 10 },	/* returns */
	{ 0xc4, 0x20, 3, 10 },	/* taken branches */
	{ 0xc4, -1, 4, 10 },	/* branches */
	{ 0xcd, -1, 1, 2 },	/* loads by latency */
	{ 0xd0, 0x82, 3, 10 },	/* stores */
	{ 0xd0, 0x21, 2, 10 },	/* locked loads */
	{ 0xd0, -1, 4, 10 },	/* loads */
	{ 0xd1, -1, 1, 20 },	/* loads by where they hit */
};

static struct rate rate_of(u64 config)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rates); i++)
		if (rates[i].code == (config & 0xff) &&
		    (rates[i].umask < 0 || rates[i].umask == ((config >> 8) & 0xff)))
			return (struct rate){ rates[i].events, rates[i].instructions * INSTRUCTION_NS };
	return (struct rate){ 1, 100 };
}

/* Instructions and retired uops. */
static bool has_pace(u64 config)
{
	return (config & 0xff) == 0xc0 || (config & 0xff) == 0xc2;
}

/* Mispredicted branches, where they are only counted: one in each system call. */
static bool counts_calls(u64 config)
{
	return (config & 0xff) == (is_amd() ? 0xc3 : 0xc5);
}

/* Codes of generic events, PERF_COUNT_HW_*. */
static const u64 generic_intel[] = { 0x3c, 0xc0, 0x4f2e, 0x412e, 0xc4, 0xc5, 0x13c, 0, 0, 0x300 };
static const u64 generic_amd[] = { 0x76, 0xc0, 0xff60, 0x964, 0xc2, 0xc3, 0, 0xa9, 0, 0x120 };

static u64 config_of(struct perf_event *event)
{
	u64 config = event->attr.config;

	if (event->attr.type == PERF_TYPE_HW_CACHE)
		return 0xd1;
	if (event->attr.type != PERF_TYPE_HARDWARE)
		return config;
	if (config >= ARRAY_SIZE(generic_intel))
		return 0;
	return is_amd() ? generic_amd[config] : generic_intel[config];
}

static bool is_large(struct area *area)
{
	return area->n_pebs && area->n_pebs == area->n_large;
}

/* What a record says of the access to memory: a hit in the first level, at the address that its
 * instruction has; the stack's top where it has none, as this PMU takes any instruction for a load. */
static bool has_access(struct perf_event *event)
{
	u8 code = config_of(event) & 0xff;

	return code == 0xcd || (code >= 0xd0 && code <= 0xd4);
}

#define P(a, b) PERF_MEM_S(a, b)
#define LOAD_L1 (P(OP, LOAD) | P(LVL, HIT) | P(LVL, L1) | P(LVLNUM, L1) | P(SNOOP, NONE) | P(TLB, HIT) | P(TLB, L1) | P(TLB, L2))
#define STORE_L1 (P(OP, STORE) | P(LVL, L1) | P(LVL, HIT))
#define LATENCY 7

static void setup_sample(struct perf_event *event, struct pt_regs *iregs, struct record *record,
			 struct perf_sample_data *data, struct pt_regs *regs)
{
	u64 type = event->attr.sample_type;

	perf_sample_data_init(data, 0, event->hw.last_period);
	data->period = event->hw.last_period;
	if (has_access(event)) {
		bool store = (config_of(event) & 0xffff) == 0x82d0;

		if (type & (PERF_SAMPLE_DATA_SRC)) {
			data->data_src.val = store ? STORE_L1 : LOAD_L1;
			data->sample_flags |= PERF_SAMPLE_DATA_SRC;
		}
		if (type & PERF_SAMPLE_WEIGHT_TYPE && !store) {
			data->weight.full = LATENCY;
			data->sample_flags |= PERF_SAMPLE_WEIGHT_TYPE;
		}
		if (type & (PERF_SAMPLE_ADDR | PERF_SAMPLE_PHYS_ADDR)) {
			data->addr = record->address;
			data->sample_flags |= PERF_SAMPLE_ADDR;
		}
	}
	/* The unwinder needs the registers at the interrupt. */
	if (type & PERF_SAMPLE_CALLCHAIN) {
		data->callchain = kernel_callchain(event, iregs);
		data->dyn_size += (1 + data->callchain->nr) * sizeof(u64);
		data->sample_flags |= PERF_SAMPLE_CALLCHAIN;
	}
	*regs = record->regs;
	regs->flags &= ~EXACT;
	if (event->attr.precise_ip > 1)
		regs->flags |= EXACT;
	/* setup_pebs_time */
	if (!event->attr.use_clockid) {
		data->time = record->time;
		data->sample_flags |= PERF_SAMPLE_TIME;
	}
}

static void pebs_stop(struct perf_event *event)
{
	count(PAUSES, 1);
	soft_pause(event);
}

/* All but the last of an event go to its ring; the last one to the overflow path if this is an interrupt. */
static void drain_event(struct area *area, int counter, unsigned int used, unsigned int n, struct pt_regs *iregs)
{
	static struct pt_regs none;
	struct perf_event *event = area->events[counter];
	struct perf_sample_data data;
	struct pt_regs regs;
	unsigned int i;

	for (i = 0; i < used; i++) {
		struct record *record = &area->buffer[i];

		if (record->counter != counter || record->collided)
			continue;
		setup_sample(event, iregs ?: &none, record, &data, &regs);
		if (--n || !iregs) {
			count(OUTPUT, 1);
			kernel_output(event, &data, &regs);
			continue;
		}
		count(OVERFLOWS, 1);
		if (kernel_overflow(event, &data, &regs))
			pebs_stop(event);
	}
	perf_event_update_userpage(event);
}

static void drain(struct area *area, struct pt_regs *iregs)
{
	unsigned int counts[COUNTERS] = {}, lost[COUNTERS] = {};
	unsigned int used = area->used, i;

	area->used = 0;
	for (i = 0; i < used; i++) {
		struct record *record = &area->buffer[i];

		if (record->collided)
			lost[record->counter]++;
		else
			counts[record->counter]++;
	}
	for (i = 0; i < COUNTERS; i++) {
		struct perf_event *event = area->events[i];

		if (!counts[i] && !lost[i])
			continue;
		if (WARN_ON_ONCE(!event))
			continue;
		if (lost[i]) {
			kernel_log_lost_samples(event, lost[i]);
			if (iregs && kernel_account_interrupt(event))
				pebs_stop(event);
		}
		if (counts[i])
			drain_event(area, i, used, counts[i], iregs);
	}
}

static void drain_for(struct area *area, enum tally cause)
{
	u64 begin = local_clock();

	if (!area->used)
		return;
	count(cause, 1);
	drain(area, NULL);
	soft_stand_still(NULL, local_clock() - begin);
}

static void on_pmi(struct soft_event *soft, struct pt_regs *iregs)
{
	drain(this_cpu_ptr(&areas), iregs);
}

/* A record of a precise event; an interrupt if the buffer is full so far. */
static void write_record(struct soft_event *soft, struct pt_regs *regs)
{
	struct area *area = this_cpu_ptr(&areas);
	struct record *record;

	if (WARN_ON_ONCE(area->used >= RECORDS_OF_BUFFER))
		return;
	record = &area->buffer[area->used++];
	record->counter = soft->counter;
	record->time = local_clock();
	record->regs = *regs;
	record->address = has_access(soft->event) ? op_at(regs).address ?: regs->sp : 0;
	record->collided = collide && ++area->since_collision >= collide;
	count(RECORDS, 1);
	if (record->collided) {
		area->since_collision = 0;
		count(COLLISIONS, 1);
	}
	if (area->used >= area->threshold) {
		count(AT_THRESHOLD, 1);
		pmi_raise(on_pmi, soft, regs);
	}
}

static void overflow(struct soft_event *soft, struct pt_regs *iregs)
{
	struct perf_sample_data data;
	struct pt_regs regs = *iregs;

	regs.flags &= ~EXACT;
	perf_sample_data_init(&data, 0, soft->event->hw.last_period);
	count(OVERFLOWS, 1);
	if (kernel_overflow(soft->event, &data, &regs))
		pebs_stop(soft->event);
}

/* Not precise: an interrupt each time. */
static void interrupt(struct soft_event *soft, struct pt_regs *regs)
{
	pmi_raise(overflow, soft, regs);
}

static void update_threshold(struct area *area)
{
	unsigned int room = min(READ_ONCE(buffer), (unsigned int)RECORDS_OF_BUFFER);

	area->threshold = is_large(area) && room > RESERVED ? room - RESERVED : 1;
}

/* Counts the event among those that PEBS has in hand, or no longer. */
static void pebs_update(struct area *area, struct soft_event *soft, int by)
{
	bool before = is_large(area);

	drain_for(area, AT_STOP);
	area->n_pebs += by;
	if (soft->large)
		area->n_large += by;
	if (before != is_large(area)) {
		if (before)
			kernel_sched_cb_dec(soft->event->pmu);
		else
			kernel_sched_cb_inc(soft->event->pmu);
	}
	update_threshold(area);
}

static void cpu_start(struct perf_event *event, int flags)
{
	soft_start(event, flags);
}

static void cpu_stop(struct perf_event *event, int flags)
{
	struct area *area = this_cpu_ptr(&areas);

	soft_stop(event, flags);
	if (soft_of(event)->precise && is_large(area))
		drain_for(area, AT_STOP);
}

static int cpu_add(struct perf_event *event, int flags)
{
	struct area *area = this_cpu_ptr(&areas);
	struct soft_event *soft = soft_of(event);
	int counter;

	for (counter = 0; counter < COUNTERS; counter++)
		if (soft->allowed & BIT(counter) && !area->events[counter])
			break;
	if (counter == COUNTERS)
		return -EAGAIN;
	area->events[counter] = event;
	soft->counter = counter;
	event->hw.idx = counter;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (soft->precise)
		pebs_update(area, soft, 1);
	if (flags & PERF_EF_START)
		cpu_start(event, PERF_EF_RELOAD);
	return 0;
}

static void cpu_del(struct perf_event *event, int flags)
{
	struct area *area = this_cpu_ptr(&areas);
	struct soft_event *soft = soft_of(event);

	cpu_stop(event, PERF_EF_UPDATE);
	if (soft->precise)
		pebs_update(area, soft, -1);
	area->events[soft->counter] = NULL;
	soft->counter = -1;
	perf_event_update_userpage(event);
}

static void cpu_read(struct perf_event *event)
{
	/* intel_pmu_auto_reload_read */
	if (soft_of(event)->precise && !event->attr.freq)
		drain_for(this_cpu_ptr(&areas), AT_READ);
	soft_update(event);
}

static void cpu_sched_task(struct perf_event_pmu_context *context, bool sched_in)
{
	struct area *area = this_cpu_ptr(&areas);

	if (!sched_in && is_large(area))
		drain_for(area, AT_SWITCH);
}

/* LARGE_PEBS_FLAGS, and what takes from them. */
static bool allows_many(struct perf_event *event)
{
	u64 flags = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID | PERF_SAMPLE_CPU |
		    PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TRANSACTION |
		    PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_PERIOD |
		    PERF_SAMPLE_CODE_PAGE_SIZE | PERF_SAMPLE_WEIGHT_TYPE | PERF_SAMPLE_TIME;

	if (event->attr.freq || (event->attr.wakeup_events && !event->attr.watermark))
		return false;
	if (event->attr.use_clockid)
		flags &= ~PERF_SAMPLE_TIME;
	if (!event->attr.exclude_kernel)
		flags &= ~PERF_SAMPLE_REGS_USER;
	/* General registers only. */
	if (event->attr.sample_regs_user & ~GENMASK(23, 0))
		flags &= ~PERF_SAMPLE_REGS_USER;
	if (event->attr.sample_regs_intr & ~GENMASK(23, 0))
		flags &= ~PERF_SAMPLE_REGS_INTR;
	return !(event->attr.sample_type & ~flags);
}

/* A group that no CPU has counters for is refused. */
static bool group_fits(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *sibling;
	int n = 1;

	if (leader == event)
		return true;
	n += leader->pmu == event->pmu;
	for_each_sibling_event(sibling, leader)
		n += sibling->pmu == event->pmu;
	return n <= COUNTERS;
}

static int cpu_event_init(struct perf_event *event)
{
	unsigned int precise = event->attr.precise_ip;
	struct soft_event *soft;
	int error;

	if (event->attr.type != event->pmu->type && event->attr.type != PERF_TYPE_HARDWARE &&
	    event->attr.type != PERF_TYPE_HW_CACHE)
		return -ENOENT;
	if (event->cpu != -1 && !is_on(event->pmu, event->cpu))
		return -ENOENT;
	if (event->attr.type == PERF_TYPE_HARDWARE && !config_of(event))
		return -EINVAL;
	if (precise && is_amd()) {
		/* forward_event_to_ibs */
		if (precise > 2)
			return -EOPNOTSUPP;
		if (config_of(event) != 0x76)
			return -EOPNOTSUPP;
		event->attr.type = ibs_op.type;
		event->attr.config = 0;
		return -ENOENT;
	}
	if (precise > granted)
		return -EOPNOTSUPP;
	if (precise && !is_sampling_event(event))
		return -EINVAL;
	if (has_branch_stack(event))
		return -EOPNOTSUPP;
	if (!group_fits(event))
		return -EINVAL;
	error = soft_init(event, rate_of(config_of(event)));
	if (error)
		return error;
	soft = soft_of(event);
	soft->counts_calls = counts_calls(config_of(event)) && !is_sampling_event(event);
	soft->has_pace = has_pace(config_of(event));
	soft->precise = precise;
	soft->large = precise && (always_many || allows_many(event));
	soft->sample = precise ? write_record : interrupt;
	/* Skylake's precisely distributed event has one counter. */
	soft->allowed = precise == 3 ? BIT(1) : GENMASK(COUNTERS - 1, 0);
	if (soft->large)
		event->attach_state |= PERF_ATTACH_SCHED_CB;
	return 0;
}

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(umask, "config:8-15");
PMU_FORMAT_ATTR(edge, "config:18");
PMU_FORMAT_ATTR(any, "config:21");
PMU_FORMAT_ATTR(inv, "config:23");
PMU_FORMAT_ATTR(cmask, "config:24-31");
PMU_FORMAT_ATTR(offcore_rsp, "config1:0-63");
PMU_FORMAT_ATTR(ldlat, "config1:0-15");
PMU_FORMAT_ATTR(frontend, "config1:0-23");

static struct attribute *format_attrs[] = {
	&format_attr_event.attr, &format_attr_umask.attr,	&format_attr_edge.attr,
	&format_attr_any.attr,	 &format_attr_inv.attr,		&format_attr_cmask.attr,
	&format_attr_ldlat.attr, &format_attr_offcore_rsp.attr, &format_attr_frontend.attr,
	NULL,
};
static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };

PMU_EVENT_ATTR_STRING(cpu-cycles, intel_cycles, "event=0x3c");
PMU_EVENT_ATTR_STRING(instructions, intel_instructions, "event=0xc0");
PMU_EVENT_ATTR_STRING(branch-instructions, intel_branches, "event=0xc4");
PMU_EVENT_ATTR_STRING(branch-misses, intel_branch_misses, "event=0xc5");
PMU_EVENT_ATTR_STRING(cache-references, intel_references, "event=0x2e,umask=0x4f");
PMU_EVENT_ATTR_STRING(cache-misses, intel_misses, "event=0x2e,umask=0x41");
PMU_EVENT_ATTR_STRING(mem-loads, intel_loads, "event=0xcd,umask=0x1,ldlat=3");
PMU_EVENT_ATTR_STRING(mem-stores, intel_stores, "event=0xd0,umask=0x82");
PMU_EVENT_ATTR_STRING(cpu-cycles, amd_cycles, "event=0x76");
PMU_EVENT_ATTR_STRING(branch-instructions, amd_branches, "event=0xc2");

static struct attribute *intel_events[] = {
	&intel_cycles.attr.attr, &intel_instructions.attr.attr, &intel_branches.attr.attr,
	&intel_branch_misses.attr.attr, &intel_references.attr.attr, &intel_misses.attr.attr,
	&intel_loads.attr.attr, &intel_stores.attr.attr, NULL,
};
static const struct attribute_group intel_event_group = { .name = "events", .attrs = intel_events };
static struct attribute *amd_events[] = {
	&amd_cycles.attr.attr, &intel_instructions.attr.attr, &amd_branches.attr.attr, NULL,
};
static const struct attribute_group amd_event_group = { .name = "events", .attrs = amd_events };

static ssize_t max_precise_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	return sysfs_emit(buffer, "%d\n", is_amd() ? 0 : MAX_PRECISE);
}
static DEVICE_ATTR_RO(max_precise);
static ssize_t pmu_name_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	return sysfs_emit(buffer, "%s\n", is_hybrid_cpu ? "alderlake_hybrid" : "skylake");
}
static DEVICE_ATTR_RO(pmu_name);

static struct attribute *intel_caps[] = { &dev_attr_max_precise.attr, &dev_attr_pmu_name.attr, NULL };
static const struct attribute_group intel_cap_group = { .name = "caps", .attrs = intel_caps };
static struct attribute *amd_caps[] = { &dev_attr_max_precise.attr, NULL };
static const struct attribute_group amd_cap_group = { .name = "caps", .attrs = amd_caps };

static ssize_t cpus_show(struct device *device, struct device_attribute *attr, char *buffer)
{
	struct pmu *pmu = dev_get_drvdata(device);
	ssize_t n = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		if (is_on(pmu, cpu))
			n += sysfs_emit_at(buffer, n, n ? ",%d" : "%d", cpu);
	return n + sysfs_emit_at(buffer, n, "\n");
}
static DEVICE_ATTR_RO(cpus);

static struct attribute *hybrid_attrs[] = { &dev_attr_cpus.attr, NULL };
static const struct attribute_group hybrid_group = { .attrs = hybrid_attrs };

static const struct attribute_group *intel_groups[] = { &format_group, &intel_event_group, &intel_cap_group, NULL };
static const struct attribute_group *hybrid_groups[] = { &format_group, &intel_event_group, &intel_cap_group,
							 &hybrid_group, NULL };
static const struct attribute_group *amd_groups[] = { &format_group, &amd_event_group, &amd_cap_group, NULL };

static bool is_elsewhere(struct pmu *pmu, int cpu)
{
	return !is_on(pmu, cpu);
}

#define CORE_PMU                                                                                       \
	.module = THIS_MODULE, .task_ctx_nr = perf_hw_context, .capabilities = PERF_PMU_CAP_EXTENDED_HW_TYPE, \
	.event_init = cpu_event_init, .add = cpu_add, .del = cpu_del, .start = cpu_start, .stop = cpu_stop,   \
	.read = cpu_read, .sched_task = cpu_sched_task, .filter = is_elsewhere

static struct pmu core_pmu = { CORE_PMU };
static struct pmu atom_pmu = { CORE_PMU };

static void free_buffers(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		vfree(per_cpu(areas, cpu).buffer);
}

int pebs_init(void)
{
	int cpu, error = 0;

	for_each_possible_cpu(cpu) {
		struct area *area = per_cpu_ptr(&areas, cpu);

		area->buffer = vzalloc(array_size(RECORDS_OF_BUFFER, sizeof(struct record)));
		if (!area->buffer)
			error = -ENOMEM;
		update_threshold(area);
	}
	is_hybrid_cpu = boot_cpu_data.x86_vfm == INTEL_ALDERLAKE;
	core_pmu.attr_groups = is_amd() ? amd_groups : is_hybrid_cpu ? hybrid_groups : intel_groups;
	atom_pmu.attr_groups = hybrid_groups;
	if (!error)
		error = perf_pmu_register(&core_pmu, is_hybrid_cpu ? "cpu_core" : "cpu", PERF_TYPE_RAW);
	if (!error && is_hybrid_cpu) {
		error = perf_pmu_register(&atom_pmu, "cpu_atom", -1);
		if (error)
			perf_pmu_unregister(&core_pmu);
	}
	if (error)
		free_buffers();
	return error;
}

void pebs_exit(void)
{
	if (is_hybrid_cpu)
		perf_pmu_unregister(&atom_pmu);
	perf_pmu_unregister(&core_pmu);
	free_buffers();
}
