//! The clock calibrator: a slow event whose program reads both clocks.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use pebs_common::counter::Counter;
use pebs_common::record::{ClockPair, Head, Kind};

use crate::emit::{TASKS, count, emit};
use crate::sample::perf_time;

#[perf_event]
pub fn clock(ctx: PerfEventContext) -> u32 {
    let Some(perf_ns) = perf_time(&ctx) else {
        count(Counter::ClockNoTime);
        return 0;
    };
    emit::<ClockPair>(TASKS, |room| {
        // SAFETY: the helper takes no pointer.
        let monotonic_ns = unsafe { bpf_ktime_get_ns() };
        room.write(ClockPair {
            head: Head::new(Kind::Clock, 0, 0, 0, 0),
            monotonic_ns,
            perf_ns,
        });
    });
    0
}
