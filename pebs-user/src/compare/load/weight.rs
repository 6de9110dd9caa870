//! The weight by which a visit's time is divided among its functions.

use crate::compare::event::report_event;
use crate::store::run::{EventInfo, RunInfo};
use crate::store::schema::VisitFunctionRow;
use crate::units::CountUnit;

/// Weight by which a visit's time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight<'a> {
    event: Option<&'a EventInfo>,
}

impl<'a> Weight<'a> {
    /// Uses the first event that is a clock, else the first event.
    #[must_use]
    pub(crate) fn of(info: &'a RunInfo) -> Self {
        Self {
            event: report_event(info),
        }
    }

    /// Number of the event; a number without rows if the run had no events.
    #[must_use]
    pub(crate) fn event(&self) -> u8 {
        self.event.map_or(u8::MAX, |event| event.id.0)
    }

    /// Whether it is time.
    #[must_use]
    pub(crate) fn is_time(&self) -> bool {
        self.event.is_none_or(EventInfo::divides_time)
    }

    /// Whether samples stand for a number of events that changed.
    #[must_use]
    pub(crate) fn is_by_frequency(&self) -> bool {
        self.event.is_some_and(|event| event.frequency.is_some())
    }

    #[must_use]
    pub(crate) fn event_name(&self) -> &'a str {
        self.event.map_or("none", |event| event.name.as_str())
    }

    /// `ns`, or the name of the event.
    #[must_use]
    pub(crate) fn unit(&self) -> &'a str {
        if self.is_time() {
            CountUnit::Ns.name()
        } else {
            self.event_name()
        }
    }

    /// Events that a function's samples in a visit stand for, or its time where it has one from an event that is not a
    /// clock; `None` for other events.
    #[must_use]
    pub(crate) fn events(&self, row: &VisitFunctionRow) -> Option<f64> {
        match self.event?.has_times {
            true => self.get(row),
            false => (row.event.0 == self.event()).then(|| stand_for(row)),
        }
    }

    /// Weight of a function in a visit: its estimated time (the time that its samples stand for, where
    /// the estimate is unknown), or its events; `None` for other events.
    #[must_use]
    pub(crate) fn get(&self, row: &VisitFunctionRow) -> Option<f64> {
        if row.event.0 != self.event() {
            return None;
        }
        let weight = match row.self_ns {
            Some(own) if self.is_time() => own,
            _ => stand_for(row),
        };
        Some(weight.max(0.0))
    }
}

/// Events that a function's samples stand for; the samples themselves, if they were taken by frequency.
fn stand_for(row: &VisitFunctionRow) -> f64 {
    row.events.unwrap_or(u64::from(row.samples)) as f64
}
