//! Begins to record who ends waits while a recording runs.

use super::{Control, locked};
use crate::failure::Failure;
use crate::record::event::Event;
use crate::record::waits::{Verdict, judge};
use crate::store::run::WaitsInfo;
use crate::store::writer::TraceWriter;
use crate::units::TraceNs;

impl Control<'_, '_> {
    /// Records who ends waits from now on, if items wait and the budget allows.
    pub(super) fn choose_waits(&mut self) {
        let is_decided = matches!(self.waits, Some(Verdict::Recorded { .. }));
        if !self.plan.kinds.encounters_later || is_decided {
            return;
        }
        let load = self.load();
        let Some(bounds) = self.governor.as_ref().map(|it| *it.bounds()) else {
            return;
        };
        let verdict = judge(&load, self.cpu.sum(), (&self.prices, &bounds));
        let was_dear = matches!(self.waits, Some(Verdict::Dear { .. }));
        self.waits = Some(verdict);
        let mut from = None;
        match verdict {
            Verdict::Recorded { .. } => match self.record_waits() {
                Ok(time) => from = Some(time),
                Err(error) => {
                    let text = format!("who ends waits is not recorded: {error}");
                    self.problem(&text);
                    self.info.waits = Some(WaitsInfo {
                        from_ns: None,
                        why: text,
                    });
                    return;
                }
            },
            Verdict::Dear { .. } => {}
            Verdict::TooEarly | Verdict::Seldom(_) | Verdict::Unknown => {
                self.note_waits(None, verdict);
                return;
            }
        }
        self.note_waits(from, verdict);
        if from.is_some() || !was_dear {
            let text = verdict.text(from);
            (self.emit)(Event::Note(text));
        }
        // Whoever kills us finds it; at the end it is written in any case.
        if let (Some(_), Err(error)) = (from, TraceWriter::rewrite_info(self.output, self.info)) {
            tracing::debug!("trace.json is not up to date: {error}");
        }
    }

    fn note_waits(&mut self, from_ns: Option<TraceNs>, verdict: Verdict) {
        self.info.waits = Some(WaitsInfo {
            from_ns,
            why: verdict.text(from_ns),
        });
    }

    /// Begins; returns from when on all are recorded.
    fn record_waits(&mut self) -> Result<TraceNs, Failure> {
        // No record of a wait is processed before this is known.
        let mut waits_from = locked(&self.signals.waits_from);
        let from = self.session.record_waits()?;
        *waits_from = Some(from);
        Ok(TraceNs(
            from.0.saturating_sub(self.info.monotonic_ns).cast_signed(),
        ))
    }
}
