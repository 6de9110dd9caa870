//! Slow and typical items. Invariant: no other module decides this.
//!
//! The answers for a group of items (those of a probe, or similar ones among them) are the same for every caller:
//!
//! * An item is *counted* ([`Standing`]) if its end was seen and it overlaps no loss, unless losses are included on
//!   request.
//! * Items are ranked by [`Took::rank`], their net time where known. Where items are not much longer than the overhead
//!   of a sample, those with samples are ranked among those without by [`matching`].
//! * *Slow* are the items beyond a limit: a rule asked for, else a gap in the tail ([`gap`]), else the 99th percentile.
//!   Where that is no longer than the median, no item is slow.
//! * *Typical* is the middle half: the items from the 25th to the 75th percentile that are not slow. Their mean is
//!   near the median, and a second population of items does not move it.
//! * Quantiles are exact: the duration that a share of the items does not exceed, one of theirs.
//!
//! On request items are ranked by their time on the CPU instead ([`SlowBy`]). Where that has a gap of its own, and the
//! items above it are not the slow ones, they are reported beside these ([`apart_on_cpu`]).
//!
//! Time of a function per item of a class is [`per_item`](super::pool::Pooled::per_item). Where only slow items were kept
//! (`--keep`), those that were not kept take the place of the typical ones.

mod matching;
#[cfg(test)]
mod tests;

use self::matching::{MATCHED, Stratum};
use super::pool::Quantity;
use super::remarks::NeverEnded;
use crate::compare::event::quantity;
use crate::compare::lengths::{Quantiles, quantile};
use crate::compare::losses::LossVisits;
use crate::estimate::baseline::{MATERIAL, Rule};
use crate::store::run::{RecordedSpec, RunInfo};
use crate::store::schema::visit_flag;
use crate::units::ProbeId;
use pebs_stats::gap::{self, Gap};

pub(crate) use crate::estimate::slow_by::{GAP, RankBy, SlowBy};

/// Place of an item in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// In the middle half, and not slow.
    Typical,
    Slow,
    /// Neither.
    Between,
}

/// Duration of a visit, as in its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Took {
    /// From begin to end.
    pub duration_ns: Option<i64>,
    /// Without pebs-trace's own time.
    pub net_ns: Option<i64>,
    pub samples: u32,
}

impl Took {
    /// Rank of the visit; `None`: its end is unknown.
    pub(crate) fn rank(self) -> Option<Rank> {
        let duration = self.duration_ns?.max(0);
        let ns = self.net_ns.unwrap_or(duration).clamp(0, duration);
        Some(Rank {
            ns,
            own_ns: duration - ns,
            samples: self.samples,
        })
    }
}

/// Values that rank an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rank {
    /// Time without pebs-trace's own, where that is known, ns.
    pub ns: i64,
    /// pebs-trace's own time, as far as known, ns.
    pub own_ns: i64,
    pub samples: u32,
}

/// Computes the time on the CPU of visits without pebs-trace's own time.
///
/// For a visit that has its thread to itself all of pebs-trace's time is subtracted. Where other visits nest in it or
/// interleave with it, their marks and samples are not in its time on the CPU: only its own samples and marks are
/// subtracted, and what of theirs is before and after their own times is not known. It is no longer than the net time.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetOnCpu {
    pub sample_ns: f64,
    /// By probe: time of the marks within its visits, ns.
    pub marks_ns: Vec<(ProbeId, f64)>,
}

impl NetOnCpu {
    /// With the costs of a run.
    pub(crate) fn of(info: &RunInfo) -> Self {
        let Some(own) = &info.own_time else {
            return Self::default();
        };
        let marks = own.marks.iter();
        Self {
            sample_ns: own.sample.as_ref().map_or(0.0, |it| it.ns),
            marks_ns: marks
                .filter_map(|it| Some((it.probe_id, it.inside.as_ref()?.ns)))
                .collect(),
        }
    }

    /// Net time on the CPU of a visit with this rank, probe and flags, ns.
    pub(crate) fn net(&self, active_ns: i64, rank: Rank, (probe, flags): (u16, u32)) -> i64 {
        let own = match flags & visit_flag::OVERLAPPED {
            0 => rank.own_ns,
            _ => rank.own_ns.min(self.alone(rank.samples, probe)),
        };
        (active_ns - own).clamp(0, rank.ns.max(0))
    }

