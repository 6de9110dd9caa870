//! Rows for the writer, made of closed visits like the pipeline does, except for names: a function is its address's
//! bucket.

use std::path::{Path, PathBuf};

use pebs_user::correlate::{ClosedVisit, Lost, Sink};
use pebs_user::estimate::{Estimator, EventTime, Events, FunctionEstimate, Series, VisitTimeline};
use pebs_user::ledger::Reason;
use pebs_user::pipeline::synthetic::function_of;
use pebs_user::store::options::WriterOptions;
use pebs_user::store::run::RunInfo;
use pebs_user::store::samples::{ORDERED_ROWS, SampleBlock, SamplesOf};
use pebs_user::store::schema::{SCHEMA_VERSION, VisitFunctionRow, VisitRow};
use pebs_user::store::visit_block::VisitBlock;
use pebs_user::store::writer::TraceWriter;
use pebs_user::stream::samples::{SampleBuf, Samples};
use pebs_user::units::Slot;
use pebs_user::units::{Cpu, EventId, Pid, Tid};

/// Rows in memory.
#[derive(Default)]
pub struct AllRows {
    pub visits: Vec<VisitRow>,
    pub functions: Vec<VisitFunctionRow>,
    samples: SampleBuf,
    /// Visit, thread, and end of its samples.
    runs: Vec<(Option<u64>, Tid, usize)>,
}

impl AllRows {
    pub fn write_to(&self, mut writer: TraceWriter) {
        let (mut from, mut rest) = (0, self.samples.samples());
        let mut block = VisitBlock::default();
        for &(visit_id, tid, to) in &self.runs {
            let (samples, later) = rest.split_at(to - from);
            (from, rest) = (to, later);
            let of = SamplesOf {
                visit_id,
                tid,
                threads: &[],
                samples,
                alike: true,
                near: None,
            };
            name(&mut block.samples, of.samples);
            block.samples.keep(&of, &[]);
            if block.samples.rows() >= ORDERED_ROWS {
                writer.block(&mut block);
            }
        }
        writer.block(&mut block);
        for rows in self.functions.chunks(16 * 1024) {
            writer.extend(rows).expect("room on disk");
        }
        for row in &self.visits {
            writer.visit(row, &[]).expect("room on disk");
        }
        finish(writer);
    }
}

/// Sets samples' functions to their buckets.
fn name(block: &mut SampleBlock, samples: Samples<'_>) {
    block.name(samples, |ips, (functions, slots)| {
        for (ip, (function, slot)) in ips.iter().zip(functions.iter_mut().zip(slots)) {
            (*function, *slot) = (function_of(*ip), Slot::any(*ip));
        }
    });
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

    /// `compact`: whether every closed segment is compacted.
    pub fn writer(&self, compact: bool) -> TraceWriter {
        let dir: PathBuf = self.0.path().join("trace");
        let options = WriterOptions {
            compact,
            compact_all: compact,
            ..WriterOptions::default()
        };
        TraceWriter::create(&dir, &info(), options).expect("a new folder")
    }
}

/// A trace that is kept, compacted like that of an import.
pub fn kept(dir: &Path) -> TraceWriter {
    let options = WriterOptions {
        compact_all: true,
        ..WriterOptions::default()
    };
    TraceWriter::create(dir, &info(), options).expect("a new folder")
}

/// Makes rows of visits.
pub struct Rows {
    pub out: AllRows,
    estimator: Estimator,
    block: SampleBlock,
    estimates: Vec<FunctionEstimate>,
}

impl Rows {
    pub fn new() -> Self {
        let estimator = Estimator::new(&[EventTime::Clock]);
        Self {
            out: AllRows::default(),
            estimator,
            block: SampleBlock::default(),
            estimates: Vec::new(),
        }
    }

    fn samples(&mut self, samples: Samples<'_>, (visit_id, tid): (Option<u64>, Tid)) {
        let out = &mut self.out;
        out.samples.extend(samples);
        out.runs.push((visit_id, tid, out.samples.len()));
    }

    fn estimate(&mut self, visit: &ClosedVisit<'_>) {
        self.estimates.clear();
        let timeline = VisitTimeline {
            begin: visit.begin.0,
            end: visit.end.map(|(end, _)| end),
            active: visit.active,
            samples: Series {
                times: visit.samples.times,
                functions: self.block.functions(),
                events: Events::All(EventId(0)),
            },
        };
        self.estimator.estimate(&timeline, &mut self.estimates);
        for estimate in &self.estimates {
            self.out.functions.push(VisitFunctionRow {
                visit_id: visit.visit_id,
                item_id: visit.item_id,
                function_id: estimate.function,
                event: estimate.event,
                samples: estimate.samples,
                events: Some(u64::from(estimate.samples) * 16_000),
                first_ns: estimate.first,
                last_ns: estimate.last,
                span_ns: estimate.span_ns(),
                self_ns: estimate.self_ns(),
                self_stderr_ns: estimate.self_stderr_ns(),
            });
        }
    }
}

impl Sink for Rows {
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        let samples = visit.samples;
        name(&mut self.block, samples);
        self.samples(samples, (Some(visit.visit_id), visit.tid));
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
            net_ns: visit.end.map(|(end, _)| end.0 - visit.begin.0.0),
            net_stderr_ns: visit.end.map(|_| 0),
            samples: visit.samples.len() as u32,
            flags: visit.flags,
            switches: visit.switches(),
            migrations: visit.migrations(),
            page_faults: visit.page_faults(),
            ..VisitRow::default()
        });
    }

    fn strays(&mut self, samples: Samples<'_>, _: Pid, tid: Tid) {
        self.samples(samples, (None, tid));
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
    fn visit(&mut self, visit: &ClosedVisit<'_>) {
        self.samples += visit.samples.len();
    }

    fn strays(&mut self, samples: Samples<'_>, _: Pid, _: Tid) {
        self.samples += samples.len();
    }

    fn lost(&mut self, _: Cpu, _: Lost, _: Reason) {}
}
