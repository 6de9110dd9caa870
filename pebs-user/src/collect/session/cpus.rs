//! Which CPUs counters are open on.
//!
//! A counter of a CPU ends when the CPU goes offline, and does not come back with it. So there is one on each CPU that
//! counts nothing and whose time then stands still: it tells also of a CPU that was gone between two looks at the list.
//! Source: `__perf_event_exit_context`, kernel/events/core.c.

use crate::collect::drain::now;
use crate::pmu::attr::dummy;
use crate::pmu::open::{OpenErrorKind, PerfEvent, Target};
use crate::units::{Cpu, KtimeNs};

/// A counter's time may lag by that much, ns: longer than between two ticks of the kernel, by which time goes on where
/// there is no better clock.
const TICK_NS: u64 = 12_000_000;

/// A counter's time may be slower than ours by one part in so many: twice what setting ours by others' does.
/// Source: `MAXFREQ`, include/linux/timex.h.
const SLOWER: u64 = 1000;

/// The CPUs, and what tells whether they were online since.
#[derive(Default)]
pub(super) struct OpenCpus(Vec<(Cpu, Witness)>);

/// A counter that counts nothing on a CPU, and how it was found last.
struct Witness {
    /// `None`: the kernel grants none, and the list of CPUs has to do.
    counter: Option<PerfEvent>,
    /// Our time after it was read, and its own.
    seen: (KtimeNs, u64),
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
    /// Forgets CPUs that are or were offline, and takes in those that came online, again or for the first time. One
    /// that was gone for less than two ticks may be reported at the next look only.
    ///
    /// Cost: an interrupt of each CPU.
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
        // One that is gone again may come again.
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

    /// Whether the CPU was online all the time since the last look.
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

/// How long a counter has been counting, ns.
fn time_of(counter: &PerfEvent) -> Option<u64> {
    counter.times().ok().map(|times| times.enabled_ns)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        std::thread::sleep(Duration::from_nanos(2 * TICK_NS));
        check(cpus.look(&here), &none, &none);
        check(cpus.look(&[]), &none, &here);
        check(cpus.look(&here), &here, &none);
        // As the kernel leaves it.
        let witness = cpus.0[0].1.counter.as_ref();
        witness.unwrap().disable().unwrap();
        std::thread::sleep(Duration::from_nanos(2 * TICK_NS));
        check(cpus.look(&here), &here, &here);
        check(cpus.look(&here), &none, &none);
    }
}
