//! A small trace with everything that an output must cope with.

use std::path::Path;

use proptest::prelude::*;

use crate::store::reader::Trace;
use crate::store::run::VisitRule;
use crate::store::run::{EventInfo, ProbeInfo, RunInfo};
use crate::store::schema::{
    ArgColumn, ArgType, ArgValue, FunctionRow, INTERRUPT, LossRow, SCHEMA_VERSION, SampleRow,
    VisitFunctionRow, VisitRow, WaitRow, sample_flag, visit_flag,
};
use crate::store::writer::{TraceWriter, WriterOptions};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, Tid, TraceNs};

const INTERVAL: i64 = 16_000;

/// A string that is markup, quotes, separators and a line end.
pub(crate) const HOSTILE: &str = "</script><b>;\"x\", 7\n<!--";

/// `trace.json` of a run with two stages and one argument each.
pub(crate) fn info() -> RunInfo {
    let probe = |id, spec: &str| ProbeInfo {
        id: ProbeId(id),
        spec: spec.to_owned(),
        rule: VisitRule::Call,
        sites: Vec::new(),
        item: None,
    };
    let column = |name: &str, r#type| ArgColumn {
        name: name.to_owned(),
        r#type,
    };
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        command_line: vec!["pebs-trace".to_owned(), "-u".to_owned(), HOSTILE.to_owned()],
        complete: true,
        events: vec![EventInfo {
            id: EventId(0),
            name: "cpu-clock".to_owned(),
            reset: INTERVAL as u64,
            unit: "ns".to_owned(),
            r#type: 1,
            config: 0,
            precise_requested: 0,
            precise_granted: 0,
            precise_reason: None,
            frequency: None,
            enabled_ns: None,
            running_ns: None,
        }],
        probes: vec![
            probe(0, "/opt/srv:recv(id=arg1, key=str(arg2))"),
            probe(1, "/opt/srv:work(id=arg1, n=arg2)"),
        ],
        columns: vec![column("key", ArgType::Str), column("n", ArgType::U64)],
        switches: true,
        page_faults: true,
        duration_ns: Some(1_000_000),
        ..RunInfo::default()
    }
}

/// Visit and its parts: ns in a function, or ns off the CPU in it.
pub(crate) struct Made<'a> {
    pub visit: u64,
    pub item: u64,
    pub probe: u16,
    pub tid: u32,
    pub begin: i64,
    pub flags: u32,
    pub args: Vec<Option<ArgValue>>,
    pub parts: &'a [(u32, i64, Option<&'static str>)],
}

