//! The CPUs on which counters are open.
//!
//! A counter of a CPU ends when the CPU goes offline, and does not resume with it. So each CPU has a dummy counter
//! whose time then stands still: this also detects a CPU that was offline between two looks at the list.
//! Source: `__perf_event_exit_context`, kernel/events/core.c.

use crate::collect::clock::now;
use crate::pmu::attr::dummy;
use crate::pmu::open::{OpenErrorKind, PerfEvent};
use crate::pmu::target::Target;
use crate::units::{Cpu, KtimeNs};

/// Tolerated lag of a counter's time, ns: longer than the kernel's tick, by which time advances without a better
/// clock.
const TICK_NS: u64 = 12_000_000;

/// A counter's time may be slower than ours by one part in this number: twice the maximum rate correction of the
/// clock.
/// Source: `MAXFREQ`, include/linux/timex.h.
const SLOWER: u64 = 1000;

/// The CPUs, each with a counter that shows whether it stayed online.
#[derive(Default)]
pub(super) struct OpenCpus(Vec<(Cpu, Witness)>);

/// A dummy counter on a CPU, and its last reading.
struct Witness {
    /// `None` if the kernel grants none; then only the list of CPUs is used.
    counter: Option<PerfEvent>,
    /// Our time after the last reading, and the counter's time.
    seen: (KtimeNs, u64),
}

/// Changes of the CPUs. A CPU that was offline in between is in both lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// CPUs without open counters.
    pub came: Vec<Cpu>,
    /// CPUs whose counters have ended.
    pub went: Vec<Cpu>,
}

impl OpenCpus {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Cpu> {
        self.0.iter().map(|(cpu, _)| *cpu)
    }

    /// Removes CPUs that are or were offline, and adds those that came online, for the first time or again. A CPU
    /// that was offline for less than two ticks may be reported only at the next look.
    ///
    /// Cost: an interrupt on each CPU.
    pub(super) fn look(&mut self, online: &[Cpu]) -> Changed {
        let mut went = Vec::new();
        self.0.retain_mut(|(cpu, witness)| {
            let stays = online.contains(cpu) && witness.was_there();
            if !stays {
                went.push(*cpu);
            }
            stays
        });
        let is_new = |cpu: &&Cpu| !self.0.iter().any(|(known, _)| known == *cpu);
        let mut new: Vec<_> = (online.iter().filter(is_new))
            .map(|cpu| (*cpu, PerfEvent::open(&dummy(), Target::Cpu(*cpu), "CPU")))
            .collect();
        // A CPU that is offline again may come back later.
        new.retain(
            |(_, opened)| !matches!(opened, Err(error) if error.kind == OpenErrorKind::NoDevice),
        );
        let came = new.iter().map(|(cpu, _)| *cpu).collect();
        self.0.extend(
            new.into_iter()
                .map(|(cpu, opened)| (cpu, Witness::new(opened.ok()))),
        );
        Changed { came, went }
    }
}

impl Witness {
    fn new(counter: Option<PerfEvent>) -> Self {
        let time = counter.as_ref().and_then(time_of);
        Self {
            counter,
            seen: (now(), time.unwrap_or_default()),
        }
    }

    /// Whether the CPU was online since the last look.
    fn was_there(&mut self) -> bool {
        let Some(counter) = &self.counter else {
            return true;
        };
        let (seen, before) = self.seen;
        let least = now().0.saturating_sub(seen.0);
        let Some(time) = time_of(counter) else {
            return false;
        };
        self.seen = (now(), time);
        time.saturating_sub(before) + TICK_NS + least / SLOWER >= least
    }
}

/// Time for which a counter has been counting, ns.
fn time_of(counter: &PerfEvent) -> Option<u64> {
    counter.times().ok().map(|times| times.enabled_ns)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// CPUs that stay online are unchanged, removed ones are reported as gone, and returning ones as new. A counter
    /// that stands still is detected.
    #[test]
    fn looks() {
        let here = [Cpu(0)];
        if PerfEvent::open(&dummy(), Target::Cpu(Cpu(0)), "CPU").is_err() {
            return println!("SKIP needs root");
        }
        let mut cpus = OpenCpus::default();
        let none: [Cpu; 0] = [];
        let check = |changed: Changed, came: &[Cpu], went: &[Cpu]| {
            assert_eq!((&changed.came[..], &changed.went[..]), (came, went));
        };
        check(cpus.look(&here), &here, &none);
        std::thread::sleep(Duration::from_nanos(2 * TICK_NS));
        check(cpus.look(&here), &none, &none);
        check(cpus.look(&[]), &none, &here);
        check(cpus.look(&here), &here, &none);
        // As after going offline.
        let witness = cpus.0[0].1.counter.as_ref();
        witness.unwrap().disable().unwrap();
        std::thread::sleep(Duration::from_nanos(2 * TICK_NS));
        check(cpus.look(&here), &here, &here);
        check(cpus.look(&here), &none, &none);
    }
}
