//! Counted events (`--count`) of slow and of typical items: per item and per us on the CPU, with intervals.
//!
//! A rate is pooled: all events of a class over all of its time on the CPU. Items without a known count of an event are
//! left out of its figures; the number of visits counted throughout is shown beside them. Intervals come from a
//! bootstrap over items ([`blocks`](pebs_stats::blocks)).

use serde::Serialize;

use super::classes::Class;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::CountedInfo;
use crate::store::schema::count_state;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::CountUnit;
use pebs_stats::blocks::{Blocks, Draw, Draws, block_of, interval};

/// Counts of one event in the items of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CountedRow {
    /// The event.
    pub event: String,
    /// `ns` for clocks, else `events`.
    pub unit: CountUnit,
    /// Of all items; this and the others are null if no item of the class has a known count.
    pub all: Option<CountedClass>,
    /// In slow ones.
    pub slow: Option<CountedClass>,
    /// In typical ones.
    pub typical: Option<CountedClass>,
    /// Per slow item less per typical item; null if one is.
    pub excess: Option<Excess>,
    /// The same per us on the CPU.
    pub rate_excess: Option<Excess>,
    /// Visits by state of their counts.
    pub visits: CountedVisits,
}

/// Figures of a class of items.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CountedClass {
    /// Items with a known count.
    pub items: u64,
    /// Mean of one.
    pub per_item: f64,
    /// Events of all of them per us of their time on the CPU; null if they had no such time.
    pub per_us: Option<f64>,
}

/// A difference between slow and typical items.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Excess {
    /// Slow less typical.
    pub value: f64,
    /// Lower end of its 95 % interval; null if there are too few items.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Visits by how much of their time was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountedVisits {
    /// All the time.
    pub exact: u64,
    /// Part of the time: scaled to the whole.
    pub scaled: u64,
    /// None of the time: left out.
    pub no_turn: u64,
    /// It is not known: left out.
    pub unknown: u64,
}

impl CountedVisits {
    fn add(&mut self, state: &str) {
        match state {
            count_state::EXACT => self.exact += 1,
            count_state::SCALED => self.scaled += 1,
            count_state::NO_TURN => self.no_turn += 1,
            _ => self.unknown += 1,
        }
    }
}

/// Sums over the items of a class with a known count of an event.
#[derive(Clone, Debug, Default)]
struct OfClass {
    items: Blocks,
    count: Blocks,
    /// Time on the CPU, ns.
    ns: Blocks,
}

impl OfClass {
    fn add(&mut self, block: usize, (count, ns): (f64, f64)) {
        self.items.add(block, 1.0);
        self.count.add(block, count);
        self.ns.add(block, ns);
    }

    fn figures(&self) -> Option<CountedClass> {
        let items = self.items.total();
        (items > 0.0).then(|| CountedClass {
            items: items as u64,
            per_item: self.per_item(None),
            per_us: Some(self.per_us(None)).filter(|it| it.is_finite()),
        })
    }

    fn by_item(&self) -> Ratio<'_> {
        Ratio {
            sum: &self.count,
            of: &self.items,
            scale: 1.0,
            items: self.items.total(),
        }
    }

    fn by_us(&self) -> Ratio<'_> {
        Ratio {
            of: &self.ns,
            scale: 1e3,
            ..self.by_item()
        }
    }

    fn of(sum: &Blocks, draw: Option<&Draw>) -> f64 {
        draw.map_or_else(|| sum.total(), |draw| sum.weighted(draw))
    }

    fn per_item(&self, draw: Option<&Draw>) -> f64 {
        Self::of(&self.count, draw) / Self::of(&self.items, draw)
    }

    fn per_us(&self, draw: Option<&Draw>) -> f64 {
        1e3 * Self::of(&self.count, draw) / Self::of(&self.ns, draw)
    }
}

/// A figure as sums by block: `sum` / `of` x `scale`.
pub(crate) struct Ratio<'a> {
    pub sum: &'a Blocks,
    pub of: &'a Blocks,
    pub scale: f64,
    /// Items that it covers.
    pub items: f64,
}

/// The interval of the change from the first ratio to the second; `None` if there are too few items.
pub(crate) type OfChange<'a> = dyn Fn([Ratio<'_>; 2]) -> Option<(f64, f64)> + 'a;

/// Sums of one event.
#[derive(Clone, Debug, Default)]
struct OfEvent {
    all: OfClass,
    slow: OfClass,
    typical: OfClass,
    visits: CountedVisits,
}

