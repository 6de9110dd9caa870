//! Prints the output of the stages as text.

use std::fmt::Write;

use pebs_user::correlate::{ClosedVisit, Lost, Sink, Throttled};
use pebs_user::estimate::{
    Estimator, EventTime, FunctionEstimate, SeriesBuf, TimedSample, VisitTimeline,
};
use pebs_user::ledger::Reason;
use pebs_user::store::schema::visit_flag;
use pebs_user::stream::decode::{Body, Decoded};
use pebs_user::stream::order::{Late, LateKind, Ready};
use pebs_user::stream::sample::BareSample;
use pebs_user::stream::samples::Samples;
use pebs_user::units::{Cpu, FunctionId, Ip, Pid, Tid};

/// Counts of samples, marks and other records.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    samples: u64,
    marks: u64,
    tasks: u64,
}

/// Prints everything, and counts records.
#[derive(Default)]
pub struct Printer {
    text: String,
    decoded: Counts,
    ordered: Counts,
    late: Counts,
    /// Samples in visits, outside, and lost.
    samples_out: u64,
    sums: Sums,
    /// Length of the text to keep if only sums are printed.
    keep: Option<usize>,
}

/// Sums over all visits.
#[derive(Debug, Default)]
struct Sums {
    visits: u64,
    owned: u64,
    strays: u64,
    lost: u64,
    oncpu_ns: i64,
    self_ns: f64,
    flags: [u64; visit_flag::NAMES.len()],
}

/// Bucket of an address, in place of a function.
fn bucket(ip: Ip) -> u32 {
    (ip.0 >> 8) as u32
}

impl Printer {
    pub fn new(brief: bool) -> Self {
        Self {
            keep: brief.then_some(0),
            ..Self::default()
        }
    }

    /// Drops the text of a visit or sample if only sums are printed.
    fn trim(&mut self) {
        if let Some(keep) = self.keep {
            self.text.truncate(keep);
        }
    }

    pub fn decoded(&mut self, cpu: u16, decoded: &Decoded) {
        let Decoded {
            samples,
            marks,
            tasks,
            malformed,
            ..
        } = decoded;
        writeln!(
            self.text,
            "decoded cpu {cpu}: {samples} samples, {marks} marks, {tasks} others, {malformed} malformed"
        )
        .unwrap();
        self.keep = self.keep.map(|_| self.text.len());
        self.decoded.samples += samples;
        self.decoded.marks += marks;
        self.decoded.tasks += tasks;
    }

    pub fn count(&mut self, ready: &Ready<'_>) {
        self.ordered.samples += ready.samples() as u64;
        for record in ready.records() {
            match record.body {
                Body::Mark { .. } => self.ordered.marks += 1,
                _ => self.ordered.tasks += 1,
            }
        }
    }

    pub fn late(&mut self, late: &Late) {
        match late.kind {
            LateKind::Sample => self.late.samples += 1,
            LateKind::Mark => self.late.marks += 1,
            LateKind::Task => self.late.tasks += 1,
        }
        writeln!(self.text, "late {:?} of cpu {}", late.kind, late.cpu).unwrap();
        self.keep = self.keep.map(|_| self.text.len());
    }

    /// The text. Checks that every record that went in has come out.
    pub fn finish(mut self) -> String {
        let Counts {
            samples,
            marks,
            tasks,
        } = &self.ordered;
        // Clock pairs are used up by the decoder.
        assert_eq!(
            self.decoded.samples,
            samples + self.late.samples,
            "{}",
            self.text
        );
        assert_eq!(self.decoded.marks, marks + self.late.marks, "{}", self.text);
        assert!(
            self.decoded.tasks >= tasks + self.late.tasks,
            "{}",
            self.text
        );
        assert_eq!(*samples, self.samples_out, "{}", self.text);
        let Sums {
            visits,
            owned,
            strays,
            lost,
            oncpu_ns,
            self_ns,
            flags,
        } = self.sums;
        assert_eq!(owned + strays, self.samples_out - lost);
        writeln!(
            self.text,
            "sum: {visits} visits, {owned} samples in them, {strays} strays"
        )
        .unwrap();
        writeln!(self.text, "sum: on-cpu {oncpu_ns} self {self_ns:.1}").unwrap();
        for (name, n) in visit_flag::NAMES.iter().zip(flags).filter(|(_, n)| *n > 0) {
            writeln!(self.text, "sum: {n} {name}").unwrap();
        }
        self.text
    }

    fn sample(&mut self, sample: BareSample) {
        let BareSample { time, ip, kind } = sample;
        write!(
            self.text,
            "{} f{:x} e{} cpu {}",
            time.0,
            bucket(ip),
            kind.event().0,
            kind.cpu().0
        )
        .unwrap();
        self.text
            .push_str(if kind.is_exact() { " exact" } else { "" });
        self.text
            .push_str(if kind.is_kernel() { " kernel" } else { "" });
        self.text.push('\n');
    }

