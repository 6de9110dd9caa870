//! Distributions over the visits of an interval.

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

/// A distribution over the visits of an interval.
#[derive(Debug, Default)]
pub(super) struct Distribution {
    pub(super) visits_with: u64,
    /// Visit counted last.
    pub(super) last: u64,
    pub(super) samples: u64,
    pub(super) by_samples: Products,
    /// Events that the samples stand for.
    pub(super) events: u64,
    pub(super) by_events: Products,
    pub(super) values: Values,
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

    pub(super) fn clear(&mut self) {
        let mut sketch = std::mem::take(&mut self.values.sketch);
        sketch.clear();
        *self = Self::default();
        self.values.sketch = sketch;
    }
}

/// State of a function in the visits of a group.
#[derive(Debug)]
pub(super) struct OfFunction {
    pub(super) event: EventId,
    pub(super) function: FunctionId,
    /// Its times in the visits of the interval.
    pub(super) distribution: Distribution,
    /// Its usual time.
    pub(super) running: Running,
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
