//! Rows of the visits to look at.

use arrow::array::{Array, RecordBatch, StringArray, UInt32Array};
use rustc_hash::FxHashMap;

use super::select::VisitSet;
use crate::store::reader::{
    ReadError, Trace, column_bool, column_f64, column_i64, column_str, column_u8, column_u16,
    column_u32, column_u64,
};
use crate::store::run::{EventInfo, ProbeInfo, RunInfo};
use crate::store::schema::{ArgColumn, ArgType, ArgValue, InterferenceColumns, Table, visit_flag};

/// Unit of [`EventInfo::unit`] that makes an event a clock.
const CLOCK_UNIT: &str = "ns";

/// A visit.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// Its number.
    pub visit_id: u64,
    /// Its item.
    pub item_id: u64,
    /// Its probe.
    pub probe: u16,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Begin, ns on the trace clock.
    pub begin_ns: i64,
    /// End; `None` if the trace ended first.
    pub end_ns: Option<i64>,
    /// End - begin.
    pub duration_ns: Option<i64>,
    /// Time on the CPU.
    pub oncpu_ns: Option<i64>,
    /// Samples that belong to it.
    pub samples: u32,
    /// [`visit_flag`].
    pub flags: u32,
    /// Times that the thread left the CPU.
    pub switches: Option<u32>,
    /// Times that it came back on another CPU.
    pub migrations: Option<u32>,
    /// Page faults.
    pub page_faults: Option<u32>,
    /// What came between the thread and its work.
    pub interference: InterferenceColumns,
    /// One value per argument column of the trace.
    pub args: Vec<Option<ArgValue>>,
}

impl Visit {
    /// Names of its flags, `|` between them.
    #[must_use]
    pub fn flag_names(&self) -> String {
        let bits = visit_flag::NAMES.into_iter().enumerate();
        let set = bits.filter(|(bit, _)| self.flags >> bit & 1 == 1);
        set.map(|(_, name)| name).collect::<Vec<_>>().join("|")
    }

    /// The arguments that are known, with their names.
    pub fn known_args<'a>(
        &'a self,
        columns: &'a [ArgColumn],
    ) -> impl Iterator<Item = (&'a str, &'a ArgValue)> {
        let named = columns.iter().zip(&self.args);
        named.filter_map(|(column, value)| Some((column.name.as_str(), value.as_ref()?)))
    }
}

/// An argument's value as text.
#[must_use]
pub fn arg_text(value: &ArgValue) -> String {
    match value {
        ArgValue::U64(number) => number.to_string(),
        ArgValue::I64(number) => number.to_string(),
        ArgValue::Str(text) => text.to_string(),
    }
}

/// A function within a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VisitFunction {
    /// The visit.
    pub visit_id: u64,
    /// The function.
    pub function: u32,
    /// The event that was sampled.
    pub event: u8,
    /// Samples.
    pub samples: u32,
    /// Events that these stand for, ns for clocks; `None` if the kernel kept to a frequency.
    pub events: Option<u64>,
    /// First sample.
    pub first_ns: i64,
    /// Last sample.
    pub last_ns: i64,
    /// Last - first.
    pub span_ns: i64,
    /// Estimated time on the CPU.
    pub self_ns: Option<f64>,
    /// Its standard error.
    pub self_stderr_ns: Option<f64>,
}

/// A sample of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time_ns: i64,
    /// The visit.
    pub visit_id: u64,
    /// The function.
    pub function: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Thread.
    pub tid: u32,
    /// CPU; `None` if the record did not say.
    pub cpu: Option<u16>,
    /// [`crate::store::schema::sample_flag`].
    pub flags: u32,
    /// Its call stack.
    pub stack: Option<u32>,
}

/// An interval off the CPU within a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The visit.
    pub visit_id: u64,
    /// Switched out.
    pub begin_ns: i64,
    /// Switched in.
    pub end_ns: i64,
    /// The user function that the thread was in.
    pub function: Option<u32>,
    /// `runnable`, `sleeping`, ...
    pub state: String,
    /// Call stack at which it went to wait.
    pub stack: Option<u32>,
    /// `woken by NAME (TID)` or `preempted by NAME (TID)`; `None` if that is not known.
    pub by: Option<String>,
    /// Time of it in which the thread could have run; `None` if that is not known.
    pub runnable_ns: Option<i64>,
}

