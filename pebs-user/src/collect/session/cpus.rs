//! Which CPUs counters are open on.
//!
//! A counter of a CPU ends when the CPU goes offline, and does not come back with it. So there is one on each CPU that
//! counts nothing and whose time then stands still: it tells also of a CPU that was gone between two looks at the list.
//! Source: `__perf_event_exit_context`, kernel/events/core.c.

use std::time::Duration;

use crate::pmu::attr::dummy;
use crate::pmu::open::{OpenErrorKind, PerfEvent, Target};
use crate::units::Cpu;

/// Longer than between two ticks of the kernel, by which time goes on where there is no better clock.
const TICK: Duration = Duration::from_millis(12);

/// The CPUs, and what tells whether they were online since.
#[derive(Default)]
pub(super) struct OpenCpus {
    /// `None`: the kernel grants no witness, and the list of CPUs has to do.
    witnesses: Vec<(Cpu, Option<PerfEvent>)>,
    /// A CPU may have gone and come.
    suspected: bool,
}

/// What is new about CPUs. One that was gone in between came and went.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Nothing is open on them.
    pub came: Vec<Cpu>,
    /// What is open on them has ended.
    pub went: Vec<Cpu>,
}

impl OpenCpus {
    /// Has the next look find out which CPUs were gone in between.
    pub const fn suspect(&mut self) {
        self.suspected = true;
    }

    /// Forgets CPUs that are or were offline, and takes in those that came online, again or for the first time.
    ///
    /// Cost: if a CPU is suspected, two interrupts of each.
    pub fn look(&mut self, online: &[Cpu]) -> Changed {
        let ask = std::mem::take(&mut self.suspected);
        let mut went = Vec::new();
        self.witnesses.retain(|(cpu, witness)| {
            let is_there = witness.as_ref().is_none_or(|it| !ask || is_alive(it));
            let stays = online.contains(cpu) && is_there;
            if !stays {
                went.push(*cpu);
            }
            stays
        });
        let is_new = |cpu: &&Cpu| !self.witnesses.iter().any(|(known, _)| known == *cpu);
        let mut new: Vec<_> = (online.iter().filter(is_new))
            .map(|cpu| (*cpu, PerfEvent::open(&dummy(), Target::Cpu(*cpu), "CPU")))
            .collect();
        // One that is gone again may come again.
        new.retain(
            |(_, opened)| !matches!(opened, Err(error) if error.kind == OpenErrorKind::NoDevice),
        );
        let came = new.iter().map(|(cpu, _)| *cpu).collect();
        self.witnesses
            .extend(new.into_iter().map(|(cpu, opened)| (cpu, opened.ok())));
        Changed { came, went }
    }
}

/// Whether a counter's time goes on.
fn is_alive(counter: &PerfEvent) -> bool {
    let time = || counter.times().map(|times| times.enabled_ns);
    let Ok(before) = time() else { return false };
    [Duration::ZERO, TICK].into_iter().any(|pause| {
        std::thread::sleep(pause);
        time().is_ok_and(|now| now > before)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs that are there stay, what the list has no more goes, and what it has again is new. A counter of a CPU that
    /// does not count is found out.
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
        cpus.suspect();
        check(cpus.look(&here), &none, &none);
        check(cpus.look(&[]), &none, &here);
        check(cpus.look(&here), &here, &none);
        // As the kernel leaves it.
        let witness = cpus.witnesses[0].1.as_ref();
        witness.unwrap().disable().unwrap();
        // Nobody asked.
        check(cpus.look(&here), &none, &none);
        cpus.suspect();
        check(cpus.look(&here), &here, &here);
        check(cpus.look(&here), &none, &none);
    }
}
