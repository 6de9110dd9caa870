//! Results of a comparison with the truth, and the targets they have to meet.

use pebs_stats::summary::normal_quantile;
use serde::Serialize;

/// Functions of at least this many sample intervals in a visit are compared visit by visit.
pub(crate) const LONG_INTERVALS: f64 = 5.0;

/// Largest bias of the mean time of a long function, as a share of the truth.
pub(crate) const MAX_BIAS: f64 = 0.01;

/// Accepted coverage of the 95 % intervals: from, to.
pub(crate) const COVERAGE: (f64, f64) = (0.93, 0.97);

/// Largest share of the time in samples' interrupts for a valid measurement.
pub(crate) const MAX_STOPPED: f64 = 0.5;

/// Least number of rows of a function for a bias: it is then known to 1 %.
pub(crate) const MIN_ROWS: u64 = 50;

/// Length of a function within a visit, by the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    /// At least [`LONG_INTERVALS`].
    Long,
    /// Less.
    Short,
}

/// One function, over the visits in which it is long or short.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FunctionFindings {
    pub name: String,
    /// Length of the visits that are judged.
    pub length: Length,
    /// Visits in which it is that long.
    pub rows: u64,
    /// Those of them with a sample of it.
    pub seen: u64,
    /// Mean truth, ns.
    pub truth_ns: f64,
    /// Mean `self_ns`, with 0 where no sample was, ns.
    pub self_ns: f64,
    /// Mean `span_ns`, with 0 where no sample was, ns.
    pub span_ns: f64,
    /// Those of `rows` that called it exactly once: only there `span_ns` is its time.
    pub once: u64,
    /// Mean `span_ns` - truth over these, ns.
    pub once_span_bias_ns: f64,
    /// `self_ns / truth_ns - 1`.
    pub bias: f64,
    /// Standard error of `bias`.
    pub bias_stderr: f64,
    /// Root mean square of `self_stderr_ns` where known, ns.
    pub stderr_ns: f64,
    /// Root mean square of `self_ns` - truth over the same visits, ns.
    pub error_ns: f64,
    /// Visits in which the truth is within 1.96 standard errors.
    pub covered: u64,
}

impl FunctionFindings {
    fn is_known(&self) -> bool {
        self.rows >= MIN_ROWS
    }
}

/// Calls of all functions by length, where a function was called once in its visit: the picture of
/// both estimates against the truth. Means over the rows, with 0 where no sample was.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Bin {
    pub rows: u64,
    /// Mean length in sample intervals, without the samples' own interrupts.
    pub intervals: f64,
    /// Mean truth, ns.
    pub truth_ns: f64,
    /// Mean `self_ns`.
    pub self_ns: f64,
    /// Root mean square of its error, ns.
    pub self_error_ns: f64,
    /// Mean `span_ns`.
    pub span_ns: f64,
    /// Root mean square of its error, ns.
    pub span_error_ns: f64,
}

/// Upper ends of the bins in sample intervals; the last bin is open.
pub(crate) const BINS: [f64; 13] = [
    0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0,
];

/// A function pooled over all items compared, as the report does for short functions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PooledFindings {
    pub name: String,
    /// Mean truth per item, ns.
    pub truth_ns: f64,
    /// Pooled estimate per item, ns.
    pub per_item_ns: f64,
    /// Its 95 % interval.
    pub interval_ns: Option<(f64, f64)>,
}

impl PooledFindings {
    /// Relative error.
    #[must_use]
    pub(crate) fn bias(&self) -> f64 {
        self.per_item_ns / self.truth_ns - 1.0
    }
}

/// Visits against items.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct VisitFindings {
    /// Items that the log has.
    pub items: u64,
    /// Visits that the trace has.
    pub visits: u64,
    /// Items without a visit.
    pub missing: u64,
    /// Visits without an item, and second visits of one.
    pub extra: u64,
    /// Visits that begin or end outside the range given by the log.
    pub misplaced: u64,
    /// Visits whose functions are compared.
    pub compared: u64,
    /// Left out: preempted or asleep at some time.
    pub off_cpu: u64,
    /// Left out: stopped by something else, according to the log.
    pub disturbed: u64,
    /// Left out: moved to another CPU.
    pub migrated: u64,
    /// Left out: overlap a loss, are throttled, have no end.
    pub damaged: u64,
}

/// Samples against the log.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SampleFindings {
    /// Samples of the trace.
    pub samples: u64,
    /// Samples that belong to a visit.
    pub in_visits: u64,
    /// Samples outside the item that they are attributed to, or in none although an item ran.
    pub wrong_item: u64,
    /// Samples in user mode while a function of the log ran.
    pub judged: u64,
    /// Those of them that name another function.
    pub wrong_function: u64,
    /// Samples in the kernel within visits: interrupts, probes.
    pub kernel: u64,
    /// Samples in the vdso within visits: a log that reads the clock there reads it in the middle.
    pub clock_readings: u64,
}