    /// Rank by net time on the CPU of a visit with this rank by duration; `None` if that time is unknown.
    pub(crate) fn rank(&self, oncpu_ns: Option<i64>, rank: Rank, of: (u16, u32)) -> Option<Rank> {
        let ns = self.net(oncpu_ns?, rank, of);
        Some(Rank { ns, ..rank })
    }

    fn alone(&self, samples: u32, probe: u16) -> i64 {
        let marks = self.marks_ns.iter().find(|(of, _)| of.0 == probe);
        let own = marks.map_or(0.0, |it| it.1) + self.sample_ns * f64::from(samples);
        own.round() as i64
    }
}

/// Ranks visits by duration or by time on the CPU.
#[derive(Debug)]
pub(crate) struct Ranker {
    pub by: RankBy,
    pub net: NetOnCpu,
}

impl Ranker {
    /// The ranker of a run for a rule; `None`: time on the CPU is asked for, and is unknown.
    pub(crate) fn of(info: &RunInfo, slow: Option<SlowBy>) -> Option<Self> {
        let by = slow.map_or(RankBy::Duration, |it| it.by);
        let net = NetOnCpu::of(info);
        (by == RankBy::Duration || info.switches).then_some(Self { by, net })
    }

    /// Rank of a visit, given its rank by duration, its time on the CPU, probe and flags; `None` if unknown.
    pub(crate) fn rank(&self, rank: Rank, oncpu_ns: Option<i64>, of: (u16, u32)) -> Option<Rank> {
        match self.by {
            RankBy::Duration => Some(rank),
            RankBy::CpuTime => self.net.rank(oncpu_ns, rank, of),
        }
    }
}

/// Whether statistics include a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Yes, with its rank.
    Counted(Rank),
    /// Its end was never seen: it is unknown, or is where another began.
    Open,
    /// It overlaps a loss.
    Loss,
}

impl Standing {
    /// Standing of a visit with these columns.
    pub(crate) fn of(took: Took, flags: u32, losses: LossVisits) -> Self {
        match took.rank() {
            _ if flags & visit_flag::END_MISSING != 0 => Self::Open,
            None => Self::Open,
            Some(_) if flags & visit_flag::LOSS != 0 && losses == LossVisits::LeaveOut => {
                Self::Loss
            }
            Some(rank) => Self::Counted(rank),
        }
    }
}

/// Message about a probe most of whose visits never ended; `None` if most did.
///
/// The others are no sample of all: they are those that happened to end where they began.
pub(crate) fn never_ended(
    spec: Option<&RecordedSpec>,
    visits: u64,
    open: u64,
) -> Option<NeverEnded> {
    if open == 0 || open * 2 <= visits {
        return None;
    }
    Some(NeverEnded {
        open,
        visits,
        by_thread: spec.is_some_and(RecordedSpec::ends_by_thread),
    })
}

/// Limit above which items are slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Name of the rule: [`GAP`], or the one asked for.
    pub rule: String,
    /// Items at or above are slow.
    pub from_ns: i64,
    /// Items in the gap.
    pub between: u64,
}

/// Collects the ranks of the items of a group.
///
/// Memory: 8 bytes an item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranks {
    /// Net times by number of samples; the last: more.
    nets: [Vec<i64>; STRATA],
    /// Sum of pebs-trace's own time by stratum, ns.
    own_ns: [i64; STRATA],
    /// Time of items from one sample to the next, ns, where a sample falls on an item with a chance that follows from its
    /// length.
    apart_ns: Option<f64>,
}

/// Items with 0, 1, .. samples, and with more.
const STRATA: usize = MATCHED + 2;

impl Ranks {
    /// Empty ranks for items of a trace.
    pub(crate) fn of(info: &RunInfo) -> Self {
        Self {
            apart_ns: apart_ns(info),
            ..Self::default()
        }
    }

    /// Adds an item.
    pub(crate) fn add(&mut self, rank: Rank) {
        let stratum = (rank.samples as usize).min(STRATA - 1);
        self.nets[stratum].push(rank.ns);
        self.own_ns[stratum] += rank.own_ns;
    }