impl Wait {
    /// Its length.
    #[must_use]
    pub fn ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.begin_ns).max(0)
    }
}

/// Reads the visits of a set, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub fn visits(trace: &Trace, set: &VisitSet, mut take: impl FnMut(Visit)) -> Result<(), ReadError> {
    let fixed = [
        "visit_id",
        "item_id",
        "probe_id",
        "pid",
        "tid",
        "begin_ns",
        "end_ns",
        "duration_ns",
        "oncpu_ns",
        "samples",
        "flags",
        "switches",
        "migrations",
        "page_faults",
        "irq_ns",
        "softirq_ns",
        "fault_ns",
        "major_faults",
    ];
    let args = &trace.info.columns;
    let mut columns = fixed.to_vec();
    columns.extend(args.iter().map(|column| column.name.as_str()));
    for batch in trace.scan(Table::Visits, &columns)? {
        let batch = batch?;
        let ids = column_u64(&batch, 0)?;
        for row in (0..batch.num_rows()).filter(|row| set.contains(ids.value(*row))) {
            take(visit(&batch, row, fixed.len(), args)?);
        }
    }
    Ok(())
}

fn visit(
    batch: &RecordBatch,
    row: usize,
    first_arg: usize,
    args: &[ArgColumn],
) -> Result<Visit, ReadError> {
    let long = |column| -> Result<Option<i64>, ReadError> {
        let column = column_i64(batch, column)?;
        Ok(column.is_valid(row).then(|| column.value(row)))
    };
    let count = |column| -> Result<Option<u32>, ReadError> {
        let column = column_u32(batch, column)?;
        Ok(column.is_valid(row).then(|| column.value(row)))
    };
    let mut values = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        values.push(arg_value(batch, row, first_arg + index, arg.r#type)?);
    }
    Ok(Visit {
        visit_id: column_u64(batch, 0)?.value(row),
        item_id: column_u64(batch, 1)?.value(row),
        probe: column_u16(batch, 2)?.value(row),
        pid: column_u32(batch, 3)?.value(row),
        tid: column_u32(batch, 4)?.value(row),
        begin_ns: column_i64(batch, 5)?.value(row),
        end_ns: long(6)?,
        duration_ns: long(7)?,
        oncpu_ns: long(8)?,
        samples: column_u32(batch, 9)?.value(row),
        flags: column_u32(batch, 10)?.value(row),
        switches: count(11)?,
        migrations: count(12)?,
        page_faults: count(13)?,
        interference: InterferenceColumns {
            irq_ns: long(14)?,
            softirq_ns: long(15)?,
            fault_ns: long(16)?,
            major_faults: count(17)?,
        },
        args: values,
    })
}

fn arg_value(
    batch: &RecordBatch,
    row: usize,
    column: usize,
    r#type: ArgType,
) -> Result<Option<ArgValue>, ReadError> {
    Ok(match r#type {
        ArgType::U64 => {
            let column = column_u64(batch, column)?;
            column
                .is_valid(row)
                .then(|| ArgValue::U64(column.value(row)))
        }
        ArgType::I64 => {
            let column = column_i64(batch, column)?;
            column
                .is_valid(row)
                .then(|| ArgValue::I64(column.value(row)))
        }
        ArgType::Str => {
            let column = column_str(batch, column)?;
            column
                .is_valid(row)
                .then(|| ArgValue::Str(column.value(row).into()))
        }
    })
}

/// Reads number and probe of the visits of a set, and whether their details were left out.
///
/// # Errors
/// If the trace can't be read.
pub fn probes(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(u64, u16, bool),
) -> Result<(), ReadError> {
    for batch in trace.scan(Table::Visits, &["visit_id", "probe_id", "flags"])? {
        let batch = batch?;
        let visits = column_u64(&batch, 0)?.values();
        let probes = column_u16(&batch, 1)?.values();
        let flags = column_u32(&batch, 2)?.values();
        for row in (0..batch.num_rows()).filter(|row| set.contains(visits[*row])) {
            let condensed = flags[row] & visit_flag::CONDENSED != 0;
            take(visits[row], probes[row], condensed);
        }
    }
    Ok(())
}

