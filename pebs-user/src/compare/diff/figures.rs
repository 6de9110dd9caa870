//! Figures per item of one probe of one trace, with their errors.
//!
//! Consecutive items are more similar than others: the machine warms up, a neighbour wakes. So items are divided into
//! [`PERIODS`] periods of equally many, in order of their begin, and the error of a mean is that of the means of the
//! periods (batch means), which covers everything that changes within a run. Differences between whole runs are not
//! covered. Source: Law, "Simulation Modeling and Analysis", 9.5.3; Cochran, "Sampling Techniques", 6.3.

use rustc_hash::{FxHashMap, FxHashSet};

use super::DiffRows;
use crate::compare::counted::CountedSums;
use crate::compare::explain::contrast::Naming;
use crate::compare::explain::items::Items;
use crate::compare::explain::model::CauseType;
use crate::compare::explain::sums::ClassSums;
use crate::compare::names::{FunctionName, file_name, is_address};
use crate::rng::SplitMix64;
use crate::store::run::CountedInfo;
use pebs_stats::blocks::Blocks;

/// Periods of a run: enough to know an error to 9 %, and each long enough to hold lasting disturbances.
pub(super) const PERIODS: usize = 64;

/// Periods merged into one to see disturbances that last longer than a period.
const LONG: usize = 4;

/// Least number of items for an error.
const FEWEST: f64 = 64.0;

/// Replicates for the errors of quantiles.
const REPLICATES: usize = 200;

/// Seed of the resampling.
const SEED: u64 = 0x6469_6666;

/// Below this number of samples or waits the error of a figure is at least that of counting so few.
const RARE: u64 = 64;

/// Raises the errors of two figures of the same thing to those of so few samples, assuming that nothing changed.
///
/// With few samples the error by periods is itself random, and 0 where there were no samples. If both sides have the
/// mean m, and a sample stands for u an item, m / u samples are expected, with an error of their square root; one more,
/// as the mean is not known. Above [`RARE`] the periods are more accurate, as samples may be more regular.
///
/// *Worked number*: no samples before, 15 after of 10 us each in 10,000 items: 15 ns an item, u = 1 ns, m = 7.5 ns,
/// each error sqrt(8.5) ns: the change of 15 ns is 3.6 errors, where the periods alone gave 3.9, and 0 before.
pub(super) fn as_rare(old: &mut (Figure, u64), new: &mut (Figure, u64), items: (f64, f64)) {
    let mean = f64::midpoint(old.0.ns, new.0.ns);
    let unit = |it: &(Figure, u64)| (it.1 > 0).then(|| it.0.ns / it.1 as f64);
    let units = (unit(old), unit(new));
    let (to_old, to_new) = (items.1 / items.0, items.0 / items.1);
    let units = (
        units.0.or(units.1.map(|it| it * to_old)),
        units.1.or(units.0.map(|it| it * to_new)),
    );
    for ((figure, count), unit) in [(old, units.0), (new, units.1)] {
        if let (Some(unit), Some(error)) = (unit.filter(|it| *it > 0.0), &mut figure.error)
            && *count < RARE
        {
            *error = error.max(unit * (mean / unit + 1.0).sqrt());
        }
    }
}

/// A mean over items and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figure {
    /// Per item, ns.
    pub ns: f64,
    /// Its standard error; `None` if there are too few items, or samples beat with them and it is sampled.
    pub error: Option<f64>,
}

/// A function or wait by name, so that builds can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::compare) struct Name {
    pub kind: CauseType,
    pub module: Option<String>,
    pub name: Option<String>,
    pub state: Option<String>,
    pub kernel: bool,
}

