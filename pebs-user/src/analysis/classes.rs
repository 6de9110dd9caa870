//! Which items are slow and which typical: the only place that decides.
//!
//! What is asked of a group of items (those of a probe, or like ones among them) has one answer, whoever asks:
//!
//! * An item is *counted* ([`Standing`]) if its end was seen, and it overlaps no loss unless that is asked for.
//! * Items are ranked by [`Took::rank_ns`], their net time where that is known.
//! * *Slow* are the items beyond a limit: a rule that was asked for, else a gap in the tail ([`gap`]), else the
//!   99th percentile. Where that is no longer than the median, none is.
//! * *Typical* is the middle half: the items from the 25th to the 75th percentile that are not slow. Their mean is
//!   near the median, and a second population of items does not move it.
//! * Quantiles are exact: the duration that a share of the items does not exceed, one of theirs.
//!
//! Time of a function per item of a class is [`per_item`](super::pool::per_item). Where only slow items were kept
//! (`--keep`), those that were not kept take the place of the typical ones.

mod gap;
#[cfg(test)]
mod tests;

use self::gap::Gap;
use super::baseline::Rule;
use super::report::LossVisits;
use super::report::model::Quantiles;
use crate::store::schema::visit_flag;
use crate::target::spec::{End, Spec};

/// Name of the rule by which a gap in the tail sets slow items apart.
pub(crate) const GAP: &str = "gap";

/// Place of an item in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// In the middle half, and not slow.
    Typical,
    /// Slow.
    Slow,
    /// Neither.
    Between,
}

/// How long a visit took, as its row has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Took {
    /// From begin to end.
    pub duration_ns: Option<i64>,
    /// Without what pebs-trace took of it.
    pub net_ns: Option<i64>,
}

impl Took {
    /// What ranks it: its time without what pebs-trace took of it, where that is known. `None`: its end is unknown.
    pub(crate) fn rank_ns(self) -> Option<i64> {
        self.duration_ns
            .map(|duration| self.net_ns.unwrap_or(duration).max(0))
    }
}

/// Whether statistics include a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Yes, with what ranks it.
    Counted(i64),
    /// Its end was never seen: it is unknown, or is where another began.
    Open,
    /// It overlaps a loss.
    Loss,
}

impl Standing {
    /// Standing of a visit with these columns.
    pub(crate) fn of(took: Took, flags: u32, losses: LossVisits) -> Self {
        match took.rank_ns() {
            _ if flags & visit_flag::END_MISSING != 0 => Self::Open,
            None => Self::Open,
            Some(_) if flags & visit_flag::LOSS != 0 && losses == LossVisits::LeaveOut => {
                Self::Loss
            }
            Some(rank_ns) => Self::Counted(rank_ns),
        }
    }
}

/// What to say of a probe most of whose visits never ended; `None` where most did.
///
/// The others are no sample of all: they are those that happened to end where they began.
pub(crate) fn never_ended(spec: Option<&str>, visits: u64, open: u64) -> Option<String> {
    if open == 0 || open * 2 <= visits {
        return None;
    }
    let spec = spec.and_then(|it| Spec::parse(it).ok());
    let by_thread = spec.is_some_and(|it| {
        matches!(it.end, End::At(_)) && it.begin.args.iter().all(|arg| arg.name != "id")
    });
    let why = if by_thread {
        "the end is on another thread, give it id="
    } else {
        "their end mark was never seen"
    };
    let count = crate::analysis::report::human::count;
    Some(format!(
        "{} of {} items never ended: {why}",
        count(open),
        count(visits)
    ))
}

/// Where slow items begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// How it was found: [`GAP`], or a rule.
    pub rule: String,
    /// Items at or above are slow.
    pub from_ns: i64,
    /// Items in the gap.
    pub between: u64,
}

/// What ranks the items of a group, being gathered.
///
/// Memory: 8 bytes an item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranks(Vec<i64>);

impl Ranks {
    /// Adds an item.
    pub(crate) fn add(&mut self, rank_ns: i64) {
        self.0.push(rank_ns);
    }

    /// The classes of the group; `None` if it has no items.
    ///
    /// Cost: O(n log n).
    pub(crate) fn close(mut self, rule: Option<Rule>) -> Option<Classes> {
        self.0.sort_unstable();
        let sorted = &self.0[..];
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
        let from = limit.as_ref().map_or(i64::MAX, |limit| limit.from_ns);
        let others = sorted.partition_point(|ns| *ns < from);
        Some(Classes {
            items: sorted.len() as u64,
            slow: (sorted.len() - others) as u64,
            typical: (quantile(sorted, 0.25), quantile(sorted, 0.75)),
            others_up_to_ns: others.checked_sub(1).map(|last| sorted[last]),
            quantiles,
            limit,
        })
    }
}

