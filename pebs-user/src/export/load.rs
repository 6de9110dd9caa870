//! Rows of the visits to look at.

use arrow::array::{Array, RecordBatch, StringArray, UInt32Array};

mod names;
mod weight;

pub use names::{Function, Functions, Probes, base_name};
pub use weight::Weight;

use super::select::VisitSet;
use crate::analysis::classes::Took;
use crate::store::reader::{
    ReadError, Trace, column_f64, column_i64, column_str, column_u8, column_u16, column_u32,
    column_u64,
};
use crate::store::schema::{ArgColumn, ArgType, ArgValue, InterferenceColumns, Table, visit_flag};

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
    /// `duration_ns` less what pebs-trace took of it.
    pub net_ns: Option<i64>,
    /// Its standard error.
    pub net_stderr_ns: Option<i64>,
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
    /// How long it took.
    pub(crate) const fn took(&self) -> Took {
        Took {
            duration_ns: self.duration_ns,
            net_ns: self.net_ns,
            samples: self.samples,
        }
    }

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
        "net_ns",
        "net_stderr_ns",
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
        net_ns: long(18)?,
        net_stderr_ns: long(19)?,
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
    let own_function = trace.own_function()?;
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
        let wanted =
            |row: &usize| set.contains(visits[*row]) && Some(functions[*row]) != own_function;
        for row in (0..batch.num_rows()).filter(wanted) {
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
    let own_function = trace.own_function()?;
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
            visits.is_valid(*row)
                && events[*row] == event
                && set.contains(visits.value(*row))
                && Some(functions[*row]) != own_function
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