impl Name {
    /// Of what has a name of its own; else of its module, as names derived from addresses change with every build.
    pub(in crate::compare) fn of(
        (kind, function, state): (CauseType, FunctionName, Option<String>),
        is_named: impl FnOnce(&str, Option<&str>) -> bool,
    ) -> Self {
        let module = function.module.map(|it| file_name(&it).to_owned());
        let name = function.name.filter(|it| is_named(it, module.as_deref()));
        Self {
            kind: match (kind, &name) {
                (CauseType::Function, None) => CauseType::Module,
                (kind, _) => kind,
            },
            module,
            name,
            state,
            kernel: function.kernel,
        }
    }
}

/// A probe in one trace.
#[derive(Debug)]
pub(super) struct ProbeFigures {
    pub spec: String,
    pub items: u64,
    /// Mean, median, 99th percentile of the durations.
    pub durations: [Figure; 3],
    /// Sums of each function or wait by period.
    pub rows: FxHashMap<Name, (Blocks, u64)>,
    sums: ClassSums,
    /// Sums of counted events, and the events.
    pub counted: (CountedSums, Vec<CountedInfo>),
}

impl ProbeFigures {
    /// Figures from the sums over the items of a probe by period. `same`: file names of the modules that are the same
    /// build in both traces.
    pub(super) fn new(
        spec: String,
        members: &[u32],
        items: &Items,
        sums: ClassSums,
        naming: &Naming<'_>,
        by: DiffRows,
        same: &FxHashSet<String>,
    ) -> Self {
        let mut rows: FxHashMap<Name, (Blocks, u64)> = FxHashMap::default();
        for (key, (sum, samples)) in &sums.keys {
            let name = Name::of(naming.of(*key), |name, module| {
                let is_same_build = module.is_some_and(|it| same.contains(it));
                by == DiffRows::Function && (is_same_build || !is_address(name))
            });
            let (into, count) = rows.entry(name).or_default();
            into.merge(sum);
            *count += samples;
        }
        Self {
            spec,
            items: members.len() as u64,
            durations: durations(members, items),
            rows,
            sums,
            counted: <(CountedSums, Vec<CountedInfo>)>::default(),
        }
    }

    /// Whether functions of a module were seen.
    pub(super) fn has_module(&self, module: &str) -> bool {
        self.rows
            .keys()
            .any(|name| name.module.as_deref() == Some(module))
    }

    /// Calls a module otherwise.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        for (mut name, (sum, samples)) in std::mem::take(&mut self.rows) {
            if name.module.as_deref() == Some(from) {
                name.module = Some(to.to_owned());
            }
            let (into, count) = self.rows.entry(name).or_default();
            into.merge(&sum);
            *count += samples;
        }
    }

    /// Whether samples beat with the items, so that the errors of functions are unknown.
    pub(super) const fn beats(&self) -> bool {
        self.sums.beats
    }

    /// Samples of all functions.
    pub(super) const fn samples(&self) -> u64 {
        self.sums.samples
    }

    /// Time on the CPU per item.
    pub(super) fn on_cpu(&self) -> Figure {
        self.observed(&self.sums.active)
    }

    /// Time of a function or wait per item: 0 if absent.
    pub(super) fn figure(&self, name: &Name) -> (Figure, u64) {
        let none = (Blocks::default(), 0);
        let (sum, samples) = self.rows.get(name).unwrap_or(&none);
        let figure = match name.kind {
            CauseType::Function | CauseType::Module => self.sampled(sum),
            _ => self.observed(sum),
        };
        (figure, *samples)
    }

    /// Share of the time on the CPU. With p = sum of events / all events the time per item is p ā; to
    /// first order a period moves it by p (a - ā n) + (A / E) (x - p e), of sums a, n, x, e over it.
    fn sampled(&self, events: &Blocks) -> Figure {
        let ClassSums {
            items,
            active,
            events: all,
            ..
        } = &self.sums;
        let (n, a, e, x) = (items.total(), active.total(), all.total(), events.total());
        if e <= 0.0 {
            return Figure::default();
        }
        let (p, mean) = (x / e, a / n);
        let moved = std::array::from_fn(|at| {
            let of_time = active.get(at) - mean * items.get(at);
            let of_events = events.get(at) - p * all.get(at);
            p * of_time + a / e * of_events
        });
        let figure = self.with_error(p * mean, &moved);
        Figure {
            error: figure.error.filter(|_| !self.sums.beats),
            ..figure
        }
    }

    fn observed(&self, ns: &Blocks) -> Figure {
        let items = &self.sums.items;
        ratio(ns, items, items.total())
    }

    fn with_error(&self, ns: f64, moved: &[f64; PERIODS]) -> Figure {
        let items = self.sums.items.total();
        Figure {
            ns,
            error: (items >= FEWEST).then(|| error_of_sum(moved) / items),
        }
    }
}

