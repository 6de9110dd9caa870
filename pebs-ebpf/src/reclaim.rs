//! Time that a traced thread spends reclaiming memory itself before it gets a page (direct reclaim).
//!
//! A thread reclaims if the machine has too few free pages, or its cgroup is at its limit: usually in a page fault, or
//! in a system call that reads or writes a file.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use pebs_common::record::Interference;

use crate::{sched, task};

/// Begin of the reclaim that a thread is in, by tid, ns. The thread may wait meanwhile, and continue on another CPU.
#[btf_map]
static RECLAIMING_SINCE: HashMap<u32, u64, 65_536> = HashMap::new();

/// `mm_vmscan_direct_reclaim_begin` and `mm_vmscan_memcg_reclaim_begin`, which run in the reclaiming thread.
#[raw_tracepoint]
pub fn reclaim_begins(_ctx: RawTracePointContext) -> i32 {
    let ids = task::current();
    if task::is_traced(ids) {
        // SAFETY: the helper takes no pointer.
        let now = unsafe { bpf_ktime_get_ns() };
        // Without room, the duration of this reclaim is unknown.
        let _ = RECLAIMING_SINCE.insert(ids.tid, now, u64::from(BPF_ANY));
    }
    0
}

/// The `_end` tracepoints of these.
#[raw_tracepoint]
pub fn reclaim_ends(_ctx: RawTracePointContext) -> i32 {
    let ids = task::current();
    // SAFETY: the value is copied; only this thread changes it.
    if let Some(since) = unsafe { RECLAIMING_SINCE.get(ids.tid) }.copied() {
        let _ = RECLAIMING_SINCE.remove(ids.tid);
        // SAFETY: the helper takes no pointer.
        let now = unsafe { bpf_ktime_get_ns() };
        sched::interference(Interference::Reclaim, ids, now - since);
    }
    0
}
