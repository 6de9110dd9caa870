//! Losses of a trace, and whether visits that overlap one count.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::store::reader::{ReadError, Trace};
use crate::store::view::{Select as _, View as _, columns};

/// Treatment of visits that overlap a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossVisits {
    /// Leave them out of statistics.
    #[default]
    LeaveOut,
    /// Count them.
    Include,
}

/// Time ranges without full data for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossSum {
    /// A reason of the ledger.
    pub reason: String,
    pub ranges: u64,
    /// Their time in total.
    pub ns: i64,
    /// Records lost; null if one range doesn't know.
    pub records: Option<u64>,
}

columns! {
    struct Losses of losses { begin_ns, end_ns, reason, records }
}

pub(crate) fn losses(trace: &Trace) -> Result<Vec<LossSum>, ReadError> {
    let mut sums: BTreeMap<String, LossSum> = BTreeMap::new();
    for batch in Losses::scan(trace)? {
        let batch = batch?;
        let columns = Losses::of(&batch)?;
        for row in 0..batch.num_rows() {
            let reason = columns.reason.get(row);
            let sum = sums.entry(reason.to_owned()).or_insert_with(|| LossSum {
                reason: reason.to_owned(),
                ranges: 0,
                ns: 0,
                records: Some(0),
            });
            let lost = columns.records.get(row);
            sum.ranges += 1;
            sum.ns += columns.end_ns[row] - columns.begin_ns[row];
            sum.records = sum.records.zip(lost).map(|(sum, lost)| sum + lost);
        }
    }
    Ok(sums.into_values().collect())
}
