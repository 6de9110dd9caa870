//! One value for each probe of a trace.

use crate::store::run::RunInfo;
use crate::units::ProbeId;

/// Values by probe, in the order of the probes' numbers.
pub(crate) struct Slots<T> {
    values: Vec<(u16, T)>,
    /// Whether a probe that is not in `trace.json` gets a slot when it is met.
    grow: Option<Box<dyn Fn() -> T>>,
}

impl<T> Slots<T> {
    /// One value for each probe in `trace.json` and for any other in the trace, or for `only` one
    /// of the former.
    pub(crate) fn new(
        info: &RunInfo,
        only: Option<ProbeId>,
        value: impl Fn() -> T + 'static,
    ) -> Self {
        let mut probes: Vec<ProbeId> = info.probes.iter().map(|probe| probe.id).collect();
        probes.retain(|probe| only.is_none_or(|only| only == *probe));
        Self {
            values: probes.into_iter().map(|id| (id.0, value())).collect(),
            grow: match only {
                None => Some(Box::new(value)),
                Some(_) => None,
            },
        }
    }

    /// The same slots with other values, sorted by probe; no slot is added any more.
    pub(crate) fn map<U>(self, value: impl Fn(u16, T) -> U) -> Slots<U> {
        let values = self.values.into_iter();
        let mut values: Vec<_> = values.map(|(id, old)| (id, value(id, old))).collect();
        values.sort_by_key(|(id, _)| *id);
        Slots { values, grow: None }
    }

    /// Index and value of a probe; `None` if it has no slot.
    ///
    /// Cost: linear in the number of probes, which is small.
    pub(crate) fn of(&mut self, probe: u16) -> Option<(u16, &mut T)> {
        let found = self.values.iter().position(|(id, _)| *id == probe);
        let index = match (found, &self.grow) {
            (Some(index), _) => index,
            (None, Some(value)) => {
                let new = value();
                self.values.push((probe, new));
                self.values.len() - 1
            }
            (None, None) => return None,
        };
        // There are no more slots than probe numbers.
        Some((index as u16, &mut self.values[index].1))
    }

    /// Every value, with the number of its probe.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.values.iter().map(|(id, value)| (*id, value))
    }

    /// Every value.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().map(|(_, value)| value)
    }

    /// The value at an index returned by [`Slots::of`].
    pub(crate) fn at(&mut self, index: u16) -> &mut T {
        &mut self.values[usize::from(index)].1
    }
}

impl<T> IntoIterator for Slots<T> {
    type Item = (u16, T);
    type IntoIter = std::vec::IntoIter<(u16, T)>;

    fn into_iter(self) -> Self::IntoIter {
        self.values.into_iter()
    }
}
