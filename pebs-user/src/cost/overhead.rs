//! Finds the reset value that keeps the target's slow-down below a bound. Pure.
//!
//! The cost of marks and page faults is determined by the target; that of samples depends on the reset value. A
//! *window* is the time on the CPU within visits over which both were counted, and its overhead the ratio of their
//! cost to the time of the visits without it.
//!
//! Above the bound the reset value is raised at once so that the expected overhead is [`AIM`] of the bound. Below
//! [`CALM`] of the bound it is lowered, at most by half, and only after several windows agree; each time that it
//! has to be raised again, more windows must agree. In between it stays. The first window shows the cost of marks,
//! so after it the reset value may be lowered at once and without limit. A window is judged once it has enough
//! samples, or enough time to show that there are few.
//!
//! *What the answer needs.* Ten samples in the main function of the slow items tell it, and it has a third of their time
//! at least. Where items are short and rare the bound allows fewer; then samples get a share of their own ([`extra`]),
//! within what the target feels: twice what marks cost, if these exceed the bound anyway, or a small part of a CPU.
//!
//! *Expected.* An event that counts work (instructions) has the same number of samples for the same work, so the
//! cost of samples is proportional to 1/R. A clock advances while a sample is taken: with B the work, m the marks
//! and s the samples of a window of B + m + s, another reset value R' has samples that cost
//! s' = s (R/R') (B + m + s')/(B + m + s), which is solved for R'.
//! *Worked number*: samples of 13 us every 16 us: s = 13/16 of the window and B = 3/16, the overhead
//! is 433 %. For 1.5 % of B, s' = 0.015 B: R' = 16 us x (13/3 / 0.015) x (1.015 x 3/16) = 880 us.

use crate::estimate::sketch::SLOWEST;
use crate::store::run::{Extra, ExtraLimit};

/// Part of the bound that a change aims at: the rest is for chance.
pub(crate) const AIM: f64 = 0.75;

/// Fraction of the bound below which the reset value may be lowered.
pub(crate) const CALM: f64 = 0.5;

/// Samples with which a window is judged: chance alone makes its cost uncertain by an eighth.
pub(crate) const ENOUGH: u64 = 64;

/// The smallest fraction to which a reset value is lowered at once.
const LARGEST_FALL: f64 = 0.5;

/// Minimum relative change when the reset value is raised.
const LEAST_CHANGE: f64 = 0.05;

/// Factor by which the reset value is raised if samples seem to take all of the time.
const BEYOND_MEASURE: f64 = 8.0;

/// Calm windows in a row before the first lowering, and their maximum.
const PATIENCE: (u32, u32) = (2, 1 << 12);

/// Samples that the slowest items need.
const NEEDED: u32 = 30;

/// Share of a CPU that marks and samples may take.
const MOST_OF_CPU: f64 = 0.01;

/// Largest slow-down of items by samples that take less than that.
const MOST_OF_ITEMS: f64 = 0.3;

/// Share for samples in costs of marks, where these exceed the bound.
const TIMES_MARKS: f64 = 2.0;

/// Items and time that tell what their slowest ones need: one of them, and more than a burst.
const LEAST_SEEN: (u64, f64) = (100, 5e8);

/// Observations of the items and of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Time of the recording so far, and of all of it, ns.
    pub time_ns: (f64, f64),
    /// Items, and time on the CPU of the slowest of them, ns.
    pub slowest: (u64, f64),
    /// CPU time of the target, and the cost of marks in it, ns.
    pub cpu_ns: (f64, f64),
    /// Slow-down of items by marks.
    pub fixed: f64,
}

