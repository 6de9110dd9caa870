//! How long each function took within one visit, from the visit's samples.
//!
//! # The estimate
//!
//! A visit has an *active clock*: the time that its thread has spent on a CPU with this visit as
//! its current one. It is 0 at the begin mark, and the total active time at the end mark; both
//! are known from marks and context switches, not from samples. Every sample is put on that clock
//! (one that clock jitter threw outside the active time goes to the nearest instant inside), and
//! owns the time from half way to the sample before it to half way to the sample after it; the
//! first owns from 0, the last to the total. `self_ns` of a function is what its samples own.
//! Each event is estimated on its own. The sum over functions is exactly the total: nothing is
//! lost or counted twice.
//!
//! *The pause.* Taking a sample stops the code: the thread runs on only when the interrupt is over.
//! The sample's time is read somewhere inside it, `before` after its begin and `after` before its
//! end ([`Pause`], measured on the machine before the run). No function can change during the
//! pause, so it belongs to the sampled function as a whole, and a gap reaches from the end of one
//! pause to the begin of the next. Without this every change would be misplaced by
//! (`before` - `after`)/2, which cancels within a visit but not for its first and last function, and
//! the error would be overstated by the pause's share of the interval. *Worked number*: samples of
//! f and g at 10 and 26 us, 1 before and 3 after: the gap is 13..25 us, the change is put at 19 us
//! (not 18) with a variance of 12²/12 us² (not 16²/12). Pauses differ; the variance of the middle
//! between two is added to that of each change.
//!
//! *Assumption*: the phase of sampling is independent of the code. Then a change of function
//! between two samples is equally likely anywhere between them, and half way is unbiased.
//!
//! # Its standard error
//!
//! *Inner gaps.* A gap of length g between samples of two *different* functions holds a change at
//! an unknown place, uniform over g: half way is wrong by a standard deviation of g/sqrt(12). The
//! variance g²/12 goes to both functions. A gap between two samples of the same function
//! contributes nothing: that it holds no other function is the second assumption, and fails for
//! functions shorter than the gap.
//!
//! *Outer parts.* Begin and end are exact, but the part of length e before the first (after the
//! last) sample may hold a function that no sample saw. How likely is learnt from the visit
//! itself: with n samples, c of whose n-1 inner gaps hold a change, an interval of the mean length
//! ḡ = total/n holds one with probability q = (c + 1/2) / n (half a change is assumed beforehand,
//! so that an unknown never looks certain), and e holds one with probability p = min(1, q e/ḡ).
//! If it does, the sampled function had only a uniform part of the e it was given: a mean square
//! error of e²/3. The variance p e²/3 goes to the function of the first (last) sample.
//!
//! *Sampled bounds.* Where the id of the item is read at samples, begin and end themselves are half way
//! between two samples, and a change is certain to lie there: p = 1. With e half of the gap g, e²/3 is the
//! g²/12 of an inner gap.
//!
//! *Worked number.* Samples at 6, 16, 26, 36 us of an active time of 40 us, functions f f g g.
//! f owns 0..21 us, g owns 21..40 us. The inner change at gap 10 us gives 100/12 = 8.33 us² to
//! both. n = 4, c = 1: q = 1.5/4 = 0.375, ḡ = 10 us. Begin: e = 6 us, p = 0.225, 0.225 x 36/3 =
//! 2.7 us². End: e = 4 us, p = 0.15, 0.15 x 16/3 = 0.8 us². So f = 21 ± sqrt(11.03) = 3.3 us and
//! g = 19 ± sqrt(9.13) = 3.0 us.
//!
//! # Where it does not hold
//!
//! Measured by the simulations at the foot of this file (sample interval 1, phase random, 95 %
//! interval = ± 1.96 standard errors):
//!
//! | visit | bias of a function's mean | 95 % interval holds the truth |
//! |---|---|---|
//! | 12 segments of 4 functions, 2..8 intervals each | < 0.1 % | 95.2..95.7 % |
//! | the same, samples off the grid by up to 0.2 | < 0.1 % | 95.5..95.8 % |
//! | 4 segments of 2 functions, 5..9 intervals each | < 0.1 % | 95.9 % |
//! | 3 segments of 3 functions, 5..9 intervals each | < 0.1 % | 97.9 % (one or two changes: too wide) |
//! | 12 segments of 4 functions, 0.5..1.5 intervals each | < 0.4 % | 90..91 % |
//! | 40 segments of 4 functions, 0.1..1 intervals each | < 0.4 % | 77 % |
//! | 40 segments of 4 functions, 0..0.4 intervals each | < 0.5 % | 66 % |
//!
//! So for functions whose stays are shorter than about one interval the time is still unbiased,
//! but the standard error is too small by up to half: pool many visits instead. The one
//! place with a bias is a function that stays d < g at the very begin or end of a visit and nowhere
//! else: it is given d/2 + d²/(2g) on average instead of d (d = 0.5 g: 25 % low), and its neighbour
//! has the rest.
//!
//! A change of the reset value within a visit (`--max-overhead`) leaves times as they are: each sample
//! owns the gaps that there were. Inner gaps have the variance of their own length; only the outer
//! parts are judged by the mean gap of the visit, which is then neither that before nor that after.
//!
//! What the rest of a begin mark's probe takes after the mark, and what comes before an end mark,
//! lies within the visit and is a function of that kind: most of it goes unseen, and half of it (0.3
//! us where a mark costs 0.7) to the first and last function. Where a sample's pause takes more
//! than half of the interval, what is left between two pauses is about as long as pauses differ:
//! times stay unbiased, but the standard error is too small (84 % instead of 95 % at a pause of
//! 14.4 us every 16 us). `pebs-trace selftest` measures all this on the machine at hand.
//!
//! Source: design page 7; the published estimate is Akiyama 2018, section III.D, step 3.

