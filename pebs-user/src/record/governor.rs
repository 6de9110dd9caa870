//! Keeps the slow-down of items below `--max-overhead`, or below a default, by changing reset values.

use std::num::NonZeroU64;
use std::time::Duration;

use super::budget::{self, EXTRA, percent};
use super::cost::Prices;
use super::event::Event;
use super::plan::Plan;
use crate::cost::overhead::{self, Bounds, Change, Controller, Counts, Seen};
use crate::failure::{Failure, Result, Warning};
use crate::pipeline::Load;
use crate::pmu::attr::EventClass;
use crate::pmu::reset;
use crate::store::run::{Extra, OverheadInfo, RunInfo};
use crate::units::{EventId, ResetValue, TraceNs};

/// Time after which the slowest items should have enough samples, if it is not known how long is recorded.
const USUAL: Duration = Duration::from_secs(10);

/// An event whose reset value keeps the bound.
struct Governed {
    event: EventId,
    class: EventClass,
    least: u64,
    most: u64,
    /// Reset value at first.
    first: u64,
    /// Reset value in force.
    reset: u64,
}

/// Follows the load of a recording and decides when to change its reset values.
///
/// One event leads: the controller decides on its reset value by what the samples of all cost together. The others
/// change by the same factor, so that each keeps the share of the samples that it began with; which of them is worth more
/// is not known here.
pub(super) struct Governor {
    controller: Controller,
    /// Each event; the first leads.
    events: Vec<Governed>,
    counts: Counts,
    /// Cost of a sample of each event.
    sample_ns: f64,
    /// Planned length of the recording.
    duration: Duration,
    last: Load,
    changed_at: TraceNs,
    extra: Option<Extra>,
    has_warned: bool,
    /// Why changes are no longer made.
    failed: Option<String>,
}

impl Governor {
    /// Creates a governor for these bounds, before anything is attached.
    ///
    /// # Errors
    /// The cost of marks or samples could not be measured.
    pub(super) fn new(bounds: &Bounds, plan: &Plan, prices: &Prices<'_>) -> Result<Option<Self>> {
        let costs = prices.costs();
        let governed = budget::governed(&plan.events, costs);
        let is_asked = bounds.extra == 0.0;
        let wanted = plan.events.iter().filter(|event| budget::is_known(event));
        let wanted: Vec<&str> = wanted.map(|event| event.name.as_str()).collect();
        if !prices.are_known() || is_asked && governed.len() < wanted.len() {
            if !is_asked {
                return Ok(None);
            }
            return Err(Failure::new(
                format!(
                    "cannot keep --max-overhead: the cost of marks and samples of {} could not be measured",
                    wanted.join(", ")
                ),
                "'pebs-trace doctor' says what this machine can do".to_owned(),
            ));
        }
        let given = (plan.reset, plan.max_reset);
        let each = governed.iter().map(|id| {
            let event = &plan.events[usize::from(id.0)];
            let Bounds { least, most, .. } = budget::of_event(bounds, event, given);
            let reset = event.reset.0.get();
            Governed {
                event: *id,
                class: event.class.clone(),
                least,
                most,
                first: reset,
                reset,
            }
        });
        let events: Vec<Governed> = each.collect();
        let Some(leader) = events.first() else {
            return Ok(None);
        };
        let counts = match leader.class {
            EventClass::Clock => Counts::Time,
            _ => Counts::Work,
        };
        let each = governed.iter().filter_map(|event| costs.of_sample(*event));
        let sample_ns = each.sum();
        let bounds = leader.bounds(bounds);
        Ok(Some(Self {
            controller: Controller::new(bounds, counts, sample_ns, leader.reset),
            events,
            counts,
            sample_ns,
            duration: plan.duration.unwrap_or(USUAL),
            last: Load::default(),
            changed_at: TraceNs(0),
            extra: None,
            has_warned: false,
            failed: None,
        }))
    }

    /// Takes in the load up to now, and the target's CPU time; returns the new reset values if they have to change.
    pub(super) fn look(
        &mut self,
        load: &Load,
        cpu_ns: u64,
        prices: &Prices<'_>,
    ) -> Option<(Vec<(EventId, ResetValue)>, Change)> {
        if load.until <= self.last.until || self.failed.is_some() {
            return None;
        }
        let before = std::mem::replace(&mut self.last, load.clone());
        self.allow(load, cpu_ns, prices);
        // Both reset values were in force.
        if before.until < self.changed_at {
            return None;
        }
        let change = self.controller.push(&prices.window(&before, load)?)?;
        let resets = self.resets_for(change.reset);
        (!resets.is_empty()).then_some((resets, change))
    }

