//! The samples of a visit, in the form used by the estimator.

use crate::units::{EventId, FunctionId, TraceNs};

/// Samples of a visit, sorted by time, stored by column.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// Times of the samples.
    pub times: &'a [TraceNs],
    /// Function of each sample.
    pub functions: &'a [FunctionId],
    /// Event of each sample.
    pub events: Events<'a>,
}

/// Events of a visit's samples.
#[derive(Clone, Copy, Debug)]
pub enum Events<'a> {
    All(EventId),
    /// One event per sample.
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
    pub time: TraceNs,
    pub function: FunctionId,
    pub event: EventId,
}

/// A [`Series`] built sample by sample.
#[derive(Clone, Debug, Default)]
pub struct SeriesBuf {
    times: Vec<TraceNs>,
    functions: Vec<FunctionId>,
    events: Vec<EventId>,
}

impl SeriesBuf {
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
