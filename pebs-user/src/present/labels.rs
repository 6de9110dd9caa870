//! Labels of exported functions and weights.

use crate::compare::load::{Functions, Weight};
use crate::compare::names::file_name;

impl Functions {
    /// Its name, or a placeholder in brackets.
    #[must_use]
    pub(crate) fn label(&self, id: u32) -> String {
        let Some(function) = self.get(id) else {
            return "[unknown]".to_owned();
        };
        match (&function.name, &function.module) {
            (Some(name), _) if function.inlined => format!("{name} (inlined)"),
            (Some(name), _) => name.clone(),
            (None, Some(module)) => format!("[unknown in {}]", file_name(module)),
            (None, None) => "[unknown]".to_owned(),
        }
    }
}

impl Weight<'_> {
    #[must_use]
    pub(crate) fn words(&self) -> String {
        if self.is_time() {
            let event = self.event_name();
            format!("self_ns, estimated CPU time in ns from samples of {event}, and time of waits")
        } else if self.is_by_frequency() {
            format!("samples of {}", self.event_name())
        } else {
            format!("events, samples of {} x reset value", self.event_name())
        }
    }

    /// Describes the weight of a mean over visits.
    ///
    /// A visit shorter than the sample interval mostly has no sample, and then its time belongs to no
    /// function: sums of `self_ns` leave it out. The time that samples stand for is unbiased in the
    /// mean.
    #[must_use]
    pub(crate) fn mean_words(&self) -> String {
        let event = self.event_name();
        if self.is_time() {
            format!("CPU time in ns, as samples of {event} x reset value, and time of waits")
        } else {
            self.words()
        }
    }
}
