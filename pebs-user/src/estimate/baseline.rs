//! Running baselines of visits, and the test for visits that diverge from them: those are worth
//! their raw samples.
//!
//! A visit is judged when it ends, against earlier visits of its group. It is slow if its duration
//! is beyond the group's limit, or the time of any function is beyond that function's limit in the
//! group. The limits follow from a [`Rule`]:
//!
//! * `500us`: durations of at least this. Needs no baseline, and functions add nothing: none takes
//!   longer than its visit.
//! * `3x`: three times the median. A function counts if its time is beyond by more than twice its
//!   own standard error, and if its excess over its median is at least [`MATERIAL`] = 1/4 of the
//!   median duration: a function that usually takes 1 % of the visit may take 3 %.
//! * `p99`: the longest 1 % of durations. A visit with k functions would have k more chances to be
//!   among the longest 1 % of any, so functions share the 1 %: each is compared with its 1 - 0.01/k
//!   quantile, k being the mean number of functions of a visit. About 2 % of equal visits are
//!   beyond a limit, half of them because of a function.
//!
//! *In doubt slow.* Of n visits the longest n (1 - q) + 3 sqrt(n q (1 - q)) durations are beyond
//! the quantile q: three standard deviations of the number that chance puts there, so that `p99`
//! doesn't cut 1 % of slow visits in half. *Worked number*: of 10,000 visits 100 + 30.
//!
//! *Warm-up.* Until a group has enough visits for its rule ([`Rule::warm_up`]), every visit is
//! slow. A function with fewer values than that is not judged: a rarely called one makes a visit
//! slow only by the visit's duration.
//!
//! *Running.* A distribution covers the last 2^16 to 2^17 values: they go to one [`Sketch`], and
//! when it has 2^16 it replaces the previous one. Slow visits are included, as leaving them out
//! would lower the quantile again and again. A limit is recomputed after 1/64 more values, but at
//! least 16 and at most 1,024.
//!
//! *Assumption*: visits of a group are alike except for the cause of slow ones, and times differ by
//! more than the sketch's buckets resolve (3 %).
//! Source: Akiyama 2018, section IV.C.3: dump raw samples only when the estimation diverges.

use std::fmt;
use std::str::FromStr;

use crate::estimate::sketch::Sketch;

/// Number of values in a generation.
const GENERATION: u64 = 1 << 16;

/// Fewest and most new values after which a limit is recomputed.
const REFRESH: (u64, u64) = (16, 1024);

/// Fewest visits in a baseline.
const FEWEST: u64 = 100;

/// Allowance for chance in the number of visits beyond a quantile, in standard deviations.
const DOUBT: f64 = 3.0;

/// Standard errors by which a function's time must exceed a multiple.
const ERRORS: f64 = 2.0;

/// Smallest excess of a function over its median that counts under [`Rule::Multiple`], as a share
/// of the median duration.
pub const MATERIAL: f64 = 0.25;

/// Definition of slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Beyond this quantile, 0.5..1.
    Quantile(f64),
    /// At least this many times the median; above 1.
    Multiple(f64),
    /// At least this long, ns.
    Absolute(u64),
}

impl Default for Rule {
    /// p99.
    fn default() -> Self {
        Self::Quantile(0.99)
    }
}

impl Rule {
    /// Number of visits of a group before the first is judged: 100 (p99, 3x), more where a quantile
    /// needs more (1,000 for p99.9), 0 for a duration.
    #[must_use]
    pub fn warm_up(self) -> u64 {
        match self {
            Self::Quantile(share) => resolution(1.0 - share),
            Self::Multiple(_) => FEWEST,
            Self::Absolute(_) => 0,
        }
    }

    /// The limit for values like these, of which `allowed` says how many of a number are beyond it; their median where the
    /// limit is a multiple of it.
    fn level(self, all: &Sketch, allowed: impl FnOnce(f64) -> f64) -> u64 {
        match self {
            Self::Quantile(_) => all.tail(allowed(all.len() as f64)),
            Self::Multiple(_) => all.quantile(0.5).unwrap_or(0),
            Self::Absolute(limit) => limit,
        }
    }

