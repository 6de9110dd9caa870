//! Maps, and the settings that user space writes before load.

use aya_ebpf::Global;
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, CgroupArray, HashMap, RingBuf};
use aya_ebpf::macros::btf_map;
use pebs_common::config::{
    ItemConfig, KernelCode, MAX_CPUS, MAX_LIBRARIES, MAX_PROCESSES, MAX_SITES, MAX_THREADS,
    SiteConfig,
};
use pebs_common::counter::Counter;

/// Placeholder of the real rings, whose size user space chooses.
pub type Ring = RingBuf<u8, 4096>;

/// One ring per CPU.
pub type Rings = ArrayOfMaps<Ring, { MAX_CPUS as usize }>;

/// `BPF_F_MMAPABLE`: user space reads the counters without a system call.
const MMAPABLE: usize = 1 << 10;

/// Rings for marks, switches, tasks and clock pairs.
#[btf_map]
pub static RINGS: Rings = ArrayOfMaps::new();

/// Rings for samples: the same ones, or separate ones if samples are taken in NMIs, which must not wait for the
/// lock of a ring held by a mark.
#[btf_map]
pub static SAMPLE_RINGS: Rings = ArrayOfMaps::new();

/// A row of [`Counter::COUNT`] counters per CPU.
#[btf_map]
pub static COUNTERS: Array<u64, { (MAX_CPUS * Counter::COUNT) as usize }, MMAPABLE> = Array::new();

/// Processes that are traced, by pid.
#[btf_map]
pub static TRACED: HashMap<u32, u32, { MAX_PROCESSES as usize }> = HashMap::new();

/// Threads that alone are traced, by tid, if [`ONLY_THREADS`] is not 0.
#[btf_map]
pub static THREADS: HashMap<u32, u32, { MAX_THREADS as usize }> = HashMap::new();

/// The cgroup whose processes are traced, with [`pebs_common::config::Scope::Cgroup`].
#[btf_map]
pub static CGROUP: CgroupArray<1> = CgroupArray::new();

/// Configuration of each site, by attach cookie.
#[btf_map]
pub static SITES: Array<SiteConfig, { MAX_SITES as usize }> = Array::new();

/// Source of the item id at a sample, unless [`ITEM_SOURCE`] is none.
#[btf_map]
pub static ITEM: Array<ItemConfig, 1> = Array::new();

/// Whether some marks read ids behind an array of pointers. If none does, the verifier skips that code, which would
/// take it longer than everything else.
#[unsafe(no_mangle)]
pub static IDS_BEHIND: Global<u32> = Global::new(0);

/// Library with the variable: by [`pebs_common::config::Program::key`] the full key, and the load address (of file
/// address 0).
#[btf_map]
pub static LIBRARIES: HashMap<u32, [u64; 2], { MAX_LIBRARIES }> = HashMap::new();

/// Address ranges of the kernel's code that deals with marks.
#[btf_map]
pub static KERNEL_CODE: Array<KernelCode, 1> = Array::new();

/// A [`pebs_common::config::Waits`].
#[btf_map]
pub static WAITS: Array<u32, 1> = Array::new();

/// A [`pebs_common::config::ItemSource`].
#[unsafe(no_mangle)]
pub static ITEM_SOURCE: Global<u32> = Global::new(0);

/// A [`pebs_common::config::Scope`].
#[unsafe(no_mangle)]
pub static SCOPE: Global<u32> = Global::new(0);

/// Not 0: only the threads in [`THREADS`] of the traced processes are traced.
#[unsafe(no_mangle)]
pub static ONLY_THREADS: Global<u32> = Global::new(0);

/// Bit n: samples of event n in kernel mode are dropped (for events on which the kernel can't exclude it).
#[unsafe(no_mangle)]
pub static EXCLUDE_KERNEL: Global<u32> = Global::new(0);

/// Bit n: samples of event n in user mode are dropped.
#[unsafe(no_mangle)]
pub static EXCLUDE_USER: Global<u32> = Global::new(0);

/// Bit n: samples of event n carry the perf clock's time.
#[unsafe(no_mangle)]
pub static PERF_CLOCK_EVENTS: Global<u32> = Global::new(0);

/// Bit n: samples of event n carry their memory access.
#[unsafe(no_mangle)]
pub static ACCESS_EVENTS: Global<u32> = Global::new(0);

/// Maximum frames of a sample's call stack in the kernel, and in user space, if frame pointers are followed: the kernel's
/// limit, and at most [`pebs_common::record::MAX_FRAMES`]. 0: they are not.
#[unsafe(no_mangle)]
pub static STACK_FRAMES: Global<u32> = Global::new(0);

/// Maximum bytes of the user stack that are copied with its registers: for waits, and for samples for which frame pointers
/// are not followed. 0: no call stacks.
#[unsafe(no_mangle)]
pub static STACK_BYTES: Global<u32> = Global::new(0);

/// Offset of `thread.fsbase` in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_FSBASE_OFFSET: Global<u64> = Global::new(0);

