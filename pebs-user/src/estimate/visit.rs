//! Estimates the time of each function within one visit, from the visit's samples.
//!
//! # The estimate
//!
//! A visit has an *active clock*: the time that its thread has spent on a CPU with this visit as its current one. It is
//! 0 at the begin mark, and the total active time at the end mark; both are known from marks and context switches, not
//! from samples. Every sample is put on that clock (one outside of the active time, because of clock jitter, goes to
//! the nearest instant inside), and owns the time from half way to the sample before it to half way to the sample after
//! it; the first owns from 0, the last to the total. `self_ns` of a function is the time owned by its samples. Each
//! event is estimated separately, one that is no clock by the rates of functions (`by_rate`). The sum over functions is
//! exactly the total: nothing is lost or counted twice.
//!
//! *The pause.* Taking a sample stops the code: the thread continues only when the interrupt is over. The sample's time
//! is read during the interrupt, `before` after its begin and `after` before its end ([`Pause`], measured on the
//! machine before the run). No function can change during the pause, so it belongs to the sampled function as a whole,
//! and a gap reaches from the end of one pause to the begin of the next. Without this every change would be misplaced
//! by (`before` - `after`)/2, which cancels within a visit but not for its first and last function, and the error would
//! be overstated by the pause's share of the interval. *Worked number*: samples of f and g at 10 and 26 us, 1 before
//! and 3 after: the gap is 13..25 us, the change is put at 19 us (not 18) with a variance of 12²/12 us² (not 16²/12).
//! Pauses differ; the variance of the middle between two is added to that of each change.
//!
//! *Assumption*: the phase of sampling is independent of the code. Then a change of function between two samples is
//! equally likely anywhere between them, and half way is unbiased.
//!
//! # Its standard error
//!
//! *Inner gaps.* A gap of length g between samples of two *different* functions holds a change at an unknown place,
//! uniform over g: half way is wrong by a standard deviation of g/sqrt(12). The variance g²/12 goes to both functions.
//! A gap between two samples of the same function contributes nothing: the second assumption is that it holds no other
//! function. It fails for functions shorter than the gap.
//!
//! *Outer parts.* Begin and end are exact, but the part of length e before the first (after the last) sample may hold a
//! function without a sample. The probability is learnt from the visit itself: with n samples, c of whose n-1 inner
//! gaps hold a change, an interval of the mean length ḡ = total/n holds one with probability q = (c + 1/2) / n (half a
//! change is assumed beforehand, so that an unknown never looks certain), and e holds one with probability p = min(1, q
//! e/ḡ). If it does, the sampled function had only a uniform part of the e it was given: a mean square error of e²/3.
//! The variance p e²/3 goes to the function of the first (last) sample.
//!
//! *Short stays.* If functions alternate faster than samples come, gaps hold more than one change: with stays much
//! shorter than the gap each sample is an independent draw, and a gap between f and another function has a variance of
//! g²/2, six times as much. How near that is shows in the number of runs of f's samples: with k runs of m samples of n,
//! k - 1 is (m - 1)(n - m)/n on average for independent draws, and 0 where f stays. With r = (k - 1) / (1 + (m - 1)(n -
//! m)/n), at most 1, the variance is 1 + 5r³ times that of the gaps (the 1 in the denominator is one more possible
//! change; the power is fitted to the simulations below).
//!
//! *Sampled bounds.* Where the item's id is read at samples, begin and end themselves are half way between two samples,
//! and a change is certain to lie there: p = 1. With e half of the gap g, e²/3 is the g²/12 of an inner gap.
//!
//! *Worked number.* Samples at 6, 16, 26, 36 us of an active time of 40 us, functions f f g g.
//! f owns 0..21 us, g owns 21..40 us. The inner change at gap 10 us gives 100/12 = 8.33 us² to
//! both. n = 4, c = 1: q = 1.5/4 = 0.375, ḡ = 10 us. Begin: e = 6 us, p = 0.225, 0.225 x 36/3 =
//! 2.7 us². End: e = 4 us, p = 0.15, 0.15 x 16/3 = 0.8 us². So f = 21 ± sqrt(11.03) = 3.3 us and
//! g = 19 ± sqrt(9.13) = 3.0 us.
//!
//! # Where it does not hold
//!
//! *Work tied to samples.* Work that waits for a point in time (it spins until a deadline) is delayed by each sample,
//! so the changes of its functions are correlated with the samples: a last function was 13 % low, with a standard error
//! of 0.7 %. Distances between samples that vary (`pmu/jitter.rs`) don't loosen that, as each sample delays the same
//! work; and each distance holds for many samples, as the kernel sets none by chance at a sample.
//!
//! Measured by the simulations at the foot of this file (sample interval 1, phase random, 95 %
//! interval = ± 1.96 standard errors):
//!
//! | visit | bias of a function's mean | 95 % interval holds the truth |
//! |---|---|---|
//! | 12 segments of 4 functions, 2..8 intervals each | < 0.1 % | 95.5..96.1 % |
//! | the same, samples off the grid by up to 0.2 | < 0.1 % | 95.6..96.1 % |
//! | 4 segments of 2 functions, 5..9 intervals each | < 0.1 % | 96.4 % |
//! | 3 segments of 3 functions, 5..9 intervals each | < 0.1 % | 98.1 % (one or two changes: too wide) |
//! | 12 segments of 4 functions, 0.5..1.5 intervals each | < 0.4 % | 94..95 % |
//! | 40 segments of 4 functions, 0.1..1 intervals each | < 0.4 % | 92 % |
//! | 40 segments of 4 functions, 0..0.4 intervals each | < 0.5 % | 73 % |
//!
//! So for functions whose stays are shorter than about one interval the time is still unbiased, but in visits with few
//! samples the standard error is too small: pool many visits instead. The only bias is for a function that stays d < g
//! at the very begin or end of a visit and nowhere else: it gets d/2 + d²/(2g) on average instead of d (d = 0.5 g: 25 %
//! low), and its neighbour gets the rest.
//!
//! A change of the reset value within a visit (`--max-overhead`) doesn't affect times: each sample owns the actual gaps
//! around it. Inner gaps have the variance of their own length; only the outer parts use the mean gap of the visit,
//! which is then neither that before nor that after.
//!
//! The part of a begin mark's probe after the mark, and the part of an end mark's before it, lie within the visit and
//! act like a function: mostly without a sample, so half of it (0.3 us where a mark costs 0.7) goes to the first and
//! last function. Where a sample's pause takes more than half of the interval, the time between two pauses is about as
//! long as pauses differ: times stay unbiased, but the standard error is too small (84 % instead of 95 % at a pause of
//! 14.4 us every 16 us). `pebs-trace validate` measures it on the machine at hand.
//!
//! Source: design page 7; the published estimate is Akiyama 2018, section III.D, step 3.