/// The slow-down by samples that is allowed, whatever marks cost, and what limits it.
///
/// *Worked number*: 31 of 11,000 items take 150 us, the others 7; with 79 of those the slowest hundredth has 5.2 ms in
/// 10 s. 30 samples of 14 us each there are one every 170 us: 8 % of the items' time, and 11 % so that the aim is that.
#[must_use]
pub(crate) fn extra(seen: &Seen, sample_ns: f64, bounds: &Bounds, least: f64) -> Option<Extra> {
    let (elapsed, whole) = seen.time_ns;
    let (items, slowest_ns) = seen.slowest;
    if items < LEAST_SEEN.0 || elapsed < LEAST_SEEN.1 || slowest_ns <= 0.0 {
        return None;
    }
    // Samples that a share of 1 gives them in a ns.
    let rate = AIM * slowest_ns / elapsed / sample_ns;
    let needed = f64::from(NEEDED) / (rate * whole.max(elapsed));
    let (cpu_ns, marks_ns) = seen.cpu_ns;
    let left_ns = (MOST_OF_CPU * elapsed - marks_ns).max(0.0);
    let of_cpu = left_ns / (cpu_ns - marks_ns).max(left_ns);
    let marks = match seen.fixed > bounds.overhead {
        true => TIMES_MARKS * seen.fixed,
        false => 0.0,
    };
    let most = if marks > of_cpu.min(MOST_OF_ITEMS) {
        (marks, ExtraLimit::Marks)
    } else if of_cpu < MOST_OF_ITEMS {
        (of_cpu, ExtraLimit::Cpu)
    } else {
        (MOST_OF_ITEMS, ExtraLimit::Items)
    };
    let share = needed.min(most.0).max(least);
    Some(Extra {
        share,
        limit: (share < needed).then_some(most.1),
        samples: NEEDED,
        slowest: SLOWEST,
        takes_ns: f64::from(NEEDED) / (rate * share),
    })
}

/// Bounds of the slow-down and of the reset value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Maximum slow-down, 0.02 = 2 %.
    pub overhead: f64,
    /// Smallest reset value: the requested one.
    pub least: u64,
    /// Largest reset value.
    pub most: u64,
    /// Slow-down by samples allowed even if marks use up the bound, 0.02 = 2 %; 0: none.
    pub extra: f64,
}

impl Bounds {
    /// The initial reset value, if marks are expected to cost `fixed`, and a sample costs `sample_ns`, for an event
    /// that occurs `rate` times in a ns.
    ///
    /// *Worked number*: samples of 13 us, a bound of 5 %, marks of 1 %: 13 us / (0.75 x 5 % - 1 %) x 1.0375 = 490
    /// us.
    #[must_use]
    pub(crate) fn first(&self, fixed: f64, sample_ns: f64, rate: f64) -> u64 {
        let room = (AIM * self.overhead - fixed).max(AIM * self.extra);
        if room <= 0.0 {
            return self.most;
        }
        let wanted = rate * sample_ns / room * (1.0 + fixed + room);
        (wanted.ceil() as u64).clamp(self.least, self.most)
    }

    /// Allowed cost of samples if marks cost `fixed`, both relative to the undisturbed time.
    const fn room(&self, part: f64, fixed: f64) -> f64 {
        (part * self.overhead - fixed).max(part * self.extra)
    }
}

/// Effect of a sample on the event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Time: the count advances.
    Time,
    /// Work of the target: the count stands still.
    Work,
}

/// Counts and costs within visits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// Time on the CPU, all cost included, ns.
    pub oncpu_ns: f64,
    /// Cost of marks and page faults, ns.
    pub fixed_ns: f64,
    /// Cost of samples, ns.
    pub samples_ns: f64,
    pub samples: u64,
}

/// Fraction of the time below which the remainder without the cost is unknown: unit costs vary as much from run to
/// run.
const REST: f64 = 0.1;

