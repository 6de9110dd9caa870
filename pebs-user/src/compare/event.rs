//! The event that estimates are from.

use super::pool::Quantity;
use crate::store::run::{EventInfo, RunInfo};

/// The first event that is a clock, else the first.
pub(crate) fn report_event(info: &RunInfo) -> Option<&EventInfo> {
    let clock = info.events.iter().find(|event| event.unit.is_time());
    clock.or(info.events.first())
}

pub(crate) fn quantity(event: &EventInfo) -> Quantity {
    if event.divides_time() {
        Quantity::Time
    } else {
        Quantity::Events
    }
}
