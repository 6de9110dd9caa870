//! Rows for the tests of this folder, every value a function of the row's number.

use crate::store::run::RunInfo;
use crate::store::schema::{
    ArgColumn, ArgType, ArgValue, FunctionRow, FunctionStatRow, LossRow, MemoryRow, SCHEMA_VERSION,
    SampleRow, VisitFunctionRow, VisitRow, WaitRow, measure,
};
use crate::store::writer::{TraceWriter, WriteError};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

pub(in crate::store) fn info() -> RunInfo {
    let column = |name: &str, kind| ArgColumn {
        name: name.to_owned(),
        r#type: kind,
    };
    RunInfo {
        schema_version: SCHEMA_VERSION,
        tool_version: "0.1.0".to_owned(),
        columns: vec![
            column("n", ArgType::U64),
            column("delta", ArgType::I64),
            column("key", ArgType::Str),
        ],
        ..RunInfo::default()
    }
}

pub(in crate::store) fn visit(n: u64) -> VisitRow {
    let ended = n % 7 != 3;
    let begin = n as i64 * 1000;
    VisitRow {
        visit_id: n + 1,
        item_id: n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        probe_id: ProbeId((n % 3) as u16),
        pid: Pid(100),
        tid: Tid(100 + (n % 5) as u32),
        cpu_begin: Cpu((n % 2) as u16),
        cpu_end: ended.then_some(Cpu(1)),
        begin_ns: TraceNs(begin),
        end_ns: ended.then_some(TraceNs(begin + 900)),
        duration_ns: ended.then_some(900),
        oncpu_ns: (ended && n.is_multiple_of(2)).then_some(800),
        net_ns: (ended && !n.is_multiple_of(3)).then_some(850 - (n % 13) as i64),
        net_stderr_ns: (ended && !n.is_multiple_of(3)).then_some((n % 17) as i64),
        samples: (n % 4) as u32,
        flags: (n % 1024) as u32,
        switches: ended.then_some((n % 3) as u32),
        migrations: ended.then_some((n % 2) as u32),
        page_faults: (n.is_multiple_of(2)).then_some((n % 11) as u32),
        ..VisitRow::default()
    }
}

pub(in crate::store) fn args(n: u64) -> Vec<Option<ArgValue>> {
    vec![
        (n.is_multiple_of(2)).then_some(ArgValue::U64(u64::MAX - n)),
        Some(ArgValue::I64(-(n as i64))),
        (!n.is_multiple_of(3)).then(|| ArgValue::Str(format!("key:{n}").into())),
    ]
}

pub(in crate::store) fn visit_function(n: u64) -> VisitFunctionRow {
    VisitFunctionRow {
        visit_id: n + 1,
        item_id: n,
        function_id: FunctionId((n % 300) as u32),
        event: EventId(0),
        samples: 2,
        events: Some(2 * 16_000),
        first_ns: TraceNs(n as i64 * 1000),
        last_ns: TraceNs(n as i64 * 1000 + 500),
        span_ns: 500,
        self_ns: (n.is_multiple_of(2)).then_some(n as f64 + 0.25),
        self_stderr_ns: (n.is_multiple_of(2)).then_some(0.5),
    }
}

pub(in crate::store) fn sample(n: u64) -> SampleRow {
    SampleRow {
        time_ns: TraceNs(n as i64 * 100),
        visit_id: (!n.is_multiple_of(10)).then_some(n / 10 + 1),
        function_id: FunctionId((n % 300) as u32),
        ip: if n.is_multiple_of(2) {
            0x40_0000 + n
        } else {
            u64::MAX - n
        },
        tid: Tid(7),
        cpu: Cpu(1),
        event: EventId((n % 2) as u8),
        flags: (n % 8) as u32,
        stack_id: (n.is_multiple_of(3)).then_some(StackId((n % 7) as u32)),
    }
}

pub(in crate::store) fn wait(n: u64) -> WaitRow<'static> {
    WaitRow {
        visit_id: n + 1,
        item_id: n,
        tid: Tid(7),
        begin_ns: TraceNs(n as i64),
        end_ns: TraceNs(n as i64 + 3),
        function_id: (n.is_multiple_of(2)).then_some(FunctionId(9)),
        state: if n.is_multiple_of(2) {
            "sleeping"
        } else {
            "runnable"
        },
        cpu_from: Cpu(0),
        cpu_to: Cpu(1),
        ..WaitRow::default()
    }
}