mod active;
mod by_rate;
mod ends;
mod series;

use active::ActiveClock;
use by_rate::ByRate;
use ends::RunEnds;
pub use series::{Events, Series, SeriesBuf, TimedSample};

use crate::units::{EventId, FunctionId, TraceNs};

/// Input of the estimator: one visit.
#[derive(Clone, Copy, Debug)]
pub struct VisitTimeline<'a> {
    /// Time of the begin mark.
    pub begin: TraceNs,
    /// Time of the end mark; `None` if it is missing: the functions' times are then unknown.
    pub end: Option<TraceNs>,
    /// Intervals during which the thread was on a CPU *and* this visit was its current one: half-open, sorted,
    /// disjoint, within `[begin, end)`. The whole of `[begin, end)` if switches were not recorded and nothing overlaps.
    /// Empty: unknown.
    pub active: &'a [(TraceNs, TraceNs)],
    /// Samples of all events, sorted by time.
    pub samples: Series<'a>,
}

impl VisitTimeline<'_> {
    /// Total active time in ns; `None` if the end or the active intervals are unknown.
    #[must_use]
    pub fn total_active_ns(&self) -> Option<i64> {
        self.end?;
        let total: i64 = self.active.iter().map(|(from, to)| to.0 - from.0).sum();
        (total > 0).then_some(total)
    }
}