/// Reads the functions of a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub fn functions(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(VisitFunction),
) -> Result<(), ReadError> {
    let columns = [
        "visit_id",
        "function_id",
        "event",
        "samples",
        "events",
        "first_ns",
        "last_ns",
        "span_ns",
        "self_ns",
        "self_stderr_ns",
    ];
    for batch in trace.scan(Table::VisitFunctions, &columns)? {
        let batch = batch?;
        let visits = column_u64(&batch, 0)?.values();
        let functions = column_u32(&batch, 1)?.values();
        let events = column_u8(&batch, 2)?.values();
        let samples = column_u32(&batch, 3)?.values();
        let counted = column_u64(&batch, 4)?;
        let (firsts, lasts) = (column_i64(&batch, 5)?, column_i64(&batch, 6)?);
        let spans = column_i64(&batch, 7)?.values();
        let (own, stderr) = (column_f64(&batch, 8)?, column_f64(&batch, 9)?);
        for row in (0..batch.num_rows()).filter(|row| set.contains(visits[*row])) {
            take(VisitFunction {
                visit_id: visits[row],
                function: functions[row],
                event: events[row],
                samples: samples[row],
                events: counted.is_valid(row).then(|| counted.value(row)),
                first_ns: firsts.value(row),
                last_ns: lasts.value(row),
                span_ns: spans[row],
                self_ns: own.is_valid(row).then(|| own.value(row)),
                self_stderr_ns: stderr.is_valid(row).then(|| stderr.value(row)),
            });
        }
    }
    Ok(())
}

/// Reads the samples of an event in a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub fn samples(
    trace: &Trace,
    set: &VisitSet,
    event: u8,
    mut take: impl FnMut(Sample),
) -> Result<(), ReadError> {
    let columns = [
        "time_ns",
        "visit_id",
        "function_id",
        "ip",
        "tid",
        "cpu",
        "event",
        "flags",
        "stack_id",
    ];
    for batch in trace.scan(Table::Samples, &columns)? {
        let batch = batch?;
        let times = column_i64(&batch, 0)?.values();
        let visits = column_u64(&batch, 1)?;
        let functions = column_u32(&batch, 2)?.values();
        let ips = column_u64(&batch, 3)?.values();
        let tids = column_u32(&batch, 4)?.values();
        let cpus = column_u16(&batch, 5)?;
        let events = column_u8(&batch, 6)?.values();
        let flags = column_u32(&batch, 7)?.values();
        let stacks = column_u32(&batch, 8)?;
        let of_set = |row: &usize| {
            visits.is_valid(*row) && events[*row] == event && set.contains(visits.value(*row))
        };
        for row in (0..batch.num_rows()).filter(of_set) {
            take(Sample {
                time_ns: times[row],
                visit_id: visits.value(row),
                function: functions[row],
                ip: ips[row],
                tid: tids[row],
                cpu: cpus.is_valid(row).then(|| cpus.value(row)),
                flags: flags[row],
                stack: stacks.is_valid(row).then(|| stacks.value(row)),
            });
        }
    }
    Ok(())
}

/// Reads the waits of a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub fn waits(trace: &Trace, set: &VisitSet, mut take: impl FnMut(Wait)) -> Result<(), ReadError> {
    let columns = [
        "visit_id",
        "begin_ns",
        "end_ns",
        "function_id",
        "state",
        "stack_id",
        "runnable_ns",
        "woken_by",
        "woken_by_tid",
        "preempted_by",
        "preempted_by_tid",
    ];
    for batch in trace.scan(Table::Waits, &columns)? {
        let batch = batch?;
        let visits = column_u64(&batch, 0)?.values();
        let (begins, ends) = (column_i64(&batch, 1)?, column_i64(&batch, 2)?);
        let functions = column_u32(&batch, 3)?;
        let states = column_str(&batch, 4)?;
        let stacks = column_u32(&batch, 5)?;
        let ready = column_i64(&batch, 6)?;
        let woken = (column_str(&batch, 7)?, column_u32(&batch, 8)?);
        let preempted = (column_str(&batch, 9)?, column_u32(&batch, 10)?);
        let by = |row, what, (names, tids): (&StringArray, &UInt32Array)| {
            let name = names.is_valid(row).then(|| names.value(row))?;
            let tid = tids
                .is_valid(row)
                .then(|| format!(" ({})", tids.value(row)));
            Some(format!("{what} by {name}{}", tid.unwrap_or_default()))
        };
        for row in (0..batch.num_rows()).filter(|row| set.contains(visits[*row])) {
            take(Wait {
                visit_id: visits[row],
                begin_ns: begins.value(row),
                end_ns: ends.value(row),
                function: functions.is_valid(row).then(|| functions.value(row)),
                state: states.value(row).to_owned(),
                stack: stacks.is_valid(row).then(|| stacks.value(row)),
                by: by(row, "woken", woken).or_else(|| by(row, "preempted", preempted)),
                runnable_ns: ready.is_valid(row).then(|| ready.value(row)),
            });
        }
    }
    Ok(())
}

