//! Traces for tests, made of known items.

pub(in crate::store) mod rows;
pub(crate) mod stacks;

use std::ops::Deref;
use std::path::Path;

use super::options::WriterOptions;
use super::reader::Trace;
use super::run::{EventInfo, ProbeInfo, RunInfo, VisitRule};
use super::schema::{
    ArgColumn, ArgType, ArgValue, BatchItemRow, FrequencyRow, FunctionRow, SCHEMA_VERSION,
    SampleRow, StackRow, VisitFunctionRow, VisitRow, WaitRow, visit_flag,
};
use super::tables::Row;
use super::writer::TraceWriter;
use crate::units::{CountUnit, Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Part of an item: on the CPU in a function, or off it; times in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Did {
    Ran(u32, i64),
    /// In the innermost function of a call stack ([`Maker::stack`]), with a row for each sample.
    Called(u32, i64),
    /// In a function (0: unknown) and a state.
    Waited(u32, &'static str, i64),
    /// No function: its thread slept.
    Idled(i64),
    /// No function: its thread worked on another item.
    Yielded(i64),
}

/// A visit to make.
#[derive(Clone, Debug)]
pub(crate) struct VisitFixture {
    probe: u16,
    /// Item id; `None`: numbered.
    item: Option<u64>,
    tid: u32,
    args: Vec<Option<ArgValue>>,
    pub flags: u32,
    pub did: Vec<Did>,
    /// Item ids that it serves together; empty: a single item.
    batch: Vec<u64>,
}

impl VisitFixture {
    /// A visit of probe 0 with the arguments of [`info`].
    pub(crate) fn new(n: u64, key: &str, did: &[Did]) -> Self {
        Self::with([Some(n.into()), Some(key.into())], did)
    }

    /// A visit of probe 0 with these arguments.
    pub(crate) fn with(args: impl Into<Vec<Option<ArgValue>>>, did: &[Did]) -> Self {
        Self {
            probe: 0,
            item: None,
            tid: 7,
            args: args.into(),
            flags: 0,
            did: did.to_vec(),
            batch: Vec::new(),
        }
    }

    pub(crate) fn probe(self, probe: u16) -> Self {
        Self { probe, ..self }
    }

    pub(crate) fn item(self, id: u64) -> Self {
        let item = Some(id);
        Self { item, ..self }
    }

    pub(crate) fn tid(self, tid: u32) -> Self {
        Self { tid, ..self }
    }

    pub(crate) fn flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn batch(self, batch: Vec<u64>) -> Self {
        let flags = self.flags | visit_flag::SHARED;
        Self {
            batch,
            flags,
            ..self
        }
    }
}

impl From<u64> for ArgValue {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<i64> for ArgValue {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<String> for ArgValue {
    fn from(value: String) -> Self {
        Self::Str(value.into())
    }
}

impl From<&str> for ArgValue {
    fn from(value: &str) -> Self {
        Self::Str(value.into())
    }
}

/// `trace.json` of a run that sampled cpu-clock every 10 us, with arguments `n` and `key`.
pub(crate) fn info(specs: &[&str]) -> RunInfo {
    info_with(specs, &[("n", ArgType::U64), ("key", ArgType::Str)])
}

/// The same with these arguments.
pub(crate) fn info_with(specs: &[&str], columns: &[(&str, ArgType)]) -> RunInfo {
    let probes = specs.iter().zip(0..).map(|(spec, id)| ProbeInfo {
        id: ProbeId(id),
        spec: (*spec).to_owned().into(),
        rule: VisitRule::Call,
        sites: Vec::new(),
        item: None,
    });
    let columns = columns.iter().map(|(name, kind)| ArgColumn {
        name: (*name).to_owned(),
        r#type: *kind,
    });
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        complete: true,
        events: vec![EventInfo {
            id: EventId(0),
            name: "cpu-clock".to_owned(),
            reset: 10_000,
            unit: CountUnit::Ns,
            frequency: None,
            has_times: false,
            enabled_ns: None,
            running_ns: None,
            r#type: 1,
            config: 0,
            precise_requested: 0,
            precise_granted: 0,
            precise_reason: None,
        }],
        probes: probes.collect(),
        columns: columns.collect(),
        switches: true,
        page_faults: true,
        ..RunInfo::default()
    }
}

/// A trace, and its directory if that is for this trace alone.
pub(crate) struct TestTrace {
    trace: Trace,
    _dir: Option<tempfile::TempDir>,
}

impl Deref for TestTrace {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

/// A trace being made, visit by visit.
pub(crate) struct Maker {
    pub writer: TraceWriter,
    dir: Option<tempfile::TempDir>,
    pub info: RunInfo,
    /// End of the last visit and a little, ns.
    pub now: i64,
    /// Whether a tenth of the on-CPU time is interrupts, and functions wait below [`CALLER`] in [`BLOCKING`].
    pub extras: bool,
    /// Whether each part is sampled from its begin, with a row per sample.
    pub sample_rows: bool,
    /// Changes each row just before it is written.
    pub each_visit: fn(&mut VisitRow),
    pub each_wait: fn(&mut WaitRow<'static>),
    pub each_sample: fn(&mut SampleRow),
    pub each_function: fn(&mut VisitFunctionRow),
    /// Build id of all modules.
    pub build_id: Option<&'static str>,
    visits: u64,
    /// ns on the CPU until the next sample.
    phase: i64,
    /// The innermost function of each call stack.
    stacks: Vec<u32>,
}

/// The kernel function that waits, with [`Maker::extras`].
const BLOCKING: u32 = 3;

/// The caller of the functions that wait.
const CALLER: u32 = 1;

impl Maker {
    /// A trace that is removed with its [`TestTrace`].
    pub(crate) fn new(info: RunInfo) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut maker = Self::within(&dir.path().join("t"), info);
        maker.dir = Some(dir);
        maker
    }

    /// A trace at `dir`, which must not exist.
    pub(crate) fn within(dir: &Path, info: RunInfo) -> Self {
        Self {
            writer: TraceWriter::create(dir, &info, WriterOptions::default()).unwrap(),
            dir: None,
            info,
            now: 1_000,
            extras: false,
            sample_rows: false,
            each_visit: |_| (),
            each_wait: |_| (),
            each_sample: |_| (),
            each_function: |_| (),
            build_id: None,
            visits: 0,
            phase: 7_000,
            stacks: Vec::new(),
        }
    }

    /// Writes a row of any table other than `visits`.
    pub(crate) fn add<R: Row>(&mut self, row: R) {
        self.writer.extend(&[row]).unwrap();
    }

    /// Writes a call stack, the innermost function first; returns its number.
    pub(crate) fn stack(&mut self, frames: &[u32], truncated: bool) -> u32 {
        let number = self.stacks.len() as u32;
        self.stacks.push(frames[0]);
        self.add(StackRow {
            stack_id: StackId(number),
            frames: frames.to_vec(),
            truncated,
        });
        number
    }

    /// Writes a reading of each CPU's frequency, now.
    pub(crate) fn frequency(&mut self, khz: u32) {
        for cpu in [0, 1].map(Cpu) {
            let time_ns = TraceNs(self.now);
            self.add(FrequencyRow { time_ns, cpu, khz });
        }
    }

    /// Writes a visit that begins now, sampled at the reset value of the first event.
    pub(crate) fn visit(&mut self, made: &VisitFixture) {
        self.at(self.now, made);
        self.now += 500;
    }

    /// Writes a visit that begins at `begin`; its end becomes the current time.
    pub(crate) fn at(&mut self, begin: i64, made: &VisitFixture) {
        self.visits += 1;
        self.now = begin;
        let mut row = VisitRow {
            visit_id: self.visits,
            item_id: made.item.unwrap_or(self.visits),
            probe_id: ProbeId(made.probe),
            pid: Pid(100),
            tid: Tid(made.tid),
            cpu_begin: Cpu((self.visits / 7 % 2) as u16),
            begin_ns: TraceNs(begin),
            flags: made.flags,
            ..VisitRow::default()
        };
        let (mut oncpu, mut waits, mut idle) = (0, 0, 0);
        let mut functions: Vec<VisitFunctionRow> = Vec::new();
        for did in &made.did {
            let ran = match *did {
                Did::Ran(function, ns) => Some((function, ns, None)),
                Did::Called(stack, ns) => Some((self.stacks[stack as usize], ns, Some(stack))),
                Did::Waited(function, state, ns) => {
                    waits += 1;
                    self.wait(&row, function, state, ns);
                    None
                }
                Did::Idled(ns) => {
                    idle += ns;
                    None
                }
                Did::Yielded(_) => None,
            };
            if let Some((function, ns, stack)) = ran {
                oncpu += ns;
                if let Some(part) = self.run(&row, function, ns, stack) {
                    row.samples += part.samples;
                    merge(&mut functions, part);
                }
            }
            self.now += did.ns();
        }
        let switches = self.info.switches;
        if made.flags & visit_flag::OPEN_AT_END == 0 {
            row.cpu_end = Some(Cpu(0));
            row.end_ns = Some(TraceNs(self.now));
            row.duration_ns = Some(self.now - begin);
            row.oncpu_ns = switches.then_some(oncpu);
            row.idle_ns = switches.then_some(idle);
        }
        row.switches = switches.then_some(waits);
        row.migrations = switches.then_some(u32::from(made.flags & visit_flag::MIGRATED != 0));
        row.page_faults = self.info.page_faults.then_some((oncpu / 100_000) as u32);
        row.irq_ns = self.extras.then_some(oncpu / 10);
        row.softirq_ns = self.extras.then_some(0);
        (self.each_visit)(&mut row);
        self.writer.visit(&row, &made.args).unwrap();
        for item in &made.batch {
            self.add(BatchItemRow {
                visit_id: self.visits,
                item_id: Some(*item),
                items: Some(made.batch.len() as u32),
                share: 1.0 / made.batch.len() as f64,
            });
        }
        self.writer.extend(&functions).unwrap();
    }

    /// Runs a function from now on; returns its row, if it has a sample.
    fn run(
        &mut self,
        visit: &VisitRow,
        function: u32,
        ns: i64,
        stack: Option<u32>,
    ) -> Option<VisitFunctionRow> {
        let interval = self.info.events[0].reset as i64;
        let taken = if self.sample_rows {
            ns / interval
        } else {
            let phase = self.phase;
            self.phase = (phase - ns).rem_euclid(interval);
            (ns - phase + interval - 1).max(0) / interval
        };
        if taken == 0 {
            return None;
        }
        if self.sample_rows || stack.is_some() {
            for n in 0..taken {
                let mut row = SampleRow {
                    time_ns: TraceNs(self.now + n * interval),
                    visit_id: Some(visit.visit_id),
                    function_id: FunctionId(function),
                    ip: begin_of(function),
                    tid: visit.tid,
                    stack_id: stack.map(StackId),
                    ..SampleRow::default()
                };
                (self.each_sample)(&mut row);
                self.add(row);
            }
        }
        let is_known =
            self.info.events[0].divides_time() && visit.flags & visit_flag::OPEN_AT_END == 0;
        let span_ns = if self.sample_rows {
            (taken - 1) * interval
        } else {
            ns
        };
        let mut row = VisitFunctionRow {
            visit_id: visit.visit_id,
            item_id: visit.item_id,
            function_id: FunctionId(function),
            event: EventId(0),
            samples: taken as u32,
            events: Some((taken * interval) as u64),
            first_ns: TraceNs(self.now),
            last_ns: TraceNs(self.now + span_ns),
            span_ns,
            self_ns: is_known.then_some(ns as f64),
            self_stderr_ns: is_known.then_some(interval as f64 / 4.0),
        };
        (self.each_function)(&mut row);
        Some(row)
    }

    fn wait(&mut self, visit: &VisitRow, function: u32, state: &'static str, ns: i64) {
        let mut row = WaitRow {
            visit_id: visit.visit_id,
            item_id: visit.item_id,
            tid: visit.tid,
            begin_ns: TraceNs(self.now),
            end_ns: TraceNs(self.now + ns),
            function_id: (function > 0).then_some(FunctionId(function)),
            state,
            cpu_from: Cpu(0),
            cpu_to: Cpu(0),
            stack_id: self.extras.then_some(StackId(function)),
            ..WaitRow::default()
        };
        (self.each_wait)(&mut row);
        self.add(row);
    }

    /// Names the functions and closes the trace.
    pub(crate) fn finish(mut self, functions: &[(u32, &str, &str)]) -> TestTrace {
        for (id, name, module) in functions {
            if self.extras {
                self.add(StackRow {
                    stack_id: StackId(*id),
                    frames: vec![BLOCKING, *id, CALLER],
                    truncated: false,
                });
            }
            self.add(FunctionRow {
                function_id: FunctionId(*id),
                name: Some((*name).to_owned()).filter(|it| !it.is_empty()),
                module: Some((*module).to_owned()),
                build_id: self.build_id.map(str::to_owned),
                offset: Some(begin_of(*id)),
                size: Some(0x100),
                kernel: *module == "[kernel]",
                ..FunctionRow::default()
            });
        }
        self.info.duration_ns = Some(self.now);
        let dir = self.writer.finish(&self.info).unwrap().dir;
        TestTrace {
            trace: Trace::open(&dir).unwrap(),
            _dir: self.dir,
        }
    }
}

impl Did {
    fn ns(self) -> i64 {
        match self {
            Self::Ran(_, ns)
            | Self::Called(_, ns)
            | Self::Waited(_, _, ns)
            | Self::Idled(ns)
            | Self::Yielded(ns) => ns,
        }
    }
}

/// Offset of a function in the file of its module.
pub(crate) fn begin_of(function: u32) -> u64 {
    u64::from(function) * 0x1000
}

/// Adds a function to the rows of a visit, which has one row per function.
fn merge(rows: &mut Vec<VisitFunctionRow>, row: VisitFunctionRow) {
    let Some(known) = rows.iter_mut().find(|it| it.function_id == row.function_id) else {
        return rows.push(row);
    };
    known.samples += row.samples;
    known.events = known.events.zip(row.events).map(|(a, b)| a + b);
    known.last_ns = row.last_ns;
    known.span_ns = row.last_ns.0 - known.first_ns.0;
    known.self_ns = known.self_ns.zip(row.self_ns).map(|(a, b)| a + b);
}