impl Window {
    /// A window of visits: their time on the CPU between marks, ns; the cost of marks and the part of it outside of
    /// visits (before a begin mark reads its time, and after an end mark has), ns; the cost of counted page faults
    /// and of samples, ns; the number of samples.
    ///
    /// *Worked number*: calls of 0.6 us with two marks of 0.5 us seem to take 1.1 us. They take 1.6 us, of which
    /// the marks are 1 us: 167 %.
    #[must_use]
    pub(crate) fn of_visits(
        oncpu_ns: f64,
        marks_ns: f64,
        outside_ns: f64,
        faults_ns: f64,
        samples_ns: f64,
        samples: u64,
    ) -> Self {
        Self {
            oncpu_ns: oncpu_ns + outside_ns,
            fixed_ns: marks_ns + faults_ns,
            samples_ns,
            samples,
        }
    }

    /// Time of the visits without the cost, ns.
    #[must_use]
    pub(crate) fn undisturbed_ns(&self) -> f64 {
        self.oncpu_ns - self.fixed_ns - self.samples_ns
    }

    /// The slow-down, 0.02 = 2 %; `None` if it can't be computed: nothing ran, or the cost is all of the time or
    /// more.
    #[must_use]
    pub(crate) fn overhead(&self) -> Option<f64> {
        let undisturbed = self.undisturbed_ns();
        (undisturbed > 0.0).then(|| (self.fixed_ns + self.samples_ns) / undisturbed)
    }

    /// A lower bound of the slow-down, if the cost seems to be nearly all of the time or more: the remainder is
    /// then within the error of both. `None` if it is not, or nothing ran.
    #[must_use]
    pub(crate) fn least(&self) -> Option<f64> {
        let least = REST * self.oncpu_ns;
        (self.oncpu_ns > 0.0 && self.undisturbed_ns() < least).then_some(1.0 / REST - 1.0)
    }

    /// The part of the slow-down that does not depend on the reset value; `None` as above.
    #[must_use]
    pub(crate) fn fixed(&self) -> Option<f64> {
        let undisturbed = self.undisturbed_ns();
        (undisturbed > 0.0).then(|| self.fixed_ns / undisturbed)
    }

    /// Whether that part is above a bound.
    #[must_use]
    pub(crate) fn is_fixed_above(&self, bound: f64) -> bool {
        let undisturbed = self.undisturbed_ns();
        // If samples seem to take all of the time, they are the cause.
        let base = if undisturbed > 0.0 {
            undisturbed
        } else {
            self.oncpu_ns - self.fixed_ns
        };
        self.fixed_ns > bound * base
    }

    fn add(&mut self, other: &Self) {
        let Self {
            oncpu_ns,
            fixed_ns,
            samples_ns,
            samples,
        } = other;
        self.oncpu_ns += oncpu_ns;
        self.fixed_ns += fixed_ns;
        self.samples_ns += samples_ns;
        self.samples += samples;
    }
}

/// Result of judging a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Too few samples to decide.
    Unknown,
    /// The reset value stays.
    Stay,
    Grow(u64),
    /// The reset value can be lowered to this.
    Fall(u64),
}

/// Judges a window in which `reset` was used. `sample_ns` is the cost of a sample.
///
/// A resulting reset value is within the bounds and differs from `reset`.
#[must_use]
pub(crate) fn judge(
    window: &Window,
    reset: u64,
    sample_ns: f64,
    bounds: &Bounds,
    counts: Counts,
    largest_fall: f64,
) -> Verdict {
    if reset < bounds.least {
        return Verdict::Grow(bounds.least);
    }
    let few_tell = AIM * bounds.overhead.max(bounds.extra) * window.undisturbed_ns()
        >= ENOUGH as f64 * sample_ns;
    if window.samples < ENOUGH && !few_tell {
        return Verdict::Unknown;
    }
    let shares = window.overhead().zip(window.fixed());
    let above = shares.is_none_or(|(overhead, fixed)| {
        let samples = overhead - fixed;
        samples > bounds.room(1.0, fixed)
    });
    let below = !above
        && shares.is_some_and(|(overhead, fixed)| {
            let least = CALM * bounds.extra;
            overhead < CALM * bounds.overhead || overhead - fixed < least
        });
    let wanted = reset as f64 * factor(window, bounds, counts);
    if above {
        let wanted = wanted.max(reset as f64 * (1.0 + LEAST_CHANGE));
        let new = (wanted.min(bounds.most as f64) as u64).clamp(bounds.least, bounds.most);
        if new > reset {
            return Verdict::Grow(new);
        }
    } else if below {
        let wanted = wanted.max(reset as f64 * largest_fall);
        let new = (wanted as u64).clamp(bounds.least, bounds.most);
        if new < reset {
            return Verdict::Fall(new);
        }
    }
    Verdict::Stay
}