    /// Share of equal visits that are beyond a limit by chance, shared by the functions.
    fn chance(self) -> f64 {
        match self {
            Self::Quantile(share) => 1.0 - share,
            Self::Multiple(_) | Self::Absolute(_) => 0.0,
        }
    }
}

/// Number of values of which one is expected beyond a quantile of this chance; at least [`FEWEST`].
fn resolution(chance: f64) -> u64 {
    ((1.0 / chance).round() as u64).max(FEWEST)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // 0.99 is not exactly 99/100.
            Self::Quantile(share) => write!(f, "p{}", (share * 1e6).round() / 1e4),
            Self::Multiple(times) => write!(f, "{times}x"),
            Self::Absolute(ns) => {
                let time = std::time::Duration::from_nanos(*ns);
                write!(
                    f,
                    "{}",
                    humantime::format_duration(time)
                        .to_string()
                        .replace(' ', "")
                )
            }
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WANTED: &str = "p50 to p99.99 (a quantile), a multiple of the typical time above 1 (3x), or a time (500us, 2ms)";
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        if let Some(percent) = text.strip_prefix('p') {
            return number(percent)
                .filter(|percent| (50.0..=99.99).contains(percent))
                .map(|percent| Self::Quantile(percent / 100.0))
                .ok_or_else(|| WANTED.to_owned());
        }
        if let Some(times) = text.strip_suffix('x') {
            return number(times)
                .filter(|times| *times > 1.0)
                .map(Self::Multiple)
                .ok_or_else(|| WANTED.to_owned());
        }
        let time = humantime::parse_duration(text).ok();
        time.and_then(|time| u64::try_from(time.as_nanos()).ok())
            .filter(|ns| *ns > 0)
            .map(Self::Absolute)
            .ok_or_else(|| WANTED.to_owned())
    }
}

/// Distribution of recent values, and the level last computed from it.
///
/// Memory: two sketches.
#[derive(Clone, Debug, Default)]
pub struct Running {
    current: Sketch,
    previous: Sketch,
    /// Length of the current sketch at which the level is recomputed.
    refresh_at: u64,
    /// The limit, or the median where that follows from it.
    level: u64,
}

impl Running {
    fn len(&self) -> u64 {
        self.current.len() + self.previous.len()
    }

    /// Adds a value. When the level is due, `level` computes it from all values, and true is returned.
    #[inline]
    fn add(&mut self, value: u64, level: impl FnOnce(&Sketch) -> u64) -> bool {
        self.current.add(value);
        let is_due = self.current.len() >= self.refresh_at.min(GENERATION);
        if is_due {
            self.level = level(&self.refresh());
        }
        is_due
    }

    /// Begins a generation if the current one is complete, and returns all values.
    #[cold]
    fn refresh(&mut self) -> Sketch {
        if self.current.len() >= GENERATION {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.clear();
        }
        self.refresh_at = self.current.len() + (self.len() / 64).clamp(REFRESH.0, REFRESH.1);
        // Rare, and at most one sketch of a generation to merge: the sum is not kept.
        let mut all = self.current.clone();
        all.merge(&self.previous);
        all
    }
}

/// Result of judging a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Usual,
    /// There were too few visits before it.
    WarmingUp,
    /// Its duration is beyond the limit.
    Slow,
    /// The time of a function is beyond the function's limit.
    SlowFunction,
}

/// Baseline of a group of visits.
#[derive(Clone, Debug)]
pub struct GroupBaseline {
    rule: Rule,
    durations: Running,
    visits: u64,
    /// Total number of functions of all visits.
    functions: u64,
    /// Chance of a function of an equal visit to be beyond its limit, and the fewest values from which that is known: as of
    /// the last time that the limit of durations was computed.
    of_function: (f64, u64),
}