    /// The classes of the group; `None` if it has no items.
    ///
    /// Cost: O(n log n).
    pub(crate) fn close(self, rule: Option<Rule>) -> Option<Classes> {
        let strata = self.nets.into_iter().zip(self.own_ns);
        let strata: Vec<Stratum> = strata
            .map(|(mut nets, own_ns)| {
                nets.sort_unstable();
                let own_ns = own_ns / nets.len().max(1) as i64;
                Stratum { nets, own_ns }
            })
            .collect();
        let ranks = match self.apart_ns {
            Some(apart) => matching::ranks(&strata, apart),
            None => strata.iter().map(|it| it.nets.clone()).collect(),
        };
        let mut sorted = ranks.concat();
        sorted.sort_unstable();
        let sorted = &sorted[..];
        let longest = *sorted.last()?;
        let sum: f64 = sorted.iter().map(|&ns| ns as f64).sum();
        let quantiles = Quantiles {
            p50_ns: quantile(sorted, 0.5),
            p90_ns: quantile(sorted, 0.9),
            p99_ns: quantile(sorted, 0.99),
            max_ns: longest,
            mean_ns: sum / sorted.len() as f64,
        };
        let limit = limit(sorted, &quantiles, rule);
        let bounds = Bounds {
            slow: limit.as_ref().map_or(i64::MAX, |limit| limit.from_ns),
            typical: (quantile(sorted, 0.25), quantile(sorted, 0.75)),
        };
        let mut by_samples = [bounds; STRATA];
        let mut slow = 0;
        for ((of, stratum), ranks) in by_samples.iter_mut().zip(&strata).zip(&ranks) {
            *of = bounds.in_stratum(&stratum.nets, ranks);
            slow += stratum.nets.len() - stratum.nets.partition_point(|ns| *ns < of.slow);
        }
        let others = sorted.partition_point(|ns| *ns < bounds.slow);
        Some(Classes {
            items: sorted.len() as u64,
            slow: slow as u64,
            bounds,
            by_samples,
            others_up_to_ns: others.checked_sub(1).map(|last| sorted[last]),
            slow_range_ns: sorted.get(others).map(|first| (*first, longest)),
            quantiles,
            limit,
        })
    }
}

/// Mean time between two samples in items, over the run, ns; `None`: the event is not a clock, may not be the only one,
/// or the overhead of a sample is unknown.
fn apart_ns(info: &RunInfo) -> Option<f64> {
    let [event] = &info.events[..] else {
        return None;
    };
    if quantity(event) != Quantity::Time {
        return None;
    }
    let sample = info.own_time.as_ref()?.sample.as_ref()?;
    let end = info.duration_ns?.max(1) as f64;
    let mut rate = 0.0;
    let (mut since, mut reset) = (0.0, event.reset as f64);
    for change in &info.resets {
        let at = (change.time_ns.0 as f64).clamp(since, end);
        rate += (at - since) / reset;
        (since, reset) = (at, change.new as f64);
    }
    rate += (end - since) / reset;
    Some(end / rate - sample.ns).filter(|ns| ns.is_finite() && *ns > 0.0)
}

/// Bounds of the classes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    /// From here on slow.
    slow: i64,
    /// The ends of the middle half.
    typical: (i64, i64),
}

impl Bounds {
    /// The net times of a stratum, sorted, that these ranks of theirs have as bounds.
    fn in_stratum(self, nets: &[i64], ranks: &[i64]) -> Self {
        if nets == ranks {
            return self;
        }
        let first = |from: i64| {
            let place = ranks.partition_point(|rank| *rank < from);
            nets.get(place).copied().unwrap_or(i64::MAX)
        };
        let (low, high) = self.typical;
        let up_to = ranks.partition_point(|rank| *rank <= high).checked_sub(1);
        Self {
            slow: first(self.slow),
            typical: (first(low), up_to.map_or(i64::MIN, |last| nets[last])),
        }
    }
}

