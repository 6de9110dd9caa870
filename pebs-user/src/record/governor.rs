//! Keeps the slow-down of items below `--max-overhead`, or below a default, by changing the reset value.

use std::time::Duration;

use super::budget::{EVENT, EXTRA, percent};
use super::cost::Prices;
use super::event::Event;
use crate::cost::calibrate::UnitCosts;
use crate::cost::overhead::{self, Bounds, Change, Controller, Counts, Seen};
use crate::failure::{Failure, Result, Warning};
use crate::pipeline::Load;
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::reset;
use crate::store::run::{Extra, OverheadInfo, ResetChange, RunInfo};
use crate::units::{ResetValue, TraceNs};

/// Time after which the slowest items should have enough samples, if it is not known how long is recorded.
const USUAL: Duration = Duration::from_secs(10);

/// Follows the load of a recording and decides when to change its reset value.
pub(super) struct Governor {
    controller: Controller,
    class: EventClass,
    counts: Counts,
    sample_ns: f64,
    /// How long is recorded.
    duration: Duration,
    last: Load,
    changed_at: TraceNs,
    changes: Vec<ResetChange>,
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
    pub(super) fn new(
        bounds: Bounds,
        event: &ResolvedEvent,
        costs: &UnitCosts,
        prices: &Prices<'_>,
        duration: Option<Duration>,
    ) -> Result<Option<Self>> {
        let (Some(sample_ns), true) = (costs.sample_ns, prices.are_known()) else {
            if bounds.extra > 0.0 {
                // No bound was given.
                return Ok(None);
            }
            return Err(Failure::new(
                format!(
                    "cannot keep --max-overhead: the cost of marks and samples of {} could not be measured",
                    event.name
                ),
                "'pebs-trace doctor' says what this machine can do".to_owned(),
            ));
        };
        let counts = match event.class {
            EventClass::Clock => Counts::Time,
            _ => Counts::Work,
        };
        let first = event.reset.0.get();
        Ok(Some(Self {
            controller: Controller::new(bounds, counts, sample_ns, first),
            class: event.class.clone(),
            counts,
            sample_ns,
            duration: duration.unwrap_or(USUAL),
            last: Load::default(),
            changed_at: TraceNs(0),
            changes: Vec::new(),
            extra: None,
            has_warned: false,
            failed: None,
        }))
    }

    /// Takes in the load up to now, and the target's CPU time; returns the new reset value if it has to change.
    pub(super) fn look(
        &mut self,
        load: &Load,
        cpu_ns: u64,
        prices: &Prices<'_>,
    ) -> Option<(ResetValue, Change)> {
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
        let Bounds { least, most, .. } = *self.controller.bounds();
        let reset = reset::near(&self.class, change.reset, least, most);
        let reset = std::num::NonZeroU64::new(reset).map(ResetValue)?;
        (reset.0.get() != self.controller.reset()).then_some((reset, change))
    }

    /// Keeps these bounds from now on.
    pub(super) fn keep_to(&mut self, bounds: Bounds) {
        let (counts, reset) = (self.counts, self.controller.reset());
        self.controller = Controller::new(bounds, counts, self.sample_ns, reset);
        (self.extra, self.has_warned) = (None, false);
    }

    /// Takes over changes that were made before it.
    pub(super) fn after(self, changes: &[ResetChange]) -> Self {
        Self {
            changes: changes.to_vec(),
            ..self
        }
    }

    /// The bounds in force.
    pub(super) const fn bounds(&self) -> &Bounds {
        self.controller.bounds()
    }

    /// The reset value is at least this, or what was asked for.
    pub(super) fn keep_above(&mut self, least: Option<u64>) {
        self.controller.keep_above(least.unwrap_or(0));
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

    /// The reset value was changed at that time.
    pub(super) fn changed(&mut self, time: TraceNs, reset: ResetValue, overhead: Option<f64>) {
        self.changes.push(ResetChange {
            time_ns: time,
            event: EVENT,
            old: self.controller.reset(),
            new: reset.0.get(),
            overhead,
        });
        self.controller.changed(reset.0.get());
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

    /// The reset value in force.
    pub(super) const fn reset(&self) -> u64 {
        self.controller.reset()
    }

    /// Every change so far.
    pub(super) fn changes(&self) -> &[ResetChange] {
        &self.changes
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
            event: EVENT,
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
            "slow-down of items: {} in the last moments, above --max-overhead {}",
            percent(last),
            percent(info.most)
        ),
        hint: format!("raise --max-reset (now {})", info.most_reset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Exceeded" is decided by the slow-down at the largest reset value only.
    #[test]
    fn end() {
        let change = ResetChange {
            time_ns: TraceNs(1),
            event: EVENT,
            old: 16_000,
            new: 64_000,
            overhead: Some(0.3),
        };
        let mut run = RunInfo {
            max_overhead: Some(OverheadInfo {
                event: EVENT,
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
            "slow-down of items: 5 % in the last moments, above --max-overhead 2 %"
        );
        assert_eq!(hint, "raise --max-reset (now 64000)");
        run.max_overhead.as_mut().unwrap().last = change.overhead;
        assert_eq!(remark(&run), None, "too little ran after the change");
        run.max_overhead.as_mut().unwrap().marks_alone = true;
        assert!(remark(&run).is_some(), "no reset value changes that");
    }
}
