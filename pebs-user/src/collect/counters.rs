//! The counters of one event: one per CPU, or one per thread of the traced processes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use perf_event_open_sys::bindings::perf_event_attr;
use rustc_hash::FxHashMap;

use crate::binary::process;
use crate::collect::bulk::unseen_events::RestRings;
use crate::collect::error::SessionError;
use crate::collect::threads::{is_wanted, threads_of};
use crate::pmu::open::{BpfLink, ControlError, OpenErrorKind, PerfEvent, Times};
use crate::pmu::target::Target;
use crate::units::{Cpu, Pid, ResetValue, Tid};

/// An opened event and its program. Dropping it ends both.
pub(super) struct Attached {
    pub event: Arc<PerfEvent>,
    /// Its distance between samples in reset values.
    pub times: f64,
    pub _link: BpfLink,
}

impl Attached {
    const fn shared(&self) -> (&Arc<PerfEvent>, f64) {
        (&self.event, self.times)
    }
}

/// Targets on which an event's counters are opened.
#[derive(Clone, Copy)]
pub(super) enum On<'a> {
    Cpus(&'a [Cpu]),
    /// The threads of processes.
    Processes(&'a [Pid]),
}

/// Settings for opening a counter of an event.
pub(super) struct Recipe<'a> {
    /// Name of the event, for messages.
    pub name: &'a str,
    /// Settings of the counters that a target needs, with their distances between samples in reset values.
    pub attrs: &'a dyn Fn(Target) -> Vec<(perf_event_attr, f64)>,
    /// Program that runs at each sample.
    pub program: BorrowedFd<'a>,
    /// Rings of the samples that the program does not see; `None`: it sees all.
    pub rest: Option<&'a RestRings>,
    /// Threads of the processes to count; empty: all.
    pub only: &'a [Tid],
}

impl Recipe<'_> {
    fn open(&self, target: Target) -> Result<Vec<Attached>, SessionError> {
        let attrs = (self.attrs)(target).into_iter();
        let open = |(attr, times): (perf_event_attr, f64)| {
            let event = PerfEvent::open(&attr, target, self.name)?;
            if let (Some(rest), Target::Cpu(cpu) | Target::ThreadOnCpu(_, cpu)) =
                (self.rest, target)
            {
                rest.catch(&event, cpu)?;
            }
            let link = event.attach(self.program, None)?;
            Ok(Attached {
                event: Arc::new(event),
                times,
                _link: link,
            })
        };
        attrs.map(open).collect()
    }

    /// Targets of a thread's counters: the thread; or, if a ring has to receive samples that the program does not
    /// see, the thread on each CPU.
    fn targets(&self, tid: Tid) -> Vec<Target> {
        match self.rest {
            None => vec![Target::Thread(tid)],
            Some(rest) => (rest.cpus())
                .map(|cpu| Target::ThreadOnCpu(tid, cpu))
                .collect(),
        }
    }
}

/// All counters of one event.
#[derive(Default)]
pub(super) struct Counters {
    attached: Vec<Attached>,
    /// Threads with a counter of their own; others have an inherited one.
    threads: Vec<Tid>,
    /// Counts and times of closed counters, if any.
    closed: Option<Times>,
}

impl Counters {
    /// Opens all counters of an event.
    ///
    /// # Errors
    /// The kernel refused a counter.
    pub(super) fn open(recipe: &Recipe<'_>, on: On<'_>) -> Result<Self, SessionError> {
        match on {
            On::Cpus(cpus) => Self::on_cpus(recipe, cpus),
            On::Processes(pids) => Self::on_processes(recipe, pids),
        }
    }

