//! Counted events of items.

use rustc_hash::FxHashMap;

use super::sums::{NO_SECTION, Summing};
use crate::compare::batches::Share;
use crate::compare::counted::{CountedSums, each};
use crate::store::reader::{ReadError, Trace};

/// Sums the counts of items, by section. An item has no count of an event if one of its visits has none.
pub(crate) fn sum(trace: &Trace, summing: &Summing<'_>) -> Result<Vec<CountedSums>, ReadError> {
    let mut sums = vec![CountedSums::default(); summing.sections.len()];
    let mut items: FxHashMap<(u32, u8), Option<(f64, f64)>> = FxHashMap::default();
    each(trace, |count| {
        for (item, share) in summing.items.of_visit(count.visit_id) {
            let more = count.values().map(|it| share_of(it, share));
            let sum = items.entry((item, count.event)).or_insert(Some((0.0, 0.0)));
            *sum = sum
                .zip(more)
                .map(|(sum, more)| (sum.0 + more.0, sum.1 + more.1));
            for (section, _) in summing.places[item as usize] {
                if let Some(sums) = sums.get_mut(usize::from(section)) {
                    sums.add_state(count.event, count.state);
                }
            }
        }
    })?;
    let mut items: Vec<_> = items.into_iter().collect();
    // Sums of floating-point numbers depend on their order.
    items.sort_unstable_by_key(|it| it.0);
    for ((item, event), counted) in items {
        let Some(counted) = counted else {
            continue;
        };
        let block = (summing.block)(summing.items, item);
        for (section, class) in summing.places[item as usize] {
            if section != NO_SECTION {
                sums[usize::from(section)].add(event, (class, block), counted);
            }
        }
    }
    Ok(sums)
}

/// The part of an item that was served together with others.
fn share_of((count, ns): (f64, f64), share: Share) -> (f64, f64) {
    (count * share.of_whole(), ns * share.of_whole())
}