/// Estimate of one function in one visit by one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionEstimate {
    pub function: FunctionId,
    pub event: EventId,
    /// Number of samples of the function.
    pub samples: u32,
    /// Number of runs of these, separated by samples of other functions.
    runs: u32,
    /// Time of its first sample.
    pub first: TraceNs,
    /// Time of its last sample.
    pub last: TraceNs,
    /// Time owned, in half ns: exact.
    half_ns: i64,
    /// Variance of the time in ns²; [`UNKNOWN`] if the time is unknown.
    variance: f64,
}

/// Rule by which times of functions follow from an event's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventTime {
    /// Not at all: the event happens now and then.
    #[default]
    None,
    /// It is time.
    Clock,
    /// It goes on at all times, in each function at a rate of its own.
    Steady,
}

/// Stands for an unknown variance: its square root is NaN.
const UNKNOWN: f64 = -1.0;

impl FunctionEstimate {
    /// Last - first, in ns of wall time: the published estimate.
    #[inline]
    #[must_use]
    pub const fn span_ns(&self) -> i64 {
        self.last.0 - self.first.0
    }

    /// Our estimate of its active time, ns; `None` for events that don't go on at all times, and where the visit's active
    /// time is unknown.
    #[inline]
    #[must_use]
    pub fn self_ns(&self) -> Option<f64> {
        self.is_timed().then_some(self.half_ns as f64 / 2.0)
    }

    /// Standard error of [`FunctionEstimate::self_ns`], ns, rounded to 1 in 128; `None` where that is `None`.
    #[inline]
    #[must_use]
    pub fn self_stderr_ns(&self) -> Option<f64> {
        Some(self.self_stderr_or_nan()).filter(|error| !error.is_nan())
    }

    /// The same; NaN where it is unknown. Without a branch, for columns.
    #[inline(always)]
    pub(crate) fn self_stderr_or_nan(&self) -> f64 {
        // An unknown variance is negative, and its root NaN.
        rounded(self.variance.sqrt())
    }

    #[inline]
    fn is_timed(&self) -> bool {
        self.variance >= 0.0
    }
}

/// Time that the code is stopped by a sample: from `before` the sample's time until `after` it. ns; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// From the begin of the interrupt to the reading of the sample's time.
    pub before: i64,
    /// From there to the end of the interrupt.
    pub after: i64,
    /// Standard deviation of the middle between two pauses, as their lengths differ.
    pub spread: i64,
}

/// Bits of a standard error behind its first one: precise to 1 in 128, as its assumptions hold to some percent (the
/// intervals above hold the truth 95..98 times in 100). Further bits are noise, and take five and a half bytes of the
/// trace for every function of every visit.
const STDERR_BITS: u32 = 6;

/// Rounds to [`STDERR_BITS`]; `value` is finite, or NaN, which stays NaN.
#[inline(always)]
fn rounded(value: f64) -> f64 {
    const REST: u32 = f64::MANTISSA_DIGITS - 1 - STDERR_BITS;
    // A carry out of the mantissa is the next power of two.
    f64::from_bits((value.to_bits().wrapping_add(1 << (REST - 1))) & !((1 << REST) - 1))
}

/// A division would take longer than the rest of the work for a gap.
const TWELFTH: f64 = 1.0 / 12.0;

/// Estimates visits one after another; reuses its memory.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    /// By `EventId`.
    events: Vec<EventTime>,
    rules: Rules,
    places: Places,
    by_rate: ByRate,
    /// Samples of one event, for visits with several events.
    times: Vec<TraceNs>,
    functions: Vec<FunctionId>,
}

