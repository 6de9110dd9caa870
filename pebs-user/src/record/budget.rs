//! The budget of a recording: bounds on the slow-down of items and on the reset value, before it starts.

use super::plan::Plan;
use super::recording::Recording;
use crate::cost::calibrate::{UnitCosts, saved};
use crate::cost::overhead::Bounds;
use crate::failure::{Failure, Result};
use crate::pipeline::Keep;
use crate::pmu::attr::{EventClass, ResolvedEvent, reset_value};
use crate::pmu::reset;
use crate::present::human::{count, time};
use crate::units::{EventId, ResetValue};

/// Default ratio of the largest reset value to the requested one.
const SPAN: u64 = 100;

/// Default bound on the slow-down of items.
pub(super) const GOAL: f64 = 0.05;

/// Extra slow-down allowed for samples where marks alone exceed the bound.
pub(crate) const EXTRA: f64 = 0.02;

/// Reset value if none is given and costs do not determine it.
pub(super) const PLAIN_RESET: u64 = 16_000;

/// Largest reset value if none is given: a hundred samples per second of CPU time.
const LARGEST: u64 = 10_000_000;

/// The event whose reset value is changed.
pub(super) const EVENT: EventId = EventId(0);

/// The bounds to keep: those given, or the default ones where nothing prevents that.
///
/// # Errors
/// The cost of the events' samples can't be known, or the bounds contradict each other.
pub(super) fn bounds(recording: &Recording, events: &[ResolvedEvent]) -> Result<Option<Bounds>> {
    let Some(overhead) = recording.max_overhead else {
        return Ok(default_bounds(recording, events));
    };
    let [event] = events else {
        return Err(Failure::new(
            format!("cannot keep --max-overhead with {} events", events.len()),
            "give one --event: the cost of a sample is measured for one only".to_owned(),
        ));
    };
    asked_bounds(overhead, event, recording.reset, recording.max_reset).map(Some)
}

/// The bounds for a slow-down that was asked for, with the reset values that were given.
///
/// # Errors
/// As [`bounds`].
pub(super) fn asked_bounds(
    overhead: f64,
    event: &ResolvedEvent,
    reset: Option<u64>,
    max_reset: Option<u64>,
) -> Result<Bounds> {
    check_known(event, "keep --max-overhead")?;
    let least = reset.unwrap_or_else(|| least_reset(event));
    let most = reset.map_or(LARGEST, |it| it.saturating_mul(SPAN));
    let most = max_reset.unwrap_or(most.max(least));
    if most < least {
        return Err(Failure::new(
            format!("--max-reset {most} is below the reset value {least}"),
            format!("give --max-reset {} or more", least.saturating_mul(2)),
        ));
    }
    let most = reset_value(most.min(i64::MAX.cast_unsigned()))?.0.get();
    Ok(Bounds {
        overhead,
        least,
        most,
        extra: 0.0,
    })
}

/// The default bounds; `None` where they can't be kept.
fn default_bounds(recording: &Recording, events: &[ResolvedEvent]) -> Option<Bounds> {
    let [event] = events else { return None };
    // The base of the slow-down is time on the CPU.
    let can = recording.reset.is_none() && is_known(event) && recording.kinds.switches;
    can.then(|| Bounds {
        overhead: GOAL,
        least: least_reset(event),
        most: LARGEST,
        extra: EXTRA,
    })
}

/// Whether the first reset value stays: sums of samples can't be scaled to events if it changes in between.
pub(super) fn holds_first(plan: &Plan) -> bool {
    plan.keep != Keep::All
}

/// Remark if nothing bounds the slow-down of items, though no reset value was given.
pub(super) fn no_bound(plan: &Plan, costs: &UnitCosts) -> Option<String> {
    let why = match (plan.events.as_slice(), plan.overhead) {
        _ if plan.reset.is_some() => return None,
        ([event], Some(bounds)) if bounds.extra > 0.0 && costs.sample_ns.is_none() => format!(
            "what a sample of {} costs is not known: 'pebs-trace calibrate' measures it",
            saved::key(&event.name, plan.transport.how)
        ),
        (_, Some(_)) => return None,
        ([_], None) if !plan.kinds.switches => {
            "without switches (--no-switches) it is not known".to_owned()
        }
        ([event], None) => format!("what samples of {} cost can't be measured", event.name),
        _ => "with several events it is not known".to_owned(),
    };
    Some(format!(
        "the slow-down of items has no bound ({why}); --reset sets how often samples are taken"
    ))
}

