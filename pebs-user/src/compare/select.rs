//! Selection of the visits of a trace to look at.
//!
//! The trace is read in streams, twice, five columns each: once for the durations of each probe, once
//! to choose. Memory: a bit a visit, and where a format bounds the number of visits, 40 bytes each.

pub(crate) mod error;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use arrow_array::RecordBatch;
use hdrhistogram::Histogram;

use crate::compare::classes::{Class, Classes, RankBy, Ranker, Ranks, SlowBy, Standing, Took};
use crate::compare::lengths::Quantiles;
use crate::compare::losses::LossVisits;
use crate::compare::select::error::ExportError;
use crate::rng::SplitMix64;
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};
pub(crate) use crate::store::visit_set::VisitSet;

/// Significant digits of durations in histograms: 0.1 %.
const DIGITS: u8 = 3;

/// Durations are distinguished up to this one: 36 years.
const LONGEST_NS: u64 = 1 << 60;

/// Number of items named in the error on an unknown item.
const NAMED: usize = 5;

columns! {
    struct Columns of visits { visit_id, item_id, probe_id, duration_ns, oncpu_ns, flags, samples, net_ns }
}

/// Requested visits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Selection {
    /// Every visit.
    #[default]
    All,
    /// The visits of one item, whatever their flags.
    Item(u64),
    /// Visits that are slow by this rule among those of their probe.
    Slow(SlowBy),
}

/// Capacity of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub visits: usize,
    /// Samples in these visits.
    pub samples: u64,
}

/// Options of a selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Requested visits.
    pub selection: Selection,
    /// Rule for slow visits; `None`: that of the selection, else that of the report.
    pub slow: Option<SlowBy>,
    /// Whether visits that overlap a loss count when classes are computed.
    pub losses: LossVisits,
    /// Whether such visits can be used.
    pub lossy: bool,
    /// Whether visits without a known end can be used.
    pub open: bool,
    /// Capacity of the format; `None`: unlimited.
    pub bound: Option<Bound>,
}

/// Why no visit is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoneSlow {
    Rule(SlowBy),
    /// By duration.
    Shorter {
        rule: SlowBy,
        longest_ns: i64,
    },
    /// No duration is known.
    NoDuration,
}

/// Numbers of visits that were chosen and left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// In the trace.
    pub all: u64,
    /// Requested visits that the format can show.
    pub asked: u64,
    /// Chosen visits: fewer than requested if the format can't hold more.
    pub chosen: u64,
    /// Asked for, but left out as they overlap a loss.
    pub loss: u64,
    /// Asked for, but left out as their end is unknown.
    pub open: u64,
    /// Chosen, but without functions as their details were not kept.
    pub condensed: u64,
}

/// The visits to look at.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Their numbers.
    pub visits: VisitSet,
    /// Typical visits that are whole, to compare with; of the whole trace.
    pub typical: VisitSet,
    /// Slow and typical classes of each probe's visits, by number.
    pub(crate) classes: BTreeMap<u16, Classes>,
    /// Quantity that the classes are by.
    pub(crate) ranker: Ranker,
    /// Quantiles of the durations of each probe's visits, by number.
    pub(crate) quantiles: BTreeMap<u16, Quantiles>,
    /// Durations of each probe's visits that are counted, by number.
    pub(crate) durations: BTreeMap<u16, Histogram<u64>>,
    /// Numbers of visits chosen and left out.
    pub account: Account,
}

/// One row of [`Columns`].
#[derive(Clone, Copy)]
struct Row {
    visit: u64,
    item: u64,
    probe: u16,
    took: Took,
    oncpu_ns: Option<i64>,
    flags: u32,
    samples: u32,
}

impl Row {
    fn standing(&self, losses: LossVisits) -> Standing {
        Standing::of(self.took, self.flags, losses)
    }

    fn overlaps_loss(&self) -> bool {
        self.flags & visit_flag::LOSS != 0
    }
}