/// Factor for the reset value that brings the overhead to its aim.
fn factor(window: &Window, bounds: &Bounds, counts: Counts) -> f64 {
    let undisturbed = window.undisturbed_ns();
    let room = match bounds.extra > 0.0 {
        true => {
            // If the cost seems to be all of the time, some of the time is assumed to be left.
            let base = undisturbed.max(REST * window.oncpu_ns);
            bounds.room(AIM, window.fixed_ns / base) * base
        }
        false => AIM * bounds.overhead * undisturbed - window.fixed_ns,
    };
    if undisturbed <= 0.0 && !window.is_fixed_above(bounds.overhead) {
        return BEYOND_MEASURE;
    }
    if room <= 0.0 {
        return f64::INFINITY;
    }
    let factor = window.samples_ns / room;
    match counts {
        Counts::Work => factor,
        Counts::Time => factor * (undisturbed + window.fixed_ns + room) / window.oncpu_ns,
    }
}

/// A change of the reset value, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// The reset value from now on.
    pub reset: u64,
    /// The overhead that caused it; `None` if it could not be computed.
    pub overhead: Option<f64>,
}

/// Collects counts into windows, and keeps the bounds.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    bounds: Bounds,
    /// The smallest reset value that was asked for.
    asked: u64,
    counts: Counts,
    sample_ns: f64,
    reset: u64,
    window: Window,
    /// Overhead of the last window that was judged.
    last: Option<f64>,
    fixed: Option<f64>,
    is_fixed_above: bool,
    calm: u32,
    patience: u32,
    has_fallen: bool,
    /// Whether a window was judged.
    has_judged: bool,
}

impl Controller {
    /// A controller for an event with the initial reset value `first` and the cost `sample_ns` of a sample.
    #[must_use]
    pub(crate) fn new(bounds: Bounds, counts: Counts, sample_ns: f64, first: u64) -> Self {
        Self {
            bounds,
            asked: bounds.least,
            counts,
            sample_ns,
            reset: first.clamp(bounds.least, bounds.most),
            has_judged: false,
            window: Window::default(),
            last: None,
            fixed: None,
            is_fixed_above: false,
            calm: 0,
            patience: PATIENCE.0,
            has_fallen: false,
        }
    }

    /// From now on samples may slow items down so much, whatever marks cost.
    pub(crate) const fn allow(&mut self, extra: f64) {
        self.bounds.extra = extra;
    }

    /// The reset value is at least this from now on, or what was asked for.
    pub(crate) fn keep_above(&mut self, least: u64) {
        self.bounds.least = least.clamp(self.asked, self.bounds.most.max(self.asked));
    }

    /// The bounds in force.
    pub(crate) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The reset value in force.
    #[must_use]
    pub(crate) const fn reset(&self) -> u64 {
        self.reset
    }

    /// Overhead of the last window that was judged.
    #[must_use]
    pub(crate) const fn overhead(&self) -> Option<f64> {
        self.last
    }

    /// The part of it due to marks and page faults.
    #[must_use]
    pub(crate) const fn fixed(&self) -> Option<f64> {
        self.fixed
    }

    /// Whether these alone exceeded the bound in that window.
    #[must_use]
    pub(crate) const fn is_fixed_above(&self) -> bool {
        self.is_fixed_above
    }

