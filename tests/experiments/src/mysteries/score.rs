//! Summary of all verdicts.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::judge::{Outcome, Verdict};
use super::mystery::{Cause, Language, Shape};

/// One judged seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub seed: u64,
    pub cause: Cause,
    pub shape: Shape,
    pub language: Language,
    pub verdict: Verdict,
}

/// Counts of some seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Seeds with a cause.
    pub cases: u64,
    pub first: u64,
    pub among_three: u64,
    /// Number of seeds without a cause.
    pub nulls: u64,
    pub named: u64,
    pub intervals: u64,
    pub covered: u64,
    pub unclear: u64,
    /// Seeds with a cause that are read right in the first line, unclear ones included.
    pub read_first: u64,
}

impl Counts {
    /// Counts verdicts.
    pub fn of<'a>(all: impl Iterator<Item = &'a Judged>) -> Self {
        let mut counts = Self::default();
        for judged in all {
            counts.add(judged);
        }
        counts
    }

    fn add(&mut self, judged: &Judged) {
        if let Some(covered) = judged.verdict.covered {
            self.intervals += 1;
            self.covered += u64::from(covered);
        }
        self.read_first += u64::from(judged.verdict.read_first && judged.cause != Cause::Nothing);
        match &judged.verdict.outcome {
            Outcome::Unclear(_) => self.unclear += 1,
            Outcome::Quiet => self.nulls += 1,
            Outcome::Named => {
                self.nulls += 1;
                self.named += 1;
            }
            // A null case without an explanation names nothing, but is no success either.
            Outcome::Failed(_) if judged.cause == Cause::Nothing => {
                self.nulls += 1;
                self.named += 1;
            }
            Outcome::Missed | Outcome::Failed(_) => self.cases += 1,
            Outcome::Found(at) => {
                self.cases += 1;
                self.first += u64::from(*at == 1);
                self.among_three += u64::from(*at <= 3);
            }
        }
    }

    fn row(&self, name: &str) -> String {
        let part = |n: u64, of: u64| match of {
            0 => "-".to_owned(),
            _ => format!("{n} of {of}"),
        };
        format!(
            "| {name} | {} | {} | {} | {} | {} | {} |\n",
            part(self.first, self.cases),
            part(self.among_three, self.cases),
            part(self.named, self.nulls),
            part(self.covered, self.intervals),
            self.unclear,
            part(self.read_first, self.cases + self.unclear)
        )
    }
}

/// The table, and every miss with its seed and the cause ranked instead.
pub fn table(all: &[Judged]) -> String {
    let mut text = "| | first | among three | named with none there | interval covers | unclear | first line, all runs |\n|---|--:|--:|--:|--:|--:|--:|\n".to_owned();
    let mut rows = |name: &dyn Fn(&Judged) -> &'static str| {
        let mut names: Vec<&str> = all.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        for one in names {
            text += &Counts::of(all.iter().filter(|it| name(it) == one)).row(one);
        }
    };
    rows(&|it| it.cause.name());
    rows(&|it| it.shape.name());
    rows(&|it| it.language.name());
    text += &Counts::of(all.iter()).row("**all**");
    for it in all {
        let why = match &it.verdict.outcome {
            Outcome::Found(1) | Outcome::Quiet => continue,
            Outcome::Found(at) => format!("at place {at}"),
            Outcome::Missed => "missed".to_owned(),
            Outcome::Named => "named".to_owned(),
            Outcome::Unclear(why) => format!("unclear: {why}"),
            Outcome::Failed(why) => format!("failed: {why}"),
        };
        let (seed, cause) = (it.seed, it.cause.name());
        let _ = write!(
            text,
            "\nseed {seed} ({cause}, {}, {}): {why}; {}",
            it.shape.name(),
            it.language.name(),
            it.verdict.ranked
        );
    }
    for it in all.iter().filter(|it| it.verdict.covered == Some(false)) {
        let _ = write!(
            text,
            "\nseed {} ({}): its interval does not hold the truth; {}",
            it.seed,
            it.cause.name(),
            it.verdict.ranked
        );
    }
    text + "\n"
}

/// The smallest count of successes among `n` that is reached with probability `chance` or more if each succeeds with
/// `rate`: a smaller count means a lower rate.
///
/// *Worked number*: of 20 at 95 %, 15 or fewer have a probability of 0.26 %; so the least is 16 for 1 %.
pub fn least(n: u64, rate: f64, chance: f64) -> u64 {
    let mut below = 0.0;
    let mut probability = (1.0 - rate).powi(n as i32);
    for k in 0..n {
        below += probability;
        if below >= chance {
            return k;
        }
        probability *= (n - k) as f64 / (k + 1) as f64 * rate / (1.0 - rate);
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cumulative binomial probabilities: P(X <= 15) = 0.26 %, P(X <= 16) = 1.6 % for 20 at 95 %.
    #[test]
    fn bounds() {
        assert_eq!(least(20, 0.95, 0.01), 16);
        assert_eq!(least(20, 0.95, 0.002), 15);
        assert_eq!(least(1, 0.95, 0.01), 0);
        assert_eq!(least(0, 0.95, 0.01), 0);
    }

    fn judged(cause: Cause, outcome: Outcome, covered: Option<bool>) -> Judged {
        let verdict = Verdict {
            read_first: !matches!(outcome, Outcome::Missed | Outcome::Failed(_)),
            outcome,
            covered,
            ranked: "x".to_owned(),
        };
        Judged {
            seed: 1,
            cause,
            shape: Shape::Pool,
            language: Language::C,
            verdict,
        }
    }

    /// Misses and failures count against the tool, unclear runs are reported and count for neither.
    #[test]
    fn counts() {
        let all = [
            judged(Cause::Cpu, Outcome::Found(1), Some(true)),
            judged(Cause::Cpu, Outcome::Found(3), Some(false)),
            judged(Cause::Cpu, Outcome::Found(4), None),
            judged(Cause::Lock, Outcome::Missed, None),
            judged(Cause::Lock, Outcome::Failed(String::new()), None),
            judged(Cause::Lock, Outcome::Unclear(String::new()), None),
            judged(Cause::Nothing, Outcome::Quiet, None),
            judged(Cause::Nothing, Outcome::Named, None),
        ];
        let counts = Counts::of(all.iter());
        let expected = Counts {
            cases: 5,
            first: 1,
            among_three: 2,
            nulls: 2,
            named: 1,
            intervals: 2,
            covered: 1,
            unclear: 1,
            read_first: 4,
        };
        assert_eq!(counts, expected);
        let text = table(&all);
        assert!(
            text.contains("| **all** | 1 of 5 | 2 of 5 | 1 of 2 | 1 of 2 | 1 | 4 of 6 |"),
            "{text}"
        );
        assert_eq!(text.matches("\nseed 1 ").count(), 7, "{text}");
    }
}
