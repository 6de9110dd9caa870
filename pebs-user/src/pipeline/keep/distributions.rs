//! Distributions over the visits of an interval.

use std::ops::AddAssign;

use crate::estimate::baseline::Running;
use crate::estimate::sketch::Sketch;
use crate::units::{EventId, FunctionId};

/// Identifies a distribution within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) loss: bool,
    pub(super) measure: &'static str,
    pub(super) event: Option<EventId>,
    pub(super) function: Option<FunctionId>,
}

/// A distribution over the visits of an interval. What every visit changes comes first: two cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Distribution {
    pub(super) visits_with: u64,
    /// Visit counted last.
    pub(super) last: u64,
    pub(super) samples: u64,
    /// Events that each sample stands for which is not in `weighed`; 0: unknown.
    weight: u64,
    pub(super) by_samples: Products,
    pub(super) values: Values,
    /// The samples, and their sums, whose events are in `events` and `by_events`.
    weighed: (u64, Products),
    events: u64,
    by_events: Products,
}

/// Sums over visits of a function's number of samples, or of events, times others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Products {
    /// Times itself.
    pub(super) squared: f64,
    /// Times the number of all functions.
    pub(super) product: f64,
    /// Times the active time, ns.
    pub(super) active: f64,
}

impl Products {
    /// Adds a visit with this number of the function and of all functions, and this active time.
    #[inline]
    pub(super) fn add(&mut self, number: f64, all: f64, active: f64) {
        self.squared += number * number;
        self.product += number * all;
        self.active += number * active;
    }

    /// These sums less those before, as if each sample had been as many events as `weight`.
    fn weighed(&self, before: &Self, weight: f64) -> Self {
        Self {
            squared: (self.squared - before.squared) * weight * weight,
            product: (self.product - before.product) * weight * weight,
            active: (self.active - before.active) * weight,
        }
    }
}

impl AddAssign for Products {
    fn add_assign(&mut self, other: Self) {
        self.squared += other.squared;
        self.product += other.product;
        self.active += other.active;
    }
}

/// Values in ns.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) sum: f64,
    pub(super) squared: f64,
    /// Smallest and largest value; infinite while there is no value.
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) sketch: Sketch,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            sum: 0.0,
            squared: 0.0,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            sketch: Sketch::default(),
        }
    }
}

impl Values {
    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.squared += value * value;
        // Rarely true, as the next one.
        if value < self.low {
            self.low = value;
        }
        if value > self.high {
            self.high = value;
        }
        self.sketch.add_real(value);
    }
}

impl Distribution {
    /// Counts the visit unless it was counted last.
    #[inline]
    pub(super) fn count(&mut self, visit_id: u64) {
        self.visits_with += u64::from(self.last != visit_id);
        self.last = visit_id;
    }

    /// Adds a visit with these samples of the function and of all functions, each of which stands for `weight` events, and
    /// this active time.
    #[inline]
    pub(super) fn add(&mut self, samples: u32, all: u64, weight: u64, active: f64) {
        if weight != self.weight {
            self.weigh(weight);
        }
        self.samples += u64::from(samples);
        let (samples, all) = (f64::from(samples), all as i64 as f64);
        self.by_samples.add(samples, all, active);
    }

    /// Adds a visit whose samples do not stand for equal numbers of events: the numbers of samples and of events, each with
    /// that of all functions.
    pub(super) fn add_weighed(&mut self, samples: (u32, u64), events: (u64, u64), active: f64) {
        self.add(samples.0, samples.1, 0, active);
        self.weigh(0);
        self.events += events.0;
        let (events, all) = (events.0 as i64 as f64, events.1 as i64 as f64);
        self.by_events.add(events, all, active);
    }

    /// Takes the events of the samples so far in; later samples stand for `weight` each.
    #[cold]
    fn weigh(&mut self, weight: u64) {
        let (samples, sums) = &self.weighed;
        self.events += (self.samples - samples) * self.weight;
        self.by_events += self.by_samples.weighed(sums, self.weight as f64);
        self.weighed = (self.samples, self.by_samples);
        self.weight = weight;
    }

