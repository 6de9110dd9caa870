//! Baselines of visits with like arguments: a visit may be usual among all, and slow for its kind.
//!
//! A *kind* is the visits with the same value of one argument; values of large numbers go together from one quarter of a
//! power of two to the next. Which argument makes kinds is learnt: the one whose values explain the largest part of the
//! variance of the durations' logarithms so far, if that is half of it at least. An argument with more than
//! [`MOST_KINDS`] values makes none.
//!
//! Cost: O(arguments of the visit). Memory: [`MOST_KINDS`] sums for each argument, and as many baselines for the one that
//! makes kinds.

use std::hash::{Hash as _, Hasher as _};

use rustc_hash::{FxHashMap, FxHasher};

use crate::estimate::baseline::{GroupBaseline, Rule, Verdict};
use crate::store::schema::ArgValue;

/// Kinds of an argument.
const MOST_KINDS: usize = 64;

/// Visits after which it is decided which argument makes kinds, each time.
const DECIDE: u64 = 512;

/// Least part of the variance that the argument explains.
const PART: f64 = 0.5;

/// Values below this are kinds of their own; a power of two.
const SINGLE: u64 = 16;

/// Number, sum and sum of squares of values.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.n += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    /// Sum of the squares of the distances to the mean.
    fn scatter(&self) -> f64 {
        self.squares - self.sum * self.sum / self.n
    }
}

/// An argument, by its place in the SPEC.
#[derive(Clone, Debug, Default)]
struct Argument {
    all: Sums,
    /// By kind; empty if there are too many.
    kinds: FxHashMap<u64, Sums>,
    has_too_many: bool,
}

impl Argument {
    fn add(&mut self, kind: u64, value: f64) {
        self.all.add(value);
        self.kinds.entry(kind).or_default().add(value);
        if self.kinds.len() > MOST_KINDS {
            (self.has_too_many, self.kinds) = (true, FxHashMap::default());
        }
    }

    /// Part of the variance between kinds, beyond what chance puts there.
    fn part(&self) -> f64 {
        let kinds = self.kinds.len() as f64;
        let within: f64 = self.kinds.values().map(Sums::scatter).sum();
        let (all, by_chance) = (self.all.scatter(), within / (self.all.n - kinds));
        let part = (all - within - (kinds - 1.0) * by_chance) / all;
        let is_known = !self.has_too_many && part.is_finite();
        if is_known { part } else { 0.0 }
    }
}

/// The kinds of the visits of a probe.
#[derive(Debug)]
pub(super) struct Kinds {
    rule: Rule,
    visits: u64,
    arguments: Vec<Argument>,
    /// The argument that makes kinds.
    by: Option<usize>,
    baselines: FxHashMap<u64, GroupBaseline>,
}

impl Kinds {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            visits: 0,
            arguments: Vec::new(),
            by: None,
            baselines: FxHashMap::default(),
        }
    }

    /// Takes a visit, and judges it among those of its kind; `None` if it has none.
    pub(super) fn judge(&mut self, args: &[Option<ArgValue>], duration: u64) -> Option<Verdict> {
        // The same limit holds for all kinds.
        if args.is_empty() || matches!(self.rule, Rule::Absolute(_)) {
            return None;
        }
        self.arguments.resize_with(args.len(), Argument::default);
        let value = (duration.max(1) as f64).ln();
        for (argument, arg) in self.arguments.iter_mut().zip(args) {
            if let (Some(arg), false) = (arg, argument.has_too_many) {
                argument.add(kind(arg), value);
            }
        }
        self.visits += 1;
        // First when visits are no longer kept as it is not known which are slow.
        if self.visits == self.rule.warm_up() || self.visits.is_multiple_of(DECIDE) {
            self.decide();
        }
        let kind = kind(args.get(self.by?)?.as_ref()?);
        let baseline = self.baselines.entry(kind);
        let baseline = baseline.or_insert_with(|| GroupBaseline::new(self.rule));
        let verdict = baseline.judge(duration);
        baseline.add(duration, 0);
        Some(verdict)
    }

    fn decide(&mut self) {
        let parts = self.arguments.iter().map(Argument::part).enumerate();
        let best = parts.max_by(|a, b| a.1.total_cmp(&b.1));
        let by = best.filter(|it| it.1 >= PART).map(|it| it.0);
        if by != self.by {
            (self.by, self.baselines) = (by, FxHashMap::default());
        }
    }
}

