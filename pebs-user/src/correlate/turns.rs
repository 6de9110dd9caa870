//! Decides which visit a thread's time belongs to while several are open.
//!
//! Nested calls and stages end before the visit around them goes on: the last one to begin is current. Items matched by
//! id need not: an event loop may go on with any of them at any time. Without resume marks (`--resume`), the thread's
//! time while several of them are open is *shared*: nobody knows which item it is for.
//!
//! With resume marks, the last mark decides. A resume by a call lasts until its return, and so does a stage; the begin
//! of an item, or a resume without an end, lasts until the thread's next mark or until it goes to sleep, because a loop
//! does not wait for one item. The remaining time is the loop's own. It is counted as shared too, but no item is
//! flagged for it.

use super::frames::{RETURN_ADDRESS, same_stack};
use super::visit::{OpenVisit, Spells};
use crate::store::schema::visit_flag;
use crate::units::{ProbeId, TraceNs};

/// Most entries of a thread's stack: beyond that, ends are missing.
const MAX_TURNS: usize = 1 << 10;

/// Owner of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// No visit is open, or the thread works on an item without a visit.
    Nobody,
    /// One of the open visits, nobody knows which; or the event loop itself.
    Shared,
    /// The visit at this index.
    Visit(usize),
}

/// An item or visit that the thread turned to.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// A visit that began, by its number on the thread. `lasts`: until the thread's next mark.
    Visit { number: u64, lasts: bool },
    /// The item with this id.
    Item { probe: ProbeId, id: u64, ends: Ends },
}

/// End of a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// With the return of the call whose stack pointer was this at its first instruction.
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

/// State of a thread's turns; see the module.
#[derive(Debug)]
pub(super) struct Turns {
    pub owner: Owner,
    /// Whether there are resume marks.
    pub resumes: bool,
    /// Visits and items that the thread turned to and did not leave, if there are resume marks.
    stack: Vec<Turn>,
    /// Number of open visits that are matched by id.
    by_id: usize,
    /// Number of visits that began.
    visits: u64,
    shared: Spells,
    /// Begin of the open interval of shared time on the CPU.
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

    /// Registers a visit that begins on the thread.
    #[inline]
    pub(super) fn begin(&mut self, visit: &mut OpenVisit, time: TraceNs) {
        self.visits += 1;
        visit.number = self.visits;
        self.by_id += usize::from(visit.by_id);
        // A stage ends the shared time; an item doesn't.
        let begun = u64::from(visit.by_id && self.owner == Owner::Shared);
        // Less what was shared before it went on here.
        visit.shared = Spells {
            ns: self.shared_ns(time) - visit.shared.ns,
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

    /// Registers the end of the visit at `index`.
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

    /// Returns the owner of the time, by the marks so far.
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

    /// Sets the owner of the time from now on.
    pub(super) fn set(&mut self, owner: Owner) {
        self.owner = owner;
        self.shared.count += u64::from(owner == Owner::Shared);
    }

    /// Whether the time is shared now.
    pub(super) fn is_shared(&self) -> bool {
        self.owner == Owner::Shared
    }

    /// Ends time on the CPU.
    pub(super) fn pause(&mut self, time: TraceNs) {
        self.shared.ns = self.shared_ns(time);
        self.since = None;
    }

    /// Begins time on the CPU.
    pub(super) fn go_on(&mut self, time: TraceNs) {
        if self.owner == Owner::Shared {
            self.since = Some(time);
        }
    }

    /// Shared time on the CPU so far, ns.
    #[inline]
    pub(super) fn shared_ns(&self, time: TraceNs) -> i64 {
        let open = self.since.map_or(0, |since| (time.0 - since.0).max(0));
        self.shared.ns + open
    }

    /// Stack pointer at the first instruction of the call that resumed the current item, if a call did.
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

    /// Handles the thread going to sleep; returns whether that ends a turn.
    pub(super) fn sleep(&mut self) -> bool {
        let before = self.stack.len();
        self.next_mark();
        self.stack.len() < before
    }

    /// Ends the turns that last until the next mark.
    fn next_mark(&mut self) {
        while self.stack.pop_if(|turn| turn.lasts()).is_some() {}
    }

    fn push(&mut self, turn: Turn) {
        if self.stack.len() >= MAX_TURNS {
            self.stack.remove(0);
        }
        self.stack.push(turn);
    }

    /// Turns to an item.
    pub(super) fn resume(&mut self, (probe, id): (ProbeId, u64), ends: Ends) {
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

    /// Ends the last resume of the probe; returns whether there was one.
    pub(super) fn leave(&mut self, probe: ProbeId, ends: Ends) -> bool {
        let of_it = |turn: &Turn| matches!(turn, Turn::Item { probe: of, ends: by, .. } if *of == probe && *by == ends);
        let Some(at) = self.stack.iter().rposition(of_it) else {
            return false;
        };
        let mut place = 0;
        // Stages that began in it and are still open stay.
        self.stack.retain(|turn| {
            place += 1;
            place <= at || matches!(turn, Turn::Visit { lasts: false, .. })
        });
        true
    }

    /// Drops resumes whose frame is gone according to the stack pointer; returns whether there were any.
    pub(super) fn unwind(&mut self, sp: u64) -> bool {
        let before = self.stack.len();
        let is_gone = |turn: &mut Turn| {
            matches!(turn, Turn::Item { ends: Ends::Call(frame), .. }
                if frame.saturating_add(RETURN_ADDRESS) < sp && same_stack(*frame, sp))
        };
        while self.stack.pop_if(is_gone).is_some() {}
        self.stack.len() < before
    }
}
