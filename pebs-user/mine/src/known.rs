//! Synthetic counts with a known influence on the outcome, to test a ranking.

use crate::runs::{AcrossRuns, Cause, Run};
use crate::series::{Event, Series};
use pebs_stats::rng::Rng;
use pebs_stats::summary::moments;

/// Weights of the events that matter, in units of their standard deviation.
pub const WEIGHTS: [f64; 8] = [12.0, 9.0, 7.0, 5.0, 4.0, 3.0, 2.2, 1.6];

/// Pairs whose product matters as well, with its weight.
pub const PAIRS: [(usize, usize, f64); 2] = [(0, 2, 5.0), (1, 4, 4.0)];

/// Makes `count` event series, the first [`WEIGHTS`] of which matter, in random order, and an outcome that is a known
/// function of them with 2 % of error. Counts have the long tail of real ones.
#[must_use]
pub fn known(seed: u64, rows: usize, count: usize) -> (Series, Vec<f64>) {
    let mut rng = Rng::new(seed);
    let mut outcome: Vec<f64> = (0..rows).map(|_| 100.0 + 2.0 * rng.normal()).collect();
    let mut units: Vec<Vec<f64>> = Vec::new();
    let mut events: Vec<Event> = (0..count)
        .map(|number| {
            let scale = 10f64.powi((number % 5) as i32 + 1);
            let counts: Vec<f64> = (0..rows)
                .map(|_| (scale * (0.4 * rng.normal()).exp()).round())
                .collect();
            if let Some(weight) = WEIGHTS.get(number) {
                let (mean, std) = moments(&counts);
                let unit: Vec<f64> = counts.iter().map(|it| (it - mean) / std).collect();
                outcome
                    .iter_mut()
                    .zip(&unit)
                    .for_each(|(sum, it)| *sum += weight * it);
                units.push(unit);
            }
            Event {
                name: format!("event{number}"),
                counts,
                running: Vec::new(),
            }
        })
        .collect();
    for (a, b, weight) in PAIRS {
        if let (Some(a), Some(b)) = (units.get(a), units.get(b)) {
            let products = a.iter().zip(b).map(|(a, b)| weight * a * b);
            outcome
                .iter_mut()
                .zip(products)
                .for_each(|(sum, it)| *sum += it);
        }
    }
    rng.shuffle(&mut events);
    (Series::of(events), outcome)
}

/// Contribution of an event of [`known()`] to the outcome's variance, its products included.
#[must_use]
pub fn truth(name: &str) -> f64 {
    let number: Option<usize> = name.strip_prefix("event").and_then(|it| it.parse().ok());
    let Some(number) = number else {
        return 0.0;
    };
    let own = WEIGHTS.get(number).map_or(0.0, |weight| weight * weight);
    let pairs = PAIRS
        .iter()
        .filter(|&&(a, b, _)| a == number || b == number);
    own + pairs.map(|pair| pair.2 * pair.2).sum::<f64>()
}

/// Runs that counted different events, with known influences: see [`known_runs()`].
#[derive(Clone, Debug)]
pub struct PlantedRuns {
    pub events: usize,
    pub runs: usize,
    /// Rows of a run.
    pub rows: usize,
    /// Runs among which all events are shared out.
    pub sets: usize,
    /// Weights of the first events, in units of their standard deviation.
    pub weights: Vec<f64>,
    /// Pairs of events whose product matters as well; every second configuration counts both in one run.
    pub pairs: Vec<(usize, usize, f64)>,
    /// Number of values and weight of each parameter: what each value adds.
    pub parameters: Vec<(usize, f64)>,
    /// Parameter, event, and what each value adds to the event's weight.
    pub sloped: Vec<(usize, usize, f64)>,
    /// Standard deviation of what each run adds to its outcomes.
    pub drift: f64,
}

impl Default for PlantedRuns {
    /// 229 events, as in the paper, in sets of 45 or 46; 20 runs, 5 of each configuration of two parameters.
    fn default() -> Self {
        Self {
            events: 229,
            runs: 20,
            rows: 1_500,
            sets: 5,
            weights: vec![15.0, 9.0, 7.0, 5.5, 4.0, 3.0, 2.2, 1.6],
            pairs: vec![(0, 2, 6.0)],
            parameters: vec![(2, 8.0), (2, 3.0)],
            sloped: vec![(0, 1, 6.0)],
            drift: 0.5,
        }
    }
}