use crate::units::{EventId, FunctionId, TraceNs};

/// One sample of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSample {
    /// When.
    pub time: TraceNs,
    /// The function that it names.
    pub function: FunctionId,
    /// The event that was sampled.
    pub event: EventId,
}

/// One visit, as the estimator needs it.
#[derive(Clone, Copy, Debug)]
pub struct VisitTimeline<'a> {
    /// Begin mark.
    pub begin: TraceNs,
    /// End mark; `None` if it was never seen: the functions' times are then unknown.
    pub end: Option<TraceNs>,
    /// Intervals during which the thread was on a CPU *and* this visit was its current one:
    /// half-open, sorted, disjoint, within `[begin, end)`. The whole of `[begin, end)` if switches
    /// were not recorded and nothing overlaps. Empty: unknown.
    pub active: &'a [(TraceNs, TraceNs)],
    /// Samples of all events, sorted by time.
    pub samples: &'a [TimedSample],
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

/// What is known of one function in one visit by one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionEstimate {
    /// The function.
    pub function: FunctionId,
    /// The event.
    pub event: EventId,
    /// Samples of the function.
    pub samples: u32,
    /// Its first sample.
    pub first: TraceNs,
    /// Its last sample.
    pub last: TraceNs,
    /// Last - first, in ns of wall time: the published estimate.
    pub span_ns: i64,
    /// Our estimate of its active time; `None` for events that are not clocks, and where the
    /// visit's active time is unknown.
    pub self_ns: Option<f64>,
    /// Standard error of `self_ns`; `None` where that is.
    pub self_stderr_ns: Option<f64>,
}

/// What taking a sample does to the code: it stands still from `before` the sample's time until
/// `after` it. ns; 0 where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// From the begin of the interrupt to the reading of the sample's time.
    pub before: i64,
    /// From there to the end of the interrupt.
    pub after: i64,
    /// Standard deviation of the middle between two pauses, as their lengths differ.
    pub spread: i64,
}