/// The kind of a value.
fn kind(arg: &ArgValue) -> u64 {
    match arg {
        ArgValue::U64(number) => magnitude(*number),
        // Negative ones apart from others, which have small numbers here.
        ArgValue::I64(number) => magnitude(number.unsigned_abs()) | u64::from(*number < 0) << 32,
        ArgValue::Str(text) => {
            let mut hasher = FxHasher::default();
            text.hash(&mut hasher);
            hasher.finish()
        }
    }
}

/// Number of the quarter of a power of two in which a number is, or a small number itself.
fn magnitude(number: u64) -> u64 {
    match number.checked_ilog2() {
        Some(power) if number >= SINGLE => u64::from(power) * 4 + ((number >> (power - 2)) & 3),
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Counts verdicts of visits with these arguments and durations.
    fn verdicts(
        kinds: &mut Kinds,
        visits: impl Iterator<Item = (Vec<Option<ArgValue>>, u64)>,
    ) -> (u64, u64) {
        let (mut judged, mut slow) = (0, 0);
        for (args, duration) in visits {
            let verdict = kinds.judge(&args, duration);
            judged += u64::from(verdict.is_some());
            slow += u64::from(verdict == Some(Verdict::Slow));
        }
        (judged, slow)
    }

    fn number(n: u64) -> Option<ArgValue> {
        Some(ArgValue::U64(n))
    }

    /// Numbers that differ by a quarter of a power of two or more are of different kinds, in order.
    #[test]
    fn magnitudes() {
        let all: Vec<u64> = (0..4_096).map(magnitude).collect();
        assert!(all.is_sorted());
        assert_eq!((all[15], all[16], all[19], all[20]), (15, 16, 16, 17));
        assert_eq!(magnitude(u64::MAX), 63 * 4 + 3);
        let negative = kind(&ArgValue::I64(-3));
        assert_ne!(negative, kind(&ArgValue::I64(3)));
        assert_ne!(negative, kind(&ArgValue::I64(i64::MIN)));
    }

    /// A cold visit with n = 1 that is faster than warm ones with n = 50 is slow for its kind; an argument that says
    /// nothing of durations, and one with a value for each visit, make no kinds.
    #[test]
    fn slow_for_its_kind() {
        let mut random = SplitMix64::new(5);
        let mut kinds = Kinds::new(Rule::Multiple(3.0));
        let mut visit = |n: u64| {
            let took = n * 1_000 + u64::from(random.below(50 * n as u32));
            let key = ArgValue::Str(random.next_u64().to_string().into());
            let args = vec![Some(key), number(n), number(u64::from(random.below(3)))];
            (args, took)
        };
        let usual: Vec<_> = (0..6_000)
            .map(|i| visit([1, 2, 5, 20, 50][i % 5]))
            .collect();
        let (judged, slow) = verdicts(&mut kinds, usual.into_iter());
        assert_eq!((judged, slow), (6_000 - kinds.rule.warm_up() + 1, 0));
        assert_eq!(kinds.by, Some(1));
        let cold = |n| vec![number(7), number(n), number(0)];
        assert_eq!(kinds.judge(&cold(1), 36_000), Some(Verdict::Slow));
        assert_eq!(kinds.judge(&cold(50), 36_000), Some(Verdict::Usual));
        assert_eq!(kinds.judge(&cold(9), 36_000), Some(Verdict::WarmingUp));
        let without = vec![number(7), None, number(0)];
        assert_eq!(kinds.judge(&without, 36_000), None);
    }

    /// If no argument explains durations, or the rule is a limit in ns, there are no kinds.
    #[test]
    fn no_kinds() {
        let mut random = SplitMix64::new(6);
        let visits: Vec<_> = (0..4_000)
            .map(|i| {
                let text = ArgValue::Str(format!("k{}", i % 5).into());
                (vec![Some(text)], 5_000 + u64::from(random.below(20_000)))
            })
            .collect();
        let mut kinds = Kinds::new(Rule::default());
        assert_eq!(verdicts(&mut kinds, visits.into_iter()), (0, 0));
        let mut kinds = Kinds::new(Rule::Absolute(500));
        let visits = (0..4_000).map(|i| (vec![number(i % 4)], 1 + i % 4 * 1_000));
        assert_eq!(verdicts(&mut kinds, visits), (0, 0));
        let mut kinds = Kinds::new(Rule::default());
        let none = (0..2_000).map(|i| (Vec::new(), i));
        assert_eq!(verdicts(&mut kinds, none), (0, 0));
    }
}