/// Chooses visits.
///
/// # Errors
/// If the trace can't be read, or nothing is chosen.
pub(crate) fn choose(trace: &Trace, request: &Request) -> Result<Chosen, ExportError> {
    let slow = match request.selection {
        Selection::Slow(slow) => Some(slow),
        Selection::All | Selection::Item(_) => request.slow,
    };
    let Some(ranker) = Ranker::of(&trace.info, slow) else {
        let trace = trace.dir.display().to_string();
        return Err(ExportError::NoCpuTime { trace });
    };
    let Durations {
        durations,
        ranks,
        by_duration,
        longest,
    } = durations(trace, request.losses, &ranker)?;
    let rule = slow.and_then(|it| it.rule);
    let mut chosen = Chosen {
        visits: VisitSet::default(),
        typical: VisitSet::default(),
        classes: ranks
            .into_iter()
            .filter_map(|(probe, ranks)| Some((probe, ranks.close(rule)?)))
            .collect(),
        ranker,
        quantiles: BTreeMap::new(),
        durations,
        account: Account::default(),
    };
    let of_ranks = chosen
        .classes
        .iter()
        .map(|(probe, it)| (*probe, it.quantiles));
    chosen.quantiles = of_ranks.collect();
    for (probe, ranks) in by_duration {
        let quantiles = ranks.close(None).map(|it| (probe, it.quantiles));
        chosen.quantiles.extend(quantiles);
    }
    let mut sieve = Sieve::new(request.bound);
    each(trace, |row| chosen.consider(row, request, &mut sieve))?;
    chosen.account.chosen = sieve.settle(&mut chosen.visits);
    match refusal(trace, request, &chosen.account, &longest) {
        Some(error) => Err(error),
        None => Ok(chosen),
    }
}

fn refusal(
    trace: &Trace,
    request: &Request,
    account: &Account,
    longest: &[(i64, u64)],
) -> Option<ExportError> {
    let dir = || trace.dir.display().to_string();
    if account.chosen > 0 {
        return None;
    }
    if account.all == 0 {
        return Some(ExportError::NoVisits { trace: dir() });
    }
    if account.loss > 0 || account.open > 0 {
        return Some(ExportError::Nothing {
            trace: dir(),
            loss: account.loss,
            open: account.open,
        });
    }
    Some(match request.selection {
        Selection::Item(item) => ExportError::NoItem {
            trace: dir(),
            item,
            slowest: longest.iter().map(|(_, item)| *item).collect(),
        },
        Selection::Slow(rule) => ExportError::NoneSlow {
            trace: dir(),
            reason: match longest.first() {
                Some(_) if rule.by == RankBy::CpuTime => NoneSlow::Rule(rule),
                Some((ns, _)) => NoneSlow::Shorter {
                    rule,
                    longest_ns: *ns,
                },
                None => NoneSlow::NoDuration,
            },
        },
        Selection::All => ExportError::NoVisits { trace: dir() },
    })
}

impl Chosen {
    /// The class of a visit with this standing, time on the CPU, probe and flags; `None` if it is in none.
    pub(crate) fn class(
        &self,
        standing: Standing,
        oncpu_ns: Option<i64>,
        of: (u16, u32),
    ) -> Option<Class> {
        let Standing::Counted(rank) = standing else {
            return None;
        };
        let rank = self.ranker.rank(rank, oncpu_ns, of)?;
        self.classes.get(&of.0).map(|it| it.of(rank))
    }

    fn consider(&mut self, row: Row, request: &Request, sieve: &mut Sieve) {
        self.account.all += 1;
        // A visit that overlaps a loss is in no class, but has a duration.
        let class = self.class(
            row.standing(LossVisits::Include),
            row.oncpu_ns,
            (row.probe, row.flags),
        );
        let slow = class == Some(Class::Slow);
        let condensed = row.flags & visit_flag::CONDENSED != 0;
        let whole = request.losses == LossVisits::Include || !row.overlaps_loss();
        if whole && !condensed && class == Some(Class::Typical) {
            self.typical.insert(row.visit);
        }
        let named = match request.selection {
            Selection::All => true,
            Selection::Item(item) => item == row.item,
            Selection::Slow(_) => slow,
        };
        let one_item = matches!(request.selection, Selection::Item(_));
        if !named {
            return;
        }
        if row.took.duration_ns.is_none() && !request.open {
            self.account.open += 1;
        } else if row.overlaps_loss() && !request.lossy && !one_item {
            self.account.loss += 1;
        } else {
            self.account.asked += 1;
            self.account.condensed += u64::from(condensed);
            sieve.take(row, slow, &mut self.visits);
        }
    }
}

