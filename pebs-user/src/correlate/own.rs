//! The tool's own work on a thread: which visits it delays.
//!
//! A call holds its thread until it returns: all own work on the thread meanwhile makes it longer. A visit matched by id
//! is idle between its turns, and what is done for others then costs it nothing, unless it is its turn again and the
//! thread has no time yet. The thread doesn't sleep then. So own work counts from the thread's last sleep before a turn
//! to the end of the turn. Where turns are unknown, as there are no resume marks, it counts while the thread ran when the
//! visit began and when it ended.

use super::visit::{OpenVisit, OwnCounted, OwnWork};

/// Own work on a thread while it had open visits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadOwn {
    pub so_far: OwnWork,
    /// The same when the thread last went to sleep.
    at_sleep: OwnWork,
    /// Number of times that it did.
    sleeps: u64,
}

impl ThreadOwn {
    /// Counts for a visit from now on.
    pub(super) fn begin(&self, visit: &mut OpenVisit) {
        visit.counted = self.now();
    }

    const fn now(&self) -> OwnCounted {
        OwnCounted {
            own: self.so_far,
            sleeps: self.sleeps,
        }
    }

    /// Counts up to now for a visit that has its turn.
    #[inline]
    pub(super) fn count(&self, visit: &mut OpenVisit) {
        let was_idle = visit.by_id && visit.counted.sleeps < self.sleeps;
        let before = match was_idle {
            true => self.at_sleep,
            false => visit.counted.own,
        };
        visit.own += self.so_far.since(&before);
        visit.counted = self.now();
    }

    /// Counts for visits that began since the thread last slept: these are the last.
    pub(super) fn count_new(&self, visits: &mut [OpenVisit]) {
        let new = visits.iter_mut().rev();
        let new = new.take_while(|it| it.counted.sleeps == self.sleeps);
        new.filter(|it| it.by_id).for_each(|it| self.count(it));
    }

    /// The thread goes to sleep.
    pub(super) const fn sleep(&mut self) {
        self.at_sleep = self.so_far;
        self.sleeps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins; works for 1 sample, until its turn ends; 10 for others until the thread sleeps, 100 from then to its next turn,
    /// 1,000 in that.
    fn samples(by_id: bool) -> u64 {
        let (mut own, mut visit) = (ThreadOwn::default(), OpenVisit::default());
        visit.by_id = by_id;
        own.begin(&mut visit);
        own.so_far.samples += 1;
        if by_id {
            own.count(&mut visit);
        }
        own.so_far.samples += 10;
        own.sleep();
        own.so_far.samples += 1_100;
        own.count(&mut visit);
        visit.own.samples
    }

    /// A call waits for all of it, an item that is idle between its turns only for what is done since the thread slept.
    #[test]
    fn idle_between_turns() {
        assert_eq!(samples(false), 1_111);
        assert_eq!(samples(true), 1_101);
    }

    /// If turns are unknown, the time from its begin to the thread's first sleep counts, and that before its end.
    #[test]
    fn unknown_turns() {
        let mut own = ThreadOwn::default();
        let mut visits: Vec<OpenVisit> = Vec::new();
        for samples in [1, 10, 100] {
            let mut visit = OpenVisit::default();
            visit.by_id = true;
            own.begin(&mut visit);
            visits.push(visit);
            own.so_far.samples += samples;
            own.count_new(&mut visits);
            own.sleep();
            own.so_far.samples += 1_000;
        }
        visits.iter_mut().for_each(|visit| own.count(visit));
        let counted: Vec<u64> = visits.iter().map(|it| it.own.samples).collect();
        assert_eq!(counted, [1_001, 1_010, 1_100]);
    }
}