    /// Opens one counter per CPU; CPUs that went offline are skipped.
    pub(super) fn on_cpus<'a>(
        recipe: &Recipe<'_>,
        cpus: impl IntoIterator<Item = &'a Cpu>,
    ) -> Result<Self, SessionError> {
        let mut counters = Self::default();
        for cpu in cpus {
            match recipe.open(Target::Cpu(*cpu)) {
                Ok(opened) => counters.attached.extend(opened),
                Err(SessionError::Open(error)) if error.kind == OpenErrorKind::NoDevice => {}
                Err(error) => return Err(error),
            }
        }
        Ok(counters)
    }

    /// Opens the counters of each thread; threads and processes started later inherit them.
    ///
    /// Threads are listed until no new one is found. A thread started by an already opened one between two listings
    /// has both an inherited counter and its own: it is sampled twice as often, which the estimates allow for.
    ///
    /// A process that has ended has none.
    ///
    /// # Errors
    /// The kernel refused a counter.
    pub(super) fn on_processes(recipe: &Recipe<'_>, pids: &[Pid]) -> Result<Self, SessionError> {
        let mut counters = Self::default();
        for &pid in pids {
            loop {
                let threads = threads_of(pid, recipe.only)?;
                let new: Vec<Tid> = counters.without_own(threads).collect();
                if new.is_empty() {
                    break;
                }
                for tid in new {
                    counters.threads.push(tid);
                    for target in recipe.targets(tid) {
                        match recipe.open(target) {
                            Ok(opened) => counters.attached.extend(opened),
                            // The thread ended in the meantime.
                            Err(SessionError::Open(error))
                                if error.kind == OpenErrorKind::ThreadGone => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(counters)
    }

    fn without_own(&self, threads: Vec<Tid>) -> impl Iterator<Item = Tid> {
        threads
            .into_iter()
            .filter(|tid| !self.threads.contains(tid))
    }

    /// Number of threads with a counter of their own.
    pub(super) const fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Distance between samples of the first counter, in reset values.
    pub(super) fn first_distance(&self) -> Option<f64> {
        self.attached.first().map(|it| it.times)
    }

    /// Whether they count what runs on CPUs rather than threads; `None` if there are none.
    pub(super) fn are_of_cpus(&self) -> Option<bool> {
        let first = self.attached.first()?;
        Some(first.event.thread().is_none())
    }

    /// Adds counters of the same event.
    pub(super) fn extend(&mut self, other: Self) {
        self.attached.extend(other.attached);
        self.threads.extend(other.threads);
    }

    /// Closes the counters of CPUs that went offline; the kernel has ended them.
    pub(super) fn close_on(&mut self, cpus: &[Cpu]) {
        let is_of = |it: &Attached| it.event.cpu().is_some_and(|cpu| cpus.contains(&cpu));
        let ended: Vec<_> = self.attached.extract_if(.., |it| is_of(it)).collect();
        self.closed = times_of(ended.iter().map(Attached::shared), self.closed);
    }

    /// Sum of values and times, including closed counters; `None` if none can be read.
    pub(super) fn times(&self) -> Option<Times> {
        times_of(self.shared(), self.closed)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }

    /// Every counter.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PerfEvent> {
        self.shared().map(|(event, _)| &**event)
    }

    /// Every counter with its distance between samples in reset values.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&Arc<PerfEvent>, f64)> {
        self.attached.iter().map(Attached::shared)
    }

    /// Starts all.
    pub(super) fn enable(&self) -> Result<(), ControlError> {
        self.iter().try_for_each(PerfEvent::enable)
    }

    /// Stops all counters. A counter that can't be stopped ends when it is dropped.
    pub(super) fn disable(&self) {
        self.iter().for_each(|event| {
            let _ = event.disable();
        });
    }

    /// Changes the reset value of all counters.
    pub(super) fn set_reset(&self, reset: ResetValue) -> Result<(), ControlError> {
        self.shared()
            .try_for_each(|(event, times)| event.set_reset(reset.times(times)))
    }

    /// Changes the reset value of the counters. `recipe` has the new value, and processes are those traced now.
    ///
    /// The kernel changes only the given counter and what threads inherit from it later, not what they have already
    /// inherited. So if a thread has no counter of its own, all are opened anew, one per thread; the old ones are
    /// stopped after the new ones count, so that nothing is missed. In between a thread may be sampled by both.
    /// Source: kernel/events/core.c (`_perf_ioctl`, `__perf_event_period`, `inherit_event`).
    pub(super) fn change(
        &mut self,
        recipe: &Recipe<'_>,
        on: On<'_>,
        reset: ResetValue,
    ) -> Result<(), SessionError> {
        let are_inherited = |counters: &Self| match on {
            On::Cpus(_) => false,
            On::Processes(pids) => counters.are_inherited(pids, recipe.only),
        };
        if !are_inherited(self) {
            self.set_reset(reset)?;
            // A thread created before its parent was changed has the old value.
            if !are_inherited(self) {
                return Ok(());
            }
        }
        self.open_anew(recipe, on)
    }

    /// Whether a thread of these processes has no counter of its own.
    pub(super) fn are_inherited(&self, pids: &[Pid], only: &[Tid]) -> bool {
        let threads = pids.iter().filter_map(|pid| process::threads(*pid));
        threads
            .flatten()
            .any(|tid| is_wanted(only, tid) && !self.threads.contains(&tid))
    }

    /// Opens all counters anew, each thread's with its own; the old ones are stopped after the new ones count.
    pub(super) fn open_anew(
        &mut self,
        recipe: &Recipe<'_>,
        on: On<'_>,
    ) -> Result<(), SessionError> {
        let mut new = Self::open(recipe, on)?;
        new.enable()?;
        self.disable();
        new.closed = self.times();
        *self = new;
        Ok(())
    }
}

/// Sum of values and times of an event's counters, added to `before`. All counters of one thread (per CPU or kind
/// of cores) are enabled while it runs anywhere, and those that sample together all the time: that counts once.
pub(super) fn times_of<'a>(
    counters: impl Iterator<Item = (&'a Arc<PerfEvent>, f64)>,
    before: Option<Times>,
) -> Option<Times> {
    let (mut all, mut of_threads) = (before, FxHashMap::<Tid, u64>::default());
    for (counter, distance) in counters {
        let Ok(times) = counter.times() else { continue };
        let part = |of: u64| (of as f64 / distance).round() as u64;
        let all = all.get_or_insert_default();
        all.value += part(times.value);
        all.running_ns += part(times.running_ns);
        match counter.thread() {
            None => all.enabled_ns += part(times.enabled_ns),
            Some(tid) => {
                let enabled = of_threads.entry(tid).or_default();
                *enabled = times.enabled_ns.max(*enabled);
            }
        }
    }
    let mut all = all?;
    all.enabled_ns += of_threads.values().sum::<u64>();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::dummy;

    /// Counters of an offline CPU are closed, others stay, and the closed counts are kept.
    #[test]
    fn closed() {
        let open = |cpu| PerfEvent::open(&dummy(), Target::Cpu(cpu), "CPU");
        let Ok(event) = open(Cpu(0)) else {
            return println!("SKIP needs root");
        };
        let attached = vec![Attached {
            event: Arc::new(event),
            times: 1.0,
            _link: BpfLink::of_event(),
        }];
        let mut counters = Counters {
            attached,
            ..Counters::default()
        };
        std::thread::sleep(std::time::Duration::from_millis(15));
        let before = counters.times().unwrap();
        assert!(before.enabled_ns > 0, "{before:?}");
        counters.close_on(&[Cpu(1)]);
        assert_eq!(counters.iter().count(), 1);
        counters.close_on(&[Cpu(0), Cpu(1)]);
        assert_eq!(counters.iter().count(), 0);
        let after = counters.times().unwrap();
        assert!(after.enabled_ns >= before.enabled_ns, "{after:?}");
        counters.close_on(&[Cpu(0)]);
        assert_eq!(counters.times(), Some(after));
    }
}
