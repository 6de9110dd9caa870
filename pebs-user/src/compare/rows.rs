//! Rows of tables as several analyses read them.

use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::EventId;

/// A function within a visit, as sampled by one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledFunction {
    pub visit: u64,
    pub function: u32,
    pub samples: u32,
    /// Number of events that these stand for; `None`: no reset value, so all samples have equal weight.
    events: Option<u64>,
    /// Time of the function, ns, where functions have times from an event that is no clock.
    time_ns: Option<f64>,
}

impl SampledFunction {
    /// Number of events that its samples stand for.
    pub(crate) fn stands_for(&self) -> f64 {
        self.events.unwrap_or_else(|| self.samples.into()) as f64
    }

    /// Weight by which time is divided.
    pub(crate) fn weight(&self) -> f64 {
        self.time_ns.unwrap_or_else(|| self.stands_for())
    }
}

columns! {
    struct Functions of visit_functions { visit_id, function_id, event, samples, events, self_ns }
}

columns! {
    struct Timed of visit_functions { function_id, event, self_ns, self_stderr_ns }
}

/// Upper bound of the common error of functions' times, as a part of them, where they are from an event that is not a
/// clock. `None`: there are no such times.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn error_of_rates(trace: &Trace, event: &EventInfo) -> Result<Option<f64>, ReadError> {
    if !event.has_times {
        return Ok(None);
    }
    let own = trace.own_function()?;
    let (mut times, mut errors) = (0.0, 0.0);
    for batch in Timed::scan(trace)? {
        let batch = batch?;
        let columns = Timed::of(&batch)?;
        let wanted = |&row: &usize| {
            columns.event[row] == event.id.0 && Some(columns.function_id[row]) != own
        };
        for row in (0..batch.num_rows()).filter(wanted) {
            times += columns.self_ns.get(row).unwrap_or(0.0);
            errors += columns.self_stderr_ns.get(row).unwrap_or(0.0);
        }
    }
    Ok((times > 0.0).then(|| errors / times))
}

columns! {
    struct Stacked of samples { visit_id, function_id, event, stack_id }
}

/// Reads every function within a visit that an event saw, but for pebs-trace's own.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn functions(
    trace: &Trace,
    event: &EventInfo,
    mut take: impl FnMut(SampledFunction),
) -> Result<(), ReadError> {
    let own = trace.own_function()?;
    for batch in Functions::scan(trace)? {
        let batch = batch?;
        let columns = Functions::of(&batch)?;
        let wanted = |&row: &usize| {
            columns.event[row] == event.id.0 && Some(columns.function_id[row]) != own
        };
        for row in (0..batch.num_rows()).filter(wanted) {
            take(SampledFunction {
                visit: columns.visit_id[row],
                function: columns.function_id[row],
                samples: columns.samples[row],
                events: columns.events.get(row),
                time_ns: event
                    .has_times
                    .then(|| columns.self_ns.get(row).unwrap_or(0.0)),
            });
        }
    }
    Ok(())
}

/// Reads visit, function and call stack of every sample of an event that is in a visit, except those of pebs-trace's
/// own work.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn samples(
    trace: &Trace,
    event: EventId,
    mut take: impl FnMut(u64, u32, Option<u32>),
) -> Result<(), ReadError> {
    let own = trace.own_function()?;
    for batch in Stacked::scan(trace)? {
        let batch = batch?;
        let columns = Stacked::of(&batch)?;
        for (row, function) in columns.function_id.iter().enumerate() {
            if let Some(visit) = columns.visit_id.get(row)
                && columns.event[row] == event.0
                && Some(*function) != own
            {
                take(visit, *function, columns.stack_id.get(row));
            }
        }
    }
    Ok(())
}

/// Names of the flags set.
pub(crate) fn flag_names(flags: u32) -> Vec<&'static str> {
    let names = visit_flag::NAMES.into_iter().enumerate();
    names
        .filter(|(bit, _)| flags >> bit & 1 == 1)
        .map(|(_, name)| name)
        .collect()
}
