//! Decodes perf rings into samples on the trace clock and reports of lost records.
//!
//! Invariant: no input makes it fail; unknown and malformed data is counted. Knows perf's records; knows nothing
//! about items, files or the kernel.

mod stack;

use pebs_common::config::{ArgKind, ItemConfig, widen};
use perf_event_open_sys::bindings::{
    PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE,
    PERF_RECORD_UNTHROTTLE,
};

use crate::perf::calls::{self, Calls};
use crate::perf::layout::Layout;
use crate::perf::record::{self, RawRecord, RecordKind};
use crate::perf::sample::Sample;
use crate::stream::access::{self, Access, Registers};
use crate::stream::clock::Clock;
use crate::stream::decode::{Decoded, Inbox};
use crate::stream::fast_samples::{Places, Run};
use crate::stream::sample::{RawSample, SampleKind};
use crate::stream::samples::SampleSource as _;
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, EventId, Ip, KtimeNs, PerfNs, Pid, Tid, TraceNs};

/// Properties of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingKind {
    /// Fields of its records.
    pub layout: Layout,
    /// Whether its times are on the perf clock; otherwise on `CLOCK_MONOTONIC`.
    pub perf_clock: bool,
    /// Kind of raw registers in its samples.
    pub registers: Option<Registers>,
    /// Source of the item's id among the registers of its samples, if they have one.
    pub item: Option<ItemConfig>,
    /// Whether to report throttling from this ring; otherwise another source reports it and the ring's records are
    /// ignored.
    pub reports_throttling: bool,
}

/// State of a ring between two reads.
#[derive(Clone, Debug)]
pub struct RingState {
    cpu: Cpu,
    event: EventId,
    /// Time of the last record.
    last: Option<TraceNs>,
    /// Time at which the kernel stopped the counter, and the thread that ran.
    stopped: Option<(TraceNs, Tid)>,
    /// Total of the loss records, and samples already reported as lost.
    lost: u64,
    reported: u64,
}

/// A time range without full data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Time up to which the data is complete.
    pub begin: TraceNs,
    /// Time from which it is complete again.
    pub end: TraceNs,
    /// CPU of the ring.
    pub cpu: Cpu,
    /// Thread that was on it; `None`: any thread.
    pub tid: Option<Tid>,
    /// Records lost; `None`: the kernel had stopped the counter.
    pub records: Option<u64>,
}

/// A time range whose records could not be read; their number is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Time up to which the data is complete.
    pub begin: TraceNs,
    /// Time from which it is complete again.
    pub end: TraceNs,
    /// CPU of the ring.
    pub cpu: Cpu,
}

/// Counts and gaps of rings, besides the samples.
#[derive(Debug, Default)]
pub struct RingReport {
    /// Records of each kind. Malformed ones are samples that could not be decoded.
    pub decoded: Decoded,
    /// Samples of unwanted processes.
    pub filtered: u64,
    /// Ranges without full data.
    pub gaps: Vec<Gap>,
}

/// Settings for reading a ring.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a, F> {
    /// Properties of the ring.
    pub kind: &'a RingKind,
    /// Converts record times.
    pub clock: &'a Clock,
    /// Whether samples of a process are wanted.
    pub wanted: F,
}

impl RingState {
    /// Returns the state of an event's ring on a CPU, before its first record.
    #[must_use]
    pub const fn new(cpu: Cpu, event: EventId) -> Self {
        Self {
            cpu,
            event,
            last: None,
            stopped: None,
            lost: 0,
            reported: 0,
        }
    }

    /// Decodes the records of the ring, as returned by [`crate::collect::bulk::BulkRing::take`].
    ///
    /// Wanted samples go to `inbox`, everything else to `report`. Cost: some ns a record, no allocation except for
    /// gaps.
    pub fn decode(
        &mut self,
        mut bytes: &[u8],
        reading: &Reading<'_, impl Fn(Pid) -> bool>,
        inbox: &mut impl Inbox,
        report: &mut RingReport,
    ) {
        let Reading { kind, clock, .. } = *reading;
        let places = Places::of(&kind.layout);
        loop {
            if let Some(run) = places.and_then(|places| places.run(bytes)) {
                bytes = &bytes[run.bytes.len()..];
                self.run(&run, reading, inbox, report);
                continue;
            }
            let Some((raw, rest)) = RawRecord::split(bytes) else {
                break;
            };
            bytes = rest;
            if raw.kind != PERF_RECORD_SAMPLE {
                self.other(raw, kind, clock, &mut report.gaps);
                continue;
            }
            let Some((read, pid, tid, mut sample)) = self.sample(raw, kind, clock) else {
                report.decoded.malformed += 1;
                continue;
            };
            if (reading.wanted)(pid) {
                report.decoded.samples += 1;
                if let Some(item) = &kind.item {
                    sample.sp = id(&read, item);
                }
                if calls::has_call_stack(&kind.layout)
                    && let Some(calls) = Calls::of(&read.rest())
                {
                    sample.kind = sample
                        .kind
                        .with_stack(stack::number(pid, &sample, calls, inbox));
                }
                inbox.sample(pid, tid, sample);
                if access::may_have_access(&kind.layout, kind.registers)
                    && let Some(access) = Access::of(&read, kind.registers)
                {
                    inbox.access(tid, &sample, access);
                }
            } else {
                report.filtered += 1;
            }
        }
        report.decoded.malformed += u64::from(!bytes.is_empty());
    }

