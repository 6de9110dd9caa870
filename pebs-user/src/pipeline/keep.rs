//! Decides, when a visit closes, whether its details are kept or only its part in the aggregates.
//!
//! The decision is made at the visit's end, with all its samples, so that a kept visit is complete. Every visit enters
//! the aggregates, kept or not, and every complete visit the baseline. A visit that overlaps a loss or whose end is
//! unknown is kept, as it may be slow, but is not part of the baseline.
//!
//! Visits of a probe are compared with one another, and with those of their kind ([`kinds`]).
//!
//! Memory: two or three sketches per function and group: typically 8 KiB, at most 45 KiB.

mod distributions;
mod kinds;

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::correlate::ClosedVisit;
use crate::estimate::FunctionEstimate;
use crate::estimate::baseline::{GroupBaseline, Rule, Verdict};
use crate::estimate::sketch::middle;
use crate::estimate::slow_by::{RankBy, SlowBy};
use crate::store::run::KeptVisits;
use crate::store::schema::{FunctionStatRow, measure, visit_flag};
use crate::units::{FunctionId, ProbeId, TraceNs};
use distributions::{Distribution, Functions, Key, Products};
use kinds::Kinds;

/// Visits that keep their details.
///
/// If all do there are no aggregates: they can be computed from `visit_functions`, which is exact and can be merged as
/// well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Keep {
    /// All visits; no aggregates are made.
    #[default]
    All,
    /// Visits that deviate from the baseline of their group.
    Slow(SlowBy),
    /// No visit.
    None,
}

/// State of the visits that are compared with one another: those of a probe.
#[derive(Debug)]
struct Group {
    baseline: GroupBaseline,
    kinds: Kinds,
    /// Distributions of functions, in visits without and with loss.
    functions: [Functions; 2],
    /// Distributions of visits as a whole, without and with loss.
    whole: [WholeVisits; 2],
    /// All other distributions.
    distributions: FxHashMap<Key, Distribution>,
}

/// Visits of the interval as a whole.
#[derive(Debug, Default)]
struct WholeVisits {
    visits: u64,
    durations: Distribution,
    oncpu: Distribution,
}

impl WholeVisits {
    fn iter_mut(&mut self) -> [(&'static str, &mut Distribution); 2] {
        [
            (measure::DURATION, &mut self.durations),
            (measure::ONCPU, &mut self.oncpu),
        ]
    }
}

impl Group {
    fn new(keep: Keep) -> Self {
        let rule = match keep {
            Keep::Slow(slow) => slow.rule.unwrap_or_default(),
            Keep::All | Keep::None => Rule::default(),
        };
        Self {
            baseline: GroupBaseline::new(rule),
            kinds: Kinds::new(rule),
            functions: Default::default(),
            whole: Default::default(),
            distributions: FxHashMap::default(),
        }
    }

    /// The distributions with at least one visit, sorted by key.
    fn met(&mut self) -> Vec<(Key, &mut Distribution)> {
        let others = self.distributions.iter_mut().map(|(key, it)| (*key, it));
        let whole = [false, true].into_iter().zip(&mut self.whole);
        let whole = whole.flat_map(|(loss, whole)| {
            whole.iter_mut().into_iter().map(move |(measure, it)| {
                let key = Key {
                    loss,
                    measure,
                    event: None,
                    function: None,
                };
                (key, it)
            })
        });
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
        let met = others.chain(whole).chain(functions);
        let mut met: Vec<_> = met.filter(|(_, it)| it.visits_with > 0).collect();
        met.sort_by_key(|(key, _)| *key);
        met
    }
}

/// Events that the samples of a visit's functions stand for; 0: unknown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Weights<'a> {
    /// All samples are of one event, and each stands for as many.
    Same(u64),
    /// Those of each function, in order.
    Each(&'a [u64]),
}

/// Decides which visits to keep, and aggregates all.
#[derive(Debug)]
pub(super) struct Keeper {
    keep: Keep,
    interval: Duration,
    /// Begin of the interval, since the begin of the trace.
    since: Duration,
    /// By probe.
    groups: Vec<Option<Box<Group>>>,
    /// Samples of the current visit, and the events that they stand for, by event.
    all: Vec<(u64, u64)>,
    row: FunctionStatRow<'static>,
    pub kept: KeptVisits,
}

impl Keeper {
    /// A keeper that writes aggregates every `interval` of trace time.
    pub(super) fn new(keep: Keep, interval: Duration) -> Self {
        Self {
            keep,
            interval,
            since: Duration::ZERO,
            groups: Vec::new(),
            all: Vec::new(),
            row: FunctionStatRow::default(),
            kept: KeptVisits::default(),
        }
    }