/// Divisions take longer than all else that a gap costs.
const TWELFTH: f64 = 1.0 / 12.0;

/// Estimates visits one after another; keeps its memory between them.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    /// By `EventId`: whether the event is a clock.
    clocks: Vec<bool>,
    /// Of every sample.
    pause: Pause,
    /// Whether begin and end of visits come from samples.
    sampled_bounds: bool,
    /// By `EventId`: the samples of the visit seen so far.
    runs: Vec<EventRun>,
    /// Events that have a sample in this visit.
    present: Vec<EventId>,
    /// What is known so far of each event and function of this visit.
    found: Vec<Found>,
    /// By `EventId` and function: its index in `found`, counted from 1; 0: none. Emptied row by row after
    /// each visit.
    rows: Vec<Vec<u32>>,
    /// Where the runs of the visit start.
    starts: Vec<u32>,
}

/// Samples of one event so far.
#[derive(Clone, Copy, Debug, Default)]
struct EventRun {
    samples: u32,
    changes: u32,
    /// Where the time that the last sample owns begins, in half active ns.
    owned_from: i64,
    first: Edge,
    last: Edge,
}

/// A sample on the active clock.
#[derive(Clone, Copy, Debug, Default)]
struct Edge {
    /// Active ns since the visit began.
    position: i64,
    /// Index of its function in [`Estimator::found`].
    row: usize,
}

/// Sums of one function and event.
#[derive(Clone, Copy, Debug)]
struct Found {
    function: FunctionId,
    event: EventId,
    samples: u32,
    first: TraceNs,
    last: TraceNs,
    /// Time owned, in half ns: exact.
    half_ns: i64,
    /// Variance in ns².
    variance: f64,
}

impl Estimator {
    /// An estimator for a run whose event `EventId(i)` is a clock if `clock_events[i]`. An event
    /// beyond the slice is not a clock.
    #[must_use]
    pub fn new(clock_events: &[bool]) -> Self {
        Self {
            clocks: clock_events.to_vec(),
            ..Self::default()
        }
    }

    /// What taking a sample does to the code, as measured on this machine.
    #[must_use]
    pub const fn with_pause(mut self, pause: Pause) -> Self {
        self.pause = pause;
        self
    }

    /// Begin and end of visits come from samples.
    #[must_use]
    pub const fn with_sampled_bounds(mut self) -> Self {
        self.sampled_bounds = true;
        self
    }