    /// Handles a run of samples of one thread.
    #[inline(always)]
    fn run(
        &mut self,
        run: &Run<'_>,
        reading: &Reading<'_, impl Fn(Pid) -> bool>,
        inbox: &mut impl Inbox,
        report: &mut RingReport,
    ) {
        // One loop per clock, so that the choice is made once per run.
        let clock = reading.clock;
        if reading.kind.perf_clock {
            let time = |time| clock.trace_of_perf(PerfNs(time));
            self.run_at(run, time, &reading.wanted, inbox, report);
        } else {
            let time = |time| clock.trace_of_ktime(KtimeNs(time));
            self.run_at(run, time, &reading.wanted, inbox, report);
        }
    }

    #[inline(always)]
    fn run_at(
        &mut self,
        run: &Run<'_>,
        time: impl Fn(u64) -> TraceNs,
        wanted: impl Fn(Pid) -> bool,
        inbox: &mut impl Inbox,
        report: &mut RingReport,
    ) {
        let (pid, tid) = (Pid(run.pid_tid.0), Tid(run.pid_tid.1));
        let source = run.source((self.cpu, self.event), time);
        let count = run.len() as u64;
        if wanted(pid) {
            inbox.samples(pid, tid, &source);
            report.decoded.samples += count;
        } else {
            report.filtered += count;
        }
        let before = self.last.map_or(i64::MIN, |last| last.0);
        let last = source.times().fold(before, |last, time| last.max(time.0));
        self.last = Some(TraceNs(last));
    }

    #[inline(always)]
    fn sample<'a>(
        &mut self,
        raw: RawRecord<'a>,
        kind: &RingKind,
        clock: &Clock,
    ) -> Option<(Sample<'a>, Pid, Tid, RawSample)> {
        let read = Sample::decode(&kind.layout, raw.body).ok()?;
        let (time, (pid, tid)) = (read.time?, read.pid_tid?);
        let time = trace_time(kind, clock, time);
        self.last = self.last.max(Some(time));
        let sample = self.raw_samples()(time, read.ip?, raw.flags());
        Some((read, Pid(pid), Tid(tid), sample))
    }

    /// Returns a function of time, address, and flags (exact, kernel) that makes samples.
    #[inline(always)]
    fn raw_samples(&self) -> impl Fn(TraceNs, u64, (bool, bool)) -> RawSample + use<> {
        let (cpu, event) = (self.cpu, self.event);
        move |time, ip, flags| RawSample {
            time,
            ip: Ip(ip),
            // Not in the record, so a frame that is gone is found only at the next mark.
            sp: 0,
            kind: SampleKind::new(cpu, event, flags),
        }
    }

    /// Handles a record other than a sample: losses and throttling.
    #[cold]
    fn other(&mut self, raw: RawRecord<'_>, kind: &RingKind, clock: &Clock, gaps: &mut Vec<Gap>) {
        let known = [
            PERF_RECORD_LOST,
            PERF_RECORD_LOST_SAMPLES,
            PERF_RECORD_THROTTLE,
            PERF_RECORD_UNTHROTTLE,
        ];
        if !known.contains(&raw.kind) {
            return;
        }
        let Ok(record) = record::decode(&kind.layout, raw) else {
            return;
        };
        let Some(time) = record.id.time else { return };
        let time = trace_time(kind, clock, time);
        let tid = record.id.pid_tid.map(|(_, tid)| Tid(tid));
        let begin = self.last.unwrap_or(time).min(time);
        let gap = |begin, tid, records| Gap {
            begin,
            end: time,
            cpu: self.cpu,
            tid,
            records,
        };
        match record.kind {
            RecordKind::LostSamples { records } => gaps.push(gap(begin, None, Some(records))),
            RecordKind::Lost { records } => {
                self.lost += records;
                self.lost_so_far(self.lost, time, gaps);
            }
            RecordKind::Throttle { .. } if !kind.reports_throttling => {}
            RecordKind::Throttle { stopped: true, .. } => {
                self.stopped = Some((time, tid.unwrap_or(Tid(0))));
            }
            RecordKind::Throttle { .. } => {
                if let Some((since, tid)) = self.stopped.take() {
                    gaps.push(gap(since, Some(tid), None));
                }
            }
            _ => {}
        }
        self.last = self.last.max(Some(time));
    }

    /// Reports lost samples up to `time`; `samples` is the total that the kernel lost so far. The last ones may
    /// have no loss record yet.
    pub fn lost_so_far(&mut self, samples: u64, time: TraceNs, gaps: &mut Vec<Gap>) {
        if samples > self.reported {
            let begin = self.last.unwrap_or(time).min(time);
            gaps.push(Gap {
                begin,
                end: time,
                cpu: self.cpu,
                tid: None,
                records: Some(samples - self.reported),
            });
            self.reported = samples;
        }
    }

    /// Reports invalid records found at `time`, when all waiting records were discarded. The range begins at the
    /// last record that could be read, or at the last look if there was none.
    pub fn unreadable(&mut self, last_look: TraceNs, time: TraceNs) -> Unreadable {
        let begin = self.last.unwrap_or(last_look).min(time);
        self.last = self.last.max(Some(time));
        // The record of the restart may have been discarded.
        self.stopped = None;
        Unreadable {
            begin,
            end: time,
            cpu: self.cpu,
        }
    }

    /// Returns the range of a counter that is still stopped at the end of the recording.
    pub fn finish(&self, end: TraceNs) -> Option<Gap> {
        let (begin, tid) = self.stopped?;
        Some(Gap {
            begin,
            end: end.max(begin),
            cpu: self.cpu,
            tid: Some(tid),
            records: None,
        })
    }
}

