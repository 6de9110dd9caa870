//! Reserves space in a ring, fills it and submits it, or counts why that failed.

use core::arch::asm;
use core::mem::MaybeUninit;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ringbuf_query};
use pebs_common::counter::Counter;

use crate::maps::{COUNTERS, RINGS, Ring, SAMPLE_LIMIT, SAMPLE_RINGS};

/// Counters of one kind of record.
#[derive(Clone, Copy)]
pub struct Tally {
    /// Counts records put into a ring.
    pub emitted: Counter,
    /// Counts records refused.
    pub dropped: Counter,
    /// Counts records on a CPU without a ring.
    pub no_ring: Counter,
}

/// Counters of marks.
pub const MARKS: Tally = Tally {
    emitted: Counter::MarkEmitted,
    dropped: Counter::MarkDropped,
    no_ring: Counter::MarkNoRing,
};

/// Counters of switch, fork, exec, exit, page fault, throttle and clock records.
pub const TASKS: Tally = Tally {
    emitted: Counter::TaskEmitted,
    dropped: Counter::TaskDropped,
    no_ring: Counter::TaskNoRing,
};

/// Counters of samples.
const SAMPLES: Tally = Tally {
    emitted: Counter::SampleEmitted,
    dropped: Counter::SampleDropped,
    no_ring: Counter::SampleNoRing,
};

/// Adds 1 to a counter of this CPU.
#[inline(always)]
pub fn count(counter: Counter) {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if let Some(slot) = COUNTERS.get_ptr_mut(cpu * Counter::COUNT + counter as u32) {
        // Programs on one CPU interrupt each other, so the addition has to be atomic; `core`
        // has no `fetch_add` for this target.
        // SAFETY: the slot is an aligned u64 inside a map value.
        unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) slot, in(reg) 1u64) };
    }
}

/// Puts a record into this CPU's main ring. `fill` runs after its space was reserved.
#[inline(always)]
pub fn emit<T: 'static>(tally: Tally, fill: impl FnOnce(&mut MaybeUninit<T>)) {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    match RINGS.get(cpu) {
        Some(ring) => put(ring, tally, fill),
        None => count(tally.no_ring),
    }
}

/// The same, but discards the record if `fill` returns false.
#[inline(always)]
pub fn emit_if<T: 'static>(tally: Tally, fill: impl FnOnce(&mut MaybeUninit<T>) -> bool) {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(ring) = RINGS.get(cpu) else {
        return count(tally.no_ring);
    };
    let Some(mut entry) = ring.reserve_untyped::<T>(0) else {
        return count(tally.dropped);
    };
    if fill(&mut entry) {
        entry.submit(u64::from(BPF_RB_NO_WAKEUP));
        count(tally.emitted);
    } else {
        entry.discard(u64::from(BPF_RB_NO_WAKEUP));
    }
}

/// Puts a sample into this CPU's sample ring, unless that would take the room reserved for marks.
#[inline(always)]
pub fn emit_sample<T: 'static>(fill: impl FnOnce(&mut MaybeUninit<T>)) {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(ring) = SAMPLE_RINGS.get(cpu) else {
        return count(SAMPLES.no_ring);
    };
    let map = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: `map` is a ring map that the outer map returned.
    let unread = unsafe { bpf_ringbuf_query(map, u64::from(BPF_RB_AVAIL_DATA)) };
    if unread > SAMPLE_LIMIT.load() {
        return count(SAMPLES.dropped);
    }
    put(ring, SAMPLES, fill);
}

/// Puts a record into this CPU's sample ring, regardless of the room reserved for marks: for programs that run
/// where samples are taken.
#[inline(always)]
pub fn emit_beside_samples<T: 'static>(tally: Tally, fill: impl FnOnce(&mut MaybeUninit<T>)) {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    match SAMPLE_RINGS.get(cpu) {
        Some(ring) => put(ring, tally, fill),
        None => count(tally.no_ring),
    }
}

#[inline(always)]
fn put<T: 'static>(ring: &Ring, tally: Tally, fill: impl FnOnce(&mut MaybeUninit<T>)) {
    let Some(mut entry) = ring.reserve_untyped::<T>(0) else {
        return count(tally.dropped);
    };
    fill(&mut entry);
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    count(tally.emitted);
}
