//! Chooses the clocks of a recording while it runs, by how often the target's threads switch.

use std::sync::atomic::Ordering;

use super::Control;
use crate::collect::drain::now;
use crate::cost::clocks::{Seen, choose, least_of_cpus};
use crate::failure::Failure;
use crate::pipeline::Load;
use crate::pmu::attr::EventClass;
use crate::pmu::jitter::Clocks;
use crate::store::run::ClockChange;
use crate::units::TraceNs;

/// Length of the time that is judged, ns.
const WINDOW_NS: i64 = 200_000_000;

/// What was seen at the last choice.
#[derive(Default)]
pub(super) struct Choice {
    until: TraceNs,
    cpu_ns: u64,
    switches: u64,
    /// Whether the kernel refused a change.
    failed: bool,
}

impl Control<'_, '_> {
    /// Whether the clocks of the recording can be others than those of threads.
    pub(super) fn can_choose_clocks(&self) -> bool {
        let plan = self.plan;
        let clock = |it: &&_| matches!(it, EventClass::Clock);
        plan.switches
            && !plan.pids.is_empty()
            && !plan.counting
            && plan.transport == crate::collect::session::Transport::Bpf
            && plan.events.iter().map(|it| &it.class).filter(clock).count() == 1
    }

    /// Changes the clocks if others cost the target less.
    pub(super) fn choose_clocks(&mut self) {
        let load: Load = self.load();
        let ns = load.until.0 - self.choice.until.0;
        let costs = self.prices.costs();
        let (Some(switch), Some(sample_ns)) = (costs.switch, costs.sample_ns) else {
            return;
        };
        if ns < WINDOW_NS || self.choice.failed {
            return;
        }
        self.look_at_cpu();
        let cpu_ns = self.cpu.sum();
        let reset = self.governor.as_ref().map(|it| it.reset());
        let given = self.plan.events.first().map_or(1, |it| it.reset.0.get());
        let seen = Seen {
            ns: ns as f64,
            cpu_ns: cpu_ns.saturating_sub(self.choice.cpu_ns) as f64,
            switches: load.switches - self.choice.switches,
            reset: (reset.unwrap_or(given) as f64, reset.is_some()),
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
        let least = (which == Clocks::OfCpus).then(|| least_of_cpus(sample_ns) as u64);
        if let Some(governor) = &mut self.governor {
            governor.keep_above(least);
        }
        let switch_ns = self.prices.switch_ns(which).unwrap_or(0.0);
        self.signals
            .switch_ns
            .store(switch_ns.to_bits(), Ordering::Relaxed);
        self.clocks.push(load.switches, which);
        self.info.clock_changes.push(ClockChange {
            time_ns: TraceNs(now().0.saturating_sub(self.info.monotonic_ns) as i64),
            of: which.name().to_owned(),
            switches_per_second: (seen.switches as f64 / seen.ns * 1e9).round() as u64,
        });
    }
}
