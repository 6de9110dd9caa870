//! Process events that concern a recording: those of its processes and of processes that these start.
//!
//! The kernel reports the events of all processes of the machine, of which a recording of some would keep the mappings.

use rustc_hash::FxHashSet;

use crate::stream::sideband::{SidebandEvent, SidebandKind};
use crate::units::Pid;

/// The processes that are followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// `None`: all.
    pids: Option<FxHashSet<Pid>>,
    /// Events of others. The CPUs' rings are read one after the other: the event by which a process is known to descend from one
    /// of these may come a round later.
    unclaimed: Vec<SidebandEvent>,
}

impl Followed {
    /// These processes, and those that they start.
    pub(super) fn only(pids: &[Pid]) -> Self {
        Self {
            pids: Some(pids.iter().copied().collect()),
            unclaimed: Vec::new(),
        }
    }

    /// The events of a round that concern the recording, in order of time. `is_met`: processes that it has records of.
    pub(super) fn of(
        &mut self,
        events: impl Iterator<Item = SidebandEvent>,
        is_met: impl Fn(Pid) -> bool,
    ) -> Vec<SidebandEvent> {
        let Some(pids) = &mut self.pids else {
            return events.collect();
        };
        let former = self.unclaimed.drain(..).map(|it| (it, true));
        let mut all: Vec<_> = former.chain(events.map(|it| (it, false))).collect();
        all.sort_by_key(|(event, _)| event.time);
        let mut ours = Vec::new();
        for (event, is_former) in all {
            let is_ours = |pid: Pid| pids.contains(&pid) || is_met(pid);
            let concerns = match event.what {
                SidebandKind::Fork { pid, parent, .. } => {
                    is_ours(parent) && {
                        pids.insert(pid);
                        true
                    }
                }
                SidebandKind::Exit { pid, tid } => {
                    is_ours(pid) && {
                        // Another process may get the number.
                        if pid.0 == tid.0 {
                            pids.remove(&pid);
                        }
                        true
                    }
                }
                SidebandKind::Mapped { pid, .. } | SidebandKind::Comm { pid, .. } => is_ours(pid),
                SidebandKind::Replaced { .. } | SidebandKind::Lost { .. } => true,
            };
            match (concerns, is_former) {
                (true, _) => ours.push(event),
                (false, false) => self.unclaimed.push(event),
                (false, true) => {}
            }
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Cpu, KtimeNs, Tid};

    fn at(time: u64, what: SidebandKind) -> SidebandEvent {
        SidebandEvent {
            time: KtimeNs(time),
            cpu: Cpu(0),
            what,
        }
    }

    fn comm(time: u64, pid: u32) -> SidebandEvent {
        at(
            time,
            SidebandKind::Comm {
                pid: Pid(pid),
                tid: Tid(pid),
                exec: true,
                name: "x".into(),
            },
        )
    }

    fn fork(time: u64, parent: u32, pid: u32) -> SidebandEvent {
        at(
            time,
            SidebandKind::Fork {
                pid: Pid(pid),
                tid: Tid(pid),
                parent: Pid(parent),
                parent_tid: Tid(parent),
            },
        )
    }

    fn times(followed: &mut Followed, events: Vec<SidebandEvent>) -> Vec<u64> {
        let events = followed.of(events.into_iter(), |pid| pid == Pid(50));
        events.iter().map(|it| it.time.0).collect()
    }

    /// Events of a process and what it starts, whichever ring is read first, and of one that there are records of.
    #[test]
    fn descendants() {
        let mut followed = Followed::only(&[Pid(1)]);
        let first = vec![
            comm(3, 2),
            fork(2, 1, 2),
            comm(1, 9),
            comm(4, 50),
            comm(7, 3),
        ];
        assert_eq!(times(&mut followed, first), [2, 3, 4]);
        // The fork was in a ring that had been read before.
        assert_eq!(times(&mut followed, vec![fork(6, 2, 3)]), [6, 7]);
        let exit = SidebandKind::Exit {
            pid: Pid(2),
            tid: Tid(2),
        };
        assert_eq!(times(&mut followed, vec![at(8, exit), comm(9, 2)]), [8]);
        assert_eq!(times(&mut followed, vec![]), [] as [u64; 0]);
        let mut all = Followed::default();
        assert_eq!(times(&mut all, vec![comm(3, 2), comm(1, 9)]), [3, 1]);
    }
}
