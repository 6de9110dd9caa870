//! What is kept of a visit when it closes: its details, or only its part in the aggregates.
//!
//! The decision falls at the visit's end, with all its samples at hand, so that a visit that is kept
//! is whole. Every visit enters the aggregates, kept or not, and every visit that is whole the
//! baseline. A visit whose end is unknown or that overlaps a loss is kept, as what is unknown
//! is suspicious, and no part of the baseline.
//!
//! Memory: two or three sketches for each function of each group: 8 KiB typically, 45 KiB at most.

mod distributions;

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::analysis::baseline::{GroupBaseline, Rule, Verdict};
use crate::analysis::estimate::FunctionEstimate;
use crate::analysis::sketch::middle;
use crate::correlate::ClosedVisit;
use crate::store::run::KeptVisits;
use crate::store::schema::{FunctionStatRow, measure, visit_flag};
use crate::units::{FunctionId, ProbeId, TraceNs};
use distributions::{Distribution, Functions, Key};

/// Whose details are kept.
///
/// With everything kept there are no aggregates: they follow from `visit_functions`, which is
/// exact and merges as well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Keep {
    /// Those of every visit; no aggregates are made.
    #[default]
    All,
    /// Those of visits that diverge from the baseline of their group.
    Slow(Rule),
    /// No visit's.
    None,
}

/// Visits that are compared with one another: those of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group(ProbeId);

impl Group {
    const fn of(visit: &ClosedVisit<'_>) -> Self {
        Self(visit.probe)
    }
}

/// What is known of a group.
#[derive(Debug)]
struct GroupState {
    baseline: GroupBaseline,
    /// Of functions, in visits without loss and with.
    functions: [Functions; 2],
    /// Of everything else.
    distributions: FxHashMap<Key, Distribution>,
    /// Visits of the interval, without loss and with.
    visits: [u64; 2],
}

impl GroupState {
    fn at(&mut self, key: Key) -> &mut Distribution {
        self.distributions.entry(key).or_default()
    }

    /// The distributions that have a visit, by key.
    fn met(&mut self) -> Vec<(Key, &mut Distribution)> {
        let others = self.distributions.iter_mut().map(|(key, it)| (*key, it));
        let functions = [false, true].into_iter().zip(&mut self.functions);
        let functions = functions.flat_map(|(loss, functions)| {
            functions.iter_mut().map(move |it| {
                let key = Key {
                    loss,
                    measure: measure::SELF,
                    event: Some(it.event),
                    function: Some(it.function),
                };
                (key, &mut it.distribution)
            })
        });
        let met = others.chain(functions).filter(|(_, it)| it.visits_with > 0);
        let mut met: Vec<_> = met.collect();
        met.sort_by_key(|(key, _)| *key);
        met
    }
}

/// Decides, and aggregates.
#[derive(Debug)]
pub(super) struct Keeper {
    keep: Keep,
    interval: Duration,
    /// Begin of the interval.
    since: Duration,
    groups: FxHashMap<Group, GroupState>,
    /// Samples of each event in the visit at hand.
    samples: Vec<u64>,
    row: FunctionStatRow,
    pub kept: KeptVisits,
}

impl Keeper {
    /// A keeper whose aggregates are written every `interval` of trace time.
    pub fn new(keep: Keep, interval: Duration) -> Self {
        Self {
            keep,
            interval,
            since: Duration::ZERO,
            groups: FxHashMap::default(),
            samples: Vec::new(),
            row: FunctionStatRow::default(),
            kept: KeptVisits::default(),
        }
    }

    /// Whether everything is kept, and there are no aggregates.
    pub fn keeps_all(&self) -> bool {
        self.keep == Keep::All
    }

    /// Takes in a visit with the estimates of its functions; says whether its details are kept.
    ///
    /// Cost: O(functions of the visit); allocates for functions that are new.
    pub fn visit(&mut self, visit: &ClosedVisit<'_>, functions: &[FunctionEstimate]) -> bool {
        if self.keeps_all() {
            return true;
        }
        self.aggregate(visit, functions);
        if self.keep == Keep::None {
            return false;
        }
        let lost = visit.flags & visit_flag::LOSS != 0;
        let duration = match duration(visit) {
            Some(duration) if !lost => duration,
            _ => {
                self.kept.unknown += 1;
                return true;
            }
        };
        let group = group(&mut self.groups, visit, self.keep);
        let mut verdict = group.baseline.judge(duration);
        let judged = if group.baseline.judges_functions() {
            functions
        } else {
            &[]
        };
        for estimate in judged {
            let (Some(own), Some(stderr)) = (estimate.self_ns(), estimate.self_stderr_ns()) else {
                continue;
            };
            let [whole, _] = &mut group.functions;
            let running = &mut whole.at(estimate.event, estimate.function).running;
            if verdict == Verdict::Usual && group.baseline.diverges(running, own, stderr) {
                verdict = Verdict::SlowFunction;
            }
            group.baseline.add_function(running, own);
        }
        group.baseline.add(duration, functions.len());
        match verdict {
            Verdict::Usual => return false,
            Verdict::WarmingUp => self.kept.warm_up += 1,
            Verdict::Slow => self.kept.slow += 1,
            Verdict::SlowFunction => self.kept.slow_function += 1,
        }
        true
    }