/// The classes of a group's items.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Classes {
    pub items: u64,
    pub slow: u64,
    /// Quantiles of the ranks.
    pub quantiles: Quantiles,
    /// Limit of the slow items; `None` if no item is slow.
    pub limit: Option<Limit>,
    /// Longest that is not slow; `None` if all are.
    pub others_up_to_ns: Option<i64>,
    /// Shortest and longest slow item, ns; `None` if no item is slow.
    pub slow_range_ns: Option<(i64, i64)>,
    /// Bounds for items without a sample.
    bounds: Bounds,
    /// Bounds by number of samples, in net times.
    by_samples: [Bounds; STRATA],
}

impl Classes {
    /// The class of an item of the group.
    pub(crate) fn of(&self, rank: Rank) -> Class {
        let stratum = (rank.samples as usize).min(STRATA - 1);
        let Bounds {
            slow,
            typical: (low, high),
        } = self.by_samples[stratum];
        match &self.limit {
            Some(_) if rank.ns >= slow => Class::Slow,
            _ if (low..=high).contains(&rank.ns) => Class::Typical,
            _ => Class::Between,
        }
    }

    /// For each number of samples (the last: or more) the net time from which items are slow, and the range of typical
    /// ones, ns. Where no item is slow the first is [`i64::MAX`].
    pub(crate) fn by_samples(&self) -> impl Iterator<Item = (usize, i64, (i64, i64))> + '_ {
        let bounds = self.by_samples.iter().enumerate();
        bounds.map(|(samples, it)| (samples, it.slow, it.typical))
    }
}

impl Classes {
    /// Shortest and longest of the middle half.
    pub(crate) const fn middle_half(&self) -> (i64, i64) {
        self.bounds.typical
    }

    /// Whether a gap sets the slow items apart, and they are longer than the median by [`MATERIAL`] of it at least.
    pub(crate) fn has_material_gap(&self) -> bool {
        let median = self.quantiles.p50_ns as f64;
        let limit = self.limit.as_ref().filter(|it| it.rule == GAP);
        limit.is_some_and(|it| it.from_ns as f64 - median >= MATERIAL * median)
    }

    /// From where on an item is far beyond typical ones: the outer fence of the middle half, 1.5 times the median at
    /// least.
    pub(crate) fn fence(&self) -> i64 {
        let (low, high) = self.bounds.typical;
        let outer = high.saturating_add((high - low).saturating_mul(3));
        outer.max((self.quantiles.p50_ns as f64 * 1.5) as i64)
    }
}

/// The classes of items by their times on the CPU, if these have a gap of their own that matters: from the gap on, they
/// are longer than the median by [`MATERIAL`] of the median duration at least.
///
/// A tail without a gap is no class of its own: there is always a slowest 1 %, which chance and the durations make.
pub(crate) fn apart_on_cpu(by_duration: &Classes, on_cpu: Ranks) -> Option<Classes> {
    let classes = on_cpu.close(None)?;
    let limit = classes.limit.as_ref().filter(|it| it.rule == GAP)?;
    let beyond = limit.from_ns - classes.quantiles.p50_ns;
    let material = MATERIAL * by_duration.quantiles.p50_ns as f64;
    (beyond as f64 >= material).then_some(classes)
}

/// Whether most items of either of two classes with these numbers of items are in both.
pub(crate) const fn is_same(a: u64, b: u64, both: u64) -> bool {
    2 * both >= a && 2 * both >= b
}

fn limit(sorted: &[i64], quantiles: &Quantiles, rule: Option<Rule>) -> Option<Limit> {
    let by_rule = |rule: Rule| {
        let from_ns = match rule {
            Rule::Quantile(share) => quantile(sorted, share),
            Rule::Multiple(times) => (quantiles.p50_ns as f64 * times).ceil() as i64,
            Rule::Absolute(ns) => i64::try_from(ns).unwrap_or(i64::MAX),
        };
        Limit {
            rule: rule.to_string(),
            from_ns,
            between: 0,
        }
    };
    let found = rule.map(by_rule).or_else(|| {
        let Gap { from, strays } = gap_in(sorted)?;
        Some(Limit {
            rule: GAP.to_owned(),
            from_ns: from as i64,
            between: strays,
        })
    });
    let found = found.unwrap_or_else(|| by_rule(Rule::default()));
    let some = found.from_ns <= quantiles.max_ns;
    let accepted = matches!(rule, Some(Rule::Absolute(_))) || found.from_ns > quantiles.p50_ns;
    (some && accepted).then_some(found)
}