    fn head(&mut self, visit: &ClosedVisit<'_>) {
        let (begin, from) = visit.begin;
        write!(
            self.text,
            "visit {} item {} p{} {}/{} {}@{}..",
            visit.visit_id, visit.item_id, visit.probe.0, visit.pid.0, visit.tid.0, begin.0, from.0
        )
        .unwrap();
        match visit.end {
            Some((end, Some(to))) => write!(self.text, "{}@{}", end.0, to.0).unwrap(),
            Some((end, None)) => write!(self.text, "{}@?", end.0).unwrap(),
            None => self.text.push('?'),
        }
        match visit.oncpu_ns() {
            Some(oncpu) => write!(self.text, " on-cpu {oncpu}").unwrap(),
            None => self.text.push_str(" on-cpu ?"),
        }
        for arg in visit.args.iter().flatten() {
            write!(self.text, " {arg:?}").unwrap();
        }
        for (bit, name) in visit_flag::NAMES.iter().enumerate() {
            if visit.flags & (1 << bit) != 0 {
                write!(self.text, " [{name}]").unwrap();
            }
        }
        self.text.push('\n');
    }

    fn estimates(&mut self, visit: &ClosedVisit<'_>) {
        // Function ids count from 0.
        let samples = visit.samples;
        let mut buckets: Vec<u32> = samples.ips.iter().map(|ip| bucket(*ip)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let timed = |sample: BareSample| TimedSample {
            time: sample.time,
            function: FunctionId(buckets.partition_point(|b| *b < bucket(sample.ip)) as u32),
            event: sample.kind.event(),
        };
        let samples: SeriesBuf = samples.iter().map(timed).collect();
        let timeline = VisitTimeline {
            begin: visit.begin.0,
            end: visit.end.map(|(end, _)| end),
            active: visit.active,
            samples: samples.series(),
        };
        let mut estimates = Vec::new();
        // Event 0 is a clock, event 1 is not.
        Estimator::new(&[EventTime::Clock, EventTime::None]).estimate(&timeline, &mut estimates);
        for estimate in estimates {
            let FunctionEstimate {
                function,
                event,
                samples,
                first,
                last,
                ..
            } = estimate;
            let span_ns = estimate.span_ns();
            write!(
                self.text,
                "  f{:x} e{}: {samples} samples ",
                buckets[function.0 as usize], event.0
            )
            .unwrap();
            write!(self.text, "{}..{} span {span_ns}", first.0, last.0).unwrap();
            if let (Some(time), Some(error)) = (estimate.self_ns(), estimate.self_stderr_ns()) {
                self.sums.self_ns += time;
                write!(self.text, " self {time:.1} +- {error:.1}").unwrap();
            }
            self.text.push('\n');
        }
    }
}

impl Sink for Printer {
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        self.samples_out += visit.samples.len() as u64;
        self.sums.owned += visit.samples.len() as u64;
        self.sums.visits += 1;
        self.sums.oncpu_ns += visit.oncpu_ns().unwrap_or(0);
        for (bit, sum) in self.sums.flags.iter_mut().enumerate() {
            *sum += u64::from(visit.flags >> bit & 1);
        }
        self.head(visit);
        for (begin, end) in visit.active {
            writeln!(self.text, "  active {}..{}", begin.0, end.0).unwrap();
        }
        for wait in visit.waits {
            let (begin, end) = (wait.begin.0, wait.end.0);
            write!(
                self.text,
                "  {} {begin}..{end} cpu {}..{}",
                wait.state, wait.from.0, wait.to.0
            )
            .unwrap();
            if let Some(ip) = wait.ip {
                write!(self.text, " f{:x}", bucket(ip)).unwrap();
            }
            self.text.push('\n');
        }
        self.estimates(visit);
        self.trim();
    }

    fn strays(&mut self, samples: Samples<'_>, pid: Pid, tid: Tid) {
        for sample in samples.iter() {
            self.samples_out += 1;
            write!(self.text, "stray {}/{} ", pid.0, tid.0).unwrap();
            self.sums.strays += 1;
            self.sample(sample);
            self.trim();
        }
    }

    fn lost(&mut self, cpu: Cpu, what: Lost, reason: Reason) {
        self.samples_out += u64::from(what == Lost::Sample);
        self.sums.lost += u64::from(what == Lost::Sample);
        writeln!(
            self.text,
            "lost {what:?} of cpu {}: {}",
            cpu.0,
            reason.name()
        )
        .unwrap();
    }

    fn throttled(&mut self, range: &Throttled) {
        let Throttled {
            begin,
            end,
            cpu,
            tid,
            event,
        } = range;
        writeln!(
            self.text,
            "throttled {}..{} tid {} e{} cpu {}",
            begin.0, end.0, tid.0, event.0, cpu.0
        )
        .unwrap();
    }
}