    fn aggregate(&mut self, visit: &ClosedVisit<'_>, functions: &[FunctionEstimate]) {
        let Some(duration) = duration(visit) else {
            return;
        };
        self.samples.clear();
        for estimate in functions {
            let event = usize::from(estimate.event.0);
            if event >= self.samples.len() {
                self.samples.resize(event + 1, 0);
            }
            self.samples[event] += u64::from(estimate.samples);
        }
        let loss = visit.flags & visit_flag::LOSS != 0;
        let oncpu = visit.oncpu_ns();
        let active = oncpu.map_or(duration as f64, |ns| ns as f64);
        let group = group(&mut self.groups, visit, self.keep);
        group.visits[usize::from(loss)] += 1;
        for (measure, value) in [
            (measure::DURATION, Some(duration as f64)),
            (measure::ONCPU, oncpu.map(|ns| ns as f64)),
        ] {
            let Some(value) = value else { continue };
            let distribution = group.at(Key {
                loss,
                measure,
                event: None,
                function: None,
            });
            distribution.count(visit.visit_id);
            distribution.values.add(value);
        }
        let of_functions = &mut group.functions[usize::from(loss)];
        for estimate in functions {
            let distribution = &mut of_functions
                .at(estimate.event, estimate.function)
                .distribution;
            let samples = f64::from(estimate.samples);
            distribution.count(visit.visit_id);
            distribution.samples += u64::from(estimate.samples);
            distribution.squared += samples * samples;
            distribution.product += samples * self.samples[usize::from(estimate.event.0)] as f64;
            distribution.active += samples * active;
            if let Some(own) = estimate.self_ns() {
                distribution.values.add(own);
            }
        }
    }

    /// Takes in a wait of a visit that [`Keeper::visit`] has taken in.
    pub fn wait(
        &mut self,
        visit: &ClosedVisit<'_>,
        function: Option<FunctionId>,
        state: &'static str,
        ns: i64,
    ) {
        if self.keeps_all() || visit.end.is_none() {
            return;
        }
        let Some(group) = self.groups.get_mut(&Group::of(visit)) else {
            return;
        };
        let distribution = group.at(Key {
            loss: visit.flags & visit_flag::LOSS != 0,
            measure: state,
            event: None,
            function,
        });
        distribution.count(visit.visit_id);
        distribution.samples += 1;
        distribution.values.add(ns.max(0) as f64);
    }

    /// Whether the interval is over at this time since the trace began.
    pub fn is_due(&self, now: Duration) -> bool {
        !self.keeps_all() && now.saturating_sub(self.since) >= self.interval
    }

    /// Ends the interval: hands out a row for each distribution that has a visit, by group and key,
    /// and begins the next.
    pub fn end_interval(&mut self, now: Duration, mut take: impl FnMut(&FunctionStatRow)) {
        let mut groups: Vec<(&Group, &mut GroupState)> = self.groups.iter_mut().collect();
        groups.sort_by_key(|(group, _)| group.0);
        let row = &mut self.row;
        row.begin_ns = TraceNs(self.since.as_nanos() as i64);
        row.end_ns = TraceNs(now.as_nanos() as i64);
        for (group, state) in groups {
            row.probe_id = group.0;
            let visits = state.visits;
            for (key, distribution) in state.met() {
                row.visits = visits[usize::from(key.loss)];
                fill(row, key, distribution);
                take(row);
                distribution.clear();
            }
            state.visits = [0; 2];
        }
        self.since = now;
    }
}

fn group<'a>(
    groups: &'a mut FxHashMap<Group, GroupState>,
    visit: &ClosedVisit<'_>,
    keep: Keep,
) -> &'a mut GroupState {
    groups
        .entry(Group::of(visit))
        .or_insert_with(|| GroupState {
            baseline: GroupBaseline::new(match keep {
                Keep::Slow(rule) => rule,
                Keep::All | Keep::None => Rule::default(),
            }),
            functions: Default::default(),
            distributions: FxHashMap::default(),
            visits: [0; 2],
        })
}

fn duration(visit: &ClosedVisit<'_>) -> Option<u64> {
    visit
        .end
        .map(|(end, _)| (end.0 - visit.begin.0.0).max(0) as u64)
}

fn fill(row: &mut FunctionStatRow, key: Key, distribution: &Distribution) {
    let sampled = key.event.is_some();
    let whole = matches!(key.measure, measure::DURATION | measure::ONCPU);
    let Distribution {
        visits_with,
        last: _,
        samples,
        squared,
        product,
        active,
        values,
    } = distribution;
    row.measure = key.measure;
    row.function_id = key.function;
    row.event = key.event;
    row.loss = key.loss;
    row.visits_with = *visits_with;
    row.samples = (!whole).then_some(*samples);
    row.samples_squared = sampled.then_some(*squared);
    row.samples_product = sampled.then_some(*product);
    row.samples_active_ns = sampled.then_some(*active);
    row.sum_ns = values.range.map(|_| values.sum);
    row.sum_squared = values.range.map(|_| values.squared);
    row.min_ns = values.range.map(|(low, _)| low);
    row.max_ns = values.range.map(|(_, high)| high);
    row.bucket_ns.clear();
    row.bucket_count.clear();
    for (bucket, count) in values.sketch.buckets() {
        row.bucket_ns.push(middle(bucket) as i64);
        row.bucket_count.push(count);
    }
}
