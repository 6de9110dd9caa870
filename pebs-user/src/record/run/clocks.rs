//! Chooses the clocks of a recording while it runs, by how often the target's threads switch.

use std::num::NonZeroU64;

use super::{Control, locked, session_plan};
use crate::collect::clock::now;
use crate::collect::session::{SessionPlan, Transport};
use crate::cost::calibrate::UnitCosts;
use crate::cost::clocks::{Seen, choose, least_of_cpus};
use crate::cost::overhead::Bounds;
use crate::failure::Failure;
use crate::pipeline::Load;
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::jitter::Clocks;
use crate::record::budget;
use crate::record::pace::Counted;
use crate::record::plan::Plan;
use crate::store::run::ClockChange;
use crate::units::{EventId, ResetValue, TraceNs};

/// Length of the time that is judged, ns.
const WINDOW_NS: i64 = 200_000_000;

/// State at the last choice.
#[derive(Default)]
pub(super) struct Choice {
    until: TraceNs,
    cpu_ns: u64,
    switches: u64,
    /// Whether the kernel refused a change.
    failed: bool,
}

/// Whether the clocks of a recording can be others than those of threads.
pub(super) fn can_choose(plan: &SessionPlan<'_>) -> bool {
    let clock = |it: &&_| matches!(it, EventClass::Clock);
    !plan.pids.is_empty()
        && !plan.counting
        && plan.transport == Transport::Bpf
        && plan.events.iter().map(|it| &it.class).filter(clock).count() == 1
}

/// The clocks to begin with, as a short count saw the target; `None`: the default ones.
pub(super) fn first(
    plan: &Plan,
    counted: Option<&Counted>,
    costs: &UnitCosts,
) -> Option<(Clocks, ClockChange)> {
    let clock = clock(&plan.events)?;
    let (counted, switch, sample_ns) = (counted?, costs.switch?, costs.of_sample(clock)?);
    let reset = plan.events[usize::from(clock.0)].reset.0.get() as f64;
    let seen = Seen {
        ns: counted.ns,
        cpu_ns: counted.cpu_ns,
        switches: counted.switches,
        reset: (
            reset,
            bounds(plan, clock).is_some_and(|it| may_rise(&it, sample_ns)),
        ),
    };
    let which = choose(Clocks::default(), &seen, &switch, sample_ns);
    let changes = can_choose(&session_plan(plan)) && which != Clocks::default();
    changes.then(|| (which, change(which, &seen, TraceNs(0))))
}

/// The clock that samples, if there is one.
fn clock(events: &[ResolvedEvent]) -> Option<EventId> {
    let clock = |it: &(EventId, &ResolvedEvent)| it.1.class == EventClass::Clock;
    let mut clocks = (0..).map(EventId).zip(events).filter(clock);
    clocks.next().map(|(id, _)| id)
}

/// The bounds of the slow-down and of an event's reset value.
fn bounds(plan: &Plan, event: EventId) -> Option<Bounds> {
    let event = &plan.events[usize::from(event.0)];
    let given = (plan.reset, plan.max_reset);
    Some(budget::of_event(&plan.overhead?, event, given))
}

/// Whether the reset value may be as large as clocks of CPUs need.
fn may_rise(bounds: &Bounds, sample_ns: f64) -> bool {
    bounds.most as f64 >= least_of_cpus(sample_ns)
}

/// Raises the first reset value, if it is free, to what clocks of CPUs need.
pub(super) fn raise_reset(plan: &mut Plan, costs: &UnitCosts) {
    if let (Some(clock), Some(_)) = (clock(&plan.events), plan.overhead)
        && let Some(sample_ns) = costs.of_sample(clock)
        && let Some(least) = NonZeroU64::new(least_of_cpus(sample_ns) as u64)
    {
        let event = &mut plan.events[usize::from(clock.0)];
        event.reset = event.reset.max(ResetValue(least));
    }
}

fn change(which: Clocks, seen: &Seen, time: TraceNs) -> ClockChange {
    ClockChange {
        time_ns: time,
        of: which.name().to_owned(),
        switches_per_second: (seen.switches as f64 / seen.ns * 1e9).round() as u64,
    }
}

impl Control<'_, '_> {
    /// Changes the clocks if others cost the target less.
    pub(super) fn choose_clocks(&mut self) {
        let load: Load = self.load();
        let ns = load.until.0 - self.choice.until.0;
        let costs = self.prices.costs();
        let Some(clock) = clock(self.plan.events) else {
            return;
        };
        let (Some(switch), Some(sample_ns)) = (costs.switch, costs.of_sample(clock)) else {
            return;
        };
        if ns < WINDOW_NS || self.choice.failed {
            return;
        }
        self.look_at_cpu();
        let cpu_ns = self.cpu.sum();
        let governor = self.governor.as_ref();
        let governor = governor.filter(|it| it.leader().0 == clock);
        let rises = governor.is_some_and(|it| may_rise(it.bounds(), sample_ns));
        let seen = Seen {
            ns: ns as f64,
            cpu_ns: cpu_ns.saturating_sub(self.choice.cpu_ns) as f64,
            switches: load.switches - self.choice.switches,
            reset: (self.reset(clock) as f64, rises),
        };
        self.choice = Choice {
            until: load.until,
            cpu_ns,
            switches: load.switches,
            failed: false,
        };
        let former = self.session.which_clocks();
        let which = choose(former, &seen, &switch, sample_ns);
        if which == former {
            return;
        }
        if let Err(error) = self.session.set_clocks(self.plan, which) {
            let error = Failure::from(error);
            tracing::debug!("the clocks stay as they are: {error}");
            self.choice.failed = true;
            return;
        }
        let time = TraceNs(now().0.saturating_sub(self.info.monotonic_ns) as i64);
        self.clocks_changed(change(which, &seen, time));
    }

    /// Takes into account that the target has other clocks.
    pub(super) fn clocks_changed(&mut self, change: ClockChange) {
        self.keep_above_clocks();
        self.price_switches();
        self.info.clock_changes.push(change);
    }

    /// Prices switches from now on by the clocks that stop and start at them.
    pub(super) fn price_switches(&mut self) {
        let clocks = self.session.clocks_in_force(self.plan);
        if clocks != self.clocks.last() {
            *locked(&self.signals.switch_ns) = self.prices.switch_ns(clocks);
            self.clocks.push(self.load().switches, clocks);
        }
    }

    /// Keeps the reset value above what the clocks in force need.
    pub(super) fn keep_above_clocks(&mut self) {
        let costs = self.prices.costs();
        let sample_ns = clock(self.plan.events).and_then(|it| costs.of_sample(it));
        let sample_ns = sample_ns.unwrap_or(0.0);
        let of_cpus = self.session.which_clocks() == Clocks::OfCpus;
        let least = of_cpus.then(|| least_of_cpus(sample_ns) as u64);
        if let Some(governor) = &mut self.governor {
            governor.keep_above(least);
        }
    }
}
