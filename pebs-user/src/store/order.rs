//! Order of the rows in a compacted segment.
//!
//! The rings are drained thread by thread, again and again, so times decrease every few hundred rows, and delta
//! encoding needs a wide block for each decrease. Here the rows of a batch are reordered so that times seldom
//! decrease: thread by thread, or without threads along chains of visits.
//!
//! Invariant: rows of a thread keep their order, and adjacent rows of a visit stay adjacent.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow_array::{Array as _, RecordBatch, UInt32Array};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};

/// Rows that stay together.
type Run = Range<u32>;

/// The order of a batch's rows that compresses well, as row numbers; `None` if it is the existing order.
///
/// Cost: O(1) for each row, and O(log n) for each of n runs.
pub(super) fn order(batch: &RecordBatch) -> Option<UInt32Array> {
    let runs = by_thread(batch).or_else(|| by_time(batch))?;
    let is_kept = runs.is_sorted_by_key(|run| run.start);
    (!is_kept).then(|| runs.into_iter().flatten().collect::<Vec<_>>().into())
}

/// Thread after thread.
fn by_thread(batch: &RecordBatch) -> Option<Vec<Run>> {
    let tids = batch
        .column_by_name("tid")?
        .as_primitive_opt::<UInt32Type>()?;
    if tids.null_count() > 0 {
        return None;
    }
    let tids = tids.values();
    let mut runs = runs(tids.len(), |row| tids[row] != tids[row - 1]);
    runs.sort_by_key(|run| tids[run.start as usize]);
    Some(runs)
}

/// Chains of visits: each run of visits with rising times follows the run that ended last before its begin.
fn by_time(batch: &RecordBatch) -> Option<Vec<Run>> {
    let visits = batch
        .column_by_name("visit_id")?
        .as_primitive_opt::<UInt64Type>()?;
    let times = batch
        .column_by_name("first_ns")?
        .as_primitive_opt::<Int64Type>()?;
    let (visits, times) = (visits.values(), times.values());
    let runs = runs(times.len(), |row| {
        times[row] < times[row - 1] && visits[row] != visits[row - 1]
    });
    let mut chains: Vec<Vec<Run>> = Vec::new();
    // When each chain ends, and which it is.
    let mut ends = BTreeSet::new();
    for run in runs {
        let (begin, end) = (times[run.start as usize], times[run.end as usize - 1]);
        let before = ends.range(..=(begin, usize::MAX)).next_back().copied();
        let chain = before.map_or(chains.len(), |(_, chain)| chain);
        match before {
            Some(before) => {
                ends.remove(&before);
            }
            None => chains.push(Vec::new()),
        }
        ends.insert((end, chain));
        chains[chain].push(run);
    }
    Some(chains.into_iter().flatten().collect())
}

/// Divides rows into runs: a run starts at each row for which `is_other` is true.
fn runs(rows: usize, is_other: impl Fn(usize) -> bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut start = 0;
    for row in (1..rows).filter(|row| is_other(*row)) {
        runs.push(start..row as u32);
        start = row as u32;
    }
    if rows > 0 {
        runs.push(start..rows as u32);
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, UInt64Array};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// The row numbers in their new order, `None` if it is the old one.
    fn ordered(columns: Vec<(&str, ArrayRef)>) -> Option<Vec<u32>> {
        order(&batch(columns)).map(|order| order.values().to_vec())
    }

    fn tids(tids: impl Into<UInt32Array>) -> (&'static str, ArrayRef) {
        ("tid", Arc::new(tids.into()))
    }

    fn visit_functions(rows: &[(u64, i64)]) -> Vec<(&'static str, ArrayRef)> {
        let visits: UInt64Array = rows.iter().map(|(visit, _)| *visit).collect();
        let times: Int64Array = rows.iter().map(|(_, time)| *time).collect();
        vec![
            ("visit_id", Arc::new(visits)),
            ("first_ns", Arc::new(times)),
        ]
    }

    // Rounds of threads become threads, the rows of each as they were.
    #[test]
    fn threads_come_one_after_the_other() {
        let rounds = vec![7_u32, 7, 5, 5, 7, 5, 9];
        assert_eq!(ordered(vec![tids(rounds)]).unwrap(), [2, 3, 5, 0, 1, 4, 6]);
    }

    // Rows that are in order, of unknown threads, or without thread and time are not reordered.
    #[test]
    fn others_stay_as_they_are() {
        assert_eq!(ordered(vec![tids(vec![5_u32, 5, 7])]), None);
        assert_eq!(ordered(vec![tids(Vec::<u32>::new())]), None);
        assert_eq!(ordered(vec![tids(vec![Some(7), None, Some(5)])]), None);
        let names: ArrayRef = Arc::new(Int64Array::from(vec![3, 2, 1]));
        assert_eq!(ordered(vec![("first_ns", names)]), None);
        assert_eq!(ordered(visit_functions(&[])), None);
        assert_eq!(ordered(visit_functions(&[(1, 10), (1, 20), (2, 20)])), None);
    }

    // A run follows the one that ended last before it; a visit within which times decrease stays together.
    #[test]
    fn visits_are_chained() {
        let rows = [
            // A turn of one thread,
            (1, 100),
            (1, 300),
            (1, 200),
            (2, 400),
            // one of another thread, the next one of the first, and one that began before either ended.
            (3, 150),
            (4, 650),
            (5, 410),
            (6, 405),
        ];
        let expected = [0, 1, 2, 3, 6, 4, 5, 7];
        assert_eq!(ordered(visit_functions(&rows)).unwrap(), expected);
    }

    // However many threads take turns, times decrease once per thread, not once per round; no row is lost.
    #[test]
    fn times_seldom_fall() {
        let (threads, rounds) = (16, 50);
        let mut rows = Vec::new();
        for round in 0..rounds {
            for thread in 0..threads {
                let visit = (round * threads + thread) * 10;
                let begin = round as i64 * 2_000_000 + thread as i64;
                rows.extend((0..100).map(|n| (visit + n / 10, begin + n as i64 * 10_000)));
            }
        }
        let order = ordered(visit_functions(&rows)).unwrap();
        let falls = |times: &[i64]| times.windows(2).filter(|it| it[1] < it[0]).count();
        let times: Vec<i64> = order.iter().map(|row| rows[*row as usize].1).collect();
        assert_eq!(falls(&times), 15);
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..rows.len() as u32));
    }
}