    /// Whether every visit is kept, so that there are no aggregates.
    pub(super) fn keeps_all(&self) -> bool {
        self.keep == Keep::All
    }

    /// Takes a visit with the estimates of its functions, and the events that their samples stand for; returns whether its
    /// details are kept. It is judged by its net time, if known, or by its time on the CPU, if that was asked for.
    ///
    /// Cost: O(functions of the visit); allocates for new functions.
    pub(super) fn visit(
        &mut self,
        visit: &ClosedVisit<'_>,
        net_ns: Option<i64>,
        functions: &[FunctionEstimate],
        weights: &Weights<'_>,
    ) -> bool {
        if self.keeps_all() {
            return true;
        }
        self.aggregate(visit, net_ns, functions, weights);
        if self.keep == Keep::None {
            return false;
        }
        let lost = visit.flags & visit_flag::LOSS != 0;
        let net = net_ns.map(|ns| ns.max(0).cast_unsigned());
        let judged = match self.keep {
            Keep::Slow(SlowBy {
                by: RankBy::CpuTime,
                ..
            }) => net_on_cpu(visit, net_ns).map(i64::cast_unsigned),
            _ => net.or(duration(visit)),
        };
        let duration = match judged {
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
        let of_kind = group.kinds.judge(visit.args, duration);
        match verdict {
            Verdict::Usual => match of_kind {
                Some(Verdict::Slow) => self.kept.slow_for_kind += 1,
                Some(Verdict::WarmingUp) => self.kept.warm_up += 1,
                _ => return false,
            },
            Verdict::WarmingUp => self.kept.warm_up += 1,
            Verdict::Slow => self.kept.slow += 1,
            Verdict::SlowFunction => self.kept.slow_function += 1,
        }
        true
    }

    /// Adds a visit to the aggregates, with its net time if known.
    fn aggregate(
        &mut self,
        visit: &ClosedVisit<'_>,
        net_ns: Option<i64>,
        functions: &[FunctionEstimate],
        weights: &Weights<'_>,
    ) {
        let Some(duration) = duration(visit) else {
            return;
        };
        let net = net_ns.map_or(duration, |ns| (ns.max(0) as u64).min(duration));
        let loss = usize::from(visit.flags & visit_flag::LOSS != 0);
        let group = group(&mut self.groups, visit, self.keep);
        let (whole, of_functions) = (&mut group.whole[loss], &mut group.functions[loss]);
        whole.visits += 1;
        whole.durations.count(visit.visit_id);
        whole.durations.values.add(net as i64 as f64);
        let mut active = net as i64 as f64;
        if let Some(oncpu) = net_on_cpu(visit, net_ns) {
            active = oncpu as f64;
            whole.oncpu.count(visit.visit_id);
            whole.oncpu.values.add(active);
        }
        match weights {
            Weights::Same(weight) => {
                let all = functions.iter().map(|it| u64::from(it.samples)).sum();
                for estimate in functions {
                    let distribution = counted(of_functions, visit.visit_id, estimate);
                    distribution.add(estimate.samples, all, *weight, active);
                }
            }
            Weights::Each(events) => {
                all_of_events(&mut self.all, functions, events);
                for (estimate, events) in functions.iter().zip(*events) {
                    let (all_samples, all_events) = self.all[usize::from(estimate.event.0)];
                    let samples = (estimate.samples, all_samples);
                    let events = (*events, all_events);
                    let distribution = counted(of_functions, visit.visit_id, estimate);
                    distribution.add_weighed(samples, events, active);
                }
            }
        }
    }

    /// Adds a wait of a visit already passed to [`Keeper::visit`].
    pub(super) fn wait(
        &mut self,
        visit: &ClosedVisit<'_>,
        function: Option<FunctionId>,
        state: &'static str,
        ns: i64,
    ) {
        if self.keeps_all() || visit.end.is_none() {
            return;
        }
        let group = self.groups.get_mut(usize::from(visit.probe.0));
        let Some(group) = group.and_then(Option::as_mut) else {
            return;
        };
        let key = Key {
            loss: visit.flags & visit_flag::LOSS != 0,
            measure: state,
            event: None,
            function,
        };
        let distribution = group.distributions.entry(key).or_default();
        distribution.count(visit.visit_id);
        distribution.samples += 1;
        distribution.values.add(ns.max(0) as f64);
    }

    /// Whether the interval is over at `now`, the time since the trace began.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        !self.keeps_all() && now.saturating_sub(self.since) >= self.interval
    }

