//! Rows for the writer, made of closed visits as the pipeline makes them, but for names: a function
//! is its address's bucket.

use std::path::PathBuf;

use pebs_user::analysis::estimate::{Estimator, FunctionEstimate, TimedSample, VisitTimeline};
use pebs_user::correlate::{ClosedVisit, Lost, RawSample, Sink};
use pebs_user::store::run::RunInfo;
use pebs_user::store::schema::{SCHEMA_VERSION, SampleRow, VisitFunctionRow, VisitRow};
use pebs_user::store::writer::{TraceWriter, WriterOptions};
use pebs_user::stream::ledger::Reason;
use pebs_user::units::{Cpu, FunctionId, Pid, Tid};

use crate::input::timed_sample;

/// Rows in memory.
#[derive(Default)]
pub struct AllRows {
    pub visits: Vec<VisitRow>,
    pub functions: Vec<VisitFunctionRow>,
    pub samples: Vec<SampleRow>,
}

impl AllRows {
    pub fn write_to(&self, mut writer: TraceWriter) {
        for row in &self.samples {
            writer.sample(row).expect("room on disk");
        }
        for row in &self.functions {
            writer.visit_function(row).expect("room on disk");
        }
        for row in &self.visits {
            writer.visit(row).expect("room on disk");
        }
        finish(writer);
    }
}

/// Closes the files.
pub fn finish(writer: TraceWriter) {
    writer.finish(&info()).expect("room on disk");
}

fn info() -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        ..RunInfo::default()
    }
}

/// A folder for one trace; gone when dropped.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("room for a folder"))
    }

    pub fn writer(&self) -> TraceWriter {
        let dir: PathBuf = self.0.path().join("trace");
        TraceWriter::create(&dir, &info(), WriterOptions::default()).expect("a new folder")
    }
}

/// Makes rows of visits.
pub struct Rows {
    pub out: AllRows,
    estimator: Estimator,
    timed: Vec<TimedSample>,
    estimates: Vec<FunctionEstimate>,
}

impl Rows {
    pub fn new() -> Self {
        let estimator = Estimator::new(&[true]);
        Self {
            out: AllRows::default(),
            estimator,
            timed: Vec::new(),
            estimates: Vec::new(),
        }
    }

    fn sample(&mut self, sample: &RawSample, function_id: FunctionId, of: (Option<u64>, Tid)) {
        self.out.samples.push(SampleRow {
            time_ns: sample.time,
            visit_id: of.0,
            function_id,
            ip: sample.ip.0,
            tid: of.1,
            cpu: sample.cpu,
            event: sample.event,
            flags: 0,
        });
    }

    fn estimate(&mut self, visit: &ClosedVisit) {
        self.estimates.clear();
        let timeline = VisitTimeline {
            begin: visit.begin.0,
            end: visit.end.map(|(end, _)| end),
            active: &visit.active,
            samples: &self.timed,
        };
        self.estimator.estimate(&timeline, &mut self.estimates);
        for estimate in &self.estimates {
            self.out.functions.push(VisitFunctionRow {
                visit_id: visit.visit_id,
                item_id: visit.item_id,
                function_id: estimate.function,
                event: estimate.event,
                samples: estimate.samples,
                events: u64::from(estimate.samples) * 16_000,
                first_ns: estimate.first,
                last_ns: estimate.last,
                span_ns: estimate.span_ns,
                self_ns: estimate.self_ns,
                self_stderr_ns: estimate.self_stderr_ns,
            });
        }
    }
}

impl Sink for Rows {
    fn visit(&mut self, visit: &ClosedVisit) {
        self.timed.clear();
        for sample in &visit.samples {
            let timed = timed_sample(sample);
            self.timed.push(timed);
            self.sample(sample, timed.function, (Some(visit.visit_id), visit.tid));
        }
        self.estimate(visit);
        self.out.visits.push(VisitRow {
            visit_id: visit.visit_id,
            item_id: visit.item_id,
            probe_id: visit.probe,
            pid: visit.pid,
            tid: visit.tid,
            cpu_begin: visit.begin.1,
            cpu_end: visit.end.and_then(|(_, cpu)| cpu),
            begin_ns: visit.begin.0,
            end_ns: visit.end.map(|(end, _)| end),
            duration_ns: visit.end.map(|(end, _)| end.0 - visit.begin.0.0),
            oncpu_ns: visit.oncpu_ns(),
            samples: visit.samples.len() as u32,
            flags: visit.flags,
            switches: visit.switches(),
            migrations: visit.migrations(),
            page_faults: visit.page_faults(),
            args: visit.args.clone(),
        });
    }

    fn stray(&mut self, sample: &RawSample, _: Pid, tid: Tid) {
        let function = timed_sample(sample).function;
        self.sample(sample, function, (None, tid));
    }

    fn lost(&mut self, cpu: Cpu, what: Lost, reason: Reason) {
        panic!("{what:?} of cpu {} lost: {}", cpu.0, reason.name());
    }
}

/// Counts samples, drops everything.
#[derive(Default)]
pub struct Discard {
    pub samples: usize,
}

impl Sink for Discard {
    fn visit(&mut self, visit: &ClosedVisit) {
        self.samples += visit.samples.len();
    }

    fn stray(&mut self, _: &RawSample, _: Pid, _: Tid) {
        self.samples += 1;
    }

    fn lost(&mut self, _: Cpu, _: Lost, _: Reason) {}
}
