//! Typical items of a trace that kept the details of slow ones only.

use rustc_hash::FxHashMap;

use super::sums::{ClassSums, EventSums, Summing};
use crate::compare::classes::RankBy;
use crate::compare::condensed::Condensed;
use crate::compare::explain::keys::Key;
use crate::compare::explain::timing::Timing;
use crate::compare::losses::LossVisits;
use crate::compare::pool::Quantity;
use crate::compare::slots::Slots;
use crate::compare::stats::{self, Stats, other_waits};
use crate::compare::waits::{States, WaitKey, WaitSum, is_anywhere};
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::visit_flag;
use crate::store::view::Select as _;
use crate::units::FunctionId;
use pebs_stats::blocks::Blocks;

/// Replaces the typical items of each probe by the items that were not kept: the sum over all visits
/// less the kept ones.
///
/// They vary less than the slow ones and are more, so their error is neglected.
pub(super) fn typical(
    trace: &Trace,
    losses: LossVisits,
    summing: &mut Summing<'_>,
    timing: &Timing<'_>,
) -> Result<(), ReadError> {
    let event = timing.event;
    let mut states = std::mem::take(&mut summing.states);
    let mut slots = Slots::new(&trace.info, None, Stats::default);
    let switches = trace.info.switches;
    let own = trace.own_function()?;
    for batch in stats::Columns::scan(trace)? {
        stats::add(
            &batch?,
            event,
            own,
            losses,
            switches,
            &mut slots,
            &mut states,
        )?;
    }
    let further = timing.further.iter();
    let mut further = further
        .map(|it| stats::of_event(trace, it.id, None, losses))
        .collect::<Result<Vec<_>, _>>()?;
    for (number, section) in summing.sections.iter().enumerate() {
        let probe = &summing.items.probes[usize::from(section.probe)];
        // A group has no sums of its own, but some typical items that were kept while it was not known yet which are slow.
        if !section.labels.is_empty() {
            continue;
        }
        // Nor have items of several probes.
        let [probe_id] = probe.probe_ids[..] else {
            summing.sums[number].typical = ClassSums::default();
            continue;
        };
        let Some((_, stats)) = slots.of(probe_id) else {
            continue;
        };
        let mut typical = rest(stats, summing, number, &mut states);
        typical.further = further
            .iter_mut()
            .zip(&summing.sums[number].all.further)
            .map(|(slots, kept)| match slots.of(probe_id) {
                Some((_, all)) => rest_of_event(&all.functions, kept, items_of(summing, number)),
                None => EventSums::default(),
            })
            .collect();
        let members = section
            .members
            .iter()
            .map(|it| &summing.items.all[*it as usize]);
        let condensed = members.filter(|it| it.flags & visit_flag::CONDENSED != 0);
        for item in condensed {
            let ns = item.net_ns();
            let (low, high) = typical.range_ns.unwrap_or((ns, ns));
            typical.range_ns = Some((low.min(ns), high.max(ns)));
        }
        summing.sums[number].typical = typical;
    }
    summing.states = states;
    Ok(())
}

/// The sums over all visits less those over the visits that were kept.
fn rest(stats: &Stats, summing: &Summing<'_>, number: usize, states: &mut States) -> ClassSums {
    let kept = &summing.sums[number].all;
    let of_kept = &summing.sums[number].slow;
    let samples = kept.keys.iter().filter_map(|(key, sums)| match key {
        Key::Function(id) => Some((*id, (sums.2, sums.0.total()))),
        Key::Wait(_) | Key::Handover(_) | Key::Others(_) => None,
    });
    let items = kept.items.total();
    let active = kept.active.0.total();
    let functions = stats.functions.without(items as u64, active, samples);
    let left = functions.items as f64;
    let median = summing.sections[number].summary.quantiles.p50_ns as f64;
    let latency = match summing.items.by {
        RankBy::Duration => stats.duration_ns - (kept.latency.0.total() + median * items),
        RankBy::CpuTime => functions.active_ns,
    };
    let mut class = ClassSums {
        items: Blocks::fixed(left),
        latency: Blocks::fixed(latency.max(0.0)),
        active: Blocks::fixed(functions.active_ns),
        events: Blocks::fixed(functions.active_ns),
        samples: functions.samples(),
        own_samples: functions.samples(),
        beats: of_kept.beats,
        own_error: of_kept.own_error,
        ..ClassSums::default()
    };
    for function in functions.functions() {
        let Some(found) = functions.function(function, Quantity::Time) else {
            continue;
        };
        // In ns of the time on the CPU, as the events above.
        let sum = (Blocks::fixed(found.per_item * left), found.samples);
        class.keys.insert(Key::Function(function), sum);
    }
    if summing.items.by == RankBy::CpuTime {
        return class;
    }
    let waits = other_waits(&merged(&stats.waits, states), &kept_waits(&kept.keys));
    for (key, sum) in waits {
        class
            .keys
            .insert(Key::Wait(key), (Blocks::fixed(sum.ns as f64), sum.waits));
    }
    class
}

/// Items that were kept.
fn items_of(summing: &Summing<'_>, number: usize) -> u64 {
    summing.sums[number].all.items.total() as u64
}

/// The same of a further event, of these items kept.
fn rest_of_event(
    all: &Condensed,
    kept: &FxHashMap<FunctionId, (u64, f64)>,
    items: u64,
) -> EventSums {
    let rest = all.without(items, 0.0, kept.iter().map(|(id, sums)| (*id, *sums)));
    let functions = rest.functions().map(|id| {
        let sums = (Blocks::fixed(rest.events_of(id)), rest.samples_of(id));
        (id, sums)
    });
    EventSums {
        samples: rest.samples(),
        events: Blocks::fixed(rest.events()),
        functions: functions.collect(),
    }
}

type Waits = FxHashMap<WaitKey, WaitSum>;

/// Waits as one where the function is chance.
fn merged(waits: &Waits, states: &States) -> Waits {
    let mut merged = Waits::default();
    for (key, sum) in waits {
        let is_anywhere = is_anywhere(states.name(key.state));
        let function: Option<FunctionId> = key.function.filter(|_| !is_anywhere);
        let into = merged.entry(WaitKey { function, ..*key }).or_default();
        into.ns += sum.ns;
        into.waits += sum.waits;
    }
    merged
}

fn kept_waits(keys: &FxHashMap<Key, (Blocks, Blocks, u64)>) -> Waits {
    let waits = keys.iter().filter_map(|(key, (sum, _, waits))| match key {
        Key::Wait(key) => Some((
            *key,
            WaitSum {
                ns: sum.total() as i64,
                waits: *waits,
            },
        )),
        Key::Function(_) | Key::Handover(_) | Key::Others(_) => None,
    });
    waits.collect()
}
