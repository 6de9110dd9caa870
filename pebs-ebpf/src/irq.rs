//! Interrupts of a traced thread, with their durations.
//!
//! An interrupt is timed from when the kernel calls its handler until the handler returns. Handlers that the kernel
//! does not trace (of hypervisors, of non-maskable interrupts) are not seen.

use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use pebs_common::record::Interference;

use crate::{sched, task};

/// Interrupt state of a CPU.
#[repr(C)]
struct State {
    /// Begin of the current interrupt, ns; 0: none.
    hard_since: u64,
    /// Start of the current softirq.
    soft_since: u64,
    /// Time of interrupts since then.
    hard_within: u64,
    /// Not 0: the interrupt took a sample.
    sampled: u64,
}

#[btf_map]
static STATE: PerCpuArray<State, 1> = PerCpuArray::new();

#[inline(always)]
fn state() -> Option<&'static mut State> {
    // SAFETY: the value is this CPU's; programs that use it do not nest, except for a sample, which writes one
    // word.
    unsafe { STATE.get_ptr_mut(0)?.as_mut() }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper takes no pointer.
    unsafe { bpf_ktime_get_ns() }
}

/// The running interrupt takes a sample, so it is due to this recording.
#[inline(always)]
pub fn sampled() {
    if let Some(state) = state() {
        state.sampled = 1;
    }
}

#[inline(always)]
fn put(which: Interference, ns: u64) {
    let ids = task::current();
    if task::is_traced(ids) {
        sched::interference(which, ids, ns);
    }
}

/// A handler begins: on `irq_handler_entry` and the `_entry` of each vector.
#[raw_tracepoint]
pub fn irq_begins(_ctx: RawTracePointContext) -> i32 {
    if let Some(state) = state() {
        state.sampled = 0;
        state.hard_since = now();
    }
    0
}

/// A handler ends.
#[raw_tracepoint]
pub fn irq_ends(_ctx: RawTracePointContext) -> i32 {
    if let Some(state) = state()
        && state.hard_since != 0
    {
        let ns = now() - state.hard_since;
        state.hard_since = 0;
        state.hard_within += ns;
        if state.sampled == 0 {
            put(Interference::Interrupt, ns);
        }
    }
    0
}

/// `softirq_entry`.
#[raw_tracepoint]
pub fn softirq_begins(_ctx: RawTracePointContext) -> i32 {
    if let Some(state) = state() {
        state.hard_within = 0;
        state.soft_since = now();
    }
    0
}

/// `softirq_exit`.
#[raw_tracepoint]
pub fn softirq_ends(_ctx: RawTracePointContext) -> i32 {
    if let Some(state) = state()
        && state.soft_since != 0
    {
        let ns = now() - state.soft_since;
        state.soft_since = 0;
        put(
            Interference::SoftInterrupt,
            ns.saturating_sub(state.hard_within),
        );
    }
    0
}
