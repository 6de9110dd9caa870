//! Time of functions from samples of an event that is no clock but goes on at all times: uops, instructions, cycles.
//!
//! Its samples come at equal distances in *events*, R. Where functions have different rates, events a ns, half of the
//! gap between a sample of f and one of g is not f's: the change is equally likely anywhere among the R events, so f
//! has R/2r_f of the gap in the mean, and g R/2r_g. With the *period* m = R/r, the time that a function takes from one
//! sample to the next, f gets the share p = m_f / (m_f + m_g) of the gap. Over many changes that is right in the mean,
//! also if R varies, and half way where the rates are equal.
//!
//! *Periods* are found by what they result in: m_f is the time of f divided by its samples, which divides gaps anew;
//! [`ROUNDS`] of that change little more. What earlier visits had counts as [`PRIOR`] further samples at most, so that
//! a function which is slower in this visit than in others (cold caches) has its own period, and one with few samples
//! that of others. Earlier periods are taken in proportion to each other, as the reset value may have changed since:
//! their unit is kept by the visits of known functions. With `--keep` visits are estimated each by itself.
//!
//! # Standard error
//!
//! The change is even over the R events, which leaves f a variance of 4/3 p²(1-p)² g² for a gap of g: g²/12 at equal
//! rates; a gap that happens to be short counts as the mean one. A period that is wrong by the factor 1 + d shifts all
//! changes of its function the same way, by p (1-p) d g each: these errors are added up before they are squared. With n
//! gaps within the function that tell its period, d² is taken as [`UNKNOWN`] / (1 + 2n): a factor of 4.5 if nothing is
//! known, 1.4 with ten.
//!
//! A gap much longer than the period of the function at both its ends ([`HIDDEN`]) holds another, slow one that no
//! sample hit: half of the gap may be that one's, so it has the variance of a change. The more a function's samples are
//! scattered among others ([`alternation`]), the less its gaps tell of its period, and a quarter of them may be other
//! functions' that are scattered, too. The parts before the first and after the last sample have the variance of
//! [`super::Unseen`], with the period of their own function.
//!
//! *Worked number*: R = 16,000, f has 4 uops a ns and g 0.1, so m_f = 4 us and m_g = 160 us. A gap of 100 us between
//! them is g's for 97.6 us, give or take 2.7; half way would give f 50 us, a dozen times what it took.
//!
//! # Where it does not hold
//!
//! Stays shorter than their function's period are mostly without a sample, and then the neighbour's: a slow function
//! has too little, and a fast one several times its own. Measured by the simulations in `compare::simulation`, functions
//! of 4, 1 and 0.1 events a ns, distances between samples equal or from 0.1 to 1.9 of the mean, lengths in periods:
//!
//! | visit | bias of a function's mean | 95 % interval holds the truth |
//! |---|---|---|
//! | 12 stays of 2..8, equal distances | < 0.2 % | 98 % |
//! | the same, distances that vary | 1.7, 0.9, -0.1 % | 94, 96, 98 % |
//! | the same, one function 3.3 times slower in each tenth visit | 1.5, 0.9, -0.1 % | 95, 96, 98 % |
//! | 2 stays of 1..9, of 4 and 0.1 | 9, -0.2 % | 97, 99 % |
//! | 12 stays of 0.5..1.5 | +270, +50, -12 %; +320, +70, -15 % | 95, 96, 82 %; 89, 87, 69 % |
//! | 40 stays of 0.1..1 | +900, +180, -41 %; +640, +130, -29 % | 85, 92, 59 %; 78, 84, 53 % |

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::{FunctionEstimate, OfEvent, Rules, TWELFTH, alternation};
use crate::units::{EventId, FunctionId, TraceNs};

/// Times that periods are found from the division, and the division from periods.
const ROUNDS: u32 = 4;

/// Samples that earlier visits count for at most.
const PRIOR: f64 = 8.0;

