//! Distributions over the visits of an interval.

use crate::estimate::baseline::Running;
use crate::estimate::sketch::Sketch;
use crate::units::{EventId, FunctionId};

/// What a distribution is of, within its group.
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
    /// The visit counted last.
    pub(super) last: u64,
    pub(super) samples: u64,
    pub(super) squared: f64,
    pub(super) product: f64,
    pub(super) active: f64,
    pub(super) values: Values,
}

/// Values in ns.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) sum: f64,
    pub(super) squared: f64,
    /// The smallest and the largest value; meaningless if there is no value.
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
        // Nearly never.
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
    /// Counts the visit, once.
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

/// What is known of a function in the visits of a group.
#[derive(Debug)]
pub(super) struct OfFunction {
    pub(super) event: EventId,
    pub(super) function: FunctionId,
    /// Its times in the visits of the interval.
    pub(super) distribution: Distribution,
    /// What is usual.
    pub(super) running: Running,
}

/// The functions of a group's visits. Each is asked for in every visit, so it is found without hashing: ids count
/// from 0.
///
/// Memory: 4 bytes for each function of the trace and event, and [`OfFunction`] for those of the group.
#[derive(Debug, Default)]
pub(super) struct Functions {
    known: Vec<OfFunction>,
    /// By event and function: its place in `known`, counted from 1; 0: none.
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

    /// All functions, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OfFunction> {
        self.known.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each event and function has one entry, its own, whatever the order in which they come.
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