    /// Ends the interval: passes a row for each distribution with a visit to `take`, sorted by group and key, and
    /// begins the next.
    pub(super) fn end_interval(
        &mut self,
        now: Duration,
        mut take: impl FnMut(&FunctionStatRow<'_>),
    ) {
        let row = &mut self.row;
        row.begin_ns = TraceNs(self.since.as_nanos() as i64);
        row.end_ns = TraceNs(now.as_nanos() as i64);
        for (probe, group) in (0..=u16::MAX).zip(&mut self.groups) {
            let Some(group) = group else { continue };
            row.probe_id = ProbeId(probe);
            let visits = group.whole.each_ref().map(|it| it.visits);
            for (key, distribution) in group.met() {
                row.visits = visits[usize::from(key.loss)];
                fill(row, key, distribution);
                take(row);
                distribution.clear();
            }
            group.whole.iter_mut().for_each(|it| it.visits = 0);
        }
        self.since = now;
    }
}

#[inline]
fn group<'a>(
    groups: &'a mut Vec<Option<Box<Group>>>,
    visit: &ClosedVisit<'_>,
    keep: Keep,
) -> &'a mut Group {
    let probe = usize::from(visit.probe.0);
    if probe >= groups.len() {
        groups.resize_with(probe + 1, || None);
    }
    groups[probe].get_or_insert_with(|| Box::new(Group::new(keep)))
}

/// The distribution of a function's times, with that in a visit.
#[inline]
fn counted<'a>(
    functions: &'a mut Functions,
    visit_id: u64,
    estimate: &FunctionEstimate,
) -> &'a mut Distribution {
    let of = functions.at(estimate.event, estimate.function);
    of.distribution.count(visit_id);
    if let Some(own) = estimate.self_ns() {
        of.distribution.values.add(own);
    }
    &mut of.distribution
}

/// Adds up samples and events of the functions of a visit, by event.
fn all_of_events(all: &mut Vec<(u64, u64)>, functions: &[FunctionEstimate], events: &[u64]) {
    all.fill((0, 0));
    for (estimate, events) in functions.iter().zip(events) {
        let event = usize::from(estimate.event.0);
        if event >= all.len() {
            all.resize(event + 1, (0, 0));
        }
        all[event].0 += u64::from(estimate.samples);
        all[event].1 += events;
    }
}

/// Time on the CPU of a visit with this net time, without pebs-trace's own time as far as known, ns; `None` if unknown.
fn net_on_cpu(visit: &ClosedVisit<'_>, net_ns: Option<i64>) -> Option<i64> {
    let duration = duration(visit)?;
    let net = net_ns.map_or(duration, |ns| (ns.max(0) as u64).min(duration));
    Some((visit.oncpu_ns()? - (duration - net) as i64).max(0))
}

