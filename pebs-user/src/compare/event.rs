//! The event that estimates are from.

use super::pool::Quantity;
use crate::store::run::{EventInfo, RunInfo};

/// Unit of [`EventInfo::unit`] that makes an event a clock.
pub(crate) const CLOCK_UNIT: &str = "ns";

/// The first event that is a clock, else the first.
pub(crate) fn report_event(info: &RunInfo) -> Option<&EventInfo> {
    let clock = info.events.iter().find(|event| event.unit == CLOCK_UNIT);
    clock.or(info.events.first())
}

pub(crate) fn quantity(event: &EventInfo) -> Quantity {
    if event.unit == CLOCK_UNIT {
        Quantity::Time
    } else {
        Quantity::Events { reset: event.reset }
    }
}