impl PlantedRuns {
    /// The same without any influence.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            weights: Vec::new(),
            pairs: Vec::new(),
            parameters: vec![(2, 0.0), (2, 0.0)],
            sloped: Vec::new(),
            ..Self::default()
        }
    }

    /// Names of the parameters.
    #[must_use]
    pub fn parameter_names() -> [String; 2] {
        ["workers", "buffer"].map(str::to_owned)
    }

    /// Events whose influence differs in [`Self::with_neighbour()`].
    pub const CHANGED: [&str; 2] = ["event3", "event20"];

    /// The same beside a neighbour: an event with an influence has none, and one without has.
    #[must_use]
    pub fn with_neighbour(&self) -> Self {
        let mut plan = self.clone();
        plan.weights.resize(21, 0.0);
        plan.weights[3] = 0.0;
        plan.weights[20] = 10.0;
        plan
    }

    /// The events that have an influence, the largest share of the variance first.
    #[must_use]
    pub fn order(&self) -> Vec<String> {
        // Mean over configurations, in which each value of a parameter is as frequent.
        let share = |event: usize| {
            let weight = self.weights[event];
            let sloped = self.sloped.iter().find(|it| it.1 == event);
            let own = sloped.map_or(weight * weight, |&(parameter, _, slope)| {
                let values = 0..self.parameters[parameter].0;
                let count = values.len() as f64;
                values
                    .map(|it| (weight + slope * it as f64).powi(2))
                    .sum::<f64>()
                    / count
            });
            let pairs = self
                .pairs
                .iter()
                .filter(|it| it.0 == event || it.1 == event);
            own + pairs.map(|it| it.2 * it.2).sum::<f64>()
        };
        let mut events: Vec<usize> = (0..self.weights.len())
            .filter(|&it| share(it) > 0.0)
            .collect();
        events.sort_by(|&a, &b| share(b).total_cmp(&share(a)));
        events.into_iter().map(|it| format!("event{it}")).collect()
    }
}

/// Names that a ranking over [`known_runs()`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Events that are no noise, best first.
    pub events: Vec<String>,
    /// Parameters that are none, best first.
    pub parameters: Vec<String>,
    /// Pairs that interact, each in order of the names.
    pub pairs: Vec<[String; 2]>,
    /// Events that change rank.
    pub changed: Vec<String>,
}

impl Found {
    /// Takes the names out of a ranking.
    #[must_use]
    pub fn of(ranked: &AcrossRuns) -> Self {
        let name = |cause: Cause| match cause {
            Cause::Events(group) => ranked.names[ranked.groups[group][0]].clone(),
            Cause::Parameter(at) => PlantedRuns::parameter_names()[at].clone(),
        };
        let causes = |are_events: bool| {
            let real = ranked.ranked.iter().filter(|it| !it.is_noise);
            let wanted = real.filter(|it| matches!(it.cause, Cause::Events(_)) == are_events);
            wanted.map(|it| name(it.cause)).collect()
        };
        let pairs = ranked.pairs.iter().filter(|it| it.is_sure());
        let changes = ranked.changes.iter().flatten().filter(|it| it.is_changed);
        Self {
            events: causes(true),
            parameters: causes(false),
            pairs: pairs
                .map(|it| {
                    let mut names = it.causes.map(name);
                    names.sort_unstable();
                    names
                })
                .collect(),
            changed: changes.map(|it| name(Cause::Events(it.group))).collect(),
        }
    }

    /// Number of events, parameters and pairs that were found and not planted, and of changes beside a neighbour that
    /// are none of [`PlantedRuns::CHANGED`].
    #[must_use]
    pub fn others(&self, plan: &PlantedRuns) -> usize {
        let known = plan.order();
        let names = PlantedRuns::parameter_names();
        let is_parameter = |name: &String| {
            let mut planted = names.iter().zip(&plan.parameters);
            planted.any(|(it, planted)| it == name && planted.1 != 0.0)
        };
        let is_pair = |pair: &[String; 2]| {
            let of_events = plan
                .pairs
                .iter()
                .map(|it| [format!("event{}", it.0), format!("event{}", it.1)]);
            let sloped = plan
                .sloped
                .iter()
                .map(|it| [format!("event{}", it.1), names[it.0].clone()]);
            of_events.chain(sloped).any(|it| it == *pair)
        };
        let events = self.events.iter().filter(|it| !known.contains(it)).count();
        let parameters = self
            .parameters
            .iter()
            .filter(|it| !is_parameter(it))
            .count();
        let pairs = self.pairs.iter().filter(|it| !is_pair(it)).count();
        let changed = self.changed.iter();
        let changed = changed.filter(|it| !PlantedRuns::CHANGED.contains(&it.as_str()));
        events + parameters + pairs + changed.count()
    }
}