/// Reads begin, end and reason of the losses.
///
/// # Errors
/// If the trace can't be read.
pub fn losses(trace: &Trace, mut take: impl FnMut(i64, i64, &str)) -> Result<(), ReadError> {
    for batch in trace.scan(Table::Losses, &["begin_ns", "end_ns", "reason"])? {
        let batch = batch?;
        let (begins, ends) = (column_i64(&batch, 0)?, column_i64(&batch, 1)?);
        let reasons = column_str(&batch, 2)?;
        for row in 0..batch.num_rows() {
            take(begins.value(row), ends.value(row), reasons.value(row));
        }
    }
    Ok(())
}

/// A function's name and place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Name; `None` if nothing is known but the address.
    pub name: Option<String>,
    /// Path of the binary, `[kernel]`, ...
    pub module: Option<String>,
    /// Offset in the module's file (kernel: address).
    pub offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Kernel code.
    pub kernel: bool,
    /// Known to be inlined into its caller.
    pub inlined: bool,
}

/// Every function of the trace by its id.
///
/// Memory: in proportion to the table.
#[derive(Debug, Default)]
pub struct Functions(FxHashMap<u32, Function>);

impl Functions {
    /// Reads them.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub fn read(trace: &Trace) -> Result<Self, ReadError> {
        let columns = [
            "function_id",
            "name",
            "module",
            "offset",
            "file",
            "line",
            "kernel",
            "inlined",
        ];
        let mut functions = FxHashMap::default();
        for batch in trace.scan(Table::Functions, &columns)? {
            let batch = batch?;
            let ids = column_u32(&batch, 0)?.values();
            let text = |column, row| -> Result<Option<String>, ReadError> {
                let column = column_str(&batch, column)?;
                Ok(column.is_valid(row).then(|| column.value(row).to_owned()))
            };
            let (offsets, lines) = (column_u64(&batch, 3)?, column_u32(&batch, 5)?);
            let (kernel, inlined) = (column_bool(&batch, 6)?, column_bool(&batch, 7)?);
            for (row, id) in ids.iter().enumerate() {
                let function = Function {
                    name: text(1, row)?,
                    module: text(2, row)?,
                    offset: offsets.is_valid(row).then(|| offsets.value(row)),
                    file: text(4, row)?,
                    line: lines.is_valid(row).then(|| lines.value(row)),
                    kernel: kernel.value(row),
                    inlined: inlined.is_valid(row) && inlined.value(row),
                };
                functions.insert(*id, function);
            }
        }
        Ok(Self(functions))
    }

    /// A function; `None` if the table has it not.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Function> {
        self.0.get(&id)
    }

    /// Its name, or in brackets what is known in place of one.
    #[must_use]
    pub fn label(&self, id: u32) -> String {
        let Some(function) = self.get(id) else {
            return "[unknown]".to_owned();
        };
        match (&function.name, &function.module) {
            (Some(name), _) if function.inlined => format!("{name} (inlined)"),
            (Some(name), _) => name.clone(),
            (None, Some(module)) => format!("[unknown in {}]", base_name(module)),
            (None, None) => "[unknown]".to_owned(),
        }
    }
}

/// What a visit's time is shared out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight<'a> {
    event: Option<&'a EventInfo>,
}

impl<'a> Weight<'a> {
    /// Of the first event that is a clock, else of the first.
    #[must_use]
    pub fn of(info: &'a RunInfo) -> Self {
        let clock = info.events.iter().find(|event| event.unit == CLOCK_UNIT);
        Self {
            event: clock.or(info.events.first()),
        }
    }

