//! Counters shared by sampling events and counted events.

use super::{CountError, CountedEvent};
use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::counters;
use crate::pmu::host::Host;

/// Gives sampling events priority over counted ones by pinning them. By default the kernel schedules counters of
/// CPUs first, and those of threads with the rest: if nothing is left, there are no samples at all, as counters
/// rotate only among themselves. Returns a note if counted events have to take turns.
///
/// With `multiplex`, sampling events have to take turns with each other and can't be pinned.
///
/// Source: `ctx_sched_in` and `perf_rotate_context`, kernel/events/core.c.
///
/// # Errors
/// A group does not fit beside the sampling events and would never be scheduled.
pub(crate) fn serve_samples_first(
    samples: &mut [ResolvedEvent],
    counted: &[CountedEvent],
    multiplex: bool,
    host: &Host,
) -> Result<Option<String>, CountError> {
    if !counted.iter().any(|it| it.counter().is_some_and(is_core)) {
        return Ok(None);
    }
    let mut first: Vec<ResolvedEvent> = Vec::new();
    if !multiplex {
        for event in samples.iter_mut().filter(|event| is_core(event)) {
            event.attr.set_pinned(1);
        }
        first.extend_from_slice(samples);
    }
    let groups = || counted.chunk_by(|a, b| a.group == b.group);
    let pinned = || groups().filter(|group| group.iter().any(CountedEvent::is_pinned));
    let with = |counted: &[CountedEvent]| -> Vec<ResolvedEvent> {
        let counters = counted.iter().filter_map(CountedEvent::counter);
        first.iter().chain(counters).cloned().collect()
    };
    for group in groups() {
        // Pinned groups have their counters before it.
        let others = pinned().filter(|it| it[0].group != group[0].group);
        let all = [&others.collect::<Vec<_>>().concat(), group].concat();
        counters::check(&with(&all), host).map_err(|source| {
            let names: Vec<&str> = group.iter().map(|it| it.name.as_str()).collect();
            CountError::NoTurn {
                events: names.join(","),
                source,
            }
        })?;
    }
    let all = counters::check(&with(counted), host).err();
    Ok(all.map(|error| {
        format!("{error}: those that are counted take turns, and an item may have no count, or an estimate")
    }))
}

fn is_core(event: &ResolvedEvent) -> bool {
    let unit = HardwareUnit::Core;
    matches!(event.class, EventClass::Hardware { unit: own, .. } if own == unit)
}
