//! A simulated machine: rings and counters as the kernel programs would fill them, drained into a real pipeline, and
//! the resulting trace.

use std::path::PathBuf;
use std::sync::Arc;

use pebs_common::counter::Counter;
use pebs_common::record::{Head, Kind, Role, mark_flag};
use pebs_user::ledger::Ledger;
use pebs_user::pipeline::synthetic::{START_NS, frame_words, options, probes};
use pebs_user::pipeline::{BulkOptions, Outcome, Pipeline, PipelineOptions};
use pebs_user::store::options::WriterOptions;
use pebs_user::store::reader::Trace;
use pebs_user::store::run::RunInfo;
use pebs_user::store::schema::{self, SCHEMA_VERSION};
use pebs_user::store::writer::TraceWriter;
use pebs_user::stream::bulk::RingKind;
use pebs_user::stream::cycle::CounterRow;
use pebs_user::stream::cycle::{BulkStream, Cycle};
use pebs_user::stream::sideband::{SidebandEvent, SidebandKind};
use pebs_user::units::{Cpu, KtimeNs, Pid, Tid};
use tempfile::TempDir;

/// The process of all threads. The number is beyond the kernel's, so no real process is read.
pub const PID: u32 = (1 << 22) + 1;
/// Stack pointer of every visit, so that each reuses the frame of the previous one.
const SP: u64 = 0x7f00_0000_1000;

/// A record, to be put into a ring or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineRecord {
    /// An item begins.
    Begin(u64),
    /// The function returns.
    Return,
    Sample,
    /// The thread leaves the CPU.
    SwitchOut,
}

impl MachineRecord {
    /// Counters of records put into the ring, and of those refused.
    const fn counters(self) -> (Counter, Counter) {
        match self {
            Self::Begin(_) | Self::Return => (Counter::MarkEmitted, Counter::MarkDropped),
            Self::Sample => (Counter::SampleEmitted, Counter::SampleDropped),
            Self::SwitchOut => (Counter::TaskEmitted, Counter::TaskDropped),
        }
    }

    fn words(self, time_ns: u64, tid: u32) -> [u64; 4] {
        let head = |kind, flags| Head::new(kind, flags, 0, PID, tid).0;
        match self {
            Self::Begin(id) => {
                let flags = Role::Begin as u8 | mark_flag::ID_VALID;
                [head(Kind::Mark, flags), time_ns, SP, id]
            }
            Self::Return => [head(Kind::Mark, Role::Return as u8), time_ns, SP, 0],
            Self::Sample => [head(Kind::Sample, 0), time_ns, 0x40_0000, SP - 0x100],
            Self::SwitchOut => [head(Kind::SwitchOut, 0), time_ns, 0, 1],
        }
    }
}

/// Rings, counters, and their pipeline. Times are ns on the trace clock.
pub struct Machine {
    rings: Vec<Vec<u8>>,
    counters: Vec<CounterRow>,
    pipeline: Pipeline,
    dir: PathBuf,
    place: TempDir,
}

impl Machine {
    /// A machine with this many CPUs and the probe of [`probes`].
    pub fn new(cpus: usize) -> Self {
        Self::with(cpus, None)
    }

    /// The same, with samples in perf rings.
    pub fn with_bulk(cpus: usize) -> Self {
        let kinds = vec![RingKind::default()];
        let everyone = false;
        Self::with(cpus, Some(BulkOptions { kinds, everyone }))
    }

    fn with(cpus: usize, bulk: Option<BulkOptions>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("trace");
        let writer = TraceWriter::create(&dir, &info(None), WriterOptions::default()).unwrap();
        let options = PipelineOptions { bulk, ..options() };
        Self {
            rings: vec![Vec::new(); cpus],
            counters: vec![[0; Counter::COUNT as usize]; cpus],
            pipeline: Pipeline::new(&probes(), &options, writer, Arc::default()),
            dir,
            place,
        }
    }

    /// Puts a record into a CPU's ring.
    pub fn emit(&mut self, cpu: usize, tid: u32, time: u64, what: MachineRecord) {
        frame_words(&mut self.rings[cpu], &what.words(START_NS + time, tid));
        self.counters[cpu][what.counters().0 as usize] += 1;
    }

    /// Counts a record as refused for lack of room.
    pub fn refuse(&mut self, cpu: usize, what: MachineRecord) {
        self.counters[cpu][what.counters().1 as usize] += 1;
    }

    /// Puts bytes into a ring, counted as this many samples, marks and task records.
    pub fn emit_bytes(&mut self, cpu: usize, bytes: &[u8], [samples, marks, tasks]: [u64; 3]) {
        self.rings[cpu].extend_from_slice(bytes);
        let counters = &mut self.counters[cpu];
        counters[Counter::SampleEmitted as usize] += samples;
        counters[Counter::MarkEmitted as usize] += marks;
        counters[Counter::TaskEmitted as usize] += tasks;
    }

