//! Traces made up for tests: items whose every part is known.

pub(crate) mod stacks;

use std::path::Path;

use crate::store::reader::Trace;
use crate::store::run::VisitRule;
use crate::store::run::{EventInfo, ProbeInfo, RunInfo};
use crate::store::schema::{
    ArgColumn, ArgType, ArgValue, BatchItemRow, FrequencyRow, FunctionRow, SCHEMA_VERSION,
    SampleRow, StackRow, VisitFunctionRow, VisitRow, WaitRow, visit_flag,
};
use crate::store::writer::{TraceWriter, WriterOptions};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Between two samples, ns.
pub(crate) const INTERVAL: i64 = 10_000;

/// Part of an item: on the CPU in a function, or off it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Did {
    Ran(u32, i64),
    /// In the innermost function of a call stack ([`Maker::stack`]), with a row for each sample.
    Called(u32, i64),
    Waited(u32, &'static str, i64),
    /// Nothing: its thread slept.
    Idled(i64),
    /// Nothing: its thread worked on another item.
    Yielded(i64),
}

/// A visit to make.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub probe: u16,
    /// `None`: numbered.
    pub item_id: Option<u64>,
    pub tid: u32,
    pub n: u64,
    pub key: String,
    pub flags: u32,
    pub did: Vec<Did>,
    /// Items that it serves together; empty: one.
    pub batch: Vec<u64>,
}

impl Made {
    /// A visit of probe 0.
    pub(crate) fn new(n: u64, key: &str, did: &[Did]) -> Self {
        Self {
            probe: 0,
            item_id: None,
            tid: 7,
            n,
            key: key.to_owned(),
            flags: 0,
            did: did.to_vec(),
            batch: Vec::new(),
        }
    }
}

/// What the traces made here say of themselves.
pub(crate) fn info(specs: &[&str]) -> RunInfo {
    let column = |name: &str, kind| ArgColumn {
        name: name.to_owned(),
        r#type: kind,
    };
    let probes = specs.iter().zip(0..).map(|(spec, id)| ProbeInfo {
        id: ProbeId(id),
        spec: (*spec).to_owned(),
        rule: VisitRule::Call,
        sites: Vec::new(),
        item: None,
    });
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        complete: true,
        events: vec![EventInfo {
            id: EventId(0),
            name: "cpu-clock".to_owned(),
            reset: INTERVAL as u64,
            unit: "ns".to_owned(),
            frequency: None,
            enabled_ns: None,
            running_ns: None,
            r#type: 1,
            config: 0,
            precise_requested: 0,
            precise_granted: 0,
            precise_reason: None,
        }],
        probes: probes.collect(),
        columns: vec![column("n", ArgType::U64), column("key", ArgType::Str)],
        switches: true,
        page_faults: true,
        ..RunInfo::default()
    }
}

/// A trace being made.
pub(crate) struct Maker {
    pub writer: TraceWriter,
    pub info: RunInfo,
    pub now: i64,
    /// Whether a tenth of the time on the CPU is interrupts', and functions wait below [`CALLER`] in [`BLOCKING`].
    pub extras: bool,
    visits: u64,
    phase: i64,
    /// The innermost function of each call stack.
    stacks: Vec<u32>,
}

/// The kernel's function that goes to wait, see [`Maker::extras`].
pub(crate) const BLOCKING: u32 = 3;

/// The function that calls those that wait.
pub(crate) const CALLER: u32 = 1;

impl Maker {
    /// A trace at `dir`, which must not exist.
    pub(crate) fn new(dir: &Path, info: RunInfo) -> Self {
        let writer = TraceWriter::create(dir, &info, WriterOptions::default()).unwrap();
        Self {
            writer,
            info,
            now: 1_000,
            extras: false,
            visits: 0,
            phase: 7_000,
            stacks: Vec::new(),
        }
    }

    /// Writes a call stack, the innermost function first; gives its number.
    pub(crate) fn stack(&mut self, frames: &[u32], truncated: bool) -> u32 {
        let number = self.stacks.len() as u32;
        self.stacks.push(frames[0]);
        let row = StackRow {
            stack_id: StackId(number),
            frames: frames.to_vec(),
            truncated,
        };
        self.writer.add(&row).unwrap();
        number
    }

    /// Writes a reading of each CPU's frequency, now.
    pub(crate) fn frequency(&mut self, khz: u32) {
        for cpu in [0, 1].map(Cpu) {
            let row = FrequencyRow {
                time_ns: TraceNs(self.now),
                cpu,
                khz,
            };
            self.writer.add(&row).unwrap();
        }
    }

    /// Writes a visit from now on, sampled every [`INTERVAL`] of its time on the CPU; gives its begin.
    pub(crate) fn visit(&mut self, made: &Made) -> i64 {
        let begin = self.now;
        self.at(begin, made);
        self.now += 500;
        begin
    }