    /// Appends one row for each function and event of the visit to `out`, in order of their first
    /// samples. A visit without samples gives none.
    ///
    /// Cost: O(samples + active intervals); no allocation once the scratch memory has grown.
    pub fn estimate(&mut self, visit: &VisitTimeline<'_>, out: &mut Vec<FunctionEstimate>) {
        let mut clock = ActiveClock::new(visit.active);
        // Samples that follow one another in the same function own what lies between them, however many
        // they are: only the first and the last of such a run matter.
        let runs = self.find_runs(visit.samples);
        for index in 0..runs {
            let (begin, end) = (self.starts[index] as usize, self.starts[index + 1] as usize);
            let samples = &visit.samples[begin..end];
            let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
                continue;
            };
            let row = self.row(first);
            let found = &mut self.found[row];
            found.samples += samples.len() as u32;
            found.last = last.time;
            let position = clock.advance(first.time);
            let event = self.own(first.event, Edge { position, row });
            if samples.len() > 1 {
                event.samples += samples.len() as u32 - 1;
                event.last.position = clock.advance(last.time);
            }
        }
        let total = visit.total_active_ns();
        if let Some(total) = total {
            self.close(total);
        }
        self.take_found(total.is_some(), out);
    }

    /// Writes where each run of samples of the same function and event starts, and the number of
    /// samples behind them; gives the number of runs.
    ///
    /// Without a branch for each sample: where runs end is not to be foreseen.
    fn find_runs(&mut self, samples: &[TimedSample]) -> usize {
        let count = samples.len();
        if self.starts.len() < count + 2 {
            self.starts.resize(count + 2, 0);
        }
        let mut runs = usize::from(count > 0);
        for (index, pair) in (1..).zip(samples.windows(2)) {
            let [a, b] = [pair[0], pair[1]];
            self.starts[runs] = index;
            runs += usize::from((a.function != b.function) | (a.event != b.event));
        }
        self.starts[runs] = count as u32;
        runs
    }

    /// Index of a sample's function in `found`, to which it is added if the sample is its first.
    #[inline(always)]
    fn row(&mut self, first: &TimedSample) -> usize {
        let (event, function) = (usize::from(first.event.0), first.function.0 as usize);
        let place = self.rows.get_mut(event).and_then(|it| it.get_mut(function));
        let Some(place) = place else {
            self.make_room(event, function);
            return self.row(first);
        };
        if *place == 0 {
            *place = self.found.len() as u32 + 1;
            self.found.push(Found {
                function: first.function,
                event: first.event,
                samples: 0,
                first: first.time,
                last: first.time,
                half_ns: 0,
                variance: 0.0,
            });
        }
        *place as usize - 1
    }

    /// Function ids are small: they count from 0.
    #[cold]
    fn make_room(&mut self, event: usize, function: usize) {
        let events = self.rows.len().max(event + 1);
        self.rows.resize(events, Vec::new());
        self.runs.resize(events, EventRun::default());
        self.rows[event].resize(function + 1, 0);
    }

    /// Divides the gap between this first sample of a run and the one of the same event before it.
    #[inline(always)]
    fn own(&mut self, event: EventId, edge: Edge) -> &mut EventRun {
        let run = &mut self.runs[usize::from(event.0)];
        if run.samples == 0 {
            self.present.push(event);
            run.first = edge;
        } else {
            // The gap between the pauses. Pauses that would overlap end at the next sample.
            let gap_begin = (run.last.position + self.pause.after).min(edge.position);
            let gap_end = (edge.position - self.pause.before).max(run.last.position);
            let half_way = gap_begin + gap_end;
            let before = &mut self.found[run.last.row];
            before.half_ns += half_way - run.owned_from;
            run.owned_from = half_way;
            if run.last.row != edge.row {
                run.changes += 1;
                let gap = (gap_end - gap_begin).max(0) as f64;
                let variance = gap.powi(2) * TWELFTH + (self.pause.spread as f64).powi(2);
                before.variance += variance;
                self.found[edge.row].variance += variance;
            }
        }
        run.samples += 1;
        run.last = edge;
        run
    }

    /// Gives the parts before the first and after the last sample of each event to them.
    fn close(&mut self, total: i64) {
        for event in &self.present {
            let run = &self.runs[usize::from(event.0)];
            let (first, last) = (run.first, run.last);
            self.found[last.row].half_ns += 2 * total - run.owned_from;
            let Pause { before, after, .. } = self.pause;
            let parts = [
                (first.row, first.position - before),
                (last.row, total - last.position - after),
            ];
            let unseen = if self.sampled_bounds {
                Unseen::CERTAIN
            } else {
                Unseen::new(run, total, before + after)
            };
            for (row, part) in parts {
                self.found[row].variance += unseen.variance(part.max(0));
            }
        }
    }

    /// Moves what was found to `out`, and is ready for the next visit.
    fn take_found(&mut self, is_timed: bool, out: &mut Vec<FunctionEstimate>) {
        let Self {
            found,
            rows,
            clocks,
            present,
            runs,
            ..
        } = self;
        out.extend(found.iter().map(|found| {
            let event = usize::from(found.event.0);
            rows[event][found.function.0 as usize] = 0;
            let is_timed = is_timed && clocks.get(event) == Some(&true);
            FunctionEstimate {
                function: found.function,
                event: found.event,
                samples: found.samples,
                first: found.first,
                last: found.last,
                span_ns: found.last.0 - found.first.0,
                self_ns: is_timed.then_some(found.half_ns as f64 / 2.0),
                self_stderr_ns: is_timed.then_some(found.variance.sqrt()),
            }
        }));
        found.clear();
        for event in present.drain(..) {
            runs[usize::from(event.0)] = EventRun::default();
        }
    }
}