/// Square of the logarithm of a factor by which an unknown period may be wrong: e^1.5 = 4.5.
const UNKNOWN: f64 = 2.25;

/// Gaps longer than so many periods of their function hold another: distances between samples vary by up to 1.95.
const HIDDEN: f64 = 2.5;

/// Samples of a visit that change the scale of times half way to its own.
const STEADY_SCALE: f64 = 64.0;

/// Samples from which on earlier visits count half.
const FORGET: f64 = 4096.0;

/// Sums of a function over earlier visits.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    /// Time, in units that are the same for all functions of the event.
    time: f64,
    samples: f64,
    /// Gaps between two of its samples without another in between.
    within: f64,
}

/// A change of function between two samples.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Index of the functions on both sides.
    from: u32,
    to: u32,
    /// The gap between the pauses on the active clock.
    begin: i64,
    length: i64,
}

/// A function of the current visit.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    function: FunctionId,
    /// Its first run.
    first: usize,
    samples: f64,
    runs: f64,
    /// Gaps between two of its samples that are taken to hold no other function.
    within: f64,
    /// Chance that they do.
    hides: f64,
    /// Time that is certainly its own, ns.
    certain: f64,
    earlier: Earlier,
    /// Time with its parts of the gaps, ns.
    time: f64,
    /// Time from sample to sample, ns.
    period: f64,
    /// Square of its relative error.
    error: f64,
    /// Sum of the errors of changes that have the same sign, ns.
    shift: f64,
}

/// Sums over earlier visits.
#[derive(Debug, Default)]
struct Learnt {
    functions: FxHashMap<(EventId, FunctionId), Earlier>,
    /// By event: ns of a unit of their times now.
    scales: FxHashMap<EventId, f64>,
}

/// Divides visits by rates. Clones learn together.
#[derive(Clone, Debug, Default)]
pub(super) struct ByRate {
    learnt: Arc<Mutex<Learnt>>,
    /// Each visit is divided by itself.
    alone: bool,
    /// [`Learnt::scales`] of the event.
    scale: Option<f64>,
    functions: Vec<Here>,
    numbers: FxHashMap<FunctionId, u32>,
    of_runs: Vec<u32>,
    changes: Vec<Change>,
    /// Positions of the samples on the active clock.
    positions: Vec<i64>,
}

impl ByRate {
    /// Learns nothing from earlier visits.
    pub(super) const fn set_alone(&mut self) {
        self.alone = true;
    }

    /// Divides the active time `total` among runs of samples. `clock`: the active time before rising times. Returns the
    /// variance of the part before the first sample.
    pub(super) fn divide(
        &mut self,
        of: &OfEvent<'_>,
        runs: &mut [FunctionEstimate],
        total: i64,
        rules: Rules,
        clock: impl FnMut(TraceNs) -> i64,
    ) -> f64 {
        self.positions.clear();
        self.positions.extend(of.times.iter().copied().map(clock));
        self.find_functions(of.event, runs);
        self.find_changes(runs, total, rules);
        let scale = self.find_periods(total);
        self.learn(of.event, scale);
        self.assign(runs, total, rules)
    }

    /// Numbers the functions of the runs.
    fn find_functions(&mut self, event: EventId, runs: &[FunctionEstimate]) {
        self.functions.clear();
        self.numbers.clear();
        self.of_runs.clear();
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        self.scale = learnt.scales.get(&event).copied();
        for (first, run) in runs.iter().enumerate() {
            let functions = &mut self.functions;
            let number = *self.numbers.entry(run.function).or_insert_with(|| {
                let key = (event, run.function);
                functions.push(Here {
                    function: run.function,
                    first,
                    earlier: learnt.functions.get(&key).copied().unwrap_or_default(),
                    ..Here::default()
                });
                functions.len() as u32 - 1
            });
            let here = &mut functions[number as usize];
            here.samples += f64::from(run.samples);
            here.runs += 1.0;
            self.of_runs.push(number);
        }
        let all: f64 = self.functions.iter().map(|it| it.samples).sum();
        for it in &mut self.functions {
            it.hides = alternation(it.runs, it.samples, all);
            it.within = (it.samples - it.runs) * (1.0 - it.hides);
        }
    }

