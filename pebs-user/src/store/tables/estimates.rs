//! Writes the rows of `visit_functions` from the estimator's blocks.

use crate::store::estimates::{BLOCK_ROWS, Parts};
use crate::store::schema::VisitFunctionColumns;

impl VisitFunctionColumns {
    /// Appends the rows of a block, one column after another.
    pub(in crate::store) fn extend_parts(&mut self, parts: &Parts<'_>) {
        let Parts {
            estimates,
            events,
            visit_ids,
            item_ids,
        } = *parts;
        self.rows += estimates.len();
        self.visit_id.extend(visit_ids, |id| *id);
        self.item_id.extend(item_ids, |id| *id);
        self.function_id.extend(estimates, |it| it.function.0);
        self.event.extend(estimates, |it| it.event.0);
        self.samples.extend(estimates, |it| it.samples);
        self.events
            .extend(events, |events| (*events > 0).then_some(*events));
        self.first_ns.extend(estimates, |it| it.first.0);
        self.last_ns.extend(estimates, |it| it.last.0);
        self.span_ns.extend(estimates, |it| it.span_ns());
        self.self_ns.extend(estimates, |it| it.self_ns());
        // The numbers of many rows first, then which of them are known.
        for some in estimates.chunks(BLOCK_ROWS) {
            let mut errors = [f64::NAN; BLOCK_ROWS];
            for (error, it) in errors.iter_mut().zip(some) {
                *error = it.self_stderr_or_nan();
            }
            self.self_stderr_ns.extend(&errors[..some.len()], |error| {
                (!error.is_nan()).then_some(*error)
            });
        }
    }
}
