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

use crate::correlate::ClosedVisit;
use crate::estimate::FunctionEstimate;
use crate::estimate::baseline::{GroupBaseline, Rule, Verdict};
use crate::estimate::sketch::middle;
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

/// What is known of visits that are compared with one another: those of a probe.
#[derive(Debug)]
struct Group {
    baseline: GroupBaseline,
    /// Of functions, in visits without loss and with.
    functions: [Functions; 2],
    /// Of visits as a whole, likewise.
    whole: [Whole; 2],
    /// Of everything else.
    distributions: FxHashMap<Key, Distribution>,
}

/// Visits of the interval as a whole.
#[derive(Debug, Default)]
struct Whole {
    visits: u64,
    durations: Distribution,
    oncpu: Distribution,
}

impl Whole {
    fn iter_mut(&mut self) -> [(&'static str, &mut Distribution); 2] {
        [
            (measure::DURATION, &mut self.durations),
            (measure::ONCPU, &mut self.oncpu),
        ]
    }
}

impl Group {
    fn new(keep: Keep) -> Self {
        Self {
            baseline: GroupBaseline::new(match keep {
                Keep::Slow(rule) => rule,
                Keep::All | Keep::None => Rule::default(),
            }),
            functions: Default::default(),
            whole: Default::default(),
            distributions: FxHashMap::default(),
        }
    }

    /// The distributions that have a visit, by key.
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

/// Decides, and aggregates.
#[derive(Debug)]
pub(super) struct Keeper {
    keep: Keep,
    interval: Duration,
    /// Begin of the interval.
    since: Duration,
    /// By probe.
    groups: Vec<Option<Box<Group>>>,
    /// Samples of each event in the visit at hand.
    samples: Vec<u64>,
    row: FunctionStatRow<'static>,
    pub kept: KeptVisits,
}

impl Keeper {
    /// A keeper whose aggregates are written every `interval` of trace time.
    pub(super) fn new(keep: Keep, interval: Duration) -> Self {
        Self {
            keep,
            interval,
            since: Duration::ZERO,
            groups: Vec::new(),
            samples: Vec::new(),
            row: FunctionStatRow::default(),
            kept: KeptVisits::default(),
        }
    }

    /// Whether everything is kept, and there are no aggregates.
    pub(super) fn keeps_all(&self) -> bool {
        self.keep == Keep::All
    }

    /// Takes in a visit with the estimates of its functions; says whether its details are kept. It is judged by its net
    /// time where that is known.
    ///
    /// Cost: O(functions of the visit); allocates for functions that are new.
    pub(super) fn visit(
        &mut self,
        visit: &ClosedVisit<'_>,
        net_ns: Option<i64>,
        functions: &[FunctionEstimate],
    ) -> bool {
        if self.keeps_all() {
            return true;
        }
        self.aggregate(visit, net_ns, functions);
        if self.keep == Keep::None {
            return false;
        }
        let lost = visit.flags & visit_flag::LOSS != 0;
        let net = net_ns.map(|ns| ns.max(0).cast_unsigned());
        let duration = match net.or(duration(visit)) {
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

    /// Aggregates are of net times, where these are known.
    fn aggregate(
        &mut self,
        visit: &ClosedVisit<'_>,
        net_ns: Option<i64>,
        functions: &[FunctionEstimate],
    ) {
        let Some(duration) = duration(visit) else {
            return;
        };
        let net = net_ns.map_or(duration, |ns| (ns.max(0) as u64).min(duration));
        let own = (duration - net) as i64;
        self.samples.fill(0);
        for estimate in functions {
            let event = usize::from(estimate.event.0);
            if event >= self.samples.len() {
                self.samples.resize(event + 1, 0);
            }
            self.samples[event] += u64::from(estimate.samples);
        }
        let loss = usize::from(visit.flags & visit_flag::LOSS != 0);
        let group = group(&mut self.groups, visit, self.keep);
        let (whole, of_functions) = (&mut group.whole[loss], &mut group.functions[loss]);
        whole.visits += 1;
        whole.durations.count(visit.visit_id);
        whole.durations.values.add(net as i64 as f64);
        let mut active = net as i64 as f64;
        if let Some(oncpu) = visit.oncpu_ns() {
            active = (oncpu - own).max(0) as f64;
            whole.oncpu.count(visit.visit_id);
            whole.oncpu.values.add(active);
        }
        for estimate in functions {
            let distribution = &mut of_functions
                .at(estimate.event, estimate.function)
                .distribution;
            let samples = f64::from(estimate.samples);
            let all = self.samples[usize::from(estimate.event.0)] as i64 as f64;
            distribution.count(visit.visit_id);
            distribution.samples += u64::from(estimate.samples);
            distribution.squared += samples * samples;
            distribution.product += samples * all;
            distribution.active += samples * active;
            if let Some(own) = estimate.self_ns() {
                distribution.values.add(own);
            }
        }
    }

    /// Takes in a wait of a visit that [`Keeper::visit`] has taken in.
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

    /// Whether the interval is over at this time since the trace began.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        !self.keeps_all() && now.saturating_sub(self.since) >= self.interval
    }

    /// Ends the interval: hands out a row for each distribution that has a visit, by group and key,
    /// and begins the next.
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

fn duration(visit: &ClosedVisit<'_>) -> Option<u64> {
    visit
        .end
        .map(|(end, _)| (end.0 - visit.begin.0.0).max(0) as u64)
}

fn fill(row: &mut FunctionStatRow<'_>, key: Key, distribution: &Distribution) {
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