impl OfEvent {
    fn row(&self, event: &CountedInfo) -> CountedRow {
        let Self {
            all, slow, typical, ..
        } = self;
        let draws = (Draws::of(&slow.items, 1), Draws::of(&typical.items, 2));
        let excess = |figure: fn(&OfClass, Option<&Draw>) -> f64| {
            let value = figure(slow, None) - figure(typical, None);
            let replicates = draws.0.0.iter().zip(&draws.1.0);
            let replicates =
                replicates.map(|(a, b)| figure(slow, Some(a)) - figure(typical, Some(b)));
            let interval = interval(replicates.collect());
            value.is_finite().then_some(Excess {
                value,
                low: interval.map(|it| it.0),
                high: interval.map(|it| it.1),
            })
        };
        CountedRow {
            event: event.name.clone(),
            unit: event.unit,
            all: all.figures(),
            slow: slow.figures(),
            typical: typical.figures(),
            excess: excess(OfClass::per_item),
            rate_excess: excess(OfClass::per_us),
            visits: self.visits,
        }
    }
}

/// Sums of the events of one probe's items.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedSums(Vec<OfEvent>);

impl CountedSums {
    fn of(&mut self, event: u8) -> &mut OfEvent {
        let at = usize::from(event);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, OfEvent::default);
        }
        &mut self.0[at]
    }

    /// Adds the count of an event in a whole item, with the item's time on the CPU, ns.
    pub(crate) fn add(&mut self, event: u8, (class, block): (Class, usize), counted: (f64, f64)) {
        let sums = self.of(event);
        sums.all.add(block, counted);
        match class {
            Class::Slow => sums.slow.add(block, counted),
            Class::Typical => sums.typical.add(block, counted),
            Class::Between => {}
        }
    }

    /// Adds a visit by its state.
    pub(crate) fn add_state(&mut self, event: u8, state: &str) {
        self.of(event).visits.add(state);
    }

    /// Adds the count of a visit that is a whole item.
    pub(crate) fn add_visit(&mut self, count: &VisitCount<'_>, class: Class) {
        self.add_state(count.event, count.state);
        if let Some(counted) = count.values() {
            self.add(
                count.event,
                (class, block_of(count.visit_id as u32)),
                counted,
            );
        }
    }

    /// Compares two traces, by the names of their events: `typical` is all items of `before`, `slow` all items of this
    /// one.
    pub(crate) fn change(
        &self,
        events: &[CountedInfo],
        (before, events_before): (&Self, &[CountedInfo]),
        interval: &OfChange<'_>,
    ) -> Vec<CountedRow> {
        let known = events.iter().zip(&self.0).filter_map(|(event, after)| {
            let at = events_before.iter().position(|it| it.name == event.name)?;
            let (before, visits) = (&before.0.get(at)?.all, after.visits);
            let after = &after.all;
            let (old, new) = (before.figures(), after.figures());
            let excess = |values: Option<(f64, f64)>, ratio: fn(&OfClass) -> Ratio<'_>| {
                let value = values.map(|(old, new)| new - old)?;
                let ends = interval([ratio(before), ratio(after)]);
                Some(Excess {
                    value,
                    low: ends.map(|it| it.0),
                    high: ends.map(|it| it.1),
                })
            };
            let both = old.zip(new);
            let each = both.map(|(old, new)| (old.per_item, new.per_item));
            let rates = both.and_then(|(old, new)| old.per_us.zip(new.per_us));
            Some(CountedRow {
                event: event.name.clone(),
                unit: event.unit,
                all: None,
                slow: new,
                typical: old,
                excess: excess(each, OfClass::by_item),
                rate_excess: excess(rates, OfClass::by_us),
                visits,
            })
        });
        known.collect()
    }

    /// The row of each event; empty if nothing was counted.
    pub(crate) fn rows(&self, events: &[CountedInfo]) -> Vec<CountedRow> {
        let rows = events.iter().zip(&self.0);
        rows.map(|(event, sums)| sums.row(event)).collect()
    }
}

columns! {
    struct Columns of counts { visit_id, event, count, enabled_ns, state }
}

/// One count of a visit.
pub(crate) struct VisitCount<'a> {
    /// The visit.
    pub visit_id: u64,
    /// The event.
    pub event: u8,
    /// Count; `None` if unknown.
    pub count: Option<u64>,
    /// Time on the CPU that the count covers, ns; `None` if unknown.
    pub enabled_ns: Option<i64>,
    /// State of the count.
    pub state: &'a str,
}

impl VisitCount<'_> {
    pub(crate) fn values(&self) -> Option<(f64, f64)> {
        let (count, ns) = self.count.zip(self.enabled_ns)?;
        Some((count as f64, ns as f64))
    }
}

/// Reads all counts of a trace.
pub(crate) fn each(trace: &Trace, mut take: impl FnMut(&VisitCount<'_>)) -> Result<(), ReadError> {
    if trace.info.counted.is_empty() {
        return Ok(());
    }
    for batch in Columns::scan(trace)? {
        let batch = batch?;
        let columns = Columns::of(&batch)?;
        for row in 0..batch.num_rows() {
            take(&VisitCount {
                visit_id: columns.visit_id[row],
                event: columns.event[row],
                count: columns.count.get(row),
                enabled_ns: columns.enabled_ns.get(row),
                state: columns.state.get(row),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