    /// The reset values that change if the leader's is this.
    fn resets_for(&self, leader: u64) -> Vec<(EventId, ResetValue)> {
        let Bounds { least, most, .. } = *self.controller.bounds();
        let leader = reset::near(&self.events[0].class, leader, least, most);
        let factor = leader as f64 / self.events[0].first as f64;
        let each = self.events.iter().enumerate();
        let each = each.map(|(n, it)| match n {
            0 => (it, leader),
            _ => (it, it.times(factor)),
        });
        let changed = each.filter(|(it, reset)| *reset != it.reset);
        changed
            .filter_map(|(it, reset)| Some((it.event, ResetValue(NonZeroU64::new(reset)?))))
            .collect()
    }

    /// Keeps these bounds from now on; returns the reset values that they do not hold.
    pub(super) fn keep_to(&mut self, bounds: &Bounds) -> Vec<(EventId, ResetValue)> {
        let leader = &self.events[0];
        let bounds = leader.bounds(bounds);
        self.controller = Controller::new(bounds, self.counts, self.sample_ns, leader.reset);
        (self.extra, self.has_warned) = (None, false);
        self.resets_for(self.controller.reset())
    }

    /// The bounds in force.
    pub(super) const fn bounds(&self) -> &Bounds {
        self.controller.bounds()
    }

    /// The reset value of a clock is at least this, or what was asked for.
    pub(super) fn keep_above(&mut self, least: Option<u64>) {
        if self.events[0].class == EventClass::Clock {
            self.controller.keep_above(least.unwrap_or(0));
        }
    }

    /// Allows samples what the slowest items need, unless a bound was given.
    fn allow(&mut self, load: &Load, cpu_ns: u64, prices: &Prices<'_>) {
        let bounds = *self.controller.bounds();
        let marks_ns = prices
            .cost_of_marks(&load.marks, (&load.marks, &load.at_marks))
            .map(|it| it.whole_ns);
        let all = prices.window(&Load::default(), load);
        let (Some(marks_ns), Some(all), true) = (marks_ns, all, bounds.extra > 0.0) else {
            return;
        };
        let seen = |slowest: &(u64, f64)| Seen {
            time_ns: (load.until.0 as f64, self.duration.as_nanos() as f64),
            slowest: *slowest,
            cpu_ns: (cpu_ns as f64, marks_ns),
            // Unknown where marks seem to take all of the time: at least as long as the items themselves.
            fixed: all.fixed().unwrap_or(1.0),
        };
        let each = load.slowest.iter();
        let each = each.filter_map(|it| overhead::extra(&seen(it), self.sample_ns, &bounds, EXTRA));
        // Every probe's items get an answer.
        self.extra = each
            .max_by(|a, b| a.share.total_cmp(&b.share))
            .or(self.extra);
        self.controller
            .allow(self.extra.map_or(EXTRA, |it| it.share));
    }

    /// The reset value of an event was changed at that time.
    pub(super) fn changed(&mut self, time: TraceNs, event: EventId, reset: ResetValue) {
        for it in self.events.iter_mut().filter(|it| it.event == event) {
            it.reset = reset.0.get();
        }
        self.controller.changed(self.events[0].reset);
        self.changed_at = time;
    }

    /// Handles a failed change of the reset value: it stays as it is from now on.
    pub(super) fn failed(&mut self, error: &str) -> String {
        let text = format!("--max-overhead is no longer kept: {error}");
        self.failed = Some(text.clone());
        text
    }

    /// Event if marks alone cost more than the bound, or if samples may take more than it has room for; returned once.
    pub(super) fn warning(&mut self) -> Option<Event> {
        let info = self.info();
        let warns =
            (info.marks_alone || info.extra.is_some() && info.last.is_some()) && !self.has_warned;
        self.has_warned |= warns;
        warns.then(|| match info.by_default {
            true => Event::Beyond(info),
            false => Event::Warning(marks_alone(info.last_marks, info.most)),
        })
    }

    /// The event that leads, and its reset value in force.
    pub(super) fn leader(&self) -> (EventId, u64) {
        (self.events[0].event, self.events[0].reset)
    }

    /// Why changes are no longer made.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// The result, for `trace.json`.
    pub(super) fn info(&self) -> OverheadInfo {
        let Bounds {
            overhead,
            least,
            most,
            extra,
        } = *self.controller.bounds();
        // What the bound leaves is enough otherwise.
        let beyond = |it: &Extra| it.share > overhead - self.controller.fixed().unwrap_or(0.0);
        OverheadInfo {
            event: self.events[0].event,
            most: overhead,
            by_default: extra > 0.0,
            least_reset: least,
            most_reset: most,
            reset: self.controller.reset(),
            last: self.controller.overhead(),
            last_marks: self.controller.fixed(),
            marks_alone: self.controller.is_fixed_above(),
            extra: self.extra.filter(beyond),
        }
    }
}

