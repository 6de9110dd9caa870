//! Page faults: a small record for each, to count them by item; and one with its duration, if requested.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, perf_event};
use aya_ebpf::programs::PerfEventContext;
use pebs_common::record::Interference;

use crate::maps::FAULT_TIMES;
use crate::{sched, task};

/// Begin of the fault that a thread is in, by tid, ns.
#[btf_map]
static SINCE: HashMap<u32, u64, 65_536> = HashMap::new();

/// On a software event of period 1, which the kernel raises in the faulting thread, before the fault is handled.
/// Source: arch/x86/mm/fault.c (`do_user_addr_fault`).
#[perf_event]
pub fn page_fault(_ctx: PerfEventContext) -> u32 {
    let ids = task::current();
    if task::is_traced(ids) {
        sched::interference(Interference::PageFault, ids, 0);
        if FAULT_TIMES.load() != 0 {
            // SAFETY: the helper takes no pointer.
            let now = unsafe { bpf_ktime_get_ns() };
            // Without room, the duration of this fault is unknown.
            let _ = SINCE.insert(ids.tid, now, u64::from(BPF_ANY));
        }
    }
    0
}

/// On the event raised after a minor fault (page in memory) was handled.
/// Source: mm/memory.c (`mm_account_fault`).
#[perf_event]
pub fn minor_fault(_ctx: PerfEventContext) -> u32 {
    ended(Interference::MinorFault)
}

/// The same after a major fault (page had to be read).
#[perf_event]
pub fn major_fault(_ctx: PerfEventContext) -> u32 {
    ended(Interference::MajorFault)
}

#[inline(always)]
fn ended(which: Interference) -> u32 {
    let ids = task::current();
    // SAFETY: the value is copied; only this thread changes it.
    if let Some(since) = unsafe { SINCE.get(ids.tid) }.copied() {
        let _ = SINCE.remove(ids.tid);
        // SAFETY: the helper takes no pointer.
        let now = unsafe { bpf_ktime_get_ns() };
        sched::interference(which, ids, now - since);
    }
    0
}
