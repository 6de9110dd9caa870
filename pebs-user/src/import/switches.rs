//! Context switches from the tracepoint `sched_switch`.
//!
//! It fires in the context of the thread that leaves. So a per-process event sees its threads leave but not come back;
//! a per-CPU event sees both, except for those cut off at the ends of the recording, lost, or silently skipped by the
//! kernel (some kernels stop recording in a thread's context after losing count of it).

use rustc_hash::FxHashMap;

use crate::perf::data::attr::Attr;
use crate::perf::data::format::Field;
use crate::perf::data::tracing::Formats;

/// The fields used of `sched_switch`.
#[derive(Clone, Debug)]
pub(super) struct SwitchFormat {
    prev: Field,
    state: Field,
    next: Field,
}

/// A context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switched {
    /// Thread that leaves the CPU.
    pub prev: u32,
    /// Its `TASK_*` bits.
    pub state: u32,
    /// Thread that takes the CPU.
    pub next: u32,
}

impl SwitchFormat {
    /// The fields of an event; `None` if it is not `sched_switch` or lacks one.
    pub(super) fn of(attr: &Attr, formats: &Formats) -> Option<Self> {
        let format = formats.get(attr.config).filter(|_| attr.is_tracepoint())?;
        if format.name != "sched_switch" {
            return None;
        }
        Some(Self {
            prev: format.field("prev_pid")?.clone(),
            state: format.field("prev_state")?.clone(),
            next: format.field("next_pid")?.clone(),
        })
    }

    /// Parses a sample's raw bytes; `None` if they are too short.
    pub(super) fn read(&self, raw: &[u8]) -> Option<Switched> {
        Some(Switched {
            prev: self.prev.number(raw)? as u32,
            state: self.state.number(raw)? as u32,
            next: self.next.number(raw)? as u32,
        })
    }
}

/// Number of switches out and in, by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    by_thread: FxHashMap<u32, (u64, u64)>,
}

impl Balance {
    pub(super) fn add(&mut self, switched: Switched) {
        self.by_thread.entry(switched.prev).or_default().0 += 1;
        self.by_thread.entry(switched.next).or_default().1 += 1;
    }

    /// Whether no switch was seen.
    pub(super) fn is_empty(&self) -> bool {
        self.by_thread.is_empty()
    }

    /// Whether the threads come back as often as they leave: at most one switch in ten lacks its counterpart. One per
    /// thread may be cut off at an end of the recording; `None` if only such switches were seen.
    pub(super) fn is_whole(&self, threads: impl Iterator<Item = u32>) -> Option<bool> {
        let (mut outs, mut ins, mut alone) = (0, 0, 0);
        for (left, came) in threads.filter_map(|tid| self.by_thread.get(&tid)) {
            outs += left;
            ins += came;
            alone += left.abs_diff(*came).saturating_sub(1);
        }
        let both = outs > 0 && ins > 0;
        (both || alone > 0).then_some(both && alone * 10 <= outs)
    }
}

/// State of a thread from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It left its CPU.
    Off,
    /// It took a CPU.
    On,
    /// It made a mark, so it was running.
    Marked,
}

/// A thread's state at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub time: u64,
    pub tid: u32,
    pub place: Place,
}

impl Sight {
    /// Whether a switch of the thread is missing since the earlier sight `before`.
    fn is_gap_since(self, before: Self) -> bool {
        before.time <= self.time
            && match before.place {
                Place::Off => self.place != Place::On,
                Place::On | Place::Marked => self.place == Place::On,
            }
    }
}

/// Finds missing switches: a thread that leaves twice in a row must have come back in between.
#[derive(Debug, Default)]
pub(super) struct Partners {
    /// By thread: the newest settled sight.
    last: FxHashMap<u32, Sight>,
    /// Sights that older ones may still precede.
    waiting: Vec<Sight>,
}

impl Partners {
    /// Adds a sight; any order.
    pub(super) fn push(&mut self, sight: Sight) {
        self.waiting.push(sight);
    }

    /// Passes the thread and the times around each missing switch before `frontier` to `missing`.
    pub(super) fn settle(&mut self, frontier: u64, mut missing: impl FnMut(u32, (u64, u64))) {
        self.waiting.sort_by_key(|sight| sight.time);
        let due = self.waiting.partition_point(|it| it.time < frontier);
        for sight in self.waiting.drain(..due) {
            let before = self.last.insert(sight.tid, sight);
            if let Some(before) = before.filter(|before| sight.is_gap_since(*before)) {
                missing(sight.tid, (before.time, sight.time));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread id, number of switches out, number of switches in.
    type Thread = (u32, u64, u64);

    fn balance(threads: &[Thread]) -> Balance {
        let by_thread = threads.iter().map(|(tid, outs, ins)| (*tid, (*outs, *ins)));
        Balance {
            by_thread: by_thread.collect(),
        }
    }

    /// Only the threads asked for count, and each by itself: one's excess does not offset another's lack.
    #[test]
    fn whole_or_not() {
        let (yes, no) = (Some(true), Some(false));
        let cases: &[(&str, &[Thread], Option<bool>)] = &[
            ("nothing", &[], None),
            ("as often", &[(1, 100, 100)], yes),
            ("cut at the begin", &[(1, 9, 10), (2, 3, 4)], yes),
            ("cut at the end", &[(1, 5, 4)], yes),
            ("others do not count", &[(1, 159, 160), (9, 800, 0)], yes),
            ("few of many", &[(1, 162, 159)], yes),
            ("one in ten", &[(1, 100, 89)], yes),
            ("more", &[(1, 100, 88)], no),
            ("a process's own", &[(1, 100, 0)], no),
            ("its threads' own", &[(1, 1, 0), (2, 1, 0), (3, 2, 0)], no),
            ("one that left at the end", &[(1, 1, 0), (2, 1, 0)], None),
            ("one that came and stayed", &[(1, 0, 1)], None),
            ("leaves unseen", &[(1, 20, 40)], no),
            ("no balance", &[(1, 20, 40), (2, 40, 20)], no),
            ("most of many", &[(1, 1000, 1000), (2, 40, 0)], yes),
        ];
        for (what, threads, expected) in cases {
            let whole = balance(threads).is_whole([1, 2, 3].into_iter());
            assert_eq!(whole, *expected, "{what}");
        }
    }

    /// Sights are compared in order of time, and only before the frontier.
    #[test]
    fn missing_partners() {
        let mut partners = Partners::default();
        let mut found = Vec::new();
        let all = [
            (10, 1, Place::Off),
            (30, 1, Place::Off),
            (20, 1, Place::On),
            (25, 1, Place::Marked),
            (5, 2, Place::On),
            (40, 2, Place::On),
            (50, 1, Place::Off),
            (60, 1, Place::Marked),
            (65, 1, Place::Marked),
            (70, 1, Place::On),
        ];
        for (time, tid, place) in all {
            partners.push(Sight { time, tid, place });
        }
        partners.settle(45, |tid, times| found.push((tid, times)));
        assert_eq!(found, [(2, (5, 40))]);
        partners.settle(100, |tid, times| found.push((tid, times)));
        let expected = [(1, (30, 50)), (1, (50, 60)), (1, (65, 70))];
        assert_eq!(found[1..], expected);
        // A sight behind the frontier is compared with nothing newer.
        let (time, tid, place) = (65, 1, Place::On);
        partners.push(Sight { time, tid, place });
        partners.settle(200, |tid, times| found.push((tid, times)));
        assert_eq!(found.len(), 4);
    }
}