/// The shortest of sorted durations above a gap in their tail; `None` if there is no gap.
pub(crate) fn gap_from(sorted: &[i64]) -> Option<i64> {
    gap_in(sorted).map(|it| it.from as i64)
}

/// The gap in sorted durations.
fn gap_in(sorted: &[i64]) -> Option<Gap> {
    let descending = sorted.chunk_by(|a, b| a == b).rev();
    let steps = descending.map(|same| (same[0].max(0) as u64, same.len() as u64));
    let steps: Vec<(u64, u64)> = steps.collect();
    gap::find(&steps, sorted.len() as u64)
}

#[cfg(test)]
mod unit {
    use super::*;

    fn rank(ns: i64) -> Rank {
        Rank {
            ns,
            ..Rank::default()
        }
    }

    fn classes(all: impl Iterator<Item = i64>, rule: Option<&str>) -> Classes {
        let mut ranks = Ranks::default();
        all.for_each(|ns| ranks.add(rank(ns)));
        ranks.close(rule.map(|it| it.parse().unwrap())).unwrap()
    }

    /// Each rule sets its limit, and typical is the middle half of the items that are not slow.
    #[test]
    fn rules() {
        let from = |rule| classes(1..=1_000, rule).limit.map(|it| it.from_ns);
        assert_eq!(
            ["p99", "p50.1", "3x", "700ns"].map(|it| from(Some(it))),
            [Some(990), Some(501), None, Some(700)]
        );
        assert_eq!(from(None), Some(990));
        let of = classes(1..=1_000, Some("700ns"));
        assert_eq!((of.slow, of.others_up_to_ns), (301, Some(699)));
        let found = [249, 250, 699, 700, 751].map(|ns| of.of(rank(ns)));
        let (typical, between) = (Class::Typical, Class::Between);
        assert_eq!(found, [between, typical, typical, Class::Slow, Class::Slow]);
    }

    /// Among equal items none is slow, unless a duration is asked for; without items there are no classes.
    #[test]
    fn none_slow() {
        let alike = |rule| classes(std::iter::repeat_n(70, 500), rule);
        assert_eq!(alike(None).limit, None);
        assert_eq!(
            (alike(None).slow, alike(None).of(rank(70))),
            (0, Class::Typical)
        );
        assert_eq!(alike(Some("60ns")).slow, 500);
        assert_eq!(Ranks::default().close(None), None);
    }

    /// Visits without an end are not counted, whether it is unknown or another visit's begin.
    #[test]
    fn standing() {
        let took = |ns| Took {
            duration_ns: ns,
            ..Took::default()
        };
        let counted = |ns| Standing::Counted(rank(ns));
        let of = |ns, flags| Standing::of(took(ns), flags, LossVisits::LeaveOut);
        assert_eq!(of(Some(5), 0), counted(5));
        assert_eq!(of(None, 0), Standing::Open);
        assert_eq!(of(Some(5), visit_flag::END_MISSING), Standing::Open);
        assert_eq!(of(Some(5), visit_flag::LOSS), Standing::Loss);
        let all = Standing::of(took(Some(5)), visit_flag::LOSS, LossVisits::Include);
        assert_eq!(all, counted(5));
        let net = Took {
            duration_ns: Some(5),
            net_ns: Some(3),
            samples: 2,
        };
        let ranked = Rank {
            ns: 3,
            own_ns: 2,
            samples: 2,
        };
        let net = Standing::of(net, 0, LossVisits::LeaveOut);
        assert_eq!(net, Standing::Counted(ranked));
    }

    /// A probe most of whose visits have no end is reported, with the remedy where ends are matched by thread.
    #[test]
    fn ends_elsewhere() {
        let reason = |spec: &str, open| never_ended(Some(&spec.to_owned().into()), 2_560, open);
        let ended = |by_thread| NeverEnded {
            open: 2_559,
            visits: 2_560,
            by_thread,
        };
        assert_eq!(reason("./app:start..done", 2_559), Some(ended(true)));
        assert_eq!(reason("./app:start..done", 12), None);
        let by_id = reason("./app:start(id=arg1)..done(id=arg1)", 2_559);
        assert_eq!(by_id, Some(ended(false)));
    }
}