    /// Number of events that the samples stand for, and their sums.
    pub(super) fn events(&mut self) -> (u64, Products) {
        self.weigh(self.weight);
        (self.events, self.by_events)
    }

    pub(super) fn clear(&mut self) {
        let mut sketch = std::mem::take(&mut self.values.sketch);
        sketch.clear();
        *self = Self::default();
        self.values.sketch = sketch;
    }
}

/// State of a function in the visits of a group.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct OfFunction {
    /// Its times in the visits of the interval.
    pub(super) distribution: Distribution,
    /// Its usual time.
    pub(super) running: Running,
    pub(super) event: EventId,
    pub(super) function: FunctionId,
}

/// The functions of a group's visits. Each is looked up for every visit, so by index instead of a hash: ids count from
/// 0.
///
/// Memory: 4 bytes per event and function of the trace, and an [`OfFunction`] per event and function of the group.
#[derive(Debug, Default)]
pub(super) struct Functions {
    known: Vec<OfFunction>,
    /// By event and function: index in `known` + 1; 0: none.
    places: Vec<Vec<u32>>,
}

impl Functions {
    #[inline]
    pub(super) fn at(&mut self, event: EventId, function: FunctionId) -> &mut OfFunction {
        let places = self.places.get(usize::from(event.0));
        let place = places.and_then(|places| places.get(function.0 as usize));
        let index = match place {
            Some(place) if *place > 0 => *place as usize - 1,
            _ => self.add(event, function),
        };
        &mut self.known[index]
    }

    #[cold]
    fn add(&mut self, event: EventId, function: FunctionId) -> usize {
        let (by_event, by_function) = (usize::from(event.0), function.0 as usize);
        if by_event >= self.places.len() {
            self.places.resize_with(by_event + 1, Vec::new);
        }
        let places = &mut self.places[by_event];
        if by_function >= places.len() {
            places.resize(by_function + 1, 0);
        }
        self.known.push(OfFunction {
            event,
            function,
            distribution: Distribution::default(),
            running: Running::default(),
        });
        places[by_function] = self.known.len() as u32;
        self.known.len() - 1
    }

    /// All functions, unordered.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OfFunction> {
        self.known.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every visit changes is in two cache lines.
    #[test]
    fn two_cache_lines() {
        assert_eq!(std::mem::offset_of!(Distribution, weighed), 128);
        assert_eq!(std::mem::offset_of!(OfFunction, distribution), 0);
    }

    /// Events are those that the samples of each visit stood for, whatever came before and after.
    #[test]
    fn weights_that_change() {
        let mut distribution = Distribution::default();
        let mut expected = (0, Products::default());
        let visits = [
            (3, 10, 500),
            (2, 4, 500),
            (1, 7, 800),
            (5, 5, 0),
            (2, 9, 500),
        ];
        for (n, (samples, all, weight)) in visits.into_iter().enumerate() {
            let active = 1e3 * (n + 1) as f64;
            distribution.add(samples, all, weight, active);
            let events = u64::from(samples) * weight;
            expected.0 += events;
            expected.1.add(events as f64, (all * weight) as f64, active);
            if n % 2 == 0 {
                distribution.add_weighed((4, 8), (900, 1300), active);
                expected.0 += 900;
                expected.1.add(900.0, 1300.0, active);
            }
            assert_eq!(distribution.events(), expected, "{n}");
        }
        assert_eq!(distribution.samples, 13 + 12);
    }

    /// Each pair of event and function has its own entry, whatever their order.
    #[test]
    fn each_its_own() {
        let mut functions = Functions::default();
        let asked = [(0, 7), (2, 7), (0, 0), (0, 7), (2, 3), (1, 900), (2, 7)];
        for (n, (event, function)) in asked.into_iter().enumerate() {
            let it = functions.at(EventId(event), FunctionId(function));
            assert_eq!((it.event.0, it.function.0), (event, function));
            it.distribution.count(n as u64 + 1);
        }
        let found = functions.iter_mut();
        let found = found.map(|it| (it.event.0, it.function.0, it.distribution.visits_with));
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        let expected = [(0, 0, 1), (0, 7, 2), (1, 900, 1), (2, 3, 1), (2, 7, 2)];
        assert_eq!(found, expected);
    }
}
