//! The event that divides the time on the CPU among functions.

use crate::compare::event::report_event;
use crate::compare::further::FurtherEvent;
use crate::compare::remarks::NoFunctionTimes;
use crate::estimate::EventTime;
use crate::store::run::{EventInfo, RunInfo, sees_kernel_only};

/// The event that divides the time on the CPU among functions.
pub(crate) struct Timing<'a> {
    pub event: Option<&'a EventInfo>,
    /// Why it can't be used.
    pub reason: Option<NoFunctionTimes>,
    /// The sampled events that don't.
    pub further: Vec<FurtherEvent>,
}

impl<'a> Timing<'a> {
    /// The clock of a run, else an event that is steady enough.
    pub(crate) fn of(info: &'a RunInfo) -> Self {
        let event = report_event(info);
        let reason = match event {
            None => Some(NoFunctionTimes::NoEvent),
            Some(event) if event.time() == EventTime::None => Some(NoFunctionTimes::NotSteady {
                event: event.name.clone(),
                is_kernel_only: sees_kernel_only(&event.name),
            }),
            Some(_) => None,
        };
        let divides = event.filter(|_| reason.is_none());
        Self {
            event,
            further: FurtherEvent::beside(info, divides),
            reason,
        }
    }

    /// Whether the event is a clock.
    pub(crate) fn is_clock(&self) -> bool {
        self.event.is_some_and(|event| event.unit.is_time())
    }
}