    /// Adds the counts since the last call, all made with the current reset value; returns the change to make, if
    /// any. [`Controller::changed`] confirms it.
    pub(crate) fn push(&mut self, counted: &Window) -> Option<Change> {
        self.window.add(counted);
        let window = self.window;
        let largest_fall = if self.has_judged { LARGEST_FALL } else { 0.0 };
        let verdict = judge(
            &window,
            self.reset,
            self.sample_ns,
            &self.bounds,
            self.counts,
            largest_fall,
        );
        if verdict == Verdict::Unknown {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.has_judged, true);
        self.window = Window::default();
        self.last = window.overhead();
        self.fixed = window.fixed();
        self.is_fixed_above = window.is_fixed_above(self.bounds.overhead);
        let overhead = self.last;
        match verdict {
            Verdict::Grow(reset) => {
                self.calm = 0;
                if std::mem::take(&mut self.has_fallen) {
                    self.patience = (2 * self.patience).min(PATIENCE.1);
                }
                Some(Change { reset, overhead })
            }
            Verdict::Fall(reset) => {
                self.calm += 1;
                let falls = is_first || self.calm >= self.patience;
                falls.then_some(Change { reset, overhead })
            }
            Verdict::Stay | Verdict::Unknown => {
                self.calm = 0;
                None
            }
        }
    }

