//! Visits that serve several items: their number, each item's share of the time, and what items cost.

use std::collections::BTreeMap;

use super::model::{BatchSum, ProbeReport};
use crate::compare::batches::Batches;
use crate::compare::explain::mix;
use crate::compare::lengths::Lengths;
use crate::compare::losses::LossVisits;
use crate::compare::report::request::ReportOptions;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::RecordedSpec;
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};

columns! {
    struct Visits of visits { visit_id, probe_id, duration_ns, flags }
}

/// Sets the figures on batches, for probes whose visits serve several items.
///
/// Memory: 56 bytes an item.
pub(super) fn fill(
    trace: &Trace,
    options: &ReportOptions,
    probes: &mut [ProbeReport],
) -> Result<(), ReadError> {
    let batched = |it: &ProbeReport| it.spec.as_ref().is_some_and(RecordedSpec::is_batched);
    if !probes.iter().any(batched) {
        return Ok(());
    }
    let batches = Batches::read(trace)?;
    let mut sums: BTreeMap<u16, (BatchSum, Lengths)> = BTreeMap::new();
    for rows in Visits::scan(trace)? {
        let rows = rows?;
        let Visits {
            visit_id,
            probe_id,
            duration_ns,
            flags,
        } = Visits::of(&rows)?;
        let shared = |row: &usize| flags[*row] & visit_flag::SHARED != 0;
        for row in (0..rows.num_rows()).filter(shared) {
            let batch = batches.of_visit(visit_id[row]);
            let (sum, shares) = sums.entry(probe_id[row]).or_default();
            let Some(items) = batch.items else {
                sum.unsized_visits += 1;
                continue;
            };
            sum.items += u64::from(items);
            sum.unknown += u64::from(batch.unknown());
            sum.largest = sum.largest.max(items);
            let lost = flags[row] & visit_flag::LOSS != 0;
            let left_out = lost && options.losses == LossVisits::LeaveOut;
            if let Some(duration) = duration_ns.get(row)
                && !left_out
                && items > 0
            {
                if batch.is_timed() {
                    for member in batch.known {
                        let share = member.share.part(duration) / i64::from(member.times);
                        (0..member.times).for_each(|_| shares.add(share));
                    }
                } else {
                    let share = duration / i64::from(items);
                    (0..items).for_each(|_| shares.add(share));
                }
            }
        }
    }
    let mut mixes = mix::read(trace, options.losses, options.probe, None)?;
    for probe in probes.iter_mut().filter(|it| batched(it)) {
        let (mut sum, mut shares) = sums.remove(&probe.probe_id).unwrap_or_default();
        sum.share = shares.quantiles();
        probe.batches = Some(sum);
        let own = mixes.iter().position(|it| it.probe_id == probe.probe_id);
        probe.mix = own.map(|at| mixes.swap_remove(at));
    }
    Ok(())
}
