//! Made-up traces, visit by visit.

use std::path::Path;

use crate::ledger::{Account, CpuLedger, Ledger};
use crate::store::reader::Trace;
use crate::store::run::VisitRule;
use crate::store::run::{EventInfo, ProbeInfo, RunInfo};
use crate::store::schema::{
    ArgColumn, ArgType, ArgValue, FunctionRow, SCHEMA_VERSION, VisitFunctionRow, VisitRow, WaitRow,
    visit_flag,
};
use crate::store::writer::{TraceWriter, WriterOptions};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, Tid, TraceNs};

/// A trace being made up.
pub(super) struct Maker {
    pub(super) writer: TraceWriter,
    info: RunInfo,
    visits: u64,
    now: i64,
    /// ns until the next sample.
    phase: i64,
}

/// Part of a visit: on the CPU in a function, or off it.
#[derive(Clone, Copy)]
pub(super) enum Did {
    Ran(u32, i64),
    Waited(u32, &'static str, i64),
}
pub(super) use Did::{Ran, Waited};

const INTERVAL: i64 = 16_000;

pub(super) fn event(name: &str, unit: &str) -> EventInfo {
    EventInfo {
        id: EventId(0),
        name: name.to_owned(),
        reset: INTERVAL as u64,
        unit: unit.to_owned(),
        frequency: None,
        enabled_ns: None,
        running_ns: None,
        r#type: if unit == "ns" { 1 } else { 4 },
        config: 0,
        precise_requested: 0,
        precise_granted: 0,
        precise_reason: None,
    }
}

pub(super) fn run_info(spec: &str, column: &str, r#type: ArgType) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        complete: true,
        events: vec![event("cpu-clock", "ns")],
        transport: "bpf".to_owned(),
        transport_reason: "cpu-clock has no buffered mode".to_owned(),
        probes: vec![ProbeInfo {
            id: ProbeId(0),
            spec: spec.to_owned(),
            rule: VisitRule::Call,
            sites: Vec::new(),
            item: None,
        }],
        columns: vec![ArgColumn {
            name: column.to_owned(),
            r#type,
        }],
        switches: true,
        page_faults: true,
        ..RunInfo::default()
    }
}

pub(super) fn function(id: u32, name: Option<&str>, module: &str) -> FunctionRow {
    FunctionRow {
        function_id: FunctionId(id),
        name: name.map(str::to_owned),
        module: Some(module.to_owned()),
        build_id: None,
        offset: None,
        size: None,
        file: None,
        line: None,
        kernel: module == "[kernel]",
        inlined: false,
        system_call: None,
    }
}

impl Maker {
    pub(super) fn new(dir: &Path, info: RunInfo) -> Self {
        let options = WriterOptions::default();
        Self {
            writer: TraceWriter::create(&dir.join("t"), &info, options).unwrap(),
            info,
            visits: 0,
            now: 1_000,
            phase: 7_000,
        }
    }

    /// A visit that does this, sampled every 16 us of its time on the CPU.
    pub(super) fn visit(&mut self, arg: ArgValue, flags: u32, did: &[Did]) {
        self.visits += 1;
        let (begin, mut samples, mut oncpu) = (self.now, 0, 0);
        let waits = did.iter().filter(|part| matches!(part, Waited(..)));
        let switches = waits.count() as u32;
        // One for each 100 us that the visit runs beyond the first 50 us.
        let ran = did.iter().map(|part| match part {
            Ran(_, ns) => *ns,
            Waited(..) => 0,
        });
        let faults = ((ran.sum::<i64>() - 50_000).max(0) / 100_000) as u32;
        for part in did {
            match *part {
                Ran(function, ns) => {
                    let taken = (ns - self.phase)
                        .max(0)
                        .unsigned_abs()
                        .div_ceil(INTERVAL as u64);
                    self.phase = (self.phase - ns).rem_euclid(INTERVAL);
                    oncpu += ns;
                    samples += taken as u32;
                    self.function(function, taken as u32, ns);
                    self.now += ns;
                }
                Waited(function, state, ns) => self.wait(function, state, ns),
            }
        }
        let duration = self.now - begin;
        let row = VisitRow {
            visit_id: self.visits,
            item_id: self.visits,
            probe_id: ProbeId(0),
            pid: Pid(100),
            tid: Tid(101),
            cpu_begin: Cpu(0),
            cpu_end: Some(Cpu(0)),
            begin_ns: TraceNs(begin),
            end_ns: Some(TraceNs(self.now)),
            duration_ns: Some(duration),
            oncpu_ns: self.info.switches.then_some(oncpu),
            net_ns: None,
            net_stderr_ns: None,
            samples,
            flags,
            switches: self.info.switches.then_some(switches),
            migrations: self
                .info
                .switches
                .then_some(u32::from(flags & visit_flag::MIGRATED != 0)),
            page_faults: self.info.page_faults.then_some(faults),
            ..VisitRow::default()
        };
        let open = flags & visit_flag::OPEN_AT_END != 0;
        let row = if open {
            VisitRow {
                cpu_end: None,
                end_ns: None,
                duration_ns: None,
                oncpu_ns: None,
                ..row
            }
        } else {
            row
        };
        self.writer.visit(&row, &[Some(arg)]).unwrap();
        self.now += 500;
    }

    pub(super) fn function(&mut self, function: u32, samples: u32, ns: i64) {
        if samples == 0 {
            return;
        }
        let clock = self.info.events[0].unit == "ns";
        let row = VisitFunctionRow {
            visit_id: self.visits,
            item_id: self.visits,
            function_id: FunctionId(function),
            event: EventId(0),
            samples,
            events: Some(u64::from(samples) * INTERVAL as u64),
            first_ns: TraceNs(self.now),
            last_ns: TraceNs(self.now + ns),
            span_ns: ns,
            self_ns: clock.then_some(ns as f64),
            self_stderr_ns: clock.then_some(4_000.0),
        };
        self.writer.extend(&[row]).unwrap();
    }

    pub(super) fn wait(&mut self, function: u32, state: &'static str, ns: i64) {
        let row = WaitRow {
            visit_id: self.visits,
            item_id: self.visits,
            tid: Tid(101),
            begin_ns: TraceNs(self.now),
            end_ns: TraceNs(self.now + ns),
            function_id: (function > 0).then_some(FunctionId(function)),
            state,
            cpu_from: Cpu(0),
            cpu_to: Cpu(0),
            ..WaitRow::default()
        };
        self.writer.add(&row).unwrap();
        self.now += ns;
    }

    pub(super) fn finish(mut self, functions: &[FunctionRow]) -> Trace {
        for function in functions {
            self.writer.add(function).unwrap();
        }
        self.info.duration_ns = Some(self.now);
        let dir = self.writer.finish(&self.info).unwrap().dir;
        Trace::open(&dir).unwrap()
    }
}

pub(super) fn text_arg(text: String) -> ArgValue {
    ArgValue::Str(text.into())
}

pub(super) fn balanced(samples: u64, marks: u64) -> Ledger {
    let account = |seen| Account {
        seen,
        written: seen,
        ..Account::default()
    };
    Ledger {
        cpus: vec![CpuLedger {
            cpu: 0,
            samples: account(samples),
            marks: account(marks),
            tasks: account(90),
        }],
        samples_unmatched: 12,
        throttled: Some(0),
        ..Ledger::default()
    }
}