/// Offset of `start_stack` in `struct mm_struct`.
#[unsafe(no_mangle)]
pub static MM_START_STACK_OFFSET: Global<u64> = Global::new(0);

/// Samples are refused while more than this many bytes of the sample ring are unread, to leave room for marks.
#[unsafe(no_mangle)]
pub static SAMPLE_LIMIT: Global<u64> = Global::new(0);

/// Offset of `time` in the kernel's `struct perf_sample_data`.
#[unsafe(no_mangle)]
pub static SAMPLE_TIME_OFFSET: Global<u64> = Global::new(0);

/// Offset of `addr` in `struct perf_sample_data`.
#[unsafe(no_mangle)]
pub static SAMPLE_ADDR_OFFSET: Global<u64> = Global::new(0);

/// Offset of `weight` in `struct perf_sample_data`.
#[unsafe(no_mangle)]
pub static SAMPLE_WEIGHT_OFFSET: Global<u64> = Global::new(0);

/// Offset of `data_src` in `struct perf_sample_data`.
#[unsafe(no_mangle)]
pub static SAMPLE_DATA_SRC_OFFSET: Global<u64> = Global::new(0);

/// Offset of `sample_flags` in `struct perf_sample_data`, which has a bit for each member that is set; -1 before
/// Linux 6.1, where all members used here are always set.
#[unsafe(no_mangle)]
pub static SAMPLE_FLAGS_OFFSET: Global<u64> = Global::new(0);

/// Offset of `hw.interrupts` in the kernel's `struct perf_event`.
#[unsafe(no_mangle)]
pub static EVENT_INTERRUPTS_OFFSET: Global<u64> = Global::new(0);

/// Offset of `pid` in `struct task_struct`; `tgid` follows it.
#[unsafe(no_mangle)]
pub static TASK_PID_OFFSET: Global<u64> = Global::new(0);

/// Offset of `__state` in `struct task_struct`; used before Linux 5.18 only.
#[unsafe(no_mangle)]
pub static TASK_STATE_OFFSET: Global<u64> = Global::new(0);

/// Offset of `comm` in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_COMM_OFFSET: Global<u64> = Global::new(0);

/// Offset of `mm`, which is null for kernel threads, in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_MM_OFFSET: Global<u64> = Global::new(0);

/// Offset of `stack`, the thread's kernel stack, in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_STACK_OFFSET: Global<u64> = Global::new(0);

/// Offset of `utask`, what uprobes do in the thread, in `struct task_struct`; 0: unknown.
#[unsafe(no_mangle)]
pub static TASK_UTASK_OFFSET: Global<u64> = Global::new(0);

/// Offset of `vaddr`, the place that was last single-stepped, in `struct uprobe_task`.
#[unsafe(no_mangle)]
pub static UTASK_VADDR_OFFSET: Global<u64> = Global::new(0);

/// Offset of `xol_vaddr`, the address of the copy that was stepped, in `struct uprobe_task`.
#[unsafe(no_mangle)]
pub static UTASK_SLOT_OFFSET: Global<u64> = Global::new(0);

/// Offset of `active_uprobe`, null unless one is being single-stepped, in `struct uprobe_task`.
#[unsafe(no_mangle)]
pub static UTASK_ACTIVE_OFFSET: Global<u64> = Global::new(0);

/// Number of events counted by counters of their own; 0: none is read.
#[unsafe(no_mangle)]
pub static COUNT_EVENTS: Global<u32> = Global::new(0);

/// Not 0: events are also counted in intervals, for every traced thread, even without marks.
#[unsafe(no_mangle)]
pub static COUNT_INTERVALS: Global<u32> = Global::new(0);

/// Bit n: event n of these is never multiplexed: it is counted all the time.
#[unsafe(no_mangle)]
pub static COUNT_ALWAYS: Global<u32> = Global::new(0);

/// Not 0: wake-ups and preemptions of traced threads may be recorded: [`WAITS`] says whether they are now.
#[unsafe(no_mangle)]
pub static ENCOUNTERS: Global<u32> = Global::new(0);

/// Not 0: interrupts that take samples are recorded separately, and must be distinguished from others.
#[unsafe(no_mangle)]
pub static SAMPLES_INTERRUPT: Global<u32> = Global::new(0);

/// Not 0: the time of page faults is recorded.
#[unsafe(no_mangle)]
pub static FAULT_TIMES: Global<u32> = Global::new(0);

/// Offset of `signal` in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_SIGNAL_OFFSET: Global<u64> = Global::new(0);

/// Offset of `exit_code` in `struct task_struct`.
#[unsafe(no_mangle)]
pub static TASK_EXIT_CODE_OFFSET: Global<u64> = Global::new(0);

/// Offset of `live` in `struct signal_struct`: threads that have not ended.
#[unsafe(no_mangle)]
pub static SIGNAL_LIVE_OFFSET: Global<u64> = Global::new(0);

/// Offset of the flags of features in `struct task_struct`; `u64::MAX`: the kernel has none.
#[unsafe(no_mangle)]
pub static TASK_FEATURES_OFFSET: Global<u64> = Global::new(u64::MAX);
