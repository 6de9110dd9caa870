//! Visits that serve several items: a row of `batch_items` for each.

use super::rows::Rows;
use crate::correlate::ClosedVisit;
use crate::store::schema::{BatchItemRow, visit_flag};

impl Rows {
    /// Writes the items of a visit, with equal shares of it that sum to 1.
    pub(super) fn batch(&mut self, visit: &ClosedVisit<'_>) {
        if visit.flags & visit_flag::SHARED == 0 {
            return;
        }
        let batch = visit.batch;
        let (items, known) = (batch.items, batch.ids.len() as u32);
        let each = items.map_or(0.0, |items| f64::from(items).recip());
        let row = |item_id, share| BatchItemRow {
            visit_id: visit.visit_id,
            item_id,
            items,
            share,
        };
        for id in &batch.ids {
            self.batch_item(&row(Some(*id), each));
        }
        let rest = match items {
            Some(items) => f64::from(items.saturating_sub(known)) * each,
            None => 1.0,
        };
        if items != Some(known) {
            self.batch_item(&row(None, rest));
        }
    }

    fn batch_item(&mut self, row: &BatchItemRow) {
        let result = self.writer.add(row);
        self.check(result);
    }
}