/// Settings that are the same for all visits.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    /// Pause of every sample.
    pause: Pause,
    /// Whether begin and end of visits come from samples.
    sampled_bounds: bool,
}

/// The samples of one event in a visit, sorted by time.
#[derive(Clone, Copy, Debug)]
struct OfEvent<'a> {
    event: EventId,
    time: EventTime,
    times: &'a [TraceNs],
    functions: &'a [FunctionId],
}

/// Row of each function in the current visit and event; the memory is reused.
#[derive(Clone, Debug, Default)]
struct Places {
    /// By function: number of its row among all rows ever made, from 1. `before` or less for rows of other visits and
    /// events.
    numbers: Vec<u64>,
    /// Number of rows of all visits and events before this one.
    before: u64,
}

impl Estimator {
    /// Returns an estimator for a run whose event `EventId(i)` gives times as `events[i]` says, and one beyond
    /// the slice none.
    #[must_use]
    pub fn new(events: &[EventTime]) -> Self {
        Self {
            events: events.to_vec(),
            ..Self::default()
        }
    }

    /// Sets the pause measured on this machine.
    #[must_use]
    pub const fn with_pause(mut self, pause: Pause) -> Self {
        self.rules.pause = pause;
        self
    }

    /// Estimates each visit by itself: rates are not learnt from earlier ones, so that it doesn't matter in which order, by
    /// how many estimators, and how often visits are estimated.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.by_rate.set_alone();
        self
    }

    /// Begin and end of visits come from samples.
    #[must_use]
    pub const fn with_sampled_bounds(mut self) -> Self {
        self.rules.sampled_bounds = true;
        self
    }

    /// Appends an estimate for each function and event of the visit to `out`, in order of their first samples. A visit
    /// without samples gives none. Functions' rates of steady events are learnt from all visits so far.
    ///
    /// Cost: O(samples + active intervals) for each event; no allocation once the memory has grown.
    #[inline]
    pub fn estimate(&mut self, visit: &VisitTimeline<'_>, out: &mut Vec<FunctionEstimate>) {
        let Series {
            times,
            functions,
            events,
        } = visit.samples;
        match events {
            Events::All(event) => {
                let of = OfEvent {
                    event,
                    time: time_of(&self.events, event),
                    times,
                    functions,
                };
                let by_rate = &mut self.by_rate;
                self.places.estimate(visit, &of, self.rules, by_rate, out);
            }
            Events::Each(events) => self.estimate_each(visit, events, out),
        }
    }

    /// Estimates the events of a visit one by one.
    #[cold]
    fn estimate_each(
        &mut self,
        visit: &VisitTimeline<'_>,
        events: &[EventId],
        out: &mut Vec<FunctionEstimate>,
    ) {
        let Self {
            events: event_times,
            rules,
            places,
            by_rate,
            times,
            functions,
        } = self;
        let Some(most) = events.iter().max() else {
            return;
        };
        let begin = out.len();
        for event in 0..=most.0 {
            let of = |at: &usize| events[*at].0 == event;
            let samples = (0..events.len()).filter(of);
            functions.clear();
            functions.extend(samples.clone().map(|at| visit.samples.functions[at]));
            if functions.is_empty() {
                continue;
            }
            times.clear();
            times.extend(samples.map(|at| visit.samples.times[at]));
            let of = OfEvent {
                event: EventId(event),
                time: time_of(event_times, EventId(event)),
                times,
                functions,
            };
            places.estimate(visit, &of, *rules, by_rate, out);
        }
        out[begin..].sort_by_key(|estimate| estimate.first);
    }
}

