//! Fast path for samples with the same head, read in place.

use pebs_common::record::{Head, Sample, sample_flag};

use super::wire::{SampleFrame, sample_words};
use crate::stream::clock::Clock;
use crate::stream::sample::{RawSample, SampleKind};
use crate::stream::samples::SampleSource;
use crate::units::{Cpu, EventId, Ip, KtimeNs, PerfNs, TraceNs};

/// Properties shared by samples with the same head.
#[derive(Clone, Copy)]
pub(super) struct Alike {
    pub(super) kind: SampleKind,
    /// Mask for the stack pointer in the last word.
    sp: u64,
    /// Mask for the entry to the kernel in the last word.
    entry: u64,
    pub(super) perf_clock: bool,
}

impl Alike {
    #[inline(always)]
    pub(super) const fn new(head: Head, cpu: Cpu) -> Self {
        let flags = head.flags();
        let kernel = flags & sample_flag::KERNEL != 0;
        let has_sp = !kernel || flags & sample_flag::ITEM != 0;
        Self {
            kind: SampleKind::new(
                cpu,
                EventId(head.index()),
                (flags & sample_flag::EXACT_IP != 0, kernel),
            ),
            sp: if has_sp { u64::MAX } else { 0 },
            entry: if has_sp { 0 } else { u64::MAX },
            perf_clock: flags & sample_flag::PERF_CLOCK != 0,
        }
    }

    #[inline(always)]
    pub(super) const fn at(&self, time: TraceNs, ip: u64, sp: u64) -> RawSample {
        RawSample {
            time,
            ip: Ip(ip),
            sp: sp & self.sp,
            kind: self.kind_of(sp),
        }
    }

    /// Whether the last word is the entry to the kernel instead of the stack pointer.
    pub(super) const fn has_entries(&self) -> bool {
        self.entry != 0
    }

    #[inline(always)]
    pub(super) const fn kind_of(&self, sp: u64) -> SampleKind {
        self.kind.with_entry(sp & self.entry)
    }

    pub(super) fn time(&self, clock: &Clock, time_ns: u64) -> TraceNs {
        if self.perf_clock {
            clock.trace_of_perf(PerfNs(time_ns))
        } else {
            clock.trace_of_ktime(KtimeNs(time_ns))
        }
    }

    pub(super) fn one(&self, clock: &Clock, sample: &Sample) -> RawSample {
        self.at(self.time(clock, sample.time_ns), sample.ip, sample.sp)
    }
}

/// Samples with the same head, in a ring.
pub(super) struct Source<'a, F, K> {
    frames: &'a [SampleFrame],
    alike: Alike,
    time: F,
    kind: K,
}

impl<'a, F, K> Source<'a, F, K> {
    /// `time` converts a recorded time, `kind` the last word.
    #[inline(always)]
    pub(super) fn new(frames: &'a [SampleFrame], alike: Alike, (time, kind): (F, K)) -> Self {
        Self {
            frames,
            alike,
            time,
            kind,
        }
    }
}

impl<F: Fn(u64) -> TraceNs, K: Fn(u64) -> SampleKind> SampleSource for Source<'_, F, K> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn times(&self) -> impl Iterator<Item = TraceNs> {
        let words = self.frames.iter().map(sample_words);
        words.map(|[time_ns, ..]| (self.time)(time_ns))
    }

    #[inline(always)]
    fn ips(&self) -> impl Iterator<Item = Ip> {
        self.frames.iter().map(|frame| Ip(sample_words(frame)[1]))
    }

    #[inline(always)]
    fn sps(&self) -> impl Iterator<Item = u64> {
        let mask = self.alike.sp;
        let words = self.frames.iter().map(sample_words);
        words.map(move |[_, _, sp]| sp & mask)
    }

    #[inline(always)]
    fn kinds(&self) -> impl Iterator<Item = SampleKind> {
        let words = self.frames.iter().map(sample_words);
        words.map(|[_, _, sp]| (self.kind)(sp))
    }
}