impl GroupBaseline {
    /// Returns an empty baseline.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            durations: Running::default(),
            visits: 0,
            functions: 0,
            of_function: (rule.chance(), FEWEST),
        }
    }

    /// Judges a duration in ns. The visit's functions may still make it slow.
    #[must_use]
    pub fn judge(&self, duration: u64) -> Verdict {
        let slow = match self.rule {
            Rule::Absolute(limit) => duration >= limit,
            _ if self.visits < self.rule.warm_up() => return Verdict::WarmingUp,
            Rule::Quantile(_) => duration >= self.durations.level,
            Rule::Multiple(times) => is_beyond(duration as f64, times, self.durations.level),
        };
        if slow { Verdict::Slow } else { Verdict::Usual }
    }

    /// Whether the rule judges functions.
    #[must_use]
    pub const fn judges_functions(&self) -> bool {
        !matches!(self.rule, Rule::Absolute(_))
    }

    /// Whether the time of a function in a visit of the group, ns, is beyond the function's limit.
    #[inline]
    #[must_use]
    pub fn diverges(&self, function: &Running, self_ns: f64, stderr_ns: f64) -> bool {
        match self.rule {
            Rule::Absolute(_) => false,
            Rule::Quantile(_) => {
                self_ns as u64 >= function.level && function.len() >= self.of_function.1
            }
            Rule::Multiple(times) => {
                let beyond = self_ns - function.level as f64;
                function.len() >= FEWEST
                    && is_beyond(self_ns - ERRORS * stderr_ns, times, function.level)
                    && beyond >= MATERIAL * self.durations.level as f64
            }
        }
    }

    /// Adds a complete visit: its duration, ns, and its number of functions.
    pub fn add(&mut self, duration: u64, functions: usize) {
        self.visits += 1;
        self.functions += functions as u64;
        let chance = self.rule.chance();
        let allowed = |n: f64| n * chance + DOUBT * (n * chance * (1.0 - chance)).sqrt();
        let rule = self.rule;
        let is_new = self.durations.add(duration, |all| rule.level(all, allowed));
        if is_new {
            let mean = self.functions as f64 / self.visits as f64;
            let chance = chance / mean.max(1.0);
            self.of_function = (chance, resolution(chance));
        }
    }

    /// Adds the time of a function of that visit, ns, to the function's distribution.
    #[inline]
    pub fn add_function(&self, function: &mut Running, self_ns: f64) {
        let (rule, (chance, _)) = (self.rule, self.of_function);
        function.add(self_ns as u64, |all| rule.level(all, |n| n * chance));
    }
}