impl Places {
    /// Appends the estimates of one event.
    fn estimate(
        &mut self,
        visit: &VisitTimeline<'_>,
        of: &OfEvent<'_>,
        rules: Rules,
        by_rate: &mut ByRate,
        out: &mut Vec<FunctionEstimate>,
    ) {
        let (Some(first), Some(last)) = (of.times.first(), of.times.last()) else {
            return;
        };
        let begin = out.len();
        find_runs(of, out);
        let runs = &mut out[begin..];
        if runs.is_empty() {
            return;
        }
        let known = of.time != EventTime::None && visit.end.is_some();
        let at_begin = match *visit.active {
            ref active if known && of.time == EventTime::Steady => {
                visit.total_active_ns().map(|total| {
                    let mut clock = ActiveClock::new(active);
                    by_rate.divide(of, runs, total, rules, |time| clock.advance(time))
                })
            }
            // Nearly always, and then the active clock is a difference.
            [(from, to)] if known && from < to && from <= *first && *last <= to => {
                let size = (of.times.len(), to.0 - from.0);
                Some(divide(runs, size, rules, |time| time.0 - from.0))
            }
            ref active => {
                let total = visit.total_active_ns().filter(|_| known);
                let size = (of.times.len(), total.unwrap_or(0));
                let mut clock = ActiveClock::new(active);
                let at_begin = divide(runs, size, rules, |time| clock.advance(time));
                total.map(|_| at_begin)
            }
        };
        let alone = self.number(runs);
        if alone < runs.len() {
            let rows = self.merge(runs, alone);
            out.truncate(begin + rows);
            let samples = of.times.len() as f64;
            for row in &mut out[begin..] {
                if row.runs > 1 {
                    row.variance *= hidden_changes(row, samples);
                }
            }
        }
        match at_begin {
            Some(variance) => out[begin].variance += variance,
            None => out[begin..]
                .iter_mut()
                .for_each(|row| row.variance = UNKNOWN),
        }
    }

    /// Numbers rows until a function has a row already, or had none in any visit; returns how many.
    #[inline(always)]
    fn number(&mut self, rows: &[FunctionEstimate]) -> usize {
        let (numbers, before) = (&mut self.numbers[..], self.before);
        let mut last = before;
        for row in rows {
            match numbers.get_mut(row.function.0 as usize) {
                Some(number) if *number <= before => {
                    last += 1;
                    *number = last;
                }
                _ => break,
            }
        }
        self.before = last;
        (last - before) as usize
    }

    /// Merges the runs of each function into one row; the first `alone` are rows already. Returns the number of rows.
    #[inline(never)]
    fn merge(&mut self, runs: &mut [FunctionEstimate], alone: usize) -> usize {
        let before = self.before - alone as u64;
        let mut len = alone;
        for index in alone..runs.len() {
            let run = runs[index];
            let number = match self.numbers.get_mut(run.function.0 as usize) {
                Some(number) => number,
                None => make_room(&mut self.numbers, run.function),
            };
            if *number > before {
                let row = &mut runs[(*number - before) as usize - 1];
                row.samples += run.samples;
                row.runs += 1;
                row.last = run.last;
                row.half_ns += run.half_ns;
                row.variance += run.variance;
            } else {
                runs[len] = run;
                len += 1;
                *number = before + len as u64;
            }
        }
        self.before = before + len as u64;
        len
    }
}

/// Appends a row for each run of samples, without its time.
///
/// Consecutive samples in the same function own the time between them, however many they are: only the first and the
/// last of such a run matter.
#[inline(always)]
fn find_runs(of: &OfEvent<'_>, out: &mut Vec<FunctionEstimate>) {
    let count = of.times.len().min(of.functions.len());
    let (times, functions) = (&of.times[..count], &of.functions[..count]);
    let mut begin = 0;
    for end in RunEnds::of(functions) {
        out.push(FunctionEstimate {
            function: functions[end],
            event: of.event,
            samples: (end + 1 - begin) as u32,
            runs: 1,
            first: times[begin],
            last: times[end],
            half_ns: 0,
            variance: 0.0,
        });
        begin = end + 1;
    }
}