/// Writes a visit with its functions, samples and waits.
pub(crate) fn put(writer: &mut TraceWriter, made: Made<'_>) {
    let open = made.flags & visit_flag::OPEN_AT_END != 0;
    let (mut now, mut oncpu, mut count, mut functions) = (made.begin, 0, 0, Vec::new());
    for &(function, ns, state) in made.parts {
        if let Some(state) = state {
            let wait = WaitRow {
                visit_id: made.visit,
                item_id: made.item,
                tid: Tid(made.tid),
                begin_ns: TraceNs(now),
                end_ns: TraceNs(now + ns),
                function_id: (function > 0).then_some(FunctionId(function)),
                state,
                cpu_from: Cpu(0),
                cpu_to: Cpu(1),
                woken_by: Some(INTERRUPT),
                runnable_ns: Some(2_000),
                ..WaitRow::default()
            };
            writer.add(&wait).unwrap();
        } else {
            let times: Vec<i64> = (0..ns / INTERVAL).map(|n| now + n * INTERVAL).collect();
            for time in &times {
                let kernel = if function == 3 {
                    sample_flag::KERNEL
                } else {
                    0
                };
                let sample = SampleRow {
                    time_ns: TraceNs(*time),
                    visit_id: Some(made.visit),
                    function_id: FunctionId(function),
                    ip: 0x1000 * u64::from(function),
                    tid: Tid(made.tid),
                    cpu: Cpu(1),
                    event: EventId(0),
                    flags: kernel,
                    stack_id: None,
                };
                writer.add(&sample).unwrap();
            }
            if let (Some(first), Some(last)) = (times.first(), times.last()) {
                functions.push(VisitFunctionRow {
                    visit_id: made.visit,
                    item_id: made.item,
                    function_id: FunctionId(function),
                    event: EventId(0),
                    samples: times.len() as u32,
                    events: Some(times.len() as u64 * INTERVAL as u64),
                    first_ns: TraceNs(*first),
                    last_ns: TraceNs(*last),
                    span_ns: last - first,
                    self_ns: (!open).then_some(ns as f64),
                    self_stderr_ns: (!open).then_some(4_000.5),
                });
            }
            count += times.len() as u32;
            oncpu += ns;
        }
        now += ns;
    }
    let row = VisitRow {
        visit_id: made.visit,
        item_id: made.item,
        probe_id: ProbeId(made.probe),
        pid: Pid(100),
        tid: Tid(made.tid),
        cpu_begin: Cpu(0),
        cpu_end: (!open).then_some(Cpu(1)),
        begin_ns: TraceNs(made.begin),
        end_ns: (!open).then_some(TraceNs(now)),
        duration_ns: (!open).then_some(now - made.begin),
        oncpu_ns: (!open).then_some(oncpu),
        net_ns: (!open).then_some(now - made.begin - 1_000),
        net_stderr_ns: (!open).then_some(100),
        samples: count,
        flags: made.flags,
        switches: Some(0),
        migrations: Some(0),
        page_faults: Some(1),
        ..VisitRow::default()
    };
    writer.visit(&row, &made.args).unwrap();
    writer.extend(&functions).unwrap();
}

/// Writes a visit with one function, sample and wait, of these numbers: visit, probe, begin, end, flags and
/// function.
pub(crate) fn put_strange(
    writer: &mut TraceWriter,
    (visit, probe, begin, end, flags, function): (u64, u16, i64, i64, u32, u32),
) {
    let (begin_ns, end_ns) = (TraceNs(begin), TraceNs(end));
    let row = VisitRow {
        visit_id: visit,
        item_id: visit % 3,
        probe_id: ProbeId(probe % 3),
        pid: Pid(function),
        tid: Tid(flags),
        cpu_begin: Cpu(probe),
        cpu_end: None,
        begin_ns,
        end_ns: (flags & 1 == 0).then_some(end_ns),
        duration_ns: (flags & 2 == 0).then_some(end),
        oncpu_ns: Some(begin),
        net_ns: (flags & 4 == 0).then_some(end),
        net_stderr_ns: (flags & 8 == 0).then_some(begin),
        samples: flags,
        flags,
        switches: Some(function),
        migrations: None,
        page_faults: None,
        ..VisitRow::default()
    };
    let args = [None, Some(ArgValue::U64(visit))];
    writer.visit(&row, &args).unwrap();
    let (event, function_id) = (EventId((probe % 2) as u8), FunctionId(function % 7));
    let part = VisitFunctionRow {
        visit_id: visit,
        item_id: visit,
        function_id,
        event,
        samples: flags,
        events: Some(visit).filter(|visit| visit % 2 == 0),
        first_ns: end_ns,
        last_ns: begin_ns,
        span_ns: begin,
        self_ns: Some(end as f64),
        self_stderr_ns: Some(f64::NAN),
    };
    writer.extend(&[part]).unwrap();
    let sample = SampleRow {
        time_ns: end_ns,
        visit_id: Some(visit),
        function_id,
        ip: visit,
        tid: Tid(flags),
        cpu: Cpu(probe),
        event,
        flags,
        stack_id: None,
    };
    writer.add(&sample).unwrap();
    let wait = WaitRow {
        visit_id: visit,
        item_id: visit,
        tid: Tid(flags),
        begin_ns,
        end_ns,
        function_id: Some(function_id),
        state: "sleeping",
        cpu_from: Cpu(0),
        cpu_to: Cpu(1),
        ..WaitRow::default()
    };
    writer.add(&wait).unwrap();
}

