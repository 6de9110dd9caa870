//! Page faults: one small record for each, so that they can be counted by item.

use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use pebs_common::record::Kind;

use crate::{sched, task};

/// On a software event of period 1, which the kernel raises in the thread that took the fault,
/// once the fault was dealt with.
/// Source: mm/memory.c (`mm_account_fault`).
#[perf_event]
pub fn page_fault(_ctx: PerfEventContext) -> u32 {
    let ids = task::current();
    if task::is_traced(ids.pid) {
        sched::record(Kind::PageFault, ids, 0);
    }
    0
}