/// Divides the active time among runs of samples. `clock`: the active time before rising times. Returns the variance of
/// the part before the first sample.
#[inline(always)]
fn divide(
    runs: &mut [FunctionEstimate],
    (samples, total): (usize, i64),
    rules: Rules,
    mut clock: impl FnMut(TraceNs) -> i64,
) -> f64 {
    let Rules {
        pause,
        sampled_bounds,
    } = rules;
    let spread = (pause.spread as f64).powi(2);
    let changes = runs.len() - 1;
    let begin = clock(runs[0].first) - pause.before;
    let (mut owned_from, mut variance_from) = (0, 0.0);
    for next in 1..runs.len() {
        let (position, next_position) = (clock(runs[next - 1].last), clock(runs[next].first));
        // The gap between the pauses. A pause that would overlap the next sample ends there.
        let gap_begin = (position + pause.after).min(next_position);
        let gap_end = (next_position - pause.before).max(position);
        let half_way = gap_begin + gap_end;
        let gap = (gap_end - gap_begin).max(0) as f64;
        let variance = gap * gap * TWELFTH + spread;
        runs[next - 1].half_ns = half_way - owned_from;
        runs[next - 1].variance = variance_from + variance;
        (owned_from, variance_from) = (half_way, variance);
    }
    // The parts before the first and after the last sample belong to these.
    let unseen = if sampled_bounds {
        Unseen::CERTAIN
    } else {
        Unseen::new((samples, changes), total, pause.before + pause.after)
    };
    let last = &mut runs[changes];
    let rest = total - clock(last.last) - pause.after;
    last.half_ns = 2 * total - owned_from;
    last.variance = variance_from + unseen.variance(rest.max(0));
    unseen.variance(begin.max(0))
}

/// Factor for the variance of a function that comes back within a visit of `samples` samples: gaps hold changes that no
/// sample shows. See "Short stays" in the module docs.
fn hidden_changes(row: &FunctionEstimate, samples: f64) -> f64 {
    1.0 + 5.0 * alternation(row.runs.into(), row.samples.into(), samples)
}

/// Returns how near a function whose `own` samples of `samples` make so many runs is to independent draws, 0 to 1: r³
/// of the module docs.
fn alternation(runs: f64, own: f64, samples: f64) -> f64 {
    let by_chance = (own - 1.0) * (samples - own) / samples;
    let r = ((runs - 1.0) / (by_chance + 1.0)).min(1.0);
    r * r * r
}

fn time_of(events: &[EventTime], event: EventId) -> EventTime {
    let time = events.get(usize::from(event.0));
    time.copied().unwrap_or_default()
}

/// Makes room for a function without a number. Function ids are small: they count from 0.
#[cold]
fn make_room(numbers: &mut Vec<u64>, function: FunctionId) -> &mut u64 {
    let index = function.0 as usize;
    numbers.resize(index + 1, 0);
    &mut numbers[index]
}

/// Probability that the ends of a visit hold a function without a sample.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    /// Probability per ns.
    per_ns: f64,
}

impl Unseen {
    const CERTAIN: Self = Self { per_ns: f64::MAX };

    fn new((samples, changes): (usize, usize), total: i64, pause: i64) -> Self {
        let n = samples as i64 as f64;
        let q = (changes as i64 as f64 + 0.5) / n;
        let mean_gap = (total as f64 / n - pause as f64).max(1.0);
        Self {
            per_ns: q / mean_gap,
        }
    }

    /// Mean square error of giving `part` ns at an end of the visit to the nearest sample's function: p e²/3, as
    /// derived in the module docs.
    fn variance(self, part: i64) -> f64 {
        let e = part as f64;
        (self.per_ns * e).min(1.0) * e * e * (1.0 / 3.0)
    }
}

#[cfg(test)]
mod tests;