    /// Writes a visit that begins then, and leaves the time at its end.
    pub(crate) fn at(&mut self, begin: i64, made: &Made) {
        self.visits += 1;
        self.now = begin;
        let id = made.item_id.unwrap_or(self.visits);
        let (mut oncpu, mut seen, mut waits, mut idle) = (0, 0, 0, 0);
        let mut functions: Vec<VisitFunctionRow> = Vec::new();
        for did in &made.did {
            let (function, ns, stack) = match *did {
                Did::Ran(function, ns) => (function, ns, None),
                Did::Called(stack, ns) => (self.stacks[stack as usize], ns, Some(stack)),
                Did::Waited(function, state, ns) => {
                    waits += 1;
                    self.wait((id, made.tid), function, state, ns);
                    continue;
                }
                Did::Idled(ns) => {
                    idle += ns;
                    self.now += ns;
                    continue;
                }
                Did::Yielded(ns) => {
                    self.now += ns;
                    continue;
                }
            };
            let taken = (ns - self.phase)
                .max(0)
                .unsigned_abs()
                .div_ceil(INTERVAL as u64);
            self.phase = (self.phase - ns).rem_euclid(INTERVAL);
            oncpu += ns;
            seen += taken as u32;
            self.function(&mut functions, (id, function), taken as u32, ns);
            if let Some(stack) = stack {
                self.samples(made.tid, function, taken, stack);
            }
            self.now += ns;
        }
        let row = VisitRow {
            visit_id: self.visits,
            item_id: id,
            probe_id: ProbeId(made.probe),
            pid: Pid(100),
            tid: Tid(made.tid),
            cpu_begin: Cpu((self.visits / 7 % 2) as u16),
            cpu_end: Some(Cpu(0)),
            begin_ns: TraceNs(begin),
            end_ns: Some(TraceNs(self.now)),
            duration_ns: Some(self.now - begin),
            oncpu_ns: self.info.switches.then_some(oncpu),
            idle_ns: self.info.switches.then_some(idle),
            net_ns: None,
            net_stderr_ns: None,
            samples: seen,
            flags: made.flags
                | if made.batch.is_empty() {
                    0
                } else {
                    visit_flag::SHARED
                },
            switches: Some(waits),
            migrations: Some(0),
            page_faults: Some((oncpu / 100_000) as u32),
            irq_ns: self.extras.then_some(oncpu / 10),
            softirq_ns: self.extras.then_some(0),
            ..VisitRow::default()
        };
        let args = [
            Some(ArgValue::U64(made.n)),
            Some(ArgValue::Str(made.key.as_str().into())),
        ];
        self.writer.visit(&row, &args).unwrap();
        for item in &made.batch {
            let row = BatchItemRow {
                visit_id: self.visits,
                item_id: Some(*item),
                items: Some(made.batch.len() as u32),
                share: 1.0 / made.batch.len() as f64,
            };
            self.writer.add(&row).unwrap();
        }
        self.writer.extend(&functions).unwrap();
    }

    /// Adds a function to the rows of a visit, which has one of each.
    fn function(
        &self,
        rows: &mut Vec<VisitFunctionRow>,
        (item_id, function): (u64, u32),
        samples: u32,
        ns: i64,
    ) {
        if samples == 0 {
            return;
        }
        let row = VisitFunctionRow {
            visit_id: self.visits,
            item_id,
            function_id: FunctionId(function),
            event: EventId(0),
            samples,
            events: Some(u64::from(samples) * INTERVAL as u64),
            first_ns: TraceNs(self.now),
            last_ns: TraceNs(self.now + ns),
            span_ns: ns,
            self_ns: Some(ns as f64),
            self_stderr_ns: Some(3_000.0),
        };
        match rows.iter_mut().find(|it| it.function_id == row.function_id) {
            None => rows.push(row),
            Some(known) => {
                known.samples += samples;
                known.events = known.events.zip(row.events).map(|(a, b)| a + b);
                known.last_ns = row.last_ns;
                known.span_ns = row.last_ns.0 - known.first_ns.0;
                known.self_ns = known.self_ns.zip(row.self_ns).map(|(a, b)| a + b);
            }
        }
    }

    fn samples(&mut self, tid: u32, function: u32, samples: u64, stack: u32) {
        for n in 0..samples {
            let row = SampleRow {
                time_ns: TraceNs(self.now + n as i64 * INTERVAL),
                visit_id: Some(self.visits),
                function_id: FunctionId(function),
                ip: 0x1000,
                tid: Tid(tid),
                cpu: Cpu(0),
                event: EventId(0),
                flags: 0,
                stack_id: Some(StackId(stack)),
            };
            self.writer.add(&row).unwrap();
        }
    }

    fn wait(&mut self, (item_id, tid): (u64, u32), function: u32, state: &'static str, ns: i64) {
        let row = WaitRow {
            visit_id: self.visits,
            item_id,
            tid: Tid(tid),
            begin_ns: TraceNs(self.now),
            end_ns: TraceNs(self.now + ns),
            function_id: Some(FunctionId(function)),
            state,
            cpu_from: Cpu(0),
            cpu_to: Cpu(0),
            stack_id: self.extras.then_some(StackId(function)),
            ..WaitRow::default()
        };
        self.writer.add(&row).unwrap();
        self.now += ns;
    }

    /// Names the functions and closes the trace.
    pub(crate) fn finish(mut self, functions: &[(u32, &str, &str)]) -> Trace {
        for (id, ..) in functions.iter().filter(|_| self.extras) {
            let row = StackRow {
                stack_id: StackId(*id),
                frames: vec![BLOCKING, *id, CALLER],
                truncated: false,
            };
            self.writer.add(&row).unwrap();
        }
        for (id, name, module) in functions {
            let row = FunctionRow {
                function_id: FunctionId(*id),
                name: Some((*name).to_owned()),
                module: Some((*module).to_owned()),
                build_id: None,
                offset: Some(begin_of(*id)),
                size: Some(0x100),
                file: None,
                line: None,
                kernel: *module == "[kernel]",
                inlined: false,
                system_call: None,
            };
            self.writer.add(&row).unwrap();
        }
        self.info.duration_ns = Some(self.now);
        let dir = self.writer.finish(&self.info).unwrap().dir;
        Trace::open(&dir).unwrap()
    }
}

/// Offset of a function in the file of its module.
pub(crate) fn begin_of(function: u32) -> u64 {
    u64::from(function) * 0x1000
}

/// Flag of a visit that overlaps a loss.
pub(crate) const LOSS: u32 = visit_flag::LOSS;