/// How likely the ends of a visit hold a function that no sample saw.
#[derive(Clone, Copy, Debug)]
struct Unseen {
    /// Probability for each ns.
    per_ns: f64,
}

impl Unseen {
    const CERTAIN: Self = Self { per_ns: f64::MAX };

    fn new(run: &EventRun, total: i64, pause: i64) -> Self {
        let n = f64::from(run.samples);
        let q = (f64::from(run.changes) + 0.5) / n;
        let mean_gap = (total as f64 / n - pause as f64).max(1.0);
        Self {
            per_ns: q / mean_gap,
        }
    }

    /// Mean square error of giving `part` ns at an end of the visit to the nearest sample's function:
    /// p e²/3, as the module's page derives.
    fn variance(self, part: i64) -> f64 {
        let e = part as f64;
        (self.per_ns * e).min(1.0) * e * e * (1.0 / 3.0)
    }
}

/// Turns rising times into positions on a visit's active clock.
struct ActiveClock<'a> {
    /// Intervals not yet passed.
    ahead: &'a [(TraceNs, TraceNs)],
    /// Active time of those passed.
    passed: i64,
}

impl<'a> ActiveClock<'a> {
    const fn new(active: &'a [(TraceNs, TraceNs)]) -> Self {
        Self {
            ahead: active,
            passed: 0,
        }
    }