impl Governed {
    /// The bounds with its reset values.
    const fn bounds(&self, bounds: &Bounds) -> Bounds {
        Bounds {
            least: self.least,
            most: self.most,
            ..*bounds
        }
    }

    /// Its first reset value times a factor, as far as the bounds allow.
    fn times(&self, factor: f64) -> u64 {
        let wanted = (self.first as f64 * factor) as u64;
        let wanted = wanted.clamp(self.least, self.most);
        reset::near(&self.class, wanted, self.least, self.most)
    }
}

fn marks_alone(share: Option<f64>, bound: f64) -> Warning {
    let cost = share.map_or_else(
        || "cost more than the items themselves".to_owned(),
        |share| format!("make items {} slower", percent(share)),
    );
    Warning {
        text: format!(
            "marks alone {cost}, above --max-overhead {}",
            percent(bound)
        ),
        hint:
            "probe a function that is called less often; samples are as few as --max-reset allows"
                .to_owned(),
    }
}

/// Remark and hint at the end if the bound was not kept.
pub(super) fn remark(run: &RunInfo) -> Option<Warning> {
    let info = run.max_overhead.as_ref()?;
    if info.by_default {
        return None;
    }
    if info.marks_alone {
        return Some(marks_alone(info.last_marks, info.most));
    }
    let last = info.last.filter(|last| *last > info.most)?;
    // Measurements from before the last change do not hold after it.
    let is_current = info.reset == info.most_reset && !info.is_of_before(&run.resets);
    is_current.then(|| Warning {
        text: format!(
            "slow-down of items: last measured {}, above --max-overhead {}",
            percent(last),
            percent(info.most)
        ),
        hint: format!("raise --max-reset (now {})", info.most_reset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::run::ResetChange;

    fn governed(event: u8, class: EventClass, (least, first, most): (u64, u64, u64)) -> Governed {
        Governed {
            event: EventId(event),
            class,
            least,
            most,
            first,
            reset: first,
        }
    }

    /// All reset values change by the factor of the leader's, each within its own bounds, and rounding does not add up.
    #[test]
    fn one_factor() {
        let events = vec![
            governed(1, EventClass::Clock, (16_000, 400_009, 10_000_000)),
            governed(0, EventClass::Software, (1, 53, 10_000_000)),
            governed(2, EventClass::Clock, (16_000, 400_009, 600_000)),
        ];
        let bounds = events[0].bounds(&Bounds {
            overhead: 0.05,
            least: 0,
            most: 0,
            extra: 0.02,
        });
        let mut governor = Governor {
            controller: Controller::new(bounds, Counts::Time, 9_000.0, 400_009),
            events,
            counts: Counts::Time,
            sample_ns: 9_000.0,
            duration: USUAL,
            last: Load::default(),
            changed_at: TraceNs(0),
            extra: None,
            has_warned: false,
            failed: None,
        };
        assert_eq!(governor.resets_for(400_009), []);
        for (leader, faults) in [(800_000, 106), (60_000, 8), (16_000, 2), (400_009, 53)] {
            let changed = governor.resets_for(leader);
            for (event, reset) in &changed {
                governor.changed(TraceNs(1), *event, *reset);
            }
            let now = |n: usize| governor.events[n].reset as f64;
            assert!((now(0) / leader as f64 - 1.0).abs() < 0.05, "{leader}");
            assert!((now(1) - f64::from(faults)).abs() <= 3.0, "{leader}");
            assert!((16_000.0..=600_000.0).contains(&now(2)), "{leader}");
        }
        assert_eq!(governor.leader().0, EventId(1));
    }

    /// "Exceeded" is decided by the slow-down at the largest reset value only.
    #[test]
    fn end() {
        let change = ResetChange {
            time_ns: TraceNs(1),
            event: EventId(0),
            old: 16_000,
            new: 64_000,
            overhead: Some(0.3),
        };
        let mut run = RunInfo {
            max_overhead: Some(OverheadInfo {
                event: EventId(0),
                most: 0.02,
                least_reset: 16_000,
                most_reset: 64_000,
                reset: 64_000,
                last: Some(0.05),
                ..OverheadInfo::default()
            }),
            resets: vec![change],
            ..RunInfo::default()
        };
        let Warning { text, hint } = remark(&run).unwrap();
        assert_eq!(
            text,
            "slow-down of items: last measured 5 %, above --max-overhead 2 %"
        );
        assert_eq!(hint, "raise --max-reset (now 64000)");
        run.max_overhead.as_mut().unwrap().last = change.overhead;
        assert_eq!(remark(&run), None, "too little ran after the change");
        run.max_overhead.as_mut().unwrap().marks_alone = true;
        assert!(remark(&run).is_some(), "no reset value changes that");
    }
}