/// Reduces visits to the capacity of a format: the slowest of the slow visits fill up to half of it,
/// and the rest is a uniform sample of the others, the same in every run.
struct Sieve {
    bound: Option<Bound>,
    passed: u64,
    /// Shortest first: duration, number, samples.
    slow: BinaryHeap<Reverse<(i64, u64, u32)>>,
    /// Largest hash first: hash, number, samples.
    others: BinaryHeap<(u64, u64, u32)>,
}

impl Sieve {
    fn new(bound: Option<Bound>) -> Self {
        Self {
            bound,
            passed: 0,
            slow: BinaryHeap::new(),
            others: BinaryHeap::new(),
        }
    }

    fn take(&mut self, row: Row, slow: bool, visits: &mut VisitSet) {
        let Some(bound) = self.bound else {
            visits.insert(row.visit);
            self.passed += 1;
            return;
        };
        if slow {
            let ns = row.took.rank().map_or(0, |it| it.ns);
            self.slow.push(Reverse((ns, row.visit, row.samples)));
            if self.slow.len() > bound.visits {
                self.slow.pop();
            }
        } else {
            self.others
                .push((scattered(row.visit), row.visit, row.samples));
            if self.others.len() > bound.visits {
                self.others.pop();
            }
        }
    }

    /// Adds the kept visits to the set, and returns their number.
    fn settle(self, visits: &mut VisitSet) -> u64 {
        let Some(bound) = self.bound else {
            return self.passed;
        };
        let others = self.others.into_sorted_vec();
        let mut slow: Vec<_> = self.slow.into_iter().map(|Reverse(it)| it).collect();
        slow.sort_unstable_by(|a, b| b.cmp(a));
        // Slow visits may fill the room that the others leave.
        slow.truncate(
            bound
                .visits
                .saturating_sub(others.len())
                .max(bound.visits / 2),
        );
        let room = bound.visits - slow.len();
        let slow = slow.into_iter().map(|(_, visit, samples)| (visit, samples));
        let others = others
            .into_iter()
            .map(|(_, visit, samples)| (visit, samples));
        let (mut kept, mut samples) = (0, 0_u64);
        for (visit, of_it) in slow.chain(others.take(room)) {
            samples += u64::from(of_it);
            if kept > 0 && samples > bound.samples {
                break;
            }
            visits.insert(visit);
            kept += 1;
        }
        kept
    }
}

/// Scatters numbers evenly.
fn scattered(number: u64) -> u64 {
    SplitMix64::new(number).next_u64()
}

/// Collects the ranks of each probe's counted visits.
#[derive(Default)]
struct Durations {
    /// For bars.
    durations: BTreeMap<u16, Histogram<u64>>,
    ranks: BTreeMap<u16, Ranks>,
    /// By duration, where `ranks` are not.
    by_duration: BTreeMap<u16, Ranks>,
    /// The longest with their items, longest first.
    longest: Vec<(i64, u64)>,
}

