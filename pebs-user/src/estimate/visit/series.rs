//! The samples of a visit, as the estimator takes them.

use crate::units::{EventId, FunctionId, TraceNs};

/// Samples of a visit, sorted by time: a column for each thing that is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// When.
    pub times: &'a [TraceNs],
    /// The functions that they name, one a sample.
    pub functions: &'a [FunctionId],
    /// The events that were sampled.
    pub events: Events<'a>,
}

/// Which event each sample is of.
#[derive(Clone, Copy, Debug)]
pub enum Events<'a> {
    All(EventId),
    /// One a sample.
    Each(&'a [EventId]),
}

impl Series<'_> {
    /// Times of the samples of a function and event.
    pub fn times_of(&self, function: FunctionId, event: EventId) -> impl Iterator<Item = TraceNs> {
        let of = move |index: &usize| {
            self.functions[*index] == function && self.events.of(*index) == event
        };
        (0..self.times.len())
            .filter(of)
            .map(|index| self.times[index])
    }
}

impl Events<'_> {
    #[inline(always)]
    pub(super) fn of(&self, index: usize) -> EventId {
        match self {
            Self::All(event) => *event,
            Self::Each(events) => events[index],
        }
    }
}

/// One sample of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSample {
    /// When.
    pub time: TraceNs,
    /// The function that it names.
    pub function: FunctionId,
    /// The event that was sampled.
    pub event: EventId,
}

/// A [`Series`] made sample by sample.
#[derive(Clone, Debug, Default)]
pub struct SeriesBuf {
    times: Vec<TraceNs>,
    functions: Vec<FunctionId>,
    events: Vec<EventId>,
}

impl SeriesBuf {
    /// What the estimator takes.
    #[must_use]
    pub fn series(&self) -> Series<'_> {
        Series {
            times: &self.times,
            functions: &self.functions,
            events: Events::Each(&self.events),
        }
    }
}

impl FromIterator<TimedSample> for SeriesBuf {
    fn from_iter<I: IntoIterator<Item = TimedSample>>(samples: I) -> Self {
        let mut made = Self::default();
        for sample in samples {
            made.times.push(sample.time);
            made.functions.push(sample.function);
            made.events.push(sample.event);
        }
        made
    }
}
