//! Visits that serve several items: which items, and each item's share.
//!
//! A visit's time, samples and waits are shared out evenly, so that nothing counts twice. An id that occurs twice in
//! a batch has two shares. Where visits of other probes within it tell how long it took for each of its items, they are
//! shared out by these times.
//!
//! Memory: 40 bytes a visit that serves several items, and 24 for each of its items; where other probes read ids, 4 more,
//! and 16 while it is read.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use crate::store::reader::{ReadError, Trace};
use crate::store::run::{ProbeInfo, RunInfo};
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};

columns! {
    struct Members of batch_items { visit_id, item_id, items }
}

columns! {
    struct Visits of visits { visit_id, item_id, probe_id, tid, begin_ns, duration_ns, net_ns, net_stderr_ns, flags }
}

/// An item's share of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Shares of the items before it.
    before: u32,
    /// Shares that are its own.
    own: u32,
    /// All shares.
    all: u32,
}

impl Share {
    /// All of a visit.
    pub(crate) const WHOLE: Self = Self {
        before: 0,
        own: 1,
        all: 1,
    };

    /// As a part of the whole, 0 to 1.
    pub(crate) fn of_whole(&self) -> f64 {
        f64::from(self.own) / f64::from(self.all)
    }

    /// The item's part of a time, in whole ns; the parts of all items sum to the time.
    pub(crate) fn part(&self, of: i64) -> i64 {
        let upto = |shares: u32| {
            let product = i128::from(of) * i128::from(shares);
            product.div_euclid(i128::from(self.all)) as i64
        };
        upto(self.before + self.own) - upto(self.before)
    }

    /// The item's part of a count, a whole number; the parts of all items of a visit sum to the count.
    ///
    /// A batch may have more items than there are events. Which items then get one depends on `turn`, a number shared
    /// by all items of the visit: over many turns each item gets its share.
    pub(crate) fn count(&self, of: u64, turn: u64) -> u64 {
        let all = u128::from(self.all);
        // Turns may have a rhythm, as batches have: Knuth's multiplicative hash, to 0..all.
        let hash = u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        let first = (hash * all) >> 32;
        let upto = |shares: u32| (u128::from(of) * u128::from(shares) + first) / all;
        // No part is larger than the whole.
        (upto(self.before + self.own) - upto(self.before)) as u64
    }
}

/// An item of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub item_id: u64,
    /// Number of times that the visit serves it.
    pub times: u32,
    /// Its share of the visit.
    pub share: Share,
}

/// The items of a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batch<'a> {
    /// Number of items the visit serves; `None` if unknown.
    pub items: Option<u32>,
    /// Items with known ids, by id.
    pub known: &'a [Member],
    /// Shares are times of visits within it, in 2^this ns; `None`: they are equal.
    scale: Option<u32>,
    /// Standard errors of these times; empty if there are none.
    errors_ns: &'a [f32],
}

impl Batch<'_> {
    /// Number of items without a known id; 0 if the size is unknown.
    pub(crate) fn unknown(&self) -> u32 {
        let known = self.known.iter().map(|member| member.times).sum();
        self.items.map_or(0, |items| items.saturating_sub(known))
    }

    /// Whether shares are times of visits within it.
    pub(crate) const fn is_timed(&self) -> bool {
        self.scale.is_some()
    }

    /// The members, with the net time of the visits within it that are theirs and its standard error, ns; `None`: it has
    /// not one for each of its items.
    pub(crate) fn inside_ns(&self) -> impl Iterator<Item = (&Member, Option<(i64, f32)>)> {
        let errors = self.errors_ns.iter().copied();
        let errors = errors.chain(std::iter::repeat(0.0));
        self.known.iter().zip(errors).map(|(member, error)| {
            let ns = |scale| i64::from(member.share.own) << scale;
            (member, self.scale.map(|scale| (ns(scale), error)))
        })
    }
}

/// A visit for an item within a batch.
struct Inner {
    /// Index of the batch's first member.
    first: u32,
    begin: i64,
    end: i64,
    /// Index of its item.
    at: usize,
    net_ns: i64,
    error_ns: f32,
}

/// All visits that serve several items.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    visits: FxHashMap<u64, Place>,
    members: Vec<Member>,
    /// Standard errors of the times within the visits, by member; empty unless these are shares.
    errors_ns: Vec<f32>,
    /// Probes of the visits within.
    probes_within: Vec<u16>,
}

/// Range of a visit's items among all.
#[derive(Clone, Copy, Debug)]
struct Place {
    items: Option<u32>,
    from: u32,
    to: u32,
    scale: Option<u32>,
}