/// All that was found for one reset value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Findings {
    /// Reset value, ns.
    pub reset_ns: u64,
    pub visits: VisitFindings,
    pub samples: SampleFindings,
    /// Functions, long ones first.
    pub functions: Vec<FunctionFindings>,
    /// By length; those without rows are left out.
    pub bins: Vec<Bin>,
    /// Functions pooled over items.
    pub pooled: Vec<PooledFindings>,
    /// Share of the compared visits' time that is the kernel's.
    pub kernel_share: f64,
    /// Duration of an interruption, mostly a sample's, in a function, ns; null: not in the log.
    pub stop_ns: Option<i64>,
    /// Share of the functions' time in interrupts; null: not in the log.
    pub stopped_share: Option<f64>,
    /// Largest difference of the log's times from the marks' clock, ns.
    pub truth_clock_error_ns: i64,
    /// 99th percentile of the error of the samples' clock, ns; null: it is the marks' clock.
    pub clock_error_ns: Option<f64>,
}

impl Findings {
    fn of(&self, length: Length) -> impl Iterator<Item = &FunctionFindings> {
        let all = self.functions.iter();
        all.filter(move |f| f.length == length && f.is_known())
    }

    /// The function of a length with the largest bias, in absolute terms or in standard errors.
    #[must_use]
    pub(crate) fn worst(&self, length: Length) -> Option<&FunctionFindings> {
        let size = |f: &FunctionFindings| match length {
            Length::Long => f.bias.abs(),
            Length::Short => (f.bias / f.bias_stderr).abs(),
        };
        self.of(length).max_by(|a, b| size(a).total_cmp(&size(b)))
    }

    /// Share of the intervals of a length that contain the truth.
    #[must_use]
    pub(crate) fn coverage(&self, length: Length) -> Option<f64> {
        let sum = |of: fn(&FunctionFindings) -> u64| self.of(length).map(of).sum::<u64>();
        let rows = sum(|f| f.rows);
        (rows > 0).then(|| sum(|f| f.covered) as f64 / rows as f64)
    }

    /// Lowest and highest coverage among the functions of a length, with their names.
    ///
    /// The total coverage depends on the functions: the error of a function that changes once in
    /// its visit is uniform, and 1.96 standard errors cover all of it.
    #[must_use]
    pub(crate) fn coverages(&self, length: Length) -> Option<[(f64, &str); 2]> {
        let each = || {
            self.of(length)
                .map(|f| (f.covered as f64 / f.rows as f64, f.name.as_str()))
        };
        let lowest = each().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let highest = each().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some([lowest, highest])
    }

    #[must_use]
    pub(crate) fn rows(&self, length: Length) -> u64 {
        self.of(length).map(|f| f.rows).sum()
    }

    /// Standard error that was given over the error that was made: root mean squares, in intervals.
    #[must_use]
    pub(crate) fn errors(&self, length: Length) -> Option<(f64, f64)> {
        let seen = self.of(length).map(|f| f.seen as f64).sum::<f64>();
        let mean = |of: fn(&FunctionFindings) -> f64| {
            let squares = self.of(length).map(|f| of(f).powi(2) * f.seen as f64);
            (squares.sum::<f64>() / seen).sqrt() / self.reset_ns as f64
        };
        (seen > 0.0).then(|| (mean(|f| f.stderr_ns), mean(|f| f.error_ns)))
    }

    /// Mean bias of `span_ns` of long functions that were called once, in intervals.
    #[must_use]
    pub(crate) fn span_bias(&self) -> Option<f64> {
        let once = self.of(Length::Long).map(|f| f.once as f64).sum::<f64>();
        let sum = self
            .of(Length::Long)
            .map(|f| f.once_span_bias_ns * f.once as f64);
        (once > 0.0).then(|| sum.sum::<f64>() / once / self.reset_ns as f64)
    }

    /// The pooled function that is furthest off.
    #[must_use]
    pub(crate) fn worst_pooled(&self) -> Option<&PooledFindings> {
        self.pooled
            .iter()
            .max_by(|a, b| a.bias().abs().total_cmp(&b.bias().abs()))
    }