/// Durations of each probe's visits that are whole.
fn durations(trace: &Trace, losses: LossVisits, ranker: &Ranker) -> Result<Durations, ReadError> {
    let known: Vec<u16> = trace.info.probes.iter().map(|probe| probe.id.0).collect();
    let mut found = Durations::default();
    each(trace, |row| {
        let Standing::Counted(rank) = row.standing(losses) else {
            return;
        };
        let ns = rank.ns;
        if !known.contains(&row.probe) {
            return;
        }
        let add = |ranks: &mut BTreeMap<u16, Ranks>, rank| {
            let ranks = ranks.entry(row.probe);
            ranks.or_insert_with(|| Ranks::of(&trace.info)).add(rank);
        };
        if let Some(rank) = ranker.rank(rank, row.oncpu_ns, (row.probe, row.flags)) {
            add(&mut found.ranks, rank);
        }
        if ranker.by == RankBy::CpuTime {
            add(&mut found.by_duration, rank);
        }
        let Durations {
            durations, longest, ..
        } = &mut found;
        #[expect(
            clippy::expect_used,
            reason = "the constructor refuses only more than 5 digits"
        )]
        let of_probe = durations
            .entry(row.probe)
            .or_insert_with(|| Histogram::new(DIGITS).expect("3 digits"));
        let recorded = of_probe.record((ns.max(0) as u64).min(LONGEST_NS));
        debug_assert!(recorded.is_ok(), "the histogram grows up to 2^62");
        if longest.len() < NAMED || longest.last().is_some_and(|last| last.0 < ns) {
            match longest.iter_mut().find(|(_, item)| *item == row.item) {
                Some(known) => known.0 = known.0.max(ns),
                None => longest.push((ns, row.item)),
            }
            longest.sort_unstable_by(|a, b| b.cmp(a));
            longest.truncate(NAMED);
        }
    })?;
    Ok(found)
}

fn each(trace: &Trace, mut take: impl FnMut(Row)) -> Result<(), ReadError> {
    for batch in Columns::scan(trace)? {
        rows(&batch?, &mut take)?;
    }
    Ok(())
}

fn rows(batch: &RecordBatch, take: &mut impl FnMut(Row)) -> Result<(), ReadError> {
    let visits = Columns::of(batch)?;
    for row in 0..batch.num_rows() {
        take(Row {
            visit: visits.visit_id[row],
            item: visits.item_id[row],
            probe: visits.probe_id[row],
            took: Took {
                duration_ns: visits.duration_ns.get(row),
                net_ns: visits.net_ns.get(row),
                samples: visits.samples[row],
            },
            oncpu_ns: visits.oncpu_ns.get(row),
            flags: visits.flags[row],
            samples: visits.samples[row],
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(visit: u64, samples: u32) -> Row {
        Row {
            visit,
            item: visit,
            probe: 0,
            oncpu_ns: None,
            took: Took {
                duration_ns: Some(visit as i64),
                net_ns: None,
                samples,
            },
            flags: 0,
            samples,
        }
    }

    fn sieved(slow: u64, others: u64, bound: Bound) -> (u64, Vec<u64>) {
        let (mut sieve, mut set) = (Sieve::new(Some(bound)), VisitSet::default());
        for visit in 0..others + slow {
            sieve.take(row(visit, 10), visit >= others, &mut set);
        }
        let kept = sieve.settle(&mut set);
        let all = (0..others + slow).filter(|visit| set.contains(*visit));
        (kept, all.collect())
    }

    /// All fit; the slow first; where even these are too many, the slowest in half of the room.
    #[test]
    fn reduction() {
        let bound = |visits| Bound {
            visits,
            samples: u64::MAX,
        };
        assert_eq!(sieved(5, 20, bound(25)).0, 25);
        let (kept, visits) = sieved(5, 1_000, bound(105));
        assert_eq!(kept, 105);
        assert_eq!(visits[100..], [1_000, 1_001, 1_002, 1_003, 1_004]);
        // A uniform sample has its middle near the middle.
        let below = visits.iter().filter(|visit| **visit < 500).count();
        assert!((30..70).contains(&below), "{below} of 100");
        let (kept, visits) = sieved(600, 400, bound(100));
        assert_eq!((kept, visits[50]), (100, 950));
        let (kept, visits) = sieved(600, 10, bound(100));
        assert_eq!((kept, visits[10]), (100, 520));
    }

    /// Samples are bounded, too, but one visit is always kept.
    #[test]
    fn bound_of_samples() {
        let bound = |samples| Bound {
            visits: 50,
            samples,
        };
        assert_eq!(sieved(3, 40, bound(105)).0, 10);
        assert_eq!(sieved(3, 40, bound(5)), (1, vec![42]));
    }
}