impl Batches {
    /// Reads the items of a trace; empty if no probe serves several at once.
    pub(crate) fn read(trace: &Trace) -> Result<Self, ReadError> {
        let mut rows = Vec::new();
        if !has_batches(&trace.info) {
            return Ok(Self::default());
        }
        for batch in Members::scan(trace)? {
            let batch = batch?;
            let Members {
                visit_id,
                item_id,
                items,
            } = Members::of(&batch)?;
            let row = |row| (visit_id[row], item_id.get(row), items.get(row));
            rows.extend((0..batch.num_rows()).map(row));
        }
        let mut batches = Self::of(rows);
        let marks_items = |it: &ProbeInfo| it.spec.reads_ids() && !it.spec.is_batched();
        if trace.info.probes.iter().any(marks_items) {
            batches.time_members(trace)?;
        }
        Ok(batches)
    }

    /// Makes the times of visits within the batches their items' shares, of batches that have one for each item.
    fn time_members(&mut self, trace: &Trace) -> Result<(), ReadError> {
        let mut spans: Vec<(u32, i64, i64, u64)> = Vec::new();
        for rows in Visits::scan(trace)? {
            let rows = rows?;
            let visits = Visits::of(&rows)?;
            for row in 0..rows.num_rows() {
                if let (true, Some(ns)) = (
                    visits.flags[row] & visit_flag::SHARED != 0,
                    visits.duration_ns.get(row),
                ) {
                    let begin = visits.begin_ns[row];
                    spans.push((visits.tid[row], begin, begin + ns, visits.visit_id[row]));
                }
            }
        }
        spans.sort_unstable();
        let mut inner = Vec::new();
        for rows in Visits::scan(trace)? {
            let rows = rows?;
            let visits = Visits::of(&rows)?;
            for row in 0..rows.num_rows() {
                let (tid, begin) = (visits.tid[row], visits.begin_ns[row]);
                let Some(duration) = visits.duration_ns.get(row) else {
                    continue;
                };
                if visits.flags[row] & visit_flag::SHARED != 0 {
                    continue;
                }
                let before = spans.partition_point(|it| (it.0, it.1) <= (tid, begin));
                let around = before.checked_sub(1).map(|at| spans[at]);
                let around = around.filter(|it| it.0 == tid && it.2 >= begin + duration);
                let place = around.and_then(|it| self.visits.get(&it.3));
                let Some(place) = place else { continue };
                let known = &self.members[place.from as usize..place.to as usize];
                let found = known.binary_search_by_key(&visits.item_id[row], |it| it.item_id);
                if let Ok(at) = found {
                    inner.push(Inner {
                        first: place.from,
                        begin,
                        end: begin + duration,
                        at: place.from as usize + at,
                        net_ns: visits.net_ns.get(row).unwrap_or(duration).max(0),
                        error_ns: visits.net_stderr_ns.get(row).unwrap_or(0) as f32,
                    });
                    let probe = visits.probe_id[row];
                    if !self.probes_within.contains(&probe) {
                        self.probes_within.push(probe);
                    }
                }
            }
        }
        let mut times: Vec<Option<i64>> = vec![None; self.members.len()];
        self.errors_ns = vec![0.0; self.members.len()];
        inner.sort_unstable_by_key(|it| (it.first, it.begin, Reverse(it.end)));
        let mut last = (u32::MAX, i64::MIN);
        for it in inner {
            // One within another is part of its time.
            if it.first == last.0 && it.end <= last.1 {
                continue;
            }
            last = (it.first, it.end);
            *times[it.at].get_or_insert(0) += it.net_ns;
            self.errors_ns[it.at] = self.errors_ns[it.at].hypot(it.error_ns);
        }
        for place in self.visits.values_mut() {
            let range = place.from as usize..place.to as usize;
            let members = &mut self.members[range.clone()];
            let served: u32 = members.iter().map(|it| it.times).sum();
            let known: Option<Vec<i64>> = times[range].iter().copied().collect();
            let Some(known) = known.filter(|_| place.items == Some(served)) else {
                continue;
            };
            let sum: i64 = known.iter().sum();
            if sum == 0 {
                continue;
            }
            // Shares are 32 bits wide.
            let scale = (i64::BITS - sum.leading_zeros()).saturating_sub(u32::BITS);
            place.scale = Some(scale);
            let owns = known.iter().map(|ns| (ns >> scale) as u32);
            let all: u32 = owns.clone().sum();
            let mut before = 0;
            for (member, own) in members.iter_mut().zip(owns) {
                member.share = Share { before, own, all };
                before += own;
            }
        }
        Ok(())
    }

    fn of(mut rows: Vec<(u64, Option<u64>, Option<u32>)>) -> Self {
        rows.sort_unstable();
        let mut batches = Self::default();
        for of_visit in rows.chunk_by(|a, b| a.0 == b.0) {
            let (visit, _, items) = of_visit[0];
            let first = batches.members.len();
            let known = of_visit.iter().filter_map(|row| row.1);
            // A damaged trace may have more ids than items.
            let all = items.unwrap_or(1).max(known.clone().count() as u32).max(1);
            for (before, item_id) in (0..).zip(known) {
                let last = batches.members[first..].last_mut();
                match last.filter(|last| last.item_id == item_id) {
                    Some(last) => {
                        last.share.own += 1;
                        last.times += 1;
                    }
                    None => batches.members.push(Member {
                        item_id,
                        times: 1,
                        share: Share {
                            before,
                            own: 1,
                            all,
                        },
                    }),
                }
            }
            // Fewer than 2^32: each takes more than a byte of a file.
            let place = Place {
                items,
                from: first as u32,
                to: batches.members.len() as u32,
                scale: None,
            };
            batches.visits.insert(visit, place);
        }
        batches
    }

