//! Passes over the functions and the waits of visits.

use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::classes::VisitClasses;
use super::model::VisitFunction;
use super::section::{Section, SlowDraft};
use crate::compare::further::FurtherEvent;
use crate::compare::names::FunctionName;
use crate::compare::slots::Slots;
use crate::compare::waits::{States, WaitKey, WaitSum};
use crate::store::reader::ReadError;
use crate::store::run::EventInfo;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::FunctionId;

columns! {
    /// Columns of `visit_functions` that are needed.
    pub(super) struct FunctionColumns of visit_functions {
        visit_id, function_id, event, samples, events, self_ns, self_stderr_ns
    }
}

columns! {
    /// Columns of `waits` that are needed.
    pub(super) struct WaitColumns of waits { visit_id, begin_ns, end_ns, function_id, state }
}

/// The slowest visits of all probes, by number.
#[derive(Debug, Default)]
pub(super) struct Drafts(pub(super) FxHashMap<u64, SlowDraft>);

/// Third and fourth pass.
pub(super) struct Details<'a> {
    /// Sections by probe.
    pub sections: &'a mut Slots<Section>,
    pub classes: &'a VisitClasses,
    /// The slowest visits.
    pub drafts: &'a mut Drafts,
    /// States met.
    pub states: &'a mut States,
}

impl Details<'_> {
    /// Adds the rows of one event of a batch of `visit_functions`, with [`FunctionColumns`], but for pebs-trace's own.
    pub(super) fn add_functions(
        &mut self,
        batch: &RecordBatch,
        event: &EventInfo,
        own_function: Option<u32>,
    ) -> Result<(), ReadError> {
        let FunctionColumns {
            visit_id: visits,
            function_id: functions,
            event: events,
            samples,
            events: counted,
            self_ns,
            self_stderr_ns,
        } = FunctionColumns::of(batch)?;
        // Their time, where functions have times from an event that is no clock.
        let weight = |row| match event.has_times {
            true => self_ns.get(row).map_or(0, |it| it.round() as u64),
            false => counted.get(row).unwrap_or(0),
        };
        let mut end = 0;
        // The rows of a visit are mostly consecutive.
        for of_visit in visits.chunk_by(|a, b| a == b) {
            let (begin, visit) = (end, of_visit[0]);
            end += of_visit.len();
            let Some(class) = self.classes.get(visit) else {
                continue;
            };
            let rows = (begin..end)
                .filter(|&row| events[row] == event.id.0 && Some(functions[row]) != own_function);
            if class.pooled {
                for sums in self.sections.at(class.slot).classes_of(class.class) {
                    let seen = |row| (FunctionId(functions[row]), (samples[row], weight(row)));
                    sums.pool.add_functions(visit, rows.clone().map(seen));
                    for row in rows.clone().filter(|_| event.has_times) {
                        let error = self_stderr_ns.get(row).unwrap_or(0.0);
                        sums.pool.add_error(FunctionId(functions[row]), error);
                    }
                }
            }
            if let Some(draft) = self.drafts.0.get_mut(&visit) {
                draft.functions.extend(rows.map(|row| {
                    let found = VisitFunction {
                        function: FunctionName::default(),
                        samples: samples[row],
                        self_ns: self_ns.get(row),
                        self_stderr_ns: self_stderr_ns.get(row),
                    };
                    (FunctionId(functions[row]), found)
                }));
            }
        }
        Ok(())
    }

    /// Adds the rows of the further events of a batch of `visit_functions`, with [`FunctionColumns`], but for
    /// pebs-trace's own.
    pub(super) fn add_further(
        &mut self,
        batch: &RecordBatch,
        events: &[FurtherEvent],
        own_function: Option<u32>,
    ) -> Result<(), ReadError> {
        let columns = FunctionColumns::of(batch)?;
        for (row, &visit) in columns.visit_id.iter().enumerate() {
            let function = columns.function_id[row];
            let at = events.iter().position(|it| it.id.0 == columns.event[row]);
            let (Some(at), Some(class)) = (at, self.classes.get(visit)) else {
                continue;
            };
            if class.pooled && Some(function) != own_function {
                let seen = (columns.samples[row], columns.events.get(row).unwrap_or(0));
                for sums in self.sections.at(class.slot).classes_of(class.class) {
                    sums.further[at].add_samples(visit, FunctionId(function), seen);
                }
            }
        }
        Ok(())
    }

    /// Adds a batch of `waits`, with [`WaitColumns`].
    pub(super) fn add_waits(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let waits = WaitColumns::of(batch)?;
        for row in 0..batch.num_rows() {
            let Some(class) = self.classes.get(waits.visit_id[row]) else {
                continue;
            };
            let key = WaitKey {
                state: self.states.index(waits.state.get(row)),
                function: waits.function_id.get(row).map(FunctionId),
            };
            let ns = waits.end_ns[row] - waits.begin_ns[row];
            if class.pooled {
                for sums in self.sections.at(class.slot).classes_of(class.class) {
                    add_wait(&mut sums.waits, key, ns);
                }
            }
            if let Some(draft) = self.drafts.0.get_mut(&waits.visit_id[row]) {
                add_wait(&mut draft.waits, key, ns);
            }
        }
        Ok(())
    }
}

fn add_wait(waits: &mut FxHashMap<WaitKey, WaitSum>, key: WaitKey, ns: i64) {
    waits.entry(key).or_default().add(ns);
}