/// Rows of [`put_strange`].
pub(crate) fn strange() -> impl Strategy<Value = Vec<(u64, u16, i64, i64, u32, u32)>> {
    let ns = || prop_oneof![any::<i64>(), 0..5_000_i64];
    let numbers = (
        0..9_u64,
        any::<u16>(),
        ns(),
        ns(),
        any::<u32>(),
        any::<u32>(),
    );
    prop::collection::vec(numbers, 1..9)
}

/// A writer of a trace `t` in this directory.
pub(crate) fn writer(dir: &Path, info: &RunInfo) -> TraceWriter {
    TraceWriter::create(&dir.join("t"), info, WriterOptions::default()).unwrap()
}

/// Writes four functions, one hostile, one in the kernel, one without a name, and ends the trace.
pub(crate) fn finish(mut writer: TraceWriter, info: &RunInfo) -> Trace {
    let names = [Some("recv"), Some(HOSTILE), Some("do_syscall_64"), None];
    for (name, id) in names.into_iter().zip(1..) {
        let module = if id == 3 { "[kernel]" } else { "/opt/srv" };
        let row = FunctionRow {
            function_id: FunctionId(id),
            name: name.map(str::to_owned),
            module: Some(module.to_owned()),
            build_id: None,
            offset: Some(0x40),
            size: None,
            file: (id == 1).then(|| "srv.c".to_owned()),
            line: (id == 1).then_some(12),
            kernel: id == 3,
            inlined: false,
            system_call: None,
        };
        writer.add(&row).unwrap();
    }
    let dir = writer.finish(info).unwrap().dir;
    Trace::open(&dir).unwrap()
}

/// Two stages of item 7, the second slow; two items that overlap; one with a loss, one that never ended.
pub(crate) fn small(dir: &Path) -> Trace {
    let info = info();
    let mut writer = writer(dir, &info);
    let key = |text: &str| vec![Some(ArgValue::Str(text.into())), None];
    let n = |number| vec![None, Some(ArgValue::U64(number))];
    let made = |visit, item, probe, begin, args, parts| Made {
        visit,
        item,
        probe,
        tid: 101 + u32::from(probe),
        begin,
        flags: 0,
        args,
        parts,
    };
    let wait = Some("sleeping");
    put(
        &mut writer,
        made(1, 7, 0, 1_000, key("a"), &[(1, 50_000, None)]),
    );
    let slow = [(2, 80_000, None), (2, 70_000, wait), (3, 50_000, None)];
    put(&mut writer, made(2, 7, 1, 60_000, n(5), &slow));
    let parts = [(1, 35_000, None), (4, 20_000, None)];
    put(&mut writer, made(3, 8, 0, 100_000, key(HOSTILE), &parts));
    let overlapped = Made {
        flags: visit_flag::OVERLAPPED,
        ..made(4, 9, 0, 120_000, key("c"), &[(1, 56_000, None)])
    };
    put(&mut writer, overlapped);
    let cut = [(2, 40_000, None), (0, 9_000, wait)];
    let lossy = Made {
        flags: visit_flag::LOSS,
        ..made(5, 11, 1, 400_000, n(u64::MAX), &cut)
    };
    put(&mut writer, lossy);
    let open = Made {
        flags: visit_flag::OPEN_AT_END,
        ..made(6, 12, 1, 500_000, n(6), &[(2, 33_000, None)])
    };
    put(&mut writer, open);
    let loss = LossRow {
        begin_ns: TraceNs(410_000),
        end_ns: TraceNs(420_000),
        cpu: None,
        tid: None,
        reason: "dropped_ring_full".to_owned(),
        records: Some(3),
    };
    writer.add(&loss).unwrap();
    finish(writer, &info)
}