    /// The items of a visit that serves several; empty for one that served none.
    pub(crate) fn of_visit(&self, visit_id: u64) -> Batch<'_> {
        let none = Place {
            items: Some(0),
            from: 0,
            to: 0,
            scale: None,
        };
        let place = self.visits.get(&visit_id).copied().unwrap_or(none);
        let range = place.from as usize..place.to as usize;
        Batch {
            items: place.items,
            known: &self.members[range.clone()],
            scale: place.scale,
            errors_ns: self.errors_ns.get(range).unwrap_or_default(),
        }
    }

    /// Probes whose visits within the batches are times of their items.
    pub(crate) fn probes_within(&self) -> &[u16] {
        &self.probes_within
    }

    /// The visits that served an item.
    pub(crate) fn visits_of(&self, item_id: u64) -> impl Iterator<Item = u64> + '_ {
        let serves = move |visit: &u64| {
            let known = self.of_visit(*visit).known;
            known
                .binary_search_by_key(&item_id, |it| it.item_id)
                .is_ok()
        };
        self.visits.keys().copied().filter(serves)
    }
}

/// Whether visits of any probe serve several items.
pub(crate) fn has_batches(info: &RunInfo) -> bool {
    info.probes.iter().any(|probe| probe.spec.is_batched())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Members of a batch with this many items; an id may occur several times.
    fn members(ids: &[u64]) -> Vec<Member> {
        let rows = ids.iter().map(|id| (1, Some(*id), Some(ids.len() as u32)));
        Batches::of(rows.collect()).members
    }

    proptest! {
        /// Parts of counts sum to the count, whatever the turn, and each is within one of its share.
        #[test]
        fn counts_sum(ids in proptest::collection::vec(0u64..40, 1..300), of: u32, few in 0u64..5, turn: u64) {
            let members = members(&ids);
            for of in [of.into(), few] {
                let parts = members.iter().map(|it| it.share.count(of, turn));
                prop_assert_eq!(parts.sum::<u64>(), of);
                for member in &members {
                    let exact = of as f64 * member.share.of_whole();
                    let part = member.share.count(of, turn) as f64;
                    prop_assert!((part - exact).abs() < 1.001, "{} for {}", part, exact);
                }
            }
        }
    }

    /// One event a turn for 32 items: after many turns all have equally many, whether turns are consecutive or every
    /// 32nd.
    #[test]
    fn everyone_has_a_turn() {
        let members = members(&(0..32).collect::<Vec<u64>>());
        for step in [1, 2, 32, 1 << 20] {
            let counts = members.iter().map(|it| -> u64 {
                let turns = (0..3_200).map(|turn| turn * step);
                turns.map(|turn| it.share.count(1, turn)).sum()
            });
            let counts: Vec<u64> = counts.collect();
            assert_eq!(counts.iter().sum::<u64>(), 3_200);
            let fair = counts.iter().all(|n| (70..=130).contains(n));
            assert!(fair, "step {step}: {counts:?}");
        }
    }

    /// Parts are whole, nearly equal, and sum to the amount shared out; an id that occurs twice gets two.
    #[test]
    fn parts_sum() {
        let row = |id: Option<u64>| (9, id, Some(5));
        let rows = [Some(3), None, Some(8), Some(3), Some(1)];
        let batches = Batches::of(rows.map(row).to_vec());
        let batch = batches.of_visit(9);
        let ids: Vec<(u64, u32)> = batch
            .known
            .iter()
            .map(|it| (it.item_id, it.share.own))
            .collect();
        assert_eq!(ids, [(1, 1), (3, 2), (8, 1)]);
        assert_eq!((batch.items, batch.unknown()), (Some(5), 1));
        for whole in [0, 1, 7, 100, i64::MAX] {
            let parts = batch.known.iter().map(|it| it.share.part(whole));
            let sum: i64 = parts.sum();
            assert!(
                (i128::from(sum) - i128::from(whole) * 4 / 5).abs() <= 1,
                "{whole}"
            );
        }
        let shares: f64 = batch.known.iter().map(|it| it.share.of_whole()).sum();
        assert!((shares - 0.8).abs() < 1e-12);
        assert_eq!(batches.visits_of(8).collect::<Vec<_>>(), [9]);
        assert_eq!(batches.visits_of(4).count(), 0);
        assert_eq!(batches.of_visit(1).items, Some(0));
    }
}
