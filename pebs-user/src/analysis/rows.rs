//! Rows of tables as several analyses read them.

use arrow::array::Array as _;

use crate::store::reader::{ReadError, Trace, column_u8, column_u32, column_u64};
use crate::store::schema::Table;
use crate::units::EventId;

/// A function within a visit, as one event saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The visit.
    pub visit: u64,
    /// The function.
    pub function: u32,
    /// Samples.
    pub samples: u32,
    /// Events that these stand for; `None`: each for as much as any other, as there is no reset value.
    pub events: Option<u64>,
}

impl Seen {
    /// What its samples stand for.
    pub(crate) fn stands_for(&self) -> f64 {
        self.events.unwrap_or_else(|| self.samples.into()) as f64
    }
}

/// Reads every function within a visit that an event saw, but for pebs-trace's own.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn functions(
    trace: &Trace,
    event: EventId,
    mut take: impl FnMut(Seen),
) -> Result<(), ReadError> {
    let own = trace.own_function()?;
    let columns = ["visit_id", "function_id", "event", "samples", "events"];
    for batch in trace.scan(Table::VisitFunctions, &columns)? {
        let batch = batch?;
        let visits = column_u64(&batch, 0)?.values();
        let functions = column_u32(&batch, 1)?.values();
        let events = column_u8(&batch, 2)?.values();
        let samples = column_u32(&batch, 3)?.values();
        let counted = column_u64(&batch, 4)?;
        let wanted = |&row: &usize| events[row] == event.0 && Some(functions[row]) != own;
        for row in (0..events.len()).filter(wanted) {
            take(Seen {
                visit: visits[row],
                function: functions[row],
                samples: samples[row],
                events: counted.is_valid(row).then(|| counted.value(row)),
            });
        }
    }
    Ok(())
}

/// Reads visit, function and call stack of every sample of an event that is in a visit, but for those of pebs-trace's own work.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn samples(
    trace: &Trace,
    event: EventId,
    mut take: impl FnMut(u64, u32, Option<u32>),
) -> Result<(), ReadError> {
    let own = trace.own_function()?;
    let columns = ["visit_id", "function_id", "event", "stack_id"];
    for batch in trace.scan(Table::Samples, &columns)? {
        let batch = batch?;
        let visits = column_u64(&batch, 0)?;
        let functions = column_u32(&batch, 1)?.values();
        let events = column_u8(&batch, 2)?.values();
        let stacks = column_u32(&batch, 3)?;
        let wanted = |&row: &usize| {
            events[row] == event.0 && visits.is_valid(row) && Some(functions[row]) != own
        };
        for row in (0..events.len()).filter(wanted) {
            let stack = stacks.is_valid(row).then(|| stacks.value(row));
            take(visits.value(row), functions[row], stack);
        }
    }
    Ok(())
}