/// Classes of the rows of [`known_runs()`]: name, outcome without any event, share of the rows.
const CLASSES: [(&str, f64, f64); 3] = [
    ("get", 100.0, 0.6),
    ("set", 110.0, 0.3),
    ("scan", 130.0, 0.1),
];

/// Makes runs with known influences. Each configuration is run [`PlantedRuns::sets`] times, so that each event is counted
/// once in it, with other events each time. Errors are 5 % of the outcome, counts have the long tail of real ones, and
/// the mix of classes differs from run to run.
#[must_use]
pub fn known_runs(seed: u64, plan: &PlantedRuns) -> Vec<Run> {
    /// Standard deviation of the logarithm of a count.
    const TAIL: f64 = 0.4;
    // Mean and standard deviation of exp(TAIL z).
    let mean = (TAIL * TAIL / 2.0).exp();
    let std = mean * (TAIL * TAIL).exp_m1().sqrt();
    let mut rng = Rng::new(seed);
    let mut order: Vec<usize> = (0..plan.events).collect();
    (0..plan.runs)
        .map(|run| {
            if run % plan.sets == 0 {
                rng.shuffle(&mut order);
                let place = |order: &[usize], of: usize| order.iter().position(|&it| it == of);
                for &(a, b, _) in plan
                    .pairs
                    .iter()
                    .filter(|_| (run / plan.sets).is_multiple_of(2))
                {
                    if let (Some(a), Some(b)) = (place(&order, a), place(&order, b)) {
                        // Into the set of the other, in the place of its next event.
                        let next = if a + plan.sets < order.len() {
                            a + plan.sets
                        } else {
                            a - plan.sets
                        };
                        order.swap(b, next);
                    }
                }
            }
            let mut rest = run / plan.sets;
            let values: Vec<usize> = plan
                .parameters
                .iter()
                .map(|&(count, _)| {
                    let value = rest % count;
                    rest /= count;
                    value
                })
                .collect();
            let drift = plan.drift * rng.normal();
            let mix = 0.8 + 0.4 * rng.unit();
            let (mut outcome, mut classes) = (Vec::new(), Vec::new());
            let mut counts: Vec<Vec<f64>> = vec![Vec::with_capacity(plan.rows); plan.events];
            for _ in 0..plan.rows {
                let mut at = rng.unit() * mix;
                let class = CLASSES.iter().find(|it| {
                    at -= it.2;
                    at < 0.0
                });
                let class = class.unwrap_or(&CLASSES[0]);
                let units: Vec<f64> = counts
                    .iter_mut()
                    .enumerate()
                    .map(|(event, counts)| {
                        let scale = 10f64.powi((event % 4) as i32 + 2);
                        let value = (TAIL * rng.normal()).exp();
                        counts.push((scale * value).round());
                        (value - mean) / std
                    })
                    .collect();
                let mut sum = class.1 + drift + 5.0 * rng.normal();
                let own = plan.weights.iter().zip(&units);
                sum += own.map(|(weight, it)| weight * it).sum::<f64>();
                for &(a, b, weight) in &plan.pairs {
                    sum += weight * units[a] * units[b];
                }
                for (&value, &(_, weight)) in values.iter().zip(&plan.parameters) {
                    sum += weight * value as f64;
                }
                for &(parameter, event, weight) in &plan.sloped {
                    sum += weight * values[parameter] as f64 * units[event];
                }
                outcome.push(sum);
                classes.push(class.0.to_owned());
            }
            let events = order
                .iter()
                .enumerate()
                .filter(|(place, _)| place % plan.sets == run % plan.sets)
                .map(|(_, &event)| Event {
                    name: format!("event{event}"),
                    counts: std::mem::take(&mut counts[event]),
                    running: Vec::new(),
                });
            Run {
                name: format!("run{run}"),
                recording: run,
                series: Series::of(events.collect()),
                outcome,
                classes,
                values: values.iter().map(ToString::to_string).collect(),
            }
        })
        .collect()
}