    /// Number of the event; no row has it if the run had none.
    #[must_use]
    pub fn event(&self) -> u8 {
        self.event.map_or(u8::MAX, |event| event.id.0)
    }

    /// Whether it is time.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.event.is_none_or(|event| event.unit == CLOCK_UNIT)
    }

    /// Name of the event.
    #[must_use]
    pub fn event_name(&self) -> &'a str {
        self.event.map_or("none", |event| event.name.as_str())
    }

    /// `ns`, or the name of the event.
    #[must_use]
    pub fn unit(&self) -> &'a str {
        if self.is_time() {
            CLOCK_UNIT
        } else {
            self.event_name()
        }
    }

    /// What it is, in words.
    #[must_use]
    pub fn words(&self) -> String {
        if self.is_time() {
            let event = self.event_name();
            format!("self_ns, estimated CPU time in ns from samples of {event}, and time of waits")
        } else if self.event.is_some_and(|event| event.frequency.is_some()) {
            format!("samples of {}", self.event_name())
        } else {
            format!("events, samples of {} x reset value", self.event_name())
        }
    }

    /// What a mean over visits is of, in words.
    ///
    /// A visit shorter than the time between samples mostly has none, and then its time belongs to no
    /// function: sums of `self_ns` leave it out. What samples stand for is right in the mean.
    #[must_use]
    pub fn mean_words(&self) -> String {
        let event = self.event_name();
        if self.is_time() {
            format!("CPU time in ns, as samples of {event} x reset value, and time of waits")
        } else {
            self.words()
        }
    }

    /// What a function's samples in a visit stand for; `None` for other events.
    #[must_use]
    pub fn events(&self, row: &VisitFunction) -> Option<f64> {
        (row.event == self.event()).then(|| stand_for(row))
    }

    /// Weight of a function in a visit: its estimated time (the time that its samples stand for, where
    /// the estimate is unknown), or its events; `None` for other events.
    #[must_use]
    pub fn get(&self, row: &VisitFunction) -> Option<f64> {
        if row.event != self.event() {
            return None;
        }
        let weight = match row.self_ns {
            Some(own) if self.is_time() => own,
            _ => stand_for(row),
        };
        Some(weight.max(0.0))
    }
}

/// Events that a function's samples stand for; the samples themselves, if they were taken by frequency.
fn stand_for(row: &VisitFunction) -> f64 {
    row.events.unwrap_or(u64::from(row.samples)) as f64
}

/// Short names of the probes, each different: the last part of the path and the function, without
/// arguments.
#[derive(Debug)]
pub struct Probes(FxHashMap<u16, String>);

impl Probes {
    /// Names them.
    #[must_use]
    pub fn of(info: &RunInfo) -> Self {
        let mut names = FxHashMap::default();
        for ProbeInfo { id, spec, .. } in &info.probes {
            let mut name = short(spec);
            if name.is_empty() || names.values().any(|other| *other == name) {
                name = format!("{name}#{}", id.0);
            }
            names.insert(id.0, name);
        }
        Self(names)
    }

    /// Name of a probe.
    #[must_use]
    pub fn label(&self, probe: u16) -> String {
        let known = self.0.get(&probe).cloned();
        known.unwrap_or_else(|| format!("probe {probe}"))
    }
}

fn short(spec: &str) -> String {
    let (mut depth, mut plain) = (0_u32, String::new());
    for c in spec.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts = plain.split("..").map(|end| match end.split_once(':') {
        Some((path, place)) => format!("{}:{place}", base_name(path)),
        None => base_name(end).to_owned(),
    });
    parts.collect::<Vec<_>>().join("..")
}

/// Last part of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of probes are short, whatever the SPEC holds.
    #[test]
    fn probe_names() {
        let shorts = [
            "/usr/bin/redis-server:processCommand(cmd=str(*(arg1+8)), n=arg2)",
            "./app:start(id=arg1)..stop(id=arg2)",
            "a/b:f..c/d:g",
            "./app:h..",
            "((",
        ]
        .map(short);
        assert_eq!(
            shorts,
            [
                "redis-server:processCommand",
                "app:start..stop",
                "b:f..d:g",
                "app:h..",
                ""
            ]
        );
    }
}
