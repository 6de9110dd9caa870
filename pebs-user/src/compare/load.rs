//! Rows of the visits to look at.

mod names;
mod weight;

use std::ops::Deref;

use super::select::VisitSet;
use crate::compare::classes::Took;
use crate::store::args::ArgView;
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::{
    ArgColumn, ArgValue, VisitFunctionRow, VisitRow, losses, samples, visit_flag, visit_functions,
    visits, waits,
};
use crate::store::view::{Select as _, View as _, columns};

pub(crate) use names::{Functions, Probes};
pub(crate) use weight::Weight;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Visit {
    pub row: VisitRow,
    /// One value per argument column of the trace.
    pub args: Vec<Option<ArgValue>>,
}

impl Deref for Visit {
    type Target = VisitRow;

    fn deref(&self) -> &VisitRow {
        &self.row
    }
}

impl Visit {
    /// Duration, with the data that rank it.
    pub(crate) const fn took(&self) -> Took {
        Took {
            duration_ns: self.row.duration_ns,
            net_ns: self.row.net_ns,
            samples: self.row.samples,
        }
    }

    /// Names of its flags, `|` between them.
    #[must_use]
    pub(crate) fn flag_names(&self) -> String {
        let bits = visit_flag::NAMES.into_iter().enumerate();
        let set = bits.filter(|(bit, _)| self.row.flags >> bit & 1 == 1);
        set.map(|(_, name)| name).collect::<Vec<_>>().join("|")
    }

    /// The arguments that are known, with their names.
    pub(crate) fn known_args<'a>(
        &'a self,
        columns: &'a [ArgColumn],
    ) -> impl Iterator<Item = (&'a str, &'a ArgValue)> {
        let named = columns.iter().zip(&self.args);
        named.filter_map(|(column, value)| Some((column.name.as_str(), value.as_ref()?)))
    }
}

/// An argument's value as text.
#[must_use]
pub(crate) fn arg_text(value: &ArgValue) -> String {
    match value {
        ArgValue::U64(number) => number.to_string(),
        ArgValue::I64(number) => number.to_string(),
        ArgValue::Str(text) => text.to_string(),
    }
}

/// A sample of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When.
    pub time_ns: i64,
    pub visit_id: u64,
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
pub(crate) struct Wait {
    pub visit_id: u64,
    /// Switched out.
    pub begin_ns: i64,
    /// Switched in.
    pub end_ns: i64,
    /// The user function that the thread was in.
    pub function: Option<u32>,
    /// `runnable`, `sleeping`, ...
    pub state: String,
    /// Call stack at which the thread went to wait.
    pub stack: Option<u32>,
    /// The thread that ended it; `None`: unknown.
    pub by: Option<EndedBy>,
    /// Part of it in which the thread was runnable, ns; `None` if unknown.
    pub runnable_ns: Option<i64>,
}

impl Wait {
    /// Its length.
    #[must_use]
    pub(crate) fn ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.begin_ns).max(0)
    }
}

/// Reads the visits of a set, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn visits(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(Visit),
) -> Result<(), ReadError> {
    for batch in trace.scan_with_args(visits::All::NAMES)? {
        let batch = batch?;
        let columns = visits::All::of(&batch)?;
        let args = ArgView::all(&batch, &trace.info.columns)?;
        let is_chosen = |row: &usize| set.contains(columns.visit_id[*row]);
        for row in (0..batch.num_rows()).filter(is_chosen) {
            let arg = |column: &ArgView<'_>| Some(column.get(row)?.to_value());
            take(Visit {
                row: columns.row(row),
                args: args.iter().map(arg).collect(),
            });
        }
    }
    Ok(())
}

columns! {
    struct Probed of visits { visit_id, probe_id, flags }
}

/// Reads number and probe of the visits of a set, and whether their details were left out.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn probes(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(u64, u16, bool),
) -> Result<(), ReadError> {
    for batch in Probed::scan(trace)? {
        let batch = batch?;
        let visits = Probed::of(&batch)?;
        for (row, &visit) in visits.visit_id.iter().enumerate() {
            if set.contains(visit) {
                let condensed = visits.flags[row] & visit_flag::CONDENSED != 0;
                take(visit, visits.probe_id[row], condensed);
            }
        }
    }
    Ok(())
}

/// Reads the functions of a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn functions(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(VisitFunctionRow),
) -> Result<(), ReadError> {
    let own_function = trace.own_function()?;
    for batch in visit_functions::All::scan(trace)? {
        let batch = batch?;
        let columns = visit_functions::All::of(&batch)?;
        let wanted = |row: &usize| {
            set.contains(columns.visit_id[*row]) && Some(columns.function_id[*row]) != own_function
        };
        for row in (0..batch.num_rows()).filter(wanted) {
            take(columns.row(row));
        }
    }
    Ok(())
}

/// Reads the samples of an event in a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn samples(
    trace: &Trace,
    set: &VisitSet,
    event: u8,
    mut take: impl FnMut(Sample),
) -> Result<(), ReadError> {
    let own_function = trace.own_function()?;
    for batch in samples::All::scan(trace)? {
        let batch = batch?;
        let columns = samples::All::of(&batch)?;
        for row in (0..batch.num_rows()).filter(|row| columns.event[*row] == event) {
            let function = columns.function_id[row];
            if let Some(visit_id) = columns.visit_id.get(row)
                && set.contains(visit_id)
                && Some(function) != own_function
            {
                take(Sample {
                    time_ns: columns.time_ns[row],
                    visit_id,
                    function,
                    ip: columns.ip[row],
                    tid: columns.tid.get(row).unwrap_or(0),
                    cpu: columns.cpu.get(row),
                    flags: columns.flags[row],
                    stack: columns.stack_id.get(row),
                });
            }
        }
    }
    Ok(())
}

/// Reads the waits of a set's visits, in the order of the table.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn waits(
    trace: &Trace,
    set: &VisitSet,
    mut take: impl FnMut(Wait),
) -> Result<(), ReadError> {
    for batch in waits::All::scan(trace)? {
        let batch = batch?;
        let columns = waits::All::of(&batch)?;
        let by = |is_preemption, name: Option<&str>, tid| {
            Some(EndedBy {
                is_preemption,
                name: name?.to_owned(),
                tid,
            })
        };
        let is_chosen = |row: &usize| set.contains(columns.visit_id[*row]);
        for row in (0..batch.num_rows()).filter(is_chosen) {
            let woken = (columns.woken_by.get(row), columns.woken_by_tid.get(row));
            let taken = (
                columns.preempted_by.get(row),
                columns.preempted_by_tid.get(row),
            );
            take(Wait {
                visit_id: columns.visit_id[row],
                begin_ns: columns.begin_ns[row],
                end_ns: columns.end_ns[row],
                function: columns.function_id.get(row),
                state: columns.state.get(row).to_owned(),
                stack: columns.stack_id.get(row),
                by: by(false, woken.0, woken.1).or_else(|| by(true, taken.0, taken.1)),
                runnable_ns: columns.runnable_ns.get(row),
            });
        }
    }
    Ok(())
}

/// Reads begin, end and reason of the losses.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn losses(trace: &Trace, mut take: impl FnMut(i64, i64, &str)) -> Result<(), ReadError> {
    losses::each(trace, |row| {
        take(row.begin_ns.0, row.end_ns.0, &row.reason);
    })
}

/// The thread that ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedBy {
    /// Whether it took the CPU; else it woke the thread.
    pub is_preemption: bool,
    pub name: String,
    pub tid: Option<u32>,
}