fn duration(visit: &ClosedVisit<'_>) -> Option<u64> {
    visit
        .end
        .map(|(end, _)| (end.0 - visit.begin.0.0).max(0) as u64)
}

fn fill(row: &mut FunctionStatRow<'_>, key: Key, distribution: &mut Distribution) {
    let sampled = key.event.is_some();
    let whole = matches!(key.measure, measure::DURATION | measure::ONCPU);
    let (events, by_events) = distribution.events();
    let Distribution {
        visits_with,
        samples,
        by_samples,
        values,
        ..
    } = distribution;
    row.measure = key.measure;
    row.function_id = key.function;
    row.event = key.event;
    row.loss = key.loss;
    row.visits_with = *visits_with;
    row.samples = (!whole).then_some(*samples);
    let products = |it: &Products, known: bool| {
        [it.squared, it.product, it.active].map(|sum| known.then_some(sum))
    };
    [
        row.samples_squared,
        row.samples_product,
        row.samples_active_ns,
    ] = products(by_samples, sampled);
    let counted = events > 0;
    row.events = counted.then_some(events);
    [row.events_squared, row.events_product, row.events_active_ns] = products(&by_events, counted);
    let any = !values.sketch.is_empty();
    row.sum_ns = any.then_some(values.sum);
    row.sum_squared = any.then_some(values.squared);
    row.min_ns = any.then_some(values.low);
    row.max_ns = any.then_some(values.high);
    row.bucket_ns.clear();
    row.bucket_count.clear();
    for (bucket, count) in values.sketch.buckets() {
        row.bucket_ns.push(middle(bucket) as i64);
        row.bucket_count.push(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::{Batch, Counts, EventCounts, OwnWork};
    use crate::store::schema::InterferenceColumns;
    use crate::stream::samples::Samples;
    use crate::units::{Cpu, Pid, Tid};

    /// By time on the CPU visits are kept by that, less pebs-trace's own, whatever they waited; where it is unknown they are
    /// kept as well.
    #[test]
    fn by_time_on_the_cpu() {
        let (batch, events) = (Batch::default(), EventCounts::default());
        let kept = |rule: &str, (duration, oncpu, own): (i64, i64, i64), switches| {
            let keep = Keep::Slow(rule.parse().unwrap());
            let mut keeper = Keeper::new(keep, Duration::from_secs(1));
            let visit = ClosedVisit {
                visit_id: 1,
                item_id: 1,
                probe: ProbeId(0),
                pid: Pid(1),
                tid: Tid(1),
                threads: &[],
                begin: (TraceNs(0), Cpu(0)),
                end: Some((TraceNs(duration), Some(Cpu(0)))),
                flags: 0,
                args: &[],
                batch: &batch,
                active: &[(TraceNs(0), TraceNs(oncpu))],
                shared_ns: 0,
                switches,
                page_faults: false,
                counts: Counts::default(),
                interference: InterferenceColumns::default(),
                own: OwnWork::default(),
                samples: Samples::default(),
                waits: &[],
                mark_waits: (0, 0),
                events: &events,
            };
            let is_kept = keeper.visit(&visit, Some(duration - own), &[], &Weights::Same(0));
            (is_kept, keeper.kept.slow, keeper.kept.unknown)
        };
        let (slow, usual, unknown) = ((true, 1, 0), (false, 0, 0), (true, 0, 1));
        assert_eq!(kept("50us", (80_000, 20_000, 0), true), slow);
        assert_eq!(kept("cpu:50us", (80_000, 20_000, 0), true), usual);
        assert_eq!(kept("cpu:50us", (80_000, 60_000, 0), true), slow);
        assert_eq!(kept("cpu:50us", (80_000, 60_000, 15_000), true), usual);
        assert_eq!(kept("cpu:50us", (80_000, 60_000, 0), false), unknown);
    }
}
