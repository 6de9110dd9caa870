//! Whose the time of a thread is while it has several visits open.
//!
//! Nested calls and stages end before what they are in goes on: the last one to begin has the thread. Items that are
//! matched by id need not: an event loop goes on with any of them at any time. Where nothing marks that
//! (`--resume`), the thread's time while several of them are open is *shared*: nobody knows whose it is.
//!
//! Where it is marked, the last mark decides: a resume by a call lasts up to its return, and so does a stage; the begin of an
//! item, or a resume without an end, lasts up to the thread's next mark, or until it goes to sleep: a loop does not wait
//! for one item. What is then left is the loop's own, and shared as well, but no item lacks it.

use pebs_common::record::Role;

use super::marks::MarkAt;
use super::thread::{RETURN_ADDRESS, Thread, same_stack};
use super::visit::OpenVisit;
use super::{Correlator, Lost, Sink};
use crate::ledger::Reason;
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::units::{Pid, ProbeId, Tid, TraceNs};

/// Turns of a thread at most: more were begun than ended.
const MAX_TURNS: usize = 1 << 10;

/// Whose the time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// No visit is open, or the thread works on an item that has none.
    Nobody,
    /// One of the open visits', it is not known which; or the loop's own.
    Shared,
    /// Of the visit at this place in the list.
    Visit(usize),
}

/// Time that was shared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spells {
    /// On the CPU, ns.
    pub ns: i64,
    /// How often it began.
    count: u64,
}

/// What a thread was marked to turn to.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// A visit that began, by its number. `lasts`: until the thread's next mark.
    Visit { number: u64, lasts: bool },
    /// The item of this id.
    Item {
        probe: ProbeId,
        id: u64,
        /// Up to when.
        ends: Ends,
    },
}

/// How a resume ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// With the call whose stack pointer this was at its first instruction.
    Call(u64),
    Mark,
    /// With the thread's next mark.
    Next,
}

