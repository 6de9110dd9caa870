//! A small trace with everything that an output must cope with.

use proptest::prelude::*;

use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info_with};
use crate::store::schema::{
    ArgType, ArgValue, FunctionRow, INTERRUPT, LossRow, SampleRow, VisitFunctionRow, VisitRow,
    WaitRow, sample_flag, visit_flag,
};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, Tid, TraceNs};

/// A string that is markup, quotes, separators and a line end.
pub(crate) const HOSTILE: &str = "</script><b>;\"x\", 7\n<!--";

/// A trace of a run with two stages and one argument each.
pub(crate) fn maker() -> Maker {
    let specs = [
        "/opt/srv:recv(id=arg1, key=str(arg2))",
        "/opt/srv:work(id=arg1, n=arg2)",
    ];
    let mut info = info_with(&specs, &[("key", ArgType::Str), ("n", ArgType::U64)]);
    info.command_line = ["pebs-trace", "-u", HOSTILE].map(str::to_owned).into();
    info.events[0].reset = 16_000;
    let mut maker = Maker::new(info);
    maker.sample_rows = true;
    maker.each_visit = |row| {
        row.cpu_begin = Cpu(0);
        row.cpu_end = row.end_ns.map(|_| Cpu(1));
        row.net_ns = row.duration_ns.map(|ns| ns - 1_000);
        row.net_stderr_ns = row.duration_ns.map(|_| 100);
        row.idle_ns = None;
        row.switches = Some(0);
        row.page_faults = Some(1);
    };
    maker.each_wait = |row| {
        row.cpu_to = Cpu(1);
        row.woken_by = Some(INTERRUPT);
        row.runnable_ns = Some(2_000);
    };
    maker.each_sample = |row| {
        row.cpu = Cpu(1);
        row.flags = u32::from(row.function_id.0 == 3) * sample_flag::KERNEL;
    };
    maker
}

/// Writes a visit with one function, sample and wait, with these numbers: visit, probe, begin, end, flags
/// and function.
pub(crate) fn put_strange(
    maker: &mut Maker,
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
        begin_ns,
        end_ns: (flags & 1 == 0).then_some(end_ns),
        duration_ns: (flags & 2 == 0).then_some(end),
        oncpu_ns: Some(begin),
        net_ns: (flags & 4 == 0).then_some(end),
        net_stderr_ns: (flags & 8 == 0).then_some(begin),
        samples: flags,
        flags,
        switches: Some(function),
        ..VisitRow::default()
    };
    let args = [None, Some(ArgValue::U64(visit))];
    maker.writer.visit(&row, &args).unwrap();
    let (event, function_id) = (EventId((probe % 2) as u8), FunctionId(function % 7));
    maker.add(VisitFunctionRow {
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
    });
    maker.add(SampleRow {
        time_ns: end_ns,
        visit_id: Some(visit),
        function_id,
        ip: visit,
        tid: Tid(flags),
        cpu: Cpu(probe),
        event,
        flags,
        stack_id: None,
    });
    maker.add(WaitRow {
        visit_id: visit,
        item_id: visit,
        tid: Tid(flags),
        begin_ns,
        end_ns,
        function_id: Some(function_id),
        state: "sleeping",
        cpu_to: Cpu(1),
        ..WaitRow::default()
    });
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

/// Writes four functions, one hostile, one in the kernel, one without a name, and ends the trace.
pub(crate) fn finish(mut maker: Maker) -> TestTrace {
    let names = [Some("recv"), Some(HOSTILE), Some("do_syscall_64"), None];
    for (name, id) in names.into_iter().zip(1..) {
        let module = if id == 3 { "[kernel]" } else { "/opt/srv" };
        maker.add(FunctionRow {
            function_id: FunctionId(id),
            name: name.map(str::to_owned),
            module: Some(module.to_owned()),
            offset: Some(0x40),
            file: (id == 1).then(|| "srv.c".to_owned()),
            line: (id == 1).then_some(12),
            kernel: id == 3,
            ..FunctionRow::default()
        });
    }
    maker.now = 1_000_000;
    maker.finish(&[])
}

/// Two stages of item 7, the second slow; two items that overlap; one with a loss, one that never ended.
pub(crate) fn small() -> TestTrace {
    let mut maker = maker();
    let recv = |id, key: &str, did: &[_]| {
        let args = [Some(key.into()), None];
        VisitFixture::with(args, did).item(id).tid(101)
    };
    let work = |id, n: u64, did: &[_]| {
        let args = [None, Some(n.into())];
        VisitFixture::with(args, did).probe(1).item(id).tid(102)
    };
    let slow = [
        Ran(2, 80_000),
        Waited(2, "sleeping", 70_000),
        Ran(3, 50_000),
    ];
    let overlapped = recv(9, "c", &[Ran(1, 56_000)]).flags(visit_flag::OVERLAPPED);
    let cut = [Ran(2, 40_000), Waited(0, "sleeping", 9_000)];
    let open = work(12, 6, &[Ran(2, 33_000)]).flags(visit_flag::OPEN_AT_END);
    maker.at(1_000, &recv(7, "a", &[Ran(1, 50_000)]));
    maker.at(60_000, &work(7, 5, &slow));
    maker.at(
        100_000,
        &recv(8, HOSTILE, &[Ran(1, 35_000), Ran(4, 20_000)]),
    );
    maker.at(120_000, &overlapped);
    maker.at(400_000, &work(11, u64::MAX, &cut).flags(visit_flag::LOSS));
    maker.at(500_000, &open);
    maker.add(LossRow {
        begin_ns: TraceNs(410_000),
        end_ns: TraceNs(420_000),
        cpu: None,
        tid: None,
        reason: "dropped_ring_full".to_owned(),
        records: Some(3),
    });
    finish(maker)
}