fn is_beyond(value: f64, times: f64, median: u64) -> bool {
    value >= times * median as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    /// Judges `visits` durations, every `one_in`th of which is twenty times as long. Returns how
    /// many were kept while warming up, were judged slow, and were missed.
    fn judged(rule: Rule, visits: u64, one_in: u64) -> (u64, u64, u64) {
        let mut baseline = GroupBaseline::new(rule);
        let mut random = SplitMix64::new(1);
        let (mut warming, mut slow, mut missed) = (0, 0, 0);
        for n in 0..visits {
            let usual = 80_000 + u64::from(random.below(40_000));
            let is_slow = n % one_in == one_in - 1;
            let duration = if is_slow { 20 * usual } else { usual };
            match baseline.judge(duration) {
                Verdict::WarmingUp => warming += 1,
                Verdict::Slow => slow += 1,
                _ => missed += u64::from(is_slow),
            }
            baseline.add(duration, 3);
        }
        (warming, slow, missed)
    }

    /// Accepted rules, and how they are displayed.
    #[test]
    fn rules() {
        for text in [
            "p50", "p99", "p99.9", "p99.99", "3x", "1.5x", "500us", "2ms", "1s",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("1500us").to_string(), "1ms500us");
        for text in [
            "", "p", "p49", "cpu:p99", "p100", "p99.999", "1x", "-3x", "x", "infx", "500", "0us",
            "fast",
        ] {
            assert!(
                text.parse::<Rule>().unwrap_err().contains("500us"),
                "{text}"
            );
        }
        assert_eq!(rule("p99"), Rule::default());
        assert_eq!(rule("p99.99").warm_up(), 10_000);
        assert_eq!([rule("p60"), rule("3x")].map(Rule::warm_up), [100, 100]);
        assert_eq!(rule("5ms").warm_up(), 0);
    }

    /// A multiple of the median finds every long visit, and no other.
    #[test]
    fn multiple() {
        assert_eq!(judged(rule("3x"), 50_000, 100), (100, 499, 0));
    }

    /// A duration needs no baseline.
    #[test]
    fn time() {
        assert_eq!(judged(rule("1ms"), 50_000, 100), (0, 500, 0));
    }

    /// 1 % of long visits are all beyond p99, with few others; so are fewer long ones.
    #[test]
    fn quantile() {
        let (warming, slow, missed) = judged(rule("p99"), 50_000, 100);
        assert_eq!((warming, missed), (100, 0));
        assert!((499..1000).contains(&slow), "{slow}");
        let (_, slow, missed) = judged(rule("p99"), 50_000, 1000);
        assert_eq!(missed, 0);
        assert!((50..1000).contains(&slow), "{slow}");
    }

    /// Of equal durations none is slow.
    #[test]
    fn equal_durations() {
        for text in ["p99", "3x"] {
            let mut baseline = GroupBaseline::new(rule(text));
            for _ in 0..200 {
                baseline.add(1000, 1);
            }
            assert_eq!(baseline.judge(1000), Verdict::Usual, "{text}");
            assert_eq!(baseline.judge(4000), Verdict::Slow, "{text}");
        }
    }

    /// If everything becomes ten times slower, that is slow at first and usual after two generations.
    #[test]
    fn baseline_moves() {
        let mut baseline = GroupBaseline::new(rule("3x"));
        (0..GENERATION).for_each(|_| baseline.add(1000, 1));
        assert_eq!(baseline.judge(10_000), Verdict::Slow);
        (0..2 * GENERATION).for_each(|_| baseline.add(10_000, 1));
        assert_eq!(baseline.judge(10_000), Verdict::Usual);
        assert!(baseline.durations.len() <= 2 * GENERATION);
    }

    /// A function's time counts beyond its own limit, if it is material and significant.
    #[test]
    fn functions() {
        for text in ["p99", "3x"] {
            let (mut group, mut f, mut g) = (
                GroupBaseline::new(rule(text)),
                Running::default(),
                Running::default(),
            );
            let mut random = SplitMix64::new(2);
            for n in 0..2000 {
                assert!(
                    n >= 100 || !group.diverges(&f, 90_000.0, 10.0),
                    "{text}: {n}"
                );
                group.add(100_000, 2);
                group.add_function(&mut f, f64::from(9_000 + random.below(2000)));
                group.add_function(&mut g, f64::from(400 + random.below(200)));
            }
            assert!(group.diverges(&f, 60_000.0, 5_000.0), "{text}");
            assert!(!group.diverges(&f, 10_500.0, 1_000.0), "{text}");
            // Ten times its usual time, but only 5 % of the visit; and 4 ± 2 times.
            let small = group.diverges(&g, 5_000.0, 10.0);
            let unsure = group.diverges(&f, 40_000.0, 20_000.0);
            let quantile = text == "p99";
            assert_eq!((small, unsure), (quantile, quantile), "{text}");
            assert!(
                !group.diverges(&Running::default(), 60_000.0, 10.0),
                "{text}"
            );
        }
    }

    /// Of equal visits with five functions each, about 1 % diverge for any function.
    #[test]
    fn functions_share_the_chance() {
        let mut group = GroupBaseline::new(Rule::default());
        let mut functions = vec![Running::default(); 5];
        let mut random = SplitMix64::new(3);
        let mut diverged = 0;
        let visits = 60_000;
        for _ in 0..visits {
            let times: Vec<f64> = functions
                .iter()
                .map(|_| {
                    1000.0
                        - 4000.0 * (f64::from(random.below(1 << 30) + 1) / f64::from(1 << 30)).ln()
                })
                .collect();
            let mut pairs = functions.iter().zip(&times);
            diverged += u64::from(pairs.any(|(f, ns)| group.diverges(f, *ns, 1.0)));
            group.add(100_000, 5);
            for (function, ns) in functions.iter_mut().zip(&times) {
                group.add_function(function, *ns);
            }
        }
        let share = diverged as f64 / f64::from(visits);
        assert!((0.004..0.012).contains(&share), "{share}");
    }
}