    /// Confirms that the reset value was changed, to that of the change or one close to it.
    pub(crate) fn changed(&mut self, reset: u64) {
        self.has_fallen = reset < self.reset;
        self.reset = reset;
        self.calm = 0;
        self.window = Window::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    /// Half of the cost of marks is outside of visits: otherwise marks of short calls would seem to cost more than
    /// the whole time.
    #[test]
    fn marks_of_short_calls() {
        let window = Window::of_visits(1_100.0, 1_000.0, 500.0, 0.0, 0.0, 0);
        assert_eq!(window.least(), None);
        // With almost no remainder, or a negative one.
        for left in [100.0, 0.0, -700.0] {
            let window = Window::of_visits(1_100.0 + left - 600.0, 1_000.0, 500.0, 0.0, 0.0, 0);
            assert_eq!(window.least(), Some(9.0), "{left}");
        }
        assert_eq!(Window::of_visits(0.0, 0.0, 0.0, 0.0, 0.0, 0).least(), None);
        let overhead = window.overhead().unwrap();
        assert!((overhead - 1.0 / 0.6).abs() < 1e-9, "{overhead}");
    }

    const BOUNDS: Bounds = Bounds {
        overhead: 0.02,
        least: 16_000,
        most: 1_600_000,
        extra: 0.0,
    };

    /// Items of 7 us, of which few take 150, 1,100 times a second; marks take 30 % of them.
    fn rare() -> Seen {
        Seen {
            time_ns: (1e9, 1e10),
            slowest: (1_100, 5.2e5),
            cpu_ns: (5e7, 2.3e6),
            fixed: 0.3,
        }
    }

    /// The worked number; what a bound has room for is no concern of this.
    #[test]
    fn what_is_needed() {
        let bounds = Bounds {
            overhead: 0.05,
            extra: 0.02,
            ..BOUNDS
        };
        let of = |seen: &Seen| extra(seen, 14_000.0, &bounds, 0.02);
        let enough = of(&rare()).unwrap();
        assert!((enough.share - 0.108).abs() < 0.001, "{enough:?}");
        assert_eq!(enough.limit, None);
        assert!((enough.takes_ns / 1e10 - 1.0).abs() < 0.01, "{enough:?}");
        // Not yet known.
        let few = (99, 5.2e5);
        assert_eq!(
            of(&Seen {
                slowest: few,
                ..rare()
            }),
            None
        );
        assert_eq!(
            of(&Seen {
                time_ns: (4e8, 1e10),
                ..rare()
            }),
            None
        );
        // Frequent items need no more than the least.
        let frequent = (100_000, 1e7);
        let found = of(&Seen {
            slowest: frequent,
            ..rare()
        })
        .unwrap();
        assert_eq!((found.share, found.limit), (0.02, None));
        // A tenth of that: twice the marks are not enough, and it takes longer.
        let rarer = (110, 5.2e4);
        let found = of(&Seen {
            slowest: rarer,
            ..rare()
        })
        .unwrap();
        assert_eq!((found.share, found.limit), (0.6, Some(ExtraLimit::Marks)));
        assert!(found.takes_ns > 1.7e10, "{found:?}");
        // Where marks are within the bound: a part of a CPU, or of the items.
        let cheap = |cpu_ns| Seen {
            slowest: rarer,
            fixed: 0.01,
            cpu_ns: (cpu_ns, 1e6),
            ..rare()
        };
        let found = of(&cheap(1.01e8)).unwrap();
        assert_eq!(found.limit, Some(ExtraLimit::Cpu));
        assert!((found.share - 0.09).abs() < 1e-9, "{found:?}");
        let found = of(&cheap(2e6)).unwrap();
        assert_eq!(
            (found.share, found.limit),
            (MOST_OF_ITEMS, Some(ExtraLimit::Items))
        );
        // A CPU that is busy has nothing left.
        let found = of(&Seen {
            cpu_ns: (1e9, 2e7),
            ..cheap(0.0)
        })
        .unwrap();
        assert_eq!((found.share, found.limit), (0.02, Some(ExtraLimit::Cpu)));
    }

    /// A simulated target of the controller.
    #[derive(Clone, Copy, Debug)]
    struct Target {
        sample_ns: f64,
        /// Marks and page faults, of the undisturbed time.
        fixed: f64,
        /// Events in an undisturbed ns.
        rate: f64,
        counts: Counts,
        /// Undisturbed time between two looks, ns.
        work_ns: f64,
    }

    impl Target {
        /// Counts between two looks; the fractional part of a sample is random.
        fn run(&self, reset: u64, rng: &mut SplitMix64) -> Window {
            let fixed_ns = self.fixed * self.work_ns;
            let per_ns = self.rate / reset as f64;
            let expected = match self.counts {
                Counts::Work => self.work_ns * per_ns,
                // A clock that ticks every R ns, of which a sample takes c.
                Counts::Time => {
                    let share = (self.sample_ns * per_ns).min(0.95);
                    (self.work_ns + fixed_ns) * per_ns / (1.0 - share)
                }
            };
            let chance = f64::from(rng.below(1 << 20)) / f64::from(1 << 20);
            let samples = (expected + chance).floor();
            let samples_ns = samples * self.sample_ns;
            Window {
                oncpu_ns: self.work_ns + fixed_ns + samples_ns,
                fixed_ns,
                samples_ns,
                samples: samples as u64,
            }
        }
    }

    /// Runs a controller for `looks` looks; returns it and its changes.
    fn control(bounds: Bounds, target: &Target, looks: u32) -> (Controller, Vec<(u32, u64)>) {
        let mut controller = Controller::new(bounds, target.counts, target.sample_ns, 0);
        let (mut rng, mut changes) = (SplitMix64::new(7), Vec::new());
        for look in 0..looks {
            let window = target.run(controller.reset(), &mut rng);
            if let Some(change) = controller.push(&window) {
                assert_ne!(change.reset, controller.reset());
                controller.changed(change.reset);
                changes.push((look, change.reset));
            }
        }
        (controller, changes)
    }

    /// The worked number of the module's page: one change is enough for it.
    #[test]
    fn dear_samples() {
        let target = Target {
            sample_ns: 13_000.0,
            fixed: 0.0,
            rate: 1.0,
            counts: Counts::Time,
            work_ns: 50e6,
        };
        let (controller, changes) = control(BOUNDS, &target, 200);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(
            (870_000..890_000).contains(&controller.reset()),
            "{changes:?}"
        );
        let overhead = controller.overhead().unwrap();
        assert!((0.012..0.018).contains(&overhead), "{overhead}");
    }

    /// A cheap enough initial reset value stays, also without visits.
    #[test]
    fn nothing_to_do() {
        let cheap = Target {
            sample_ns: 100.0,
            fixed: 0.001,
            rate: 1.0,
            counts: Counts::Time,
            work_ns: 50e6,
        };
        let (controller, changes) = control(BOUNDS, &cheap, 100);
        assert_eq!((controller.reset(), changes), (BOUNDS.least, vec![]));
        let mut idle = Controller::new(BOUNDS, Counts::Time, 13_000.0, 0);
        for _ in 0..1000 {
            assert_eq!(idle.push(&Window::default()), None);
        }
        assert_eq!((idle.overhead(), idle.is_fixed_above()), (None, false));
    }

    /// Marks that alone exceed the bound are reported, and the reset value is the largest.
    #[test]
    fn marks_alone() {
        let target = Target {
            sample_ns: 1_000.0,
            fixed: 0.08,
            rate: 1.0,
            counts: Counts::Work,
            work_ns: 50e6,
        };
        let (controller, changes) = control(BOUNDS, &target, 100);
        assert_eq!(controller.reset(), BOUNDS.most, "{changes:?}");
        assert!(controller.is_fixed_above());
        let fixed = controller.fixed().unwrap();
        assert!((fixed - 0.08).abs() < 1e-9, "{fixed}");
    }

    /// If marks exceed the goal, samples still get a share of their own, from the first reset value on; one that
    /// was too large at first is lowered at once.
    #[test]
    fn samples_on_top_of_marks() {
        let bounds = Bounds {
            overhead: 0.05,
            extra: 0.02,
            ..BOUNDS
        };
        let target = Target {
            sample_ns: 13_000.0,
            fixed: 0.4,
            rate: 1.0,
            counts: Counts::Time,
            work_ns: 50e6,
        };
        let (controller, _) = control(bounds, &target, 100);
        assert!(controller.is_fixed_above());
        let on_top = controller.overhead().unwrap() - 0.4;
        assert!((0.01..0.021).contains(&on_top), "{on_top}");
        // 13 us / 1.5 % of the undisturbed time, which is 1 / 1.415 of the time.
        let first = bounds.first(0.4, 13_000.0, 1.0);
        assert!((1_220_000..1_230_000).contains(&first), "{first}");
        let free = bounds.first(0.0, 13_000.0, 1.0);
        assert!((359_000..361_000).contains(&free), "{free}");
        let cheap = Target {
            fixed: 0.0,
            ..target
        };
        let mut controller = Controller::new(bounds, Counts::Time, 13_000.0, first);
        let mut rng = SplitMix64::new(1);
        let change = (0..10).find_map(|_| controller.push(&cheap.run(first, &mut rng)));
        let reset = change.unwrap().reset;
        assert!((330_000..400_000).contains(&reset), "{reset}");
    }

    /// The cost seems to exceed the time: because of marks, or of samples that cost a little less than was measured
    /// before.
    #[test]
    fn beyond_measure() {
        let judged = |window: &Window| {
            judge(
                window,
                16_000,
                15_000.0,
                &BOUNDS,
                Counts::Time,
                LARGEST_FALL,
            )
        };
        let marks = Window {
            oncpu_ns: 400e6,
            fixed_ns: 420e6,
            samples_ns: 1e6,
            samples: 70,
        };
        assert_eq!((marks.overhead(), marks.fixed()), (None, None));
        assert!(marks.is_fixed_above(BOUNDS.overhead));
        assert_eq!(judged(&marks), Verdict::Grow(BOUNDS.most));
        let samples = Window {
            oncpu_ns: 400e6,
            fixed_ns: 1e6,
            samples_ns: 410e6,
            samples: 27_000,
        };
        assert!(!samples.is_fixed_above(BOUNDS.overhead));
        assert_eq!(judged(&samples), Verdict::Grow(128_000));
    }

    /// If the cost decreases the reset value is lowered again, not below the requested one.
    #[test]
    fn falls_again() {
        let mut controller = Controller::new(BOUNDS, Counts::Work, 1_000.0, 0);
        let mut rng = SplitMix64::new(1);
        let mut target = Target {
            sample_ns: 1_000.0,
            fixed: 0.0,
            rate: 3.0,
            counts: Counts::Work,
            work_ns: 50e6,
        };
        let mut run = |controller: &mut Controller, target: &Target| {
            for _ in 0..400 {
                if let Some(change) = controller.push(&target.run(controller.reset(), &mut rng)) {
                    controller.changed(change.reset);
                }
            }
            controller.reset()
        };
        let busy = run(&mut controller, &target);
        assert!((190_000..210_000).contains(&busy), "{busy}");
        // Hardly an event any more.
        target.rate = 0.001;
        assert_eq!(run(&mut controller, &target), BOUNDS.least);
    }

    /// A load that swings across the bound leads to fewer and fewer changes.
    #[test]
    fn swings_are_damped() {
        let mut controller = Controller::new(BOUNDS, Counts::Work, 1_000.0, 0);
        let (mut rng, mut changes) = (SplitMix64::new(1), [0, 0]);
        for look in 0..40_000 {
            let target = Target {
                sample_ns: 1_000.0,
                fixed: 0.0,
                rate: if look / 20 % 2 == 0 { 3.0 } else { 0.3 },
                counts: Counts::Work,
                work_ns: 50e6,
            };
            if let Some(change) = controller.push(&target.run(controller.reset(), &mut rng)) {
                controller.changed(change.reset);
                changes[look / 20_000] += 1;
            }
        }
        assert!(changes[0] < 40 && changes[1] < 4, "{changes:?}");
    }

    proptest! {
        /// For any windows, the reset value stays within its bounds.
        #[test]
        fn within_bounds(
            windows in prop::collection::vec(
                (0.0..1e12f64, 0.0..1e12f64, 0.0..1e12f64, any::<u64>()), 1..50),
            overhead in 1e-6..1.0f64,
            least in 1u64..1 << 40,
            span in 0u64..1 << 20,
            sample_ns in 0.0..1e6f64,
            clock: bool,
        ) {
            let bounds = Bounds { overhead, least, most: least.saturating_mul(span + 1), extra: 0.0 };
            let counts = if clock { Counts::Time } else { Counts::Work };
            let mut controller = Controller::new(bounds, counts, sample_ns, 0);
            for (oncpu_ns, fixed_ns, samples_ns, samples) in windows {
                let window = Window { oncpu_ns, fixed_ns, samples_ns, samples: samples / 64 };
                if let Some(change) = controller.push(&window) {
                    prop_assert!((bounds.least..=bounds.most).contains(&change.reset));
                    prop_assert_ne!(change.reset, controller.reset());
                    controller.changed(change.reset);
                }
            }
        }

        /// With a steady target the overhead is soon below the bound, if possible, and then the reset value stays.
        #[test]
        fn converges(
            sample_ns in 50.0..20_000f64,
            fixed in 0.0..0.01f64,
            rate in 0.01..4.0f64,
            overhead in 0.02..0.2f64,
            clock: bool,
        ) {
            let bounds = Bounds { overhead, least: 16_000, most: 16_000_000_000, extra: 0.0 };
            let counts = if clock { Counts::Time } else { Counts::Work };
            let rate = if clock { 1.0 } else { rate };
            let target = Target { sample_ns, fixed, rate, counts, work_ns: 200e6 };
            let (controller, changes) = control(bounds, &target, 300);
            let last = controller.overhead().unwrap();
            prop_assert!(last <= overhead * 1.001, "{last} {changes:?}");
            prop_assert!(changes.len() <= 6, "{changes:?}");
            prop_assert!(changes.iter().all(|(look, _)| *look < 100), "{changes:?}");
        }
    }
}