    /// Finds the gaps in which the function changes, and the time outside of them.
    fn find_changes(&mut self, runs: &[FunctionEstimate], total: i64, rules: Rules) {
        self.changes.clear();
        let (mut sample, mut from) = (0, 0);
        for (run, &number) in runs.iter().zip(&self.of_runs) {
            let last = sample + run.samples as usize - 1;
            let position = self.positions[last];
            let to = match (
                self.positions.get(last + 1),
                self.of_runs.get(self.changes.len() + 1),
            ) {
                (Some(&next), Some(&other)) => {
                    // A pause that would overlap the next sample ends there.
                    let begin = (position + rules.pause.after).min(next);
                    let end = (next - rules.pause.before).max(position);
                    self.changes.push(Change {
                        from: number,
                        to: other,
                        begin,
                        length: (end - begin).max(0),
                    });
                    begin
                }
                _ => total,
            };
            let here = &mut self.functions[number as usize];
            here.certain += (to - from) as f64;
            from = self.changes.last().map_or(to, |it| it.begin + it.length);
            sample = last + 1;
        }
    }

    /// Finds the periods; returns the ns for each unit of the earlier times.
    fn find_periods(&mut self, total: i64) -> f64 {
        let known = |it: &&Here| it.earlier.within > 0.0;
        let sums = self.functions.iter().filter(known);
        let sums = sums.fold((0.0, 0.0), |(time, samples), it| {
            let earlier = it.earlier.time / it.earlier.samples;
            (time + earlier * it.samples, samples + it.samples)
        });
        let samples: f64 = self.functions.iter().map(|it| it.samples).sum();
        // A function without earlier samples: as the others have in the mean, or all of this visit.
        let mean = match self.scale {
            _ if sums.1 > 0.0 => sums.0 / sums.1,
            Some(scale) => total as f64 / samples / scale,
            None => 1.0,
        };
        let period = |it: &Here| match it.earlier.within > 0.0 {
            true => it.earlier.time / it.earlier.samples,
            false => mean,
        };
        let expected: f64 = self
            .functions
            .iter()
            .map(|it| period(it) * it.samples)
            .sum();
        let scale = match expected > 0.0 && total > 0 {
            true => total as f64 / expected,
            false => 1.0,
        };
        for it in &mut self.functions {
            it.period = period(it) * scale;
        }
        for _ in 0..ROUNDS {
            self.share_out();
            for it in &mut self.functions {
                let prior = it.earlier.within.min(PRIOR);
                let before = period(it) * scale * prior;
                it.period = ((before + it.time) / (prior + it.samples)).max(1.0);
            }
        }
        self.share_out();
        for it in &mut self.functions {
            let known = it.earlier.within.min(PRIOR) + it.within;
            it.error = UNKNOWN / (1.0 + 2.0 * known);
        }
        scale
    }

    /// Divides the gaps by the periods.
    fn share_out(&mut self) {
        self.functions
            .iter_mut()
            .for_each(|it| it.time = it.certain);
        for change in &self.changes {
            let part = self.part(change) * change.length as f64;
            self.functions[change.from as usize].time += part;
            self.functions[change.to as usize].time += change.length as f64 - part;
        }
    }

    /// Part of a gap that belongs to the function before it.
    fn part(&self, change: &Change) -> f64 {
        let period = |number: u32| self.functions[number as usize].period;
        let (from, to) = (period(change.from), period(change.to));
        from / (from + to)
    }