    /// Missed targets, as text; empty if all are met.
    ///
    /// `tests` is the number of short functions examined in the whole run: at 95 % each, one in
    /// twenty would be found biased by chance alone, so the interval is widened until that happens
    /// in one run of twenty.
    #[must_use]
    pub(crate) fn misses(&self, tests: usize) -> Vec<String> {
        let mut misses = Vec::new();
        let VisitFindings {
            missing,
            extra,
            misplaced,
            ..
        } = self.visits;
        if missing + extra > 0 {
            misses.push(format!(
                "{missing} items without a visit, {extra} visits without an item"
            ));
        }
        if misplaced > 0 {
            misses.push(format!(
                "{misplaced} visits begin or end outside their item"
            ));
        }
        if self.samples.wrong_item > 0 {
            misses.push(format!(
                "{} samples in a wrong item",
                self.samples.wrong_item
            ));
        }
        if let Some(share) = self.stopped_share.filter(|&share| share > MAX_STOPPED) {
            misses.push(format!(
                "samples take {:.0} % of the time on this machine: no good reset value",
                share * 100.0
            ));
        }
        for f in self.of(Length::Long).filter(|f| f.bias.abs() > MAX_BIAS) {
            misses.push(format!(
                "bias of {} is {:+.2} %, not within {} % (standard error {:.2} %)",
                f.name,
                f.bias * 100.0,
                MAX_BIAS * 100.0,
                f.bias_stderr * 100.0
            ));
        }
        let (from, to) = COVERAGE;
        match self.coverage(Length::Long) {
            None => misses.push("too few visits to say anything: a longer --duration".to_owned()),
            Some(share) => {
                let error = (share * (1.0 - share) / self.rows(Length::Long) as f64).sqrt();
                // With few visits it may be larger or smaller by chance.
                let slack = family_quantile(1) * error;
                if !(from - slack..=to + slack).contains(&share) {
                    misses.push(format!(
                        "coverage of the 95 % interval is {:.1} %, not {:.0}..{:.0} % (standard error {:.1} %)",
                        share * 100.0,
                        from * 100.0,
                        to * 100.0,
                        error * 100.0
                    ));
                }
            }
        }
        let limit = family_quantile(tests);
        for f in self
            .of(Length::Short)
            .filter(|f| f.bias.abs() > limit * f.bias_stderr)
        {
            misses.push(format!(
                "bias of {} (short) is {:+.2} %, not within its 95 % interval of {:.2} %",
                f.name,
                f.bias * 100.0,
                limit * f.bias_stderr * 100.0
            ));
        }
        misses
    }

    /// Number of short functions examined by [`Findings::misses`].
    #[must_use]
    pub(crate) fn tests(&self) -> usize {
        self.of(Length::Short).count()
    }
}

/// Number of standard errors that cover this many independent normal deviates, all at once, in 95 %
/// of the runs (Šidák). One: 1.96.
fn family_quantile(tests: usize) -> f64 {
    let each = 0.95_f64.powf(1.0 / tests.max(1) as f64);
    normal_quantile((1.0 - each) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantiles of one, ten and forty tests, from tables.
    #[test]
    fn quantiles() {
        for (tests, expected) in [(1, 1.960), (10, 2.800), (40, 3.222)] {
            let got = family_quantile(tests);
            assert!((got - expected).abs() < 0.002, "{tests}: {got}");
        }
    }

    fn function(length: Length, bias: f64, covered: u64) -> FunctionFindings {
        FunctionFindings {
            name: "f".to_owned(),
            length,
            rows: 1000,
            seen: 1000,
            truth_ns: 100.0,
            self_ns: 100.0 * (1.0 + bias),
            span_ns: 90.0,
            once: 10,
            once_span_bias_ns: -10.0,
            bias,
            bias_stderr: 0.002,
            stderr_ns: 3.0,
            error_ns: 3.0,
            covered,
        }
    }

    fn findings(functions: Vec<FunctionFindings>) -> Findings {
        Findings {
            reset_ns: 10,
            visits: VisitFindings::default(),
            samples: SampleFindings::default(),
            functions,
            bins: Vec::new(),
            pooled: Vec::new(),
            kernel_share: 0.0,
            stop_ns: None,
            stopped_share: None,
            truth_clock_error_ns: 50,
            clock_error_ns: None,
        }
    }

    /// Each target is missed if its own condition is broken, and only then.
    #[test]
    fn targets() {
        let good = || {
            vec![
                function(Length::Long, 0.009, 950),
                function(Length::Short, 0.003, 700),
            ]
        };
        assert_eq!(findings(good()).misses(1), Vec::<String>::new());
        assert_eq!(findings(good()).span_bias(), Some(-1.0));
        assert_eq!(findings(good()).errors(Length::Long), Some((0.3, 0.3)));
        let misses = |functions| findings(functions).misses(1).join("; ");
        let found = misses(vec![function(Length::Long, -0.011, 950)]);
        assert!(found.contains("bias of f is -1.10 %"), "{found}");
        let covered = |rows| misses(vec![function(Length::Long, 0.0, rows)]);
        // This size is within chance, ..
        assert_eq!(covered(975) + &covered(920), "");
        // .. but not this.
        let found = covered(985);
        assert!(
            found.contains("coverage of the 95 % interval is 98.5 %"),
            "{found}"
        );
        let mut both = good();
        both.push(function(Length::Short, 0.005, 700));
        assert!(misses(both).contains("(short) is +0.50 %"));
        assert!(misses(Vec::new()).contains("too few visits"));
        let mut wrong = findings(good());
        wrong.samples.wrong_item = 1;
        wrong.visits.missing = 2;
        assert_eq!(wrong.misses(1).len(), 2);
    }
}
