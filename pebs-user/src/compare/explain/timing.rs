//! The event that divides the time on the CPU among functions.

use crate::compare::event::report_event;
use crate::compare::remarks::NoFunctionTimes;
use crate::store::run::{EventInfo, RunInfo};

/// The event that divides the time on the CPU among functions.
pub(crate) struct Timing<'a> {
    pub event: Option<&'a EventInfo>,
    /// Why it can't be used.
    pub reason: Option<NoFunctionTimes>,
}

/// Beginnings of names of events that count about equally many each ns that a thread runs.
const STEADY: [&str; 8] = [
    "cpu-clock",
    "task-clock",
    "cycles",
    "cpu-cycles",
    "ref-cycles",
    "cpu_clk",
    "ibs_op",
    "uops_retired",
];

/// Whether the modifiers of the event leave out user space.
fn sees_kernel_only(event: &str) -> bool {
    let modifiers = event.rsplit_once([':', '/']).map_or("", |it| it.1);
    let known = |it: char| "ukhpgsdiwe".contains(it.to_ascii_lowercase());
    modifiers.contains('k') && !modifiers.contains('u') && modifiers.chars().all(known)
}

impl<'a> Timing<'a> {
    /// The clock of a run, else an event that is steady enough.
    pub(crate) fn of(info: &'a RunInfo) -> Self {
        let event = report_event(info);
        let steady = |event: &EventInfo| {
            let name = event.name.to_lowercase();
            // `cpu/event=…/` and raw codes are not in this list.
            let name = name.strip_prefix("cpu/").unwrap_or(&name);
            event.unit.is_time()
                || !sees_kernel_only(name) && STEADY.iter().any(|it| name.starts_with(it))
        };
        let reason = match event {
            None => Some(NoFunctionTimes::NoEvent),
            Some(event) if !steady(event) => Some(NoFunctionTimes::NotSteady {
                event: event.name.clone(),
                is_kernel_only: sees_kernel_only(&event.name),
            }),
            Some(_) => None,
        };
        Self { event, reason }
    }

    /// Whether the event is a clock.
    pub(crate) fn is_clock(&self) -> bool {
        self.event.is_some_and(|event| event.unit.is_time())
    }
}