    /// Drains a perf ring of a CPU with an invalid record before any valid one.
    pub fn drain_broken(&mut self, cpu: u16, found_at: u64) {
        let ring = BulkStream {
            cpu: Cpu(cpu),
            broken: Some(KtimeNs(START_NS + found_at)),
            ..BulkStream::default()
        };
        let mut cycle = self.cycle(found_at, found_at, &[]);
        cycle.bulk.push(ring);
        self.pipeline.cycle(&mut cycle);
    }

    /// Drains the rings, with counters read at `counted_at`.
    pub fn drain(&mut self, frontier: u64, counted_at: u64) {
        self.drain_with(frontier, counted_at, &[]);
    }

    /// Like [`Machine::drain`], with exec events of these processes (time, pid), ring by ring.
    pub fn drain_with(&mut self, frontier: u64, counted_at: u64, execs: &[(u64, u32)]) {
        let mut cycle = self.cycle(frontier, counted_at, execs);
        self.pipeline.cycle(&mut cycle);
    }

    fn cycle(&mut self, frontier: u64, counted_at: u64, execs: &[(u64, u32)]) -> Cycle {
        let exec = |(time, pid): &(u64, u32)| SidebandEvent {
            time: KtimeNs(START_NS + time),
            cpu: Cpu(0),
            what: SidebandKind::Comm {
                pid: Pid(*pid),
                tid: Tid(*pid),
                exec: true,
                name: "new".into(),
            },
        };
        let streams = self.rings.iter_mut().zip(0..);
        Cycle {
            bulk: Vec::new(),
            streams: streams
                .map(|(ring, cpu)| (Cpu(cpu), std::mem::take(ring)))
                .collect(),
            counters: self.counters.clone(),
            sideband: execs.iter().map(exec).collect(),
            frontier: KtimeNs(START_NS + frontier),
            counted_at: KtimeNs(START_NS + counted_at),
        }
    }

    /// Ends the recording, and checks that the ledger balances on every CPU.
    pub fn finish(self, end: u64) -> Recorded {
        let Outcome {
            ledger,
            writer,
            write_error,
            ..
        } = self.pipeline.finish(KtimeNs(START_NS + end));
        assert!(write_error.is_none(), "{write_error:?}");
        assert_eq!(ledger.check(), [""; 0], "{ledger:#?}");
        writer.finish(&info(Some(ledger.clone()))).unwrap();
        Recorded {
            ledger,
            trace: Trace::open(&self.dir).unwrap(),
            _place: self.place,
        }
    }
}

fn info(ledger: Option<Ledger>) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        complete: ledger.is_some(),
        ledger,
        ..RunInfo::default()
    }
}

/// A finished recording.
pub struct Recorded {
    pub ledger: Ledger,
    trace: Trace,
    _place: TempDir,
}

/// A row of `visits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub item: i64,
    pub tid: i64,
    pub begin: i64,
    pub end: Option<i64>,
    pub flags: u32,
}

/// A row of `losses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub begin: i64,
    pub end: i64,
    pub cpu: Option<i64>,
    pub records: Option<i64>,
}

impl Loss {
    pub fn overlaps(&self, visit: &Visit) -> bool {
        self.begin <= visit.end.unwrap_or(i64::MAX) && visit.begin <= self.end
    }
}

impl Recorded {
    pub fn visits(&self) -> Vec<Visit> {
        let mut rows = Vec::new();
        schema::visits::each(&self.trace, |row| {
            rows.push(Visit {
                item: row.item_id as i64,
                tid: row.tid.0.into(),
                begin: row.begin_ns.0,
                end: row.end_ns.map(|end| end.0),
                flags: row.flags,
            });
        })
        .unwrap();
        rows
    }

    pub fn losses(&self, reason: &str) -> Vec<Loss> {
        let mut rows = Vec::new();
        schema::losses::each(&self.trace, |row| {
            assert_eq!(row.reason, reason);
            rows.push(Loss {
                begin: row.begin_ns.0,
                end: row.end_ns.0,
                cpu: row.cpu.map(|cpu| cpu.0.into()),
                records: row.records.map(|records| records as i64),
            });
        })
        .unwrap();
        rows
    }

    /// Number of rows of `samples`, and of those in a visit.
    pub fn samples(&self) -> (usize, usize) {
        let (mut all, mut within) = (0, 0);
        schema::samples::each(&self.trace, |row| {
            all += 1;
            within += usize::from(row.visit_id.is_some());
        })
        .unwrap();
        (all, within)
    }
}