/// The classes of a group's items.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Classes {
    /// Items.
    pub items: u64,
    /// Slow ones.
    pub slow: u64,
    /// Of what ranks them.
    pub quantiles: Quantiles,
    /// Where slow ones begin; `None` if none is.
    pub limit: Option<Limit>,
    /// Longest that is not slow; `None` if all are.
    pub others_up_to_ns: Option<i64>,
    /// The ends of the middle half.
    typical: (i64, i64),
}

impl Classes {
    /// The class of an item of the group.
    pub(crate) fn of(&self, rank_ns: i64) -> Class {
        let (low, high) = self.typical;
        match &self.limit {
            Some(limit) if rank_ns >= limit.from_ns => Class::Slow,
            _ if (low..=high).contains(&rank_ns) => Class::Typical,
            _ => Class::Between,
        }
    }
}

impl Classes {
    /// Shortest and longest of the middle half.
    pub(crate) const fn middle_half(&self) -> (i64, i64) {
        self.typical
    }

    /// From where on an item is far beyond typical ones: the outer fence of the middle half, 1.5 times the median at
    /// least.
    pub(crate) fn fence(&self) -> i64 {
        let (low, high) = self.typical;
        let outer = high.saturating_add((high - low).saturating_mul(3));
        outer.max((self.quantiles.p50_ns as f64 * 1.5) as i64)
    }
}

/// The duration that this share of items, at least one and sorted, does not exceed: one of theirs.
pub(crate) fn quantile(sorted: &[i64], share: f64) -> i64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
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
    let told = matches!(rule, Some(Rule::Absolute(_))) || found.from_ns > quantiles.p50_ns;
    (some && told).then_some(found)
}

/// The gap in sorted durations.
fn gap_in(sorted: &[i64]) -> Option<Gap> {
    let descending = sorted.chunk_by(|a, b| a == b).rev();
    let steps = descending.map(|same| (same[0].max(0) as u64, same.len() as u64));
    gap::find(steps, sorted.len() as u64)
}

#[cfg(test)]
mod unit {
    use super::*;

    fn classes(all: impl Iterator<Item = i64>, rule: Option<&str>) -> Classes {
        let mut ranks = Ranks::default();
        all.for_each(|ns| ranks.add(ns));
        ranks.close(rule.map(|it| it.parse().unwrap())).unwrap()
    }

    /// The rules draw their limits as they say, and typical is the middle half of what is not slow.
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
        let found = [249, 250, 699, 700, 751].map(|ns| of.of(ns));
        let (typical, between) = (Class::Typical, Class::Between);
        assert_eq!(found, [between, typical, typical, Class::Slow, Class::Slow]);
    }

    /// Where all are alike none is slow, unless a duration is asked for; without items there are no classes.
    #[test]
    fn none_slow() {
        let alike = |rule| classes(std::iter::repeat_n(70, 500), rule);
        assert_eq!(alike(None).limit, None);
        assert_eq!((alike(None).slow, alike(None).of(70)), (0, Class::Typical));
        assert_eq!(alike(Some("60ns")).slow, 500);
        assert_eq!(Ranks::default().close(None), None);
    }

    /// Visits without an end are not counted, whether it is unknown or another visit's begin.
    #[test]
    fn standing() {
        let took = |ns| Took {
            duration_ns: ns,
            net_ns: None,
        };
        let of = |ns, flags| Standing::of(took(ns), flags, LossVisits::LeaveOut);
        assert_eq!(of(Some(5), 0), Standing::Counted(5));
        assert_eq!(of(None, 0), Standing::Open);
        assert_eq!(of(Some(5), visit_flag::END_MISSING), Standing::Open);
        assert_eq!(of(Some(5), visit_flag::LOSS), Standing::Loss);
        let all = Standing::of(took(Some(5)), visit_flag::LOSS, LossVisits::Include);
        assert_eq!(all, Standing::Counted(5));
        let net = Took {
            duration_ns: Some(5),
            net_ns: Some(3),
        };
        let net = Standing::of(net, 0, LossVisits::LeaveOut);
        assert_eq!(net, Standing::Counted(3));
    }

    /// Most visits without an end are told, with what to do where the end is found by thread.
    #[test]
    fn ends_elsewhere() {
        let told = |spec, open| never_ended(Some(spec), 2_560, open);
        assert_eq!(
            told("./app:start..done", 2_559).as_deref(),
            Some("2,559 of 2,560 items never ended: the end is on another thread, give it id=")
        );
        assert_eq!(told("./app:start..done", 12), None);
        let by_id = told("./app:start(id=arg1)..done(id=arg1)", 2_559);
        assert!(by_id.is_some_and(|it| it.ends_with("never seen")));
    }
}
