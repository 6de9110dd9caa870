//! Counters of events that are counted for each visit: one per event and CPU, read by the eBPF programs.

use std::os::fd::{AsFd, BorrowedFd};

use crate::pmu::counted::CountedEvent;
use crate::pmu::open::{ControlError, OpenError, OpenErrorKind, PerfEvent};
use crate::pmu::target::Target;
use crate::units::Cpu;

/// The counters of all events. Dropping it ends them.
#[derive(Default)]
pub(crate) struct CountedCounters(Vec<OfCpu>);

/// One counter.
struct OfCpu {
    cpu: Cpu,
    /// Index of its event among those with counters.
    slot: u32,
    /// Number of its event's group.
    group: usize,
    event: PerfEvent,
}

impl CountedCounters {
    /// Opens the counters of each CPU, not yet counting; CPUs that went offline are skipped.
    ///
    /// # Errors
    /// The kernel refused a counter.
    pub(crate) fn open(counted: &[CountedEvent], cpus: &[Cpu]) -> Result<Self, OpenError> {
        let mut all = Vec::new();
        for cpu in cpus {
            match on_cpu(counted, *cpu) {
                Ok(opened) => all.extend(opened),
                Err(error) if error.kind == OpenErrorKind::NoDevice => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(all))
    }

    /// Each counter with the number of its event, and its CPU.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Cpu, BorrowedFd<'_>)> {
        self.0.iter().map(|it| (it.slot, it.cpu, it.event.as_fd()))
    }

    /// Starts all.
    pub(crate) fn enable(&self) -> Result<(), ControlError> {
        self.0.iter().try_for_each(|it| it.event.enable())
    }

    /// Stops all counters. A counter that can't be stopped ends when it is dropped.
    pub(crate) fn disable(&self) {
        self.0.iter().for_each(|it| {
            let _ = it.event.disable();
        });
    }

    /// Closes the counters of CPUs that went offline; the kernel has ended them.
    pub(crate) fn close_on(&mut self, cpus: &[Cpu]) {
        self.0.retain(|it| !cpus.contains(&it.cpu));
    }

    /// Adds counters of the same events.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

fn on_cpu(counted: &[CountedEvent], cpu: Cpu) -> Result<Vec<OfCpu>, OpenError> {
    let mut opened: Vec<OfCpu> = Vec::new();
    let counters = counted.iter().filter(|event| event.counter().is_some());
    for (slot, event) in (0..).zip(counters) {
        let Some(attr) = event.attr(cpu) else {
            continue;
        };
        let leader = opened.iter().find(|other| other.group == event.group);
        let leader = leader.map(|other| &other.event);
        let counter = PerfEvent::open_with(&attr, Target::Cpu(cpu), &event.name, leader)?;
        opened.push(OfCpu {
            cpu,
            slot,
            group: event.group,
            event: counter,
        });
    }
    Ok(opened)
}