    /// The active time before `time`. Between two intervals it stands still; before the first it
    /// is 0, after the last the total.
    fn advance(&mut self, time: TraceNs) -> i64 {
        while let [(from, to), rest @ ..] = self.ahead {
            if time < *to {
                return self.passed + (time.0 - from.0).max(0);
            }
            self.passed += to.0 - from.0;
            self.ahead = rest;
        }
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLOCK: EventId = EventId(0);
    const MISSES: EventId = EventId(1);

    fn sample(time: i64, function: u32) -> TimedSample {
        TimedSample {
            time: TraceNs(time),
            function: FunctionId(function),
            event: CLOCK,
        }
    }

    fn intervals(bounds: &[i64]) -> Vec<(TraceNs, TraceNs)> {
        bounds
            .chunks_exact(2)
            .map(|pair| (TraceNs(pair[0]), TraceNs(pair[1])))
            .collect()
    }

    /// Bounds that are half way to a sample of another item have the error of a gap's change.
    #[test]
    fn sampled_bounds() {
        let samples = [sample(5, 1), sample(15, 1)];
        let active = intervals(&[0, 20]);
        let visit = VisitTimeline {
            begin: TraceNs(0),
            end: Some(TraceNs(20)),
            active: &active,
            samples: &samples,
        };
        let mut rows = Vec::new();
        let mut estimator = Estimator::new(&[true]).with_sampled_bounds();
        estimator.estimate(&visit, &mut rows);
        let variance = rows[0].self_stderr_ns.unwrap().powi(2);
        assert!((variance - 2.0 * 100.0 / 12.0).abs() < 1e-9, "{variance}");
    }

    /// Estimates a visit that lasts from the first active instant to the last.
    fn estimate(active: &[i64], samples: &[TimedSample]) -> Vec<FunctionEstimate> {
        let active = intervals(active);
        let visit = VisitTimeline {
            begin: active[0].0,
            end: Some(active[active.len() - 1].1),
            active: &active,
            samples,
        };
        let mut rows = Vec::new();
        Estimator::new(&[true, false]).estimate(&visit, &mut rows);
        rows
    }

    fn close_to(got: Option<f64>, want: f64) {
        assert!((got.unwrap() - want).abs() < 1e-3, "{got:?} != {want}");
    }

    /// The worked number of the module's page.
    #[test]
    fn worked_number() {
        let samples = [
            sample(6_000, 1),
            sample(16_000, 1),
            sample(26_000, 2),
            sample(36_000, 2),
        ];
        let rows = estimate(&[0, 40_000], &samples);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].samples, rows[0].span_ns), (2, 10_000));
        close_to(rows[0].self_ns, 21_000.0);
        close_to(rows[1].self_ns, 19_000.0);
        close_to(rows[0].self_stderr_ns, (100e6_f64 / 12.0 + 2.7e6).sqrt());
        close_to(rows[1].self_stderr_ns, (100e6_f64 / 12.0 + 0.8e6).sqrt());
    }

    /// The worked number of the pause; what is owned is the whole time all the same.
    #[test]
    fn worked_pause() {
        let visit = VisitTimeline {
            begin: TraceNs(0),
            end: Some(TraceNs(36_000)),
            active: &[(TraceNs(0), TraceNs(36_000))],
            samples: &[sample(10_000, 1), sample(26_000, 2)],
        };
        let pause = Pause {
            before: 1_000,
            after: 3_000,
            spread: 0,
        };
        let mut rows = Vec::new();
        Estimator::new(&[true])
            .with_pause(pause)
            .estimate(&visit, &mut rows);
        assert_eq!(rows[0].self_ns, Some(19_000.0));
        assert_eq!(rows[1].self_ns, Some(17_000.0));
        // n = 2, c = 1: q = 0.75, mean gap 18 - 4 = 14 us; e = 9 and 7 us.
        let outer = |e: f64| 0.75 * e / 14.0 * e * e / 3.0;
        close_to(rows[0].self_stderr_ns, 1000.0 * (12.0 + outer(9.0)).sqrt());
        close_to(rows[1].self_stderr_ns, 1000.0 * (12.0 + outer(7.0)).sqrt());
        rows.clear();
        Estimator::new(&[true])
            .with_pause(Pause {
                spread: 2_000,
                ..pause
            })
            .estimate(&visit, &mut rows);
        close_to(
            rows[0].self_stderr_ns,
            1000.0 * (12.0 + 4.0 + outer(9.0)).sqrt(),
        );
    }

    /// Time off the CPU belongs to no function, and a gap is measured without it.
    #[test]
    fn waits_are_left_out() {
        let rows = estimate(&[0, 10, 1000, 1030], &[sample(8, 1), sample(1008, 2)]);
        // On the active clock the samples are at 8 and 18 of 40.
        assert_eq!(rows[0].self_ns, Some(13.0));
        assert_eq!(rows[1].self_ns, Some(27.0));
        assert_eq!(rows[0].span_ns, 0);
    }

    /// A sample that clock jitter threw out of the active time goes to the nearest instant in it.
    #[test]
    fn jitter_is_clamped() {
        let samples = [sample(90, 1), sample(150, 2), sample(260, 3)];
        let rows = estimate(&[100, 140, 160, 250], &samples);
        let owned: Vec<_> = rows.iter().map(|row| row.self_ns.unwrap()).collect();
        assert_eq!(owned, [20.0, 65.0, 45.0]);
    }

    /// Events are estimated apart, and one that is not a clock has counts but no times.
    #[test]
    fn events_apart() {
        let mut samples = [sample(10, 1), sample(20, 1), sample(30, 2)];
        samples[1].event = MISSES;
        let rows = estimate(&[0, 40], &samples);
        let got: Vec<_> = rows
            .iter()
            .map(|row| (row.event, row.function.0, row.self_ns))
            .collect();
        assert_eq!(
            got,
            [
                (CLOCK, 1, Some(20.0)),
                (MISSES, 1, None),
                (CLOCK, 2, Some(20.0))
            ]
        );
        assert_eq!(rows[1].self_stderr_ns, None);
    }

    /// What was not observed is not estimated: no samples, no end, no active time.
    #[test]
    fn unknown_stays_unknown() {
        assert_eq!(estimate(&[0, 100], &[]), []);
        let active = intervals(&[0, 100]);
        let samples = [sample(50, 1)];
        let open = VisitTimeline {
            begin: TraceNs(0),
            end: None,
            active: &active,
            samples: &samples,
        };
        let nowhere = VisitTimeline {
            end: Some(TraceNs(100)),
            active: &[],
            ..open
        };
        for visit in [open, nowhere] {
            let mut rows = Vec::new();
            Estimator::new(&[true]).estimate(&visit, &mut rows);
            assert_eq!(rows.len(), 1);
            assert_eq!((rows[0].samples, rows[0].self_ns), (1, None));
        }
    }

    /// A visit's result doesn't depend on the visits that the same estimator saw before.
    #[test]
    fn scratch_is_clean() {
        let active = intervals(&[0, 100]);
        let (first, second) = (
            [sample(5, 1), sample(60, 2)],
            [sample(20, 2), sample(30, 9)],
        );
        let visit = |samples| VisitTimeline {
            begin: TraceNs(0),
            end: Some(TraceNs(100)),
            active: &active,
            samples,
        };
        let mut estimator = Estimator::new(&[true]);
        let mut reused = Vec::new();
        estimator.estimate(&visit(&first), &mut reused);
        estimator.estimate(&visit(&second), &mut reused);
        assert_eq!(reused[2..], estimate(&[0, 100], &second));
    }

    fn timeline() -> impl Strategy<Value = (Vec<i64>, Vec<TimedSample>)> {
        let steps = prop::collection::vec(1_i64..5_000, 2..24);
        let samples = prop::collection::vec((-300_i64..60_000, 0_u32..6, 0_u8..3), 1..80);
        (steps, samples).prop_map(|(mut steps, samples)| {
            steps.truncate(steps.len() / 2 * 2);
            let bounds = steps.iter().scan(0, |at, step| {
                *at += step;
                Some(*at)
            });
            let mut samples: Vec<_> = samples
                .into_iter()
                .map(|(time, function, event)| TimedSample {
                    event: EventId(event),
                    ..sample(time, function)
                })
                .collect();
            samples.sort_by_key(|sample| sample.time);
            (bounds.collect(), samples)
        })
    }

    proptest! {
        /// Whatever the samples, the gaps and the pause: for each clock the times add up to the active time,
        /// none is negative, and every sample is counted.
        #[test]
        fn nothing_lost_or_counted_twice(
            (active, samples) in timeline(),
            (before, after) in (0_i64..30, 0_i64..30),
        ) {
            let total: i64 = active.chunks_exact(2).map(|pair| pair[1] - pair[0]).sum();
            let bounds = intervals(&active);
            let visit = VisitTimeline {
                begin: bounds[0].0,
                end: Some(bounds[bounds.len() - 1].1),
                active: &bounds,
                samples: &samples,
            };
            let mut rows = Vec::new();
            Estimator::new(&[true, true, false])
                .with_pause(Pause { before, after, spread: 0 })
                .estimate(&visit, &mut rows);
            prop_assert_eq!(rows.iter().map(|row| row.samples as usize).sum::<usize>(), samples.len());
            for event in [0, 1] {
                let of_event = rows.iter().filter(|row| row.event.0 == event);
                let owned: Vec<f64> = of_event.map(|row| row.self_ns.unwrap()).collect();
                prop_assert!(owned.iter().all(|&ns| ns >= 0.0));
                if !owned.is_empty() {
                    prop_assert_eq!(owned.iter().sum::<f64>(), total as f64);
                }
            }
        }
    }
}
