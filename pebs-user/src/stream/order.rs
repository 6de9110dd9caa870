//! From the rings' streams to one stream in time order, up to the frontier.
//!
//! Contract: each ring is nearly sorted (records of programs that interrupt one another may stand
//! the wrong way round), and when a frontier is given, no record of an earlier time can still
//! arrive. Records below the frontier come out once, in time order; the others wait.
//!
//! ```text
//!   ring 0   ----a---c------|f--
//!   ring 1   --b--------d---|---e
//!                           ^ frontier: gives b a c d, keeps f e
//! ```
//!
//! The merge sorts small keys (time and place), not records, digit by digit: a batch covers some
//! milliseconds, so two digits do, and the number of rings does not matter. Records of the same
//! time come out as they came in. A record that comes behind the frontier all the same is late:
//! counted, and left out.

use crate::stream::decode::{Body, Payloads, Record};
use crate::stream::keys::Keys;
use crate::units::TraceNs;

/// A record that came behind the frontier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// CPU of the record.
    pub cpu: u16,
    /// What it was.
    pub kind: LateKind,
    /// Its time.
    pub time: TraceNs,
}

/// What a late record was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateKind {
    /// A sample.
    #[default]
    Sample,
    /// A mark.
    Mark,
    /// Anything else.
    Task,
}

/// Holds records back until their turn.
#[derive(Debug)]
pub struct Order {
    pending: Vec<Record>,
    payloads: Payloads,
    /// Where the records that wait on, and their payloads, move to.
    spare: (Vec<Record>, Payloads),
    keys: Keys,
    block: Vec<Record>,
    frontier: TraceNs,
}

/// Records picked from their streams at a time: the waits for memory overlap. 4 KiB.
const BLOCK: usize = 64;

impl Default for Order {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            payloads: Payloads::default(),
            spare: (Vec::new(), Payloads::default()),
            keys: Keys::default(),
            block: Vec::new(),
            frontier: TraceNs(i64::MIN),
        }
    }
}

impl Order {
    /// Where to decode the next batch to.
    pub fn inbox(&mut self) -> (&mut Vec<Record>, &mut Payloads) {
        (&mut self.pending, &mut self.payloads)
    }

    /// Records that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Hands every record below the frontier to `each`, in time order, and before that late ones to
    /// `late`.
    ///
    /// A frontier below an earlier one counts as the earlier one. Cost: O(what waits), 24 bytes of
    /// room a record.
    pub fn advance(
        &mut self,
        frontier: TraceNs,
        mut late: impl FnMut(Late),
        mut each: impl FnMut(&Record, &Payloads),
    ) {
        let before = self.frontier;
        self.frontier = before.max(frontier);
        self.keys.fill(&self.pending, self.frontier);
        for indices in self.keys.sorted().chunks(BLOCK) {
            let records = indices.iter().map(|key| self.pending[key.index()]);
            self.block.clear();
            self.block.extend(records);
            for record in &self.block {
                if record.time < before {
                    late(Late::of(record));
                } else {
                    each(record, &self.payloads);
                }
            }
        }
        self.keep_waiting();
    }

    /// Keeps only records that wait on, and their payloads.
    fn keep_waiting(&mut self) {
        let (waiting, payloads) = &mut self.spare;
        waiting.clear();
        payloads.clear();
        if self.keys.len() < self.pending.len() {
            let waits = |record: &&Record| record.time >= self.frontier;
            waiting.extend(self.pending.iter().filter(waits));
        }
        for record in waiting.iter_mut() {
            if let Body::Mark { args, .. } = &mut record.body {
                *args = payloads.push(args.valid, self.payloads.get(*args));
            }
        }
        std::mem::swap(&mut self.pending, waiting);
        std::mem::swap(&mut self.payloads, payloads);
    }
}

impl Late {
    fn of(record: &Record) -> Self {
        let kind = match record.body {
            Body::Sample { .. } => LateKind::Sample,
            Body::Mark { .. } => LateKind::Mark,
            _ => LateKind::Task,
        };
        Self {
            cpu: record.cpu.0,
            kind,
            time: record.time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Cpu, Pid, ProbeId, Tid};
    use pebs_common::record::Role;
    use proptest::prelude::*;

    fn mark(time: i64, cpu: u16, order: &mut Order) {
        let (records, payloads) = order.inbox();
        let args = payloads.push(1, &time.to_ne_bytes());
        let body = Body::Mark {
            probe: ProbeId(0),
            role: Role::Begin,
            id: None,
            sp: 0,
            args,
        };
        let (pid, tid) = (Pid(1), Tid(1));
        records.push(Record {
            time: TraceNs(time),
            pid,
            tid,
            cpu: Cpu(cpu),
            body,
        });
    }

    proptest! {
        /// Any interleaving whose lateness the frontiers respect comes out sorted and whole, each
        /// record with its own payload.
        #[test]
        fn sorted_and_whole(mut times in prop::collection::vec(0i64..1000, 1..200), step in 1usize..20) {
            // Within a batch any order; no batch holds a time below the frontier before it.
            times.sort_unstable();
            let mut order = Order::default();
            let mut out = Vec::new();
            for batch in times.chunks(step) {
                for (n, time) in batch.iter().rev().enumerate() {
                    mark(*time, n as u16 % 3, &mut order);
                }
                let mut see = |record: &Record, payloads: &Payloads| {
                    let Body::Mark { args, .. } = record.body else { unreachable!() };
                    let bytes = payloads.get(args).try_into().unwrap();
                    assert_eq!(i64::from_ne_bytes(bytes), record.time.0);
                    out.push(record.time.0);
                };
                order.advance(TraceNs(batch[batch.len() / 2]), |_| panic!("late"), &mut see);
            }
            order.advance(TraceNs(i64::MAX), |_| panic!("late"), |record, _| out.push(record.time.0));
            prop_assert_eq!(out, times);
            prop_assert_eq!(order.waiting(), 0);
        }
    }

    /// A record behind the frontier is reported as late and not handed on.
    #[test]
    fn late_record() {
        let mut order = Order::default();
        order.advance(TraceNs(100), |_| {}, |_, _| {});
        mark(99, 2, &mut order);
        mark(100, 2, &mut order);
        let (mut late, mut out) = (Vec::new(), Vec::new());
        order.advance(
            TraceNs(200),
            |l| late.push(l),
            |record, _| out.push(record.time.0),
        );
        assert_eq!(
            late,
            [Late {
                cpu: 2,
                kind: LateKind::Mark,
                time: TraceNs(99)
            }]
        );
        assert_eq!(out, [100]);
    }
}