impl Turn {
    const fn lasts(self) -> bool {
        match self {
            Self::Visit { lasts, .. } => lasts,
            Self::Item { ends, .. } => matches!(ends, Ends::Next),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    /// Whose the time is now.
    pub owner: Owner,
    /// Whether resumes are marked.
    resumes: bool,
    /// What the thread turned to and did not leave, if resumes are marked.
    stack: Vec<Turn>,
    /// Open visits that are matched by id.
    by_id: usize,
    /// Visits that began.
    visits: u64,
    shared: Spells,
    /// Begin of the interval on the CPU that is shared and open.
    since: Option<TraceNs>,
}

impl Turns {
    pub(super) const fn new(resumes: bool) -> Self {
        Self {
            owner: Owner::Nobody,
            resumes,
            stack: Vec::new(),
            by_id: 0,
            visits: 0,
            shared: Spells { ns: 0, count: 0 },
            since: None,
        }
    }

    /// A visit begins on the thread.
    #[inline]
    pub(super) fn begin(&mut self, visit: &mut OpenVisit, time: TraceNs) {
        self.visits += 1;
        visit.number = self.visits;
        self.by_id += usize::from(visit.by_id);
        // A stage takes the time over; an item does not.
        let begun = u64::from(visit.by_id && self.owner == Owner::Shared);
        visit.shared = Spells {
            ns: self.shared_ns(time),
            count: self.shared.count - begun,
        };
        if self.resumes {
            let lasts = visit.by_id;
            if lasts {
                self.next_mark();
            }
            self.push(Turn::Visit {
                number: visit.number,
                lasts,
            });
        }
    }

    /// The visit that was at this place has ended.
    #[inline]
    pub(super) fn end(&mut self, visit: &mut OpenVisit, index: usize, time: TraceNs) {
        self.by_id -= usize::from(visit.by_id);
        if let Owner::Visit(owner) = &mut self.owner
            && *owner > index
        {
            *owner -= 1;
        }
        if self.resumes {
            let of_it =
                |turn: &Turn| matches!(turn, Turn::Visit { number, .. } if *number == visit.number);
            self.stack.retain(|turn| !of_it(turn));
        } else if self.shared.count > visit.shared.count {
            visit.flags |= visit_flag::TIME_SHARED;
        }
        visit.shared.ns = self.shared_ns(time) - visit.shared.ns;
    }

    /// Whose the time is by the marks so far.
    #[inline]
    pub(super) fn choose(&self, visits: &[OpenVisit]) -> Owner {
        let Some(last) = visits.len().checked_sub(1) else {
            return Owner::Nobody;
        };
        if !self.resumes {
            return match visits[last].by_id && self.by_id > 1 {
                true => Owner::Shared,
                false => Owner::Visit(last),
            };
        }
        let place = match self.stack.last() {
            None => return Owner::Shared,
            Some(Turn::Visit { number, .. }) => visits.iter().rposition(|it| it.number == *number),
            Some(Turn::Item { id, .. }) => visits.iter().rposition(|it| it.id == Some(*id)),
        };
        place.map_or(Owner::Nobody, Owner::Visit)
    }

    /// Its time is theirs from now on.
    pub(super) fn set(&mut self, owner: Owner) {
        self.owner = owner;
        self.shared.count += u64::from(owner == Owner::Shared);
    }

    /// Whether the time is of no single item now.
    pub(super) fn is_shared(&self) -> bool {
        self.owner == Owner::Shared
    }

    /// Time on the CPU ends.
    pub(super) fn pause(&mut self, time: TraceNs) {
        self.shared.ns = self.shared_ns(time);
        self.since = None;
    }

    /// Time on the CPU begins.
    pub(super) fn go_on(&mut self, time: TraceNs) {
        if self.owner == Owner::Shared {
            self.since = Some(time);
        }
    }

    /// Time on the CPU that was shared so far, ns.
    #[inline]
    pub(super) fn shared_ns(&self, time: TraceNs) -> i64 {
        let open = self.since.map_or(0, |since| (time.0 - since.0).max(0));
        self.shared.ns + open
    }

    /// Stack pointer at the first instruction of the call that resumed an item, if that is what the thread is in.
    #[inline]
    pub(super) fn frame(&self) -> Option<u64> {
        match self.stack.last() {
            Some(Turn::Item {
                ends: Ends::Call(sp),
                ..
            }) => Some(*sp),
            _ => None,
        }
    }

    /// The thread goes to sleep: says whether that ends something.
    pub(super) fn sleep(&mut self) -> bool {
        let before = self.stack.len();
        self.next_mark();
        self.stack.len() < before
    }

    /// What lasts until the next mark ends.
    fn next_mark(&mut self) {
        while self.stack.pop_if(|turn| turn.lasts()).is_some() {}
    }

    fn push(&mut self, turn: Turn) {
        if self.stack.len() >= MAX_TURNS {
            self.stack.remove(0);
        }
        self.stack.push(turn);
    }

    /// The thread turns to an item.
    fn resume(&mut self, (probe, id): (ProbeId, u64), ends: Ends) {
        self.next_mark();
        let is_over = |turn: &Turn| match (*turn, ends) {
            // The frame was overwritten.
            (
                Turn::Item {
                    probe: of,
                    ends: Ends::Call(inner),
                    ..
                },
                Ends::Call(sp),
            ) => inner < sp && same_stack(inner, sp) || inner == sp && of == probe,
            (
                Turn::Item {
                    probe: of,
                    ends: Ends::Mark,
                    ..
                },
                Ends::Mark,
            ) => of == probe,
            _ => false,
        };
        self.stack.retain(|turn| !is_over(turn));
        self.push(Turn::Item { probe, id, ends });
    }

    /// The thread leaves what it was resumed for; says whether it was resumed.
    fn leave(&mut self, probe: ProbeId, ends: Ends) -> bool {
        let of_it = |turn: &Turn| matches!(turn, Turn::Item { probe: of, ends: by, .. } if *of == probe && *by == ends);
        let Some(at) = self.stack.iter().rposition(of_it) else {
            return false;
        };
        let mut place = 0;
        // Stages that began in it and go on are what the thread is at.
        self.stack.retain(|turn| {
            place += 1;
            place <= at || matches!(turn, Turn::Visit { lasts: false, .. })
        });
        true
    }

    /// Forgets resumes whose frame is gone by this stack pointer; says whether there were some.
    fn unwind(&mut self, sp: u64) -> bool {
        let before = self.stack.len();
        let is_gone = |turn: &mut Turn| {
            matches!(turn, Turn::Item { ends: Ends::Call(frame), .. }
                if frame.saturating_add(RETURN_ADDRESS) < sp && same_stack(*frame, sp))
        };
        while self.stack.pop_if(is_gone).is_some() {}
        self.stack.len() < before
    }
}

impl Thread {
    /// Leaves calls that resumed items and are gone by this stack pointer; says whether there were some.
    pub(super) fn leave_scopes(&mut self, sp: u64, time: TraceNs) -> bool {
        let left = self.turns.unwind(sp);
        if left {
            self.turn(time);
        }
        left
    }
}

impl Correlator {
    /// The thread on which the item of this id is open.
    pub(super) fn owner_of(&self, pid: Pid, id: Option<u64>) -> Option<Tid> {
        let id = id?;
        let by_id = |(_, rule): &(usize, &super::ProbeRule)| rule.rule == VisitRule::ById;
        let probes = self.probes.iter().enumerate().filter(by_id);
        let mut keys = probes.map(|(probe, _)| (ProbeId(probe as u16), pid, id));
        keys.find_map(|key| self.by_id.get(&key).copied())
    }

    /// Takes in a mark of a resume: the thread turns to an item, or leaves it.
    pub(super) fn resume(
        &mut self,
        (role, rule): (Role, VisitRule),
        mark: &MarkAt<'_>,
        sink: &mut impl Sink,
    ) {
        let (time, tid) = (mark.record.time, mark.record.tid);
        // What the mark itself takes is no item's.
        let own = self.mark_times[usize::from(mark.probe.0)][role as usize];
        let ends = match rule {
            VisitRule::Call => Ends::Call(mark.sp),
            VisitRule::UntilNext => Ends::Next,
            _ => Ends::Mark,
        };
        if matches!(role, Role::End | Role::Return) {
            // Of an item that no visit is known of, there is nothing to leave.
            if let Some(thread) = self.threads.get_mut(tid)
                && thread.turns.leave(mark.probe, ends)
            {
                thread.turn(TraceNs(time.0 - own.before_ns as i64));
            }
            return;
        }
        let Some(id) = mark.id else {
            return sink.lost(mark.record.cpu, Lost::Mark, Reason::UnmatchedMark);
        };
        let owner = self.owner_of(mark.record.pid, Some(id));
        if let Some(owner) = owner.filter(|owner| *owner != tid) {
            self.resumed_elsewhere += 1;
            let visits = self.threads.get_mut(owner).map(|thread| &mut thread.visits);
            let of_it = visits.into_iter().flatten();
            of_it
                .filter(|visit| visit.id == Some(id))
                .for_each(|visit| visit.flags |= visit_flag::TIME_SHARED);
        }
        let (pid, cpu) = (mark.record.pid, mark.record.cpu);
        let counts = self.options.counters > 0;
        let new = || Thread::new(pid, cpu, true).counting(counts);
        let thread = self.threads.or_insert_with(tid, new);
        thread.turns.resume((mark.probe, id), ends);
        thread.turn(TraceNs(time.0 + own.after_ns as i64));
    }
}
