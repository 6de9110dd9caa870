//! Threads by tid.

use rustc_hash::FxHashMap;

use super::thread::Thread;
use crate::units::Tid;

/// All threads with a state.
///
/// The records of a thread come in long runs and each needs it several times: the last one used is found
/// without a look-up.
#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: Vec<(Tid, Thread)>,
    place_of: FxHashMap<Tid, u32>,
    /// Index of the last one used.
    recent: u32,
}

impl Threads {
    /// Returns a thread's state.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, tid: Tid) -> Option<&mut Thread> {
        if !self.is_recent(tid) {
            self.recent = *self.place_of.get(&tid)?;
        }
        let (_, thread) = self.threads.get_mut(self.recent as usize)?;
        Some(thread)
    }

    /// Returns a thread's state.
    #[inline(always)]
    pub(super) fn get(&self, tid: Tid) -> Option<&Thread> {
        let place = if self.is_recent(tid) {
            self.recent
        } else {
            *self.place_of.get(&tid)?
        };
        let (_, thread) = self.threads.get(place as usize)?;
        Some(thread)
    }

    #[inline(always)]
    fn is_recent(&self, tid: Tid) -> bool {
        let recent = self.threads.get(self.recent as usize);
        recent.is_some_and(|(recent, _)| *recent == tid)
    }

    /// Returns a thread's state, made by `new` if there is none.
    #[inline]
    pub(super) fn or_insert_with(&mut self, tid: Tid, new: impl FnOnce() -> Thread) -> &mut Thread {
        if !self.is_recent(tid) {
            let next = self.threads.len() as u32;
            self.recent = *self.place_of.entry(tid).or_insert(next);
            if self.recent == next {
                self.threads.push((tid, new()));
            }
        }
        &mut self.threads[self.recent as usize].1
    }

    /// Removes and returns a thread's state; the last one moves to its index.
    pub(super) fn remove(&mut self, tid: Tid) -> Option<Thread> {
        let place = self.place_of.remove(&tid)?;
        let (_, thread) = self.threads.swap_remove(place as usize);
        if let Some((moved, _)) = self.threads.get(place as usize) {
            self.place_of.insert(*moved, place);
        }
        Some(thread)
    }

    /// Sets a thread's state.
    pub(super) fn insert(&mut self, tid: Tid, thread: Thread) {
        self.remove(tid);
        self.or_insert_with(tid, || thread);
    }

    /// Returns all threads, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        self.threads.iter().map(|(tid, thread)| (*tid, thread))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustc_hash::FxHashMap;

    use super::super::thread::ThreadOptions;
    use super::*;
    use crate::units::{Cpu, Pid};

    const OPTIONS: ThreadOptions = ThreadOptions {
        resumes: false,
        other_waits: false,
    };

    proptest! {
        /// It behaves like a map, whatever the order of calls.
        #[test]
        fn as_a_map(steps in prop::collection::vec((0_u8..4, 0_u32..6, any::<u32>()), 1..200)) {
            let (mut threads, mut truth) = (Threads::default(), FxHashMap::default());
            let pid = |thread: &Thread| thread.pid.0;
            for (what, tid, n) in steps {
                let (tid, new) = (Tid(tid), Thread::new(Pid(n), Cpu(0), OPTIONS));
                match what {
                    0 => prop_assert_eq!(threads.remove(tid).map(|it| pid(&it)), truth.remove(&tid)),
                    1 => {
                        threads.insert(tid, new);
                        truth.insert(tid, n);
                    }
                    2 => {
                        let found = pid(threads.or_insert_with(tid, || new));
                        prop_assert_eq!(found, *truth.entry(tid).or_insert(n));
                    }
                    _ => prop_assert_eq!(threads.get_mut(tid).map(|it| pid(it)), truth.get(&tid).copied()),
                }
                for tid in (0..6).map(Tid) {
                    prop_assert_eq!(threads.get(tid).map(pid), truth.get(&tid).copied());
                }
                let all: FxHashMap<Tid, u32> = threads.iter().map(|(tid, it)| (tid, pid(it))).collect();
                prop_assert_eq!(&all, &truth);
            }
        }
    }
}
