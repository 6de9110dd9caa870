//! The budget of a recording: bounds on the slow-down of items and on the reset value, before it starts.

use super::plan::Plan;
use super::recording::Recording;
use crate::cost::calibrate::{UnitCosts, saved};
use crate::cost::overhead::Bounds;
use crate::failure::{Failure, Result};
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

/// The default bounds of a clock.
const DEFAULT: Bounds = Bounds {
    overhead: GOAL,
    least: PLAIN_RESET,
    most: LARGEST,
    extra: EXTRA,
};

/// The bounds to keep: those given, or the default ones where nothing prevents that. Its reset values are those of the
/// event that leads.
///
/// # Errors
/// The cost of no event's samples can be known, or the bounds contradict each other.
pub(super) fn bounds(recording: &Recording, events: &[ResolvedEvent]) -> Result<Option<Bounds>> {
    let (reset, max_reset) = (recording.reset, recording.max_reset);
    let Some(overhead) = recording.max_overhead else {
        // The base of the slow-down is time on the CPU.
        let can = reset.is_none() && recording.kinds.switches && events.iter().any(is_known);
        return Ok(can.then_some(DEFAULT));
    };
    asked_bounds(overhead, events, reset, max_reset).map(Some)
}

/// The bounds for a slow-down that was asked for, with the reset values that were given.
///
/// # Errors
/// As [`bounds`].
pub(super) fn asked_bounds(
    overhead: f64,
    events: &[ResolvedEvent],
    reset: Option<u64>,
    max_reset: Option<u64>,
) -> Result<Bounds> {
    let asked = Bounds {
        overhead,
        extra: 0.0,
        ..DEFAULT
    };
    if let (Some(event), false) = (events.first(), events.iter().any(is_known)) {
        check_known(event, "keep --max-overhead")?;
    }
    for event in events.iter().filter(|event| is_known(event)) {
        let Bounds { least, most, .. } = of_event(&asked, event, (reset, max_reset));
        if most < least {
            return Err(Failure::new(
                format!("--max-reset {most} is below the reset value {least}"),
                format!("give --max-reset {} or more", least.saturating_mul(2)),
            ));
        }
        reset_value(most)?;
    }
    Ok(asked)
}

/// The bounds with the least and the largest reset value of an event, by those that were given.
pub(super) fn of_event(
    bounds: &Bounds,
    event: &ResolvedEvent,
    (reset, max_reset): (Option<u64>, Option<u64>),
) -> Bounds {
    let least = reset.unwrap_or_else(|| least_reset(event));
    let most = reset.map_or(LARGEST, |it| it.saturating_mul(SPAN));
    Bounds {
        least,
        most: max_reset
            .unwrap_or(most.max(least))
            .min(i64::MAX.cast_unsigned()),
        ..*bounds
    }
}

/// The events whose reset values keep the bound, as what their samples cost is known. The first of them leads: a clock if
/// there is one, as it has samples whatever the program does.
pub(super) fn governed(events: &[ResolvedEvent], costs: &UnitCosts) -> Vec<EventId> {
    let ids = (0..).map(EventId).zip(events);
    let known = ids.filter(|(id, event)| is_known(event) && costs.of_sample(*id).is_some());
    let mut known: Vec<_> = known.collect();
    known.sort_by_key(|(_, event)| event.class != EventClass::Clock);
    known.into_iter().map(|(id, _)| id).collect()
}

/// Remark if nothing bounds the slow-down of items by some samples, though no reset value was given.
pub(super) fn no_bound(plan: &Plan, costs: &UnitCosts) -> Option<String> {
    if plan.overhead.is_none() && plan.reset.is_some() {
        return None;
    }
    let governed = match plan.overhead {
        Some(_) => governed(&plan.events, costs),
        None => Vec::new(),
    };
    let ids = (0..).map(EventId).zip(&plan.events);
    let others = ids.filter(|(id, _)| !governed.contains(id));
    let others: Vec<_> = others.map(|(_, event)| event).collect();
    let why = |event: &&ResolvedEvent| match plan.overhead {
        None if is_known(event) => "without switches (--no-switches) it is not known".to_owned(),
        _ if is_known(event) => format!(
            "what a sample of {} costs is not known: 'pebs-trace calibrate' measures it",
            saved::key(&event.name, plan.transport.how)
        ),
        _ => format!("what samples of {} cost can't be measured", event.name),
    };
    let mut why: Vec<String> = others.iter().map(why).collect();
    why.dedup();
    let why = why.join("; ");
    match (others.as_slice(), governed.as_slice()) {
        ([], _) => None,
        (_, []) => Some(format!(
            "the slow-down of items has no bound ({why}); --reset sets how often samples are taken"
        )),
        (others, _) => {
            let names: Vec<&str> = others.iter().map(|event| event.name.as_str()).collect();
            Some(format!(
                "samples of {} are outside of the bound on the slow-down of items ({why})",
                names.join(", ")
            ))
        }
    }
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

/// Describes the bound and the first reset values, of these events.
pub(super) fn first_line(bounds: &Bounds, events: &[&ResolvedEvent]) -> String {
    let goal = percent(bounds.overhead);
    let what = if bounds.extra > 0.0 {
        "goal"
    } else {
        "--max-overhead"
    };
    let each = events.iter().map(|event| {
        let reset = reset_text(event.reset.0.get(), event);
        match events {
            [_] => reset,
            _ => format!("{reset} ({})", event.name),
        }
    });
    let each: Vec<String> = each.collect();
    let each = each.join(" and every ");
    format!("slow-down of items: {what} {goal}, with a sample every {each} at first")
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
    use crate::pmu::attr::resolve;
    use crate::pmu::host::fixtures;

    /// A clock leads whatever its place; events whose cost can't be known, or is not, keep no bound.
    #[test]
    fn who_leads() {
        let host = fixtures::zen4();
        let names = ["page-faults", "mem:0x1000:x", "cycles", "cpu-clock"];
        let event = |name: &str| {
            let spec = name.parse().unwrap();
            resolve(&spec, &host, reset_value(16_000).unwrap()).unwrap()
        };
        let events = names.map(event);
        let mut costs = UnitCosts {
            sample_ns: Some(900.0),
            ..UnitCosts::default()
        };
        costs.more_samples_ns[0] = Some(2_000.0);
        costs.more_samples_ns[2] = Some(9_000.0);
        let ids = [3, 0].map(EventId);
        assert_eq!(governed(&events, &costs), ids);
        assert_eq!(governed(&events, &UnitCosts::default()), []);
    }

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