    /// Remembers the visit.
    fn learn(&self, event: EventId, scale: f64) {
        if self.alone {
            return;
        }
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        let samples: f64 = self.functions.iter().map(|it| it.samples).sum();
        // A visit of few samples, or with a slow function, changes the scale little.
        let last = learnt.scales.entry(event).or_insert(scale);
        *last += (scale - *last) * samples / (samples + STEADY_SCALE);
        for it in &self.functions {
            let sum = learnt.functions.entry((event, it.function)).or_default();
            sum.time += it.time.max(1.0) / scale;
            sum.samples += it.samples;
            sum.within += it.within;
            if sum.samples > FORGET {
                for sum in [&mut sum.time, &mut sum.samples, &mut sum.within] {
                    *sum /= 2.0;
                }
            }
        }
    }

    /// Sets times and variances of the runs.
    fn assign(&mut self, runs: &mut [FunctionEstimate], total: i64, rules: Rules) -> f64 {
        let spread = (rules.pause.spread as f64).powi(2);
        let (mut owned_from, mut variance_from) = (0, 0.0);
        for (run, index) in runs.iter_mut().zip(0..self.changes.len()) {
            let change = self.changes[index];
            let (part, length) = (self.part(&change), change.length as f64);
            let sides = [change.from, change.to].map(|it| &self.functions[it as usize]);
            // A gap that happens to be short is as uncertain as the mean one.
            let mean = sides.map(|it| it.period).iter().sum::<f64>() / 2.0;
            let both = part * (1.0 - part) * length.max(mean);
            let factor = sides.map(|it| it.error).iter().sum::<f64>().sqrt().exp();
            let [more, less] =
                [factor, factor.recip()].map(|it| part * it / (part * it + 1.0 - part));
            let shift = (more - part).max(part - less) * length;
            for number in [change.from, change.to] {
                self.functions[number as usize].shift += shift;
            }
            let bound = 2 * change.begin + (2.0 * length * part).round() as i64;
            let variance = both * both * (4.0 / 3.0) + spread;
            run.half_ns = bound - owned_from;
            run.variance = variance_from + variance;
            (owned_from, variance_from) = (bound, variance);
        }
        let last = runs.len() - 1;
        runs[last].half_ns = 2 * total - owned_from;
        runs[last].variance = variance_from;
        let hidden = self.hidden(runs);
        for it in &self.functions {
            let shift = it.shift + hidden * it.hides;
            runs[it.first].variance += shift * shift;
        }
        let outer = |run: usize, part: i64| {
            let part = part.max(0) as f64;
            let period = self.functions[self.of_runs[run] as usize].period;
            let samples: f64 = self.functions.iter().map(|it| it.samples).sum();
            let chance = match part > HIDDEN * period || rules.sampled_bounds {
                true => 1.0,
                false => ((self.changes.len() as f64 + 0.5) / samples * part / period).min(1.0),
            };
            chance * part * part * (1.0 / 3.0)
        };
        let at_end = self
            .positions
            .last()
            .map_or(0, |it| total - it - rules.pause.after);
        let at_begin = self
            .positions
            .first()
            .map_or(0, |it| it - rules.pause.before);
        runs[last].variance += outer(last, at_end);
        outer(0, at_begin)
    }

    /// Adds the variance of gaps that hold a function without a sample; returns the time of such functions.
    fn hidden(&self, runs: &mut [FunctionEstimate]) -> f64 {
        let (mut sample, mut hidden) = (0, 0.0);
        for (run, number) in runs.iter_mut().zip(&self.of_runs) {
            let of = &self.functions[*number as usize];
            let period = of.period;
            let own = &self.positions[sample..sample + run.samples as usize];
            sample += own.len();
            for pair in own.windows(2) {
                let gap = (pair[1] - pair[0]) as f64;
                hidden += gap * of.hides / 4.0;
                if gap > HIDDEN * period {
                    run.variance += gap * gap * TWELFTH;
                }
            }
        }
        hidden
    }
}