pub(in crate::store) fn function_stat(n: u64) -> FunctionStatRow<'static> {
    let whole = n.is_multiple_of(3);
    FunctionStatRow {
        begin_ns: TraceNs(n as i64 / 100),
        end_ns: TraceNs(n as i64 / 100 + 1),
        probe_id: ProbeId(0),
        measure: if whole {
            measure::DURATION
        } else {
            measure::SELF
        },
        function_id: (!whole).then_some(FunctionId((n % 300) as u32)),
        event: (!whole).then_some(EventId(0)),
        loss: n.is_multiple_of(5),
        visits: n,
        visits_with: n / 2,
        samples: (!whole).then_some(n),
        samples_squared: (!whole).then_some(n as f64),
        samples_product: (!whole).then_some(n as f64 * 2.0),
        samples_active_ns: (!whole).then_some(n as f64 * 8.0),
        sum_ns: (!n.is_multiple_of(7)).then_some(n as f64 * 0.5),
        sum_squared: (!n.is_multiple_of(7)).then_some(n as f64),
        min_ns: (!n.is_multiple_of(7)).then_some(1.0),
        max_ns: (!n.is_multiple_of(7)).then_some(n as f64),
        bucket_ns: (0..n % 4).map(|bucket| bucket as i64 * 1000).collect(),
        bucket_count: (0..n % 4).map(|bucket| bucket + n).collect(),
    }
}

pub(in crate::store) fn function(n: u64) -> FunctionRow {
    FunctionRow {
        function_id: FunctionId(n as u32),
        name: (n != 2).then(|| format!("f{n}<std::string>")),
        module: Some("/usr/bin/server".to_owned()),
        build_id: Some("00ff".to_owned()),
        offset: Some(n * 64),
        size: (n != 3).then_some(64),
        file: Some("server.c".to_owned()),
        line: (n != 4).then_some(n as u32),
        kernel: n % 2 == 1,
        inlined: false,
        system_call: n.is_multiple_of(4).then(|| format!("call{n}")),
    }
}

pub(in crate::store) fn loss(n: u64) -> LossRow {
    LossRow {
        begin_ns: TraceNs(n as i64),
        end_ns: TraceNs(n as i64 + 10),
        cpu: (n.is_multiple_of(2)).then_some(Cpu(3)),
        tid: None,
        reason: "dropped_ring_full".to_owned(),
        records: (n % 2 == 1).then_some(n),
    }
}

pub(in crate::store) fn memory(n: u64) -> MemoryRow<'static> {
    let load = n.is_multiple_of(2);
    MemoryRow {
        time_ns: TraceNs(n as i64 * 100),
        visit_id: (!n.is_multiple_of(10)).then_some(n / 10 + 1),
        function_id: FunctionId((n % 300) as u32),
        tid: Tid(7),
        event: EventId((n % 2) as u8),
        events: (!n.is_multiple_of(9)).then_some(1000),
        op: Some(if load { "load" } else { "store" }),
        level: load.then_some("L1 hit"),
        snoop: None,
        tlb: (!n.is_multiple_of(3)).then_some("L2 miss"),
        locked: load.then_some(n.is_multiple_of(4)),
        blocked: None,
        latency_cycles: load.then_some((n % 400) as u32),
        op_cycles: None,
        retire_cycles: Some(n as u32),
        tlb_cycles: None,
        page_bytes: load.then_some(4096),
        taken: None,
        mispredicted: (n.is_multiple_of(5)).then_some(load),
        addr: Some(u64::MAX - n),
        phys_addr: None,
        data_src: load.then_some(n),
    }
}

/// Writes rows `from..to` of every table but losses; ten samples a visit, three hundred functions
/// at most.
pub(in crate::store) fn write(
    writer: &mut TraceWriter,
    from: u64,
    to: u64,
) -> Result<(), WriteError> {
    for n in from..to {
        writer.visit(&visit(n), &args(n))?;
        writer.extend(&[visit_function(n)])?;
        writer.add(&wait(n))?;
        writer.add(&function_stat(n))?;
        writer.add(&memory(n))?;
        if n < 300 {
            writer.add(&function(n))?;
        }
        for s in n * 10..n * 10 + 10 {
            writer.add(&sample(s))?;
        }
    }
    Ok(())
}