/// The item's id in a sample taken in user mode.
fn id(sample: &Sample<'_>, item: &ItemConfig) -> u64 {
    let registers = sample.rest().regs_intr;
    let value = registers.and_then(|it| it.values.iter().next());
    let is_signed = item.program.kind == ArgKind::Signed as u8;
    value.map_or(item.none, |it| widen(it, item.program.width, is_signed))
}

fn trace_time(kind: &RingKind, clock: &Clock, time: u64) -> TraceNs {
    if kind.perf_clock {
        clock.trace_of_perf(PerfNs(time))
    } else {
        clock.trace_of_ktime(KtimeNs(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::decode::Unordered;
    use perf_event_open_sys::bindings as sys;

    pub(super) const KIND: RingKind = RingKind {
        layout: Layout {
            sample_type: (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME)
                as u64,
            read_format: 0,
            branch_sample_type: 0,
            regs_user: 0,
            regs_intr: 0,
            sample_id_all: true,
        },
        perf_clock: false,
        registers: None,
        item: None,
        reports_throttling: true,
    };

    pub(super) fn record(kind: u32, misc: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((misc as u16).to_ne_bytes());
        bytes.extend((8 + 8 * words.len() as u16).to_ne_bytes());
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    pub(super) fn thread(pid: u32, tid: u32) -> u64 {
        u64::from(pid) | u64::from(tid) << 32
    }

    fn sample(pid: u32, time: u64) -> Vec<u8> {
        let misc = sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_EXACT_IP;
        record(
            PERF_RECORD_SAMPLE,
            misc,
            &[0x1000, thread(pid, pid + 1), time],
        )
    }

    struct Ring {
        state: RingState,
        inbox: Unordered,
        report: RingReport,
    }

    impl Ring {
        fn new() -> Self {
            Self {
                state: RingState::new(Cpu(3), EventId(1)),
                inbox: Unordered::default(),
                report: RingReport::default(),
            }
        }

        fn take(&mut self, records: &[Vec<u8>]) {
            let reading = Reading {
                kind: &KIND,
                clock: &Clock::new(KtimeNs(100)),
                wanted: |pid| pid == Pid(7),
            };
            let Self {
                state,
                inbox,
                report,
            } = self;
            state.decode(&records.concat(), &reading, inbox, report);
        }
    }

    /// Samples of the wanted process have their ring's CPU and event; others are counted.
    #[test]
    fn samples() {
        let mut run = Ring::new();
        run.take(&[sample(7, 1100), sample(8, 1200), sample(7, 1300)]);
        assert_eq!((run.report.decoded.samples, run.report.filtered), (2, 1));
        let times: Vec<i64> = run.inbox.samples.iter().map(|(.., s)| s.time.0).collect();
        assert_eq!(times, [1000, 1200]);
        let (pid, tid, first) = run.inbox.samples[0];
        assert_eq!((pid, tid), (Pid(7), Tid(8)));
        assert_eq!(
            (first.kind.cpu(), first.kind.event(), first.ip),
            (Cpu(3), EventId(1), Ip(0x1000))
        );
        assert!(first.kind.is_exact() && !first.kind.is_kernel());
        assert!(run.report.gaps.is_empty());
    }

    /// A loss is reported once, whether a record or the counter reports it first.
    #[test]
    fn losses_are_reported_once() {
        let mut run = Ring::new();
        let lost = |records, time| record(PERF_RECORD_LOST, 0, &[5, records, thread(7, 7), time]);
        run.take(&[sample(7, 1100), lost(4, 1500), sample(7, 1600)]);
        run.state
            .lost_so_far(4, TraceNs(1700), &mut run.report.gaps);
        run.state
            .lost_so_far(10, TraceNs(1800), &mut run.report.gaps);
        run.take(&[lost(6, 2100)]);
        let reported: Vec<_> = run
            .report
            .gaps
            .iter()
            .map(|g| (g.begin.0, g.end.0, g.records))
            .collect();
        assert_eq!(reported, [(1000, 1400, Some(4)), (1500, 1800, Some(6))]);
    }

    /// A stopped counter gives a range of its thread, also at the end of the recording.
    #[test]
    fn throttled() {
        let mut run = Ring::new();
        let stop = |kind, time| record(kind, 0, &[9, 5, 5, thread(7, 8), time]);
        run.take(&[
            stop(PERF_RECORD_THROTTLE, 1100),
            stop(PERF_RECORD_UNTHROTTLE, 1400),
            stop(PERF_RECORD_THROTTLE, 2100),
        ]);
        let over = run.report.gaps[0];
        assert_eq!((over.begin, over.end), (TraceNs(1000), TraceNs(1300)));
        assert_eq!((over.tid, over.records), (Some(Tid(8)), None));
        let last = run.state.finish(TraceNs(5000)).unwrap();
        assert_eq!((last.begin, last.end), (TraceNs(2000), TraceNs(5000)));
    }

    proptest::proptest! {
        /// Samples read in runs equal those read one by one, whatever fields they have.
        #[test]
        fn runs(
            fields in proptest::sample::subsequence(
                vec![
                    sys::PERF_SAMPLE_IDENTIFIER,
                    sys::PERF_SAMPLE_ID,
                    sys::PERF_SAMPLE_STREAM_ID,
                    sys::PERF_SAMPLE_CPU,
                    sys::PERF_SAMPLE_PERIOD,
                ],
                0..=5,
            ),
            samples in proptest::collection::vec((0_u32..9, 7_u32..9, 0_u64..3, proptest::bool::weighted(0.1)), 1..60),
            cut in 0_usize..8,
        ) {
            let extra = fields.iter().fold(0, |all, field| all | u64::from(*field));
            let mut kind = KIND;
            kind.layout.sample_type |= extra;
            let mut bytes = Vec::new();
            for (time, &(misc, pid, thread_of, other)) in (1100..).zip(&samples) {
                let mut words = vec![0; extra.count_ones() as usize + 3];
                let ip = usize::from(extra & u64::from(sys::PERF_SAMPLE_IDENTIFIER) != 0);
                words[ip..ip + 3].copy_from_slice(&[time * 3, thread(pid, thread_of as u32), time]);
                if other {
                    words.push(0);
                }
                bytes.extend(record(PERF_RECORD_SAMPLE, misc, &words));
            }
            bytes.truncate(bytes.len() - cut);
            let (clock, wanted) = (Clock::new(KtimeNs(100)), |pid| pid == Pid(7));
            let reading = Reading { kind: &kind, clock: &clock, wanted };
            let Ring { mut state, mut inbox, mut report } = Ring::new();
            assert!(Places::of(&kind.layout).is_some());
            state.decode(&bytes, &reading, &mut inbox, &mut report);
            let (mut single, mut rest, mut expected) = (Ring::new(), &bytes[..], Decoded::default());
            let mut filtered = 0;
            while let Some((raw, after)) = RawRecord::split(rest) {
                rest = after;
                match single.state.sample(raw, &kind, &clock) {
                    Some((_, pid, tid, sample)) if wanted(pid) => {
                        expected.samples += 1;
                        single.inbox.sample(pid, tid, sample);
                    }
                    Some(_) => filtered += 1,
                    None => expected.malformed += 1,
                }
            }
            expected.malformed += u64::from(!rest.is_empty());
            proptest::prop_assert_eq!(inbox.samples, single.inbox.samples);
            proptest::prop_assert_eq!((report.decoded, report.filtered), (expected, filtered));
            proptest::prop_assert_eq!(state.last, single.state.last);
        }
    }

    /// Samples of the wrong length, and bytes that are no record, are counted.
    #[test]
    fn malformed() {
        let mut run = Ring::new();
        let short = record(PERF_RECORD_SAMPLE, 0, &[1, 2]);
        let long = record(PERF_RECORD_SAMPLE, 0, &[1, 2, 3, 4]);
        run.take(&[short, long, sample(7, 1), vec![1, 2, 3]]);
        assert_eq!(
            (run.report.decoded.malformed, run.report.decoded.samples),
            (3, 1)
        );
    }
}