/// The smallest reset value if none is given.
fn least_reset(event: &ResolvedEvent) -> u64 {
    if event.is_page_faults() {
        1
    } else {
        PLAIN_RESET
    }
}

/// Highest expected rate of an event while code runs, per ns; later windows use the measured rate.
fn rate(event: &ResolvedEvent) -> f64 {
    match event.class {
        EventClass::Clock => 1.0,
        // Instructions or cycles.
        EventClass::Hardware { .. } => 4.0,
        // A page fault in half a us.
        _ => 0.002,
    }
}

/// The reset value to begin with, where marks are expected to cost that part of the items' time.
pub(super) fn first_reset(
    bounds: &Bounds,
    event: &ResolvedEvent,
    fixed: f64,
    sample_ns: f64,
) -> Option<ResetValue> {
    let first = bounds.first(fixed, sample_ns, rate(event));
    let first = reset::near(&event.class, first, bounds.least, bounds.most);
    std::num::NonZeroU64::new(first).map(ResetValue)
}

/// Whether the cost of an event's samples can be known.
pub(super) fn is_known(event: &ResolvedEvent) -> bool {
    match event.class {
        EventClass::Clock | EventClass::Hardware { steady: true, .. } => true,
        EventClass::Software => event.is_page_faults(),
        EventClass::Breakpoint { .. } | EventClass::Hardware { .. } => false,
    }
}

/// Refuses an event if the cost of its samples can't be known.
pub(super) fn check_known(event: &ResolvedEvent, what: &str) -> Result<()> {
    if is_known(event) {
        return Ok(());
    }
    let why = if matches!(event.class, EventClass::Breakpoint { .. }) {
        "every hit of a breakpoint costs, whatever the reset value"
    } else {
        "the cost of its samples cannot be measured beforehand"
    };
    Err(Failure::new(
        format!("cannot {what} with event '{}': {why}", event.name),
        "use a clock (cpu-clock), cycles, instructions or page-faults".to_owned(),
    ))
}

/// Describes the bound and the first reset value.
pub(super) fn first_line(bounds: &Bounds, event: &ResolvedEvent, holds: bool) -> String {
    let goal = percent(bounds.overhead);
    let reset = reset_text(event.reset.0.get(), event);
    let what = if bounds.extra > 0.0 {
        "goal"
    } else {
        "--max-overhead"
    };
    let when = if holds { "" } else { " at first" };
    format!("slow-down of items: {what} {goal}, with a sample every {reset}{when}")
}

/// A reset value with its unit.
pub(super) fn reset_text(reset: u64, event: &ResolvedEvent) -> String {
    match event.class {
        EventClass::Clock => time(reset as f64),
        _ => format!("{} {}", count(reset), event.reset_unit()),
    }
}

/// A share in percent, with as few digits as needed.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 1000.0).round() / 10.0;
    format!("{rounded} %")
}

/// Hint with a reset value that costs less.
pub(super) fn cheaper(fixed: f64, sample_ns: f64, unit: &str) -> String {
    let room = GOAL - fixed;
    if room <= 0.0 {
        return format!(
            "marks alone cost more than {}: probe a function that is called less often; without --reset samples add 2 %",
            percent(GOAL)
        );
    }
    let reset = (sample_ns / room * (1.0 + GOAL)).ceil();
    format!(
        "--reset {reset:.0} ({unit}) would cost {}; so does recording without --reset",
        percent(GOAL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suggested value costs what the hint says; there is none if marks use up the bound.
    #[test]
    fn offered() {
        let text = cheaper(0.01, 13_000.0, "ns");
        assert!(
            text.starts_with("--reset 341250 (ns) would cost 5 %"),
            "{text}"
        );
        assert!(cheaper(0.06, 13_000.0, "ns").starts_with("marks alone cost more"));
    }
}