/// Ratio of two sums by period, over this number of items.
pub(super) fn ratio(sum: &Blocks, of: &Blocks, items: f64) -> Figure {
    let all = of.total();
    let mean = sum.total() / all;
    if mean.is_nan() {
        return Figure::default();
    }
    let moved = std::array::from_fn(|at| sum.get(at) - mean * of.get(at));
    Figure {
        ns: mean,
        error: (items >= FEWEST).then(|| error_of_sum(&moved) / all),
    }
}

/// The larger of the errors by periods and by [`LONG`] periods together: a disturbance longer than a period moves
/// several of them the same way.
fn error_of_sum(moved: &[f64; PERIODS]) -> f64 {
    let squares = [1, LONG].map(|length| {
        let sums = moved.chunks(length).map(|it| it.iter().sum::<f64>());
        let periods = (PERIODS / length) as f64;
        sums.map(|it| it * it).sum::<f64>() * periods / (periods - 1.0)
    });
    squares[0].max(squares[1]).sqrt()
}

/// Mean, median and 99th percentile, with errors from drawing periods.
fn durations(members: &[u32], items: &Items) -> [Figure; 3] {
    let mut sorted: Vec<(i64, u8)> = members
        .iter()
        .map(|&it| (items.all[it as usize].net_ns(), items.period(it)))
        .collect();
    sorted.sort_unstable();
    let whole = figures(&sorted, &[1; PERIODS]);
    if (sorted.len() as f64) < FEWEST {
        return whole.map(|ns| Figure { ns, error: None });
    }
    let mut rng = SplitMix64::new(SEED);
    let (mut sums, mut squares) = ([0.0; 3], [0.0; 3]);
    for _ in 0..REPLICATES {
        let mut weights = [0_u32; PERIODS];
        for _ in 0..PERIODS {
            weights[rng.below(PERIODS as u32) as usize] += 1;
        }
        for (at, figure) in figures(&sorted, &weights).into_iter().enumerate() {
            let beside = figure - whole[at];
            sums[at] += beside;
            squares[at] += beside * beside;
        }
    }
    let n = REPLICATES as f64;
    let error = |at: usize| {
        ((squares[at] - sums[at] * sums[at] / n) / (n - 1.0))
            .max(0.0)
            .sqrt()
    };
    [0, 1, 2].map(|at| Figure {
        ns: whole[at],
        error: Some(error(at)),
    })
}

/// Mean, median and 99th percentile with each period weighted by the number of times it was drawn.
fn figures(sorted: &[(i64, u8)], weights: &[u32; PERIODS]) -> [f64; 3] {
    let weight = |period: u8| u64::from(weights[usize::from(period)]);
    let (mut items, mut sum) = (0_u64, 0.0);
    for &(ns, period) in sorted {
        items += weight(period);
        sum += ns as f64 * weight(period) as f64;
    }
    let ranks = [0.5, 0.99].map(|share| ((items as f64 * share).ceil() as u64).max(1));
    let (mut seen, mut found) = (0, [0.0; 2]);
    for &(ns, period) in sorted {
        for (rank, found) in ranks.iter().zip(&mut found) {
            if (seen..seen + weight(period)).contains(&(rank - 1)) {
                *found = ns as f64;
            }
        }
        seen += weight(period);
    }
    [sum / items as f64, found[0], found[1]]
}
