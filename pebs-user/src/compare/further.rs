//! Events sampled beside the one that times are of: their numbers stand beside the times, by function and class.
//!
//! # The estimate
//!
//! A sample stands for as many events as the reset value in force when it was taken, so a function has samples x reset
//! value events, and an item that sum over the items of its class divided by their number. With a reset value of 1
//! every single event is a sample: the number is a count, and none is 0. Samples taken by frequency stand for numbers
//! that were not kept, so no amount follows from them.

use serde::Serialize;

use super::pool::MIN_SAMPLES;
use super::remarks::FurtherNote;
use crate::store::run::{EventInfo, RunInfo};
use crate::units::{CountUnit, EventId};

/// Least part of its time on a counter of an event that was counted throughout.
const THROUGHOUT: f64 = 0.99;

/// An event sampled beside the one that times are of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FurtherEvent {
    /// Its number in the tables.
    pub id: EventId,
    /// As given.
    pub name: String,
    /// Unit of its amounts: `ns` for clocks, else `events`; `samples`: sampled by frequency, so amounts are null.
    pub unit: CountUnit,
    /// Whether each single event is a sample (reset value 1): amounts are counts, not estimates.
    pub every_one: bool,
    /// Remark on its amounts; null: none.
    pub note: Option<FurtherNote>,
}

impl FurtherEvent {
    /// The sampled events of a run but for the one that times are of.
    pub(crate) fn beside(info: &RunInfo, times: Option<&EventInfo>) -> Vec<Self> {
        let others = info.events.iter();
        let others = others.filter(|event| times.is_none_or(|it| it.id != event.id));
        others.map(Self::of).collect()
    }

    fn of(event: &EventInfo) -> Self {
        let part = event.enabled_ns.zip(event.running_ns);
        let part = part.map(|(enabled, running)| running as f64 / enabled as f64);
        let part = part.filter(|it| *it < THROUGHOUT);
        let part = part.map(|it| FurtherNote::InPart((it * 100.0).round() as u32));
        let (unit, note) = match event.frequency {
            Some(_) => (CountUnit::Samples, Some(FurtherNote::ByFrequency)),
            None => (event.unit, part),
        };
        Self {
            id: event.id,
            name: event.name.clone(),
            unit,
            every_one: unit == CountUnit::Events && event.reset == 1,
            note,
        }
    }

    /// Whether this many samples give an amount.
    pub(crate) fn is_known(&self, samples: u64) -> bool {
        self.every_one || self.unit != CountUnit::Samples && samples >= MIN_SAMPLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures;

    /// Samples give amounts if all events are samples or there are enough, and never if taken by frequency.
    #[test]
    fn known() {
        let mut info = fixtures::info(&["a:b"]);
        let clock = info.events[0].clone();
        let of = |id: u8, reset: u64, frequency: Option<u64>| EventInfo {
            id: EventId(id),
            reset,
            frequency,
            unit: CountUnit::Events,
            enabled_ns: Some(1_000),
            running_ns: Some(500 * u64::from(id)),
            ..clock.clone()
        };
        let more = [of(1, 1, None), of(2, 100, None), of(3, 1, Some(4_000))];
        info.events.extend(more);
        let [one, hundred, by_frequency] = &FurtherEvent::beside(&info, Some(&clock))[..] else {
            panic!("three events beside the clock")
        };
        assert_eq!([0, 1].map(|n| one.is_known(n)), [true, true]);
        assert_eq!([9, 10].map(|n| hundred.is_known(n)), [false, true]);
        assert!(!by_frequency.is_known(1_000));
        assert_eq!(by_frequency.unit, CountUnit::Samples);
        let part = Some(FurtherNote::InPart(50));
        assert_eq!([one, hundred].map(|it| it.note), [part, None]);
        assert_eq!(by_frequency.note, Some(FurtherNote::ByFrequency));
        assert_eq!(FurtherEvent::beside(&info, None).len(), 4);
    }
}
