// SPDX-License-Identifier: GPL-2.0
/*
 * A PMU in software, for tests in an emulated guest: `cpu` with PEBS where the CPU says that it is
 * Intel's (two of them where it says Alder Lake), `cpu` and IBS's two PMUs where it says that it is AMD's.
 * What counts is time, and in one event system calls.
 */
#include <linux/init.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/version.h>
#include <asm/processor.h>
#include "softpmu.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#error "softpmu is written for Linux 6.12: what it uses of perf changes between versions"
#endif

int (*kernel_overflow)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);
int (*kernel_output)(struct perf_event *, struct perf_sample_data *, struct pt_regs *);
void (*kernel_sched_cb_inc)(struct pmu *);
void (*kernel_sched_cb_dec)(struct pmu *);
struct perf_callchain_entry *(*kernel_callchain)(struct perf_event *, struct pt_regs *);
void (*kernel_log_lost_samples)(struct perf_event *, u64);
int (*kernel_account_interrupt)(struct perf_event *);

static const struct {
	const char *name;
	void **function;
} functions[] = {
	{ "perf_event_overflow", (void **)&kernel_overflow },
	{ "perf_event_output", (void **)&kernel_output },
	{ "perf_sched_cb_inc", (void **)&kernel_sched_cb_inc },
	{ "perf_sched_cb_dec", (void **)&kernel_sched_cb_dec },
	{ "perf_callchain", (void **)&kernel_callchain },
	{ "perf_log_lost_samples", (void **)&kernel_log_lost_samples },
	{ "perf_event_account_interrupt", (void **)&kernel_account_interrupt },
};

static int find_functions(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *);
	int error = register_kprobe(&probe);
	size_t i;

	if (error)
		return error;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	for (i = 0; i < ARRAY_SIZE(functions); i++) {
		*functions[i].function = (void *)lookup(functions[i].name);
		if (!*functions[i].function) {
			pr_err("softpmu: the kernel has no %s\n", functions[i].name);
			return -ENOENT;
		}
	}
	return 0;
}

atomic64_t tallies[TALLIES];

static int get_tally(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%lld\n", atomic64_read(kp->arg));
}

static int set_tally(const char *text, const struct kernel_param *kp)
{
	s64 value;
	int error = kstrtos64(text, 0, &value);

	if (!error)
		atomic64_set(kp->arg, value);
	return error;
}

static const struct kernel_param_ops tally_ops = { .get = get_tally, .set = set_tally };

#define TALLY(name, which) module_param_cb(name, &tally_ops, &tallies[which], 0644)
TALLY(records, RECORDS);
TALLY(collisions, COLLISIONS);
TALLY(output, OUTPUT);
TALLY(overflows, OVERFLOWS);
TALLY(interrupts, INTERRUPTS);
TALLY(late, LATE);
TALLY(stood_still, STOOD_STILL);
TALLY(at_threshold, AT_THRESHOLD);
TALLY(at_switch, AT_SWITCH);
TALLY(at_stop, AT_STOP);
TALLY(at_read, AT_READ);
TALLY(pauses, PAUSES);

static bool is_amd;

static int __init softpmu_init(void)
{
	int error = find_functions();

	if (error)
		return error;
	error = pmi_init();
	if (error)
		return error;
	is_amd = boot_cpu_data.x86_vendor == X86_VENDOR_AMD;
	if (is_amd)
		error = ibs_init();
	if (!error) {
		error = pebs_init();
		if (error && is_amd)
			ibs_exit();
	}
	if (!error) {
		error = calls_init();
		if (error) {
			pebs_exit();
			if (is_amd)
				ibs_exit();
		}
	}
	if (error)
		pmi_exit();
	return error;
}

static void __exit softpmu_exit(void)
{
	calls_exit();
	pebs_exit();
	if (is_amd)
		ibs_exit();
	pmi_exit();
}

module_init(softpmu_init);
module_exit(softpmu_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A PMU in software, for tests");
