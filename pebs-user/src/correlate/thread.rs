//! One thread: on or off the CPU, and its open visits.

use std::collections::VecDeque;

use pebs_common::record::Interference;

use super::ProbeRule;
use super::counts::{Counted, CountsState};
use super::frames::{RETURN_ADDRESS, inside_frame, same_stack};
use super::own::ThreadOwn;
use super::turns::{Owner, Turns};
use super::visit::{OpenVisit, RUNNABLE, RawWait};
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;
use crate::stream::decode::{Actor, STATE_IN_MARK, STATE_UNKNOWN};
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, Ip, Pid, ProbeId, Tid, TraceNs};

/// Most calls of a thread that are remembered as unwound.
const MAX_UNWOUND: usize = 64;

/// Departure of the thread from the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Off {
    ip: Option<Ip>,
    state: &'static str,
    runnable: bool,
    /// Whether it waits within a mark, which is own time.
    in_mark: bool,
    woken: Option<(TraceNs, Option<Actor>)>,
    displaced: Option<Actor>,
    stack: StackKey,
}

impl Off {
    /// Converts the fields of the switch record.
    ///
    /// Source: `TASK_*`, include/linux/sched.h.
    pub(super) fn new(ip: Option<Ip>, state: u32, preempted: bool) -> Self {
        let runnable = preempted || state & 0xff == 0;
        let in_mark = state == STATE_IN_MARK;
        let state = match state & 0xff {
            _ if runnable => RUNNABLE,
            _ if state == STATE_UNKNOWN => "blocked",
            s if s & 0x02 != 0 => "uninterruptible",
            s if s & 0x01 != 0 => "sleeping",
            s if s & 0x0c != 0 => "stopped",
            _ => "dead",
        };
        Self {
            ip,
            state,
            runnable,
            in_mark,
            woken: None,
            displaced: None,
            stack: StackKey::NONE,
        }
    }

    /// Sets the call stack at which the thread left the CPU.
    pub(super) const fn at(self, stack: StackKey) -> Self {
        Self { stack, ..self }
    }

    /// Whether it waits for another thread, a timer or the network.
    fn sleeps(&self) -> bool {
        self.state == "sleeping"
    }

    /// Whether the thread could not run, waits within marks excepted.
    const fn is_asleep(&self) -> bool {
        !self.runnable && !self.in_mark
    }

    /// Whether the thread could have run.
    pub(super) const fn is_runnable(&self) -> bool {
        self.runnable
    }
}

#[derive(Debug)]
pub(super) struct Thread {
    pub pid: Pid,
    /// CPU that the thread was last seen on.
    pub cpu: Cpu,
    /// Open visits in the order of their begin marks.
    pub visits: Vec<OpenVisit>,
    /// Decides which of the visits is current.
    pub(super) turns: Turns,
    pub own: ThreadOwn,
    /// Set while the thread is off the CPU: how it left, and since when the time counts for the current visit.
    pub(super) off: Option<(Off, TraceNs)>,
    /// Whether a wait of a visit ended at another record because its switch-in event is missing: see
    /// [`Thread::switch_out`].
    missed_switch_in: bool,
    /// Stack pointers of the open visits, highest first, to find those that concern few frames of a deep recursion.
    sps: Vec<u64>,
    /// Last calls taken for unwound, oldest first: probe and stack pointer.
    unwound: VecDeque<(ProbeId, u64)>,
    /// Whether a call taken for unwound has returned: the thread has several stacks close to one another (fibers), so
    /// one frame's address shows nothing about other frames.
    pub has_stacks: bool,
    /// Time off the CPU so far in which it could not run, waits within marks excepted, ns; see [`Thread::slept_ns`].
    slept_ns: i64,
    pub(super) counts_known: CountsState,
    /// Last waker while it seemed to be on the CPU: see [`Thread::wake`].
    woken_early: Option<Option<Actor>>,
    /// Finished waits while no visit was current, if these are kept; their `tid` is not set.
    other_waits: Option<Vec<RawWait>>,
}

/// Settings of a [`Thread`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadOptions {
    /// Whether there are resume marks.
    pub resumes: bool,
    /// Whether its waits are kept while no visit is current.
    pub other_waits: bool,
}

impl Thread {
    /// Returns a thread without open visits.
    pub(super) fn new(pid: Pid, cpu: Cpu, options: ThreadOptions) -> Self {
        Self {
            pid,
            cpu,
            visits: Vec::new(),
            sps: Vec::new(),
            unwound: VecDeque::new(),
            has_stacks: false,
            turns: Turns::new(options.resumes),
            own: ThreadOwn::default(),
            off: None,
            missed_switch_in: false,
            slept_ns: 0,
            counts_known: CountsState::default(),
            woken_early: None,
            other_waits: options.other_waits.then(Vec::new),
        }
    }

    /// Opens a visit and makes it the current one.
    ///
    /// The thread is on the CPU, even if the switch-in event is missing: earlier time off the CPU is not a wait of this
    /// visit.
    pub(super) fn open(&mut self, visit: OpenVisit, time: TraceNs) {
        self.on_cpu(time, visit.cpu);
        self.attach(visit, time);
    }

    /// Adds a visit that begins, or goes on here, and makes it the current one.
    pub(super) fn attach(&mut self, mut visit: OpenVisit, time: TraceNs) {
        if let Some(before) = self.visits.last_mut() {
            // Earlier ones were flagged when the one after them began.
            before.flags |= visit_flag::OVERLAPPED;
            visit.flags |= visit_flag::OVERLAPPED;
        }
        let at = self.sps.partition_point(|sp| *sp >= visit.sp);
        self.sps.insert(at, visit.sp);
        self.turns.begin(&mut visit, time);
        visit.counts.idle_ns = self.slept_ns(time) - visit.slept_ns - visit.counts.idle_ns;
        self.own.begin(&mut visit);
        self.visits.push(visit);
        self.turn(time);
    }

    /// Removes the visit at `index`.
    pub(super) fn close_at(&mut self, index: usize, time: TraceNs) -> OpenVisit {
        if self.turns.owner == Owner::Visit(index) {
            self.leave(time);
        }
        let mut visit = self.visits.remove(index);
        let at = self.sps.partition_point(|sp| *sp > visit.sp);
        debug_assert_eq!(self.sps.get(at), Some(&visit.sp));
        self.sps.remove(at);
        self.own.count(&mut visit);
        visit.counts.idle_ns = self.slept_ns(time) - visit.slept_ns - visit.counts.idle_ns;
        self.turns.end(&mut visit, index, time);
        self.turn(time);
        visit
    }

    /// Time slept so far, ns.
    fn slept_ns(&self, time: TraceNs) -> i64 {
        let since = self.off.as_ref().filter(|(off, _)| off.is_asleep());
        self.slept_ns + since.map_or(0, |(_, since)| (time.0 - since.0).max(0))
    }

    /// The current visit: the thread's time belongs to it.
    #[inline]
    pub(super) fn current(&mut self) -> Option<&mut OpenVisit> {
        match self.turns.owner {
            Owner::Visit(index) => self.visits.get_mut(index),
            Owner::Shared | Owner::Nobody => None,
        }
    }

    /// Makes the visit current that the marks so far call for.
    pub(super) fn turn(&mut self, time: TraceNs) {
        let owner = self.turns.choose(&self.visits);
        if owner == self.turns.owner {
            return;
        }
        self.leave(time);
        self.turns.set(owner);
        self.flag_incomplete_counts();
        if self.off.is_none() {
            self.go_on(time);
        }
    }

    /// Ends calls that resumed items and are gone according to the stack pointer; returns whether there were any.
    pub(super) fn leave_scopes(&mut self, sp: u64, time: TraceNs) -> bool {
        let left = self.turns.unwind(sp);
        if left {
            self.turn(time);
        }
        left
    }

    /// Ends the current visit's turn: no visit is current.
    fn leave(&mut self, time: TraceNs) {
        self.flag_incomplete_counts();
        self.settle_off(time, None);
        self.pause(time);
        self.count_own();
        self.turns.owner = Owner::Nobody;
    }

    /// Counts own work for the current visit, if it may be idle later.
    fn count_own(&mut self) {
        if let Owner::Visit(index) = self.turns.owner
            && let Some(current) = self.visits.get_mut(index).filter(|it| it.by_id)
        {
            self.own.count(current);
        }
    }

    /// Registers that the thread goes to sleep: visits matched by id may be idle.
    fn sleep(&mut self) {
        self.count_own();
        if !self.turns.resumes {
            self.own.count_new(&mut self.visits);
        }
        self.own.sleep();
    }

    /// Ends the current visit's time on the CPU.
    fn pause(&mut self, time: TraceNs) {
        self.turns.pause(time);
        if let Some(current) = self.current() {
            current.pause(time);
        }
    }

    /// Begins the current visit's time on the CPU.
    fn go_on(&mut self, time: TraceNs) {
        self.turns.go_on(time);
        if let Some(current) = self.current() {
            // The end of a resume is set to somewhat before its mark.
            current.active_since = Some(time.max(current.begin));
        }
    }

    /// Whether an open visit may be gone once a call begins at `sp`. O(log n).
    #[inline]
    pub(super) fn may_be_overwritten(&self, sp: u64) -> bool {
        let first = self.sps.partition_point(|other| *other > sp);
        self.sps
            .get(first)
            .is_some_and(|other| same_stack(*other, sp))
    }

    /// Remembers a call that was taken for unwound.
    pub(super) fn remember_unwound(&mut self, probe: ProbeId, sp: u64) {
        if self.unwound.len() == MAX_UNWOUND {
            self.unwound.pop_front();
        }
        self.unwound.push_back((probe, sp));
    }

    /// Handles the return of a call that is not open: if it was taken for unwound, the thread has several stacks.
    pub(super) fn learn_of_stacks(&mut self, probe: ProbeId, sp: u64) {
        self.has_stacks |= self.unwound.contains(&(probe, sp));
    }

    /// Removes the last visit.
    pub(super) fn close_last(&mut self, time: TraceNs) -> Option<OpenVisit> {
        let last = self.visits.len().checked_sub(1)?;
        Some(self.close_at(last, time))
    }

    /// Handles the thread leaving the CPU. Returns whether its last switch-in event is missing within a visit. A
    /// switch-in that came behind a sample because of a clock error is not missing.
    pub(super) fn switch_out(&mut self, time: TraceNs, cpu: Cpu, off: Off) -> bool {
        if self.off.is_some() {
            self.on_cpu(time, cpu);
        }
        let missed_switch_in = std::mem::take(&mut self.missed_switch_in);
        self.counts_end();
        self.cpu = self.place(cpu);
        let sleeps = off.sleeps();
        if sleeps && self.turns.sleep() {
            self.turn(time);
        }
        self.pause(time);
        self.off = Some((off, time));
        self.counts_begin();
        if let Some(current) = self.current() {
            current.counts.switches += 1;
        }
        self.own.so_far.switches += 1;
        if off.runnable {
            self.visits
                .iter_mut()
                .for_each(|visit| visit.flags |= visit_flag::PREEMPTED);
        }
        if sleeps {
            self.sleep();
        }
        missed_switch_in
    }

    /// Records that the thread was woken; of several wake-ups the first counts.
    ///
    /// Another CPU can wake it before its switch is recorded, but after the scheduler has put it to sleep. That is the
    /// last wake-up before the switch: after an earlier one, the thread would not have slept.
    /// Source: `__schedule`, `try_to_wake_up`, kernel/sched/core.c.
    pub(super) fn wake(&mut self, time: TraceNs, by: Option<Actor>) {
        self.encountered();
        match &mut self.off {
            None => self.woken_early = Some(by),
            Some((off, _)) if !off.runnable => {
                off.woken.get_or_insert((time, by));
            }
            Some(_) => {}
        }
    }

    /// Records that another thread took the CPU from it.
    pub(super) fn displace(&mut self, by: Actor) {
        self.encountered();
        if let Some((off, _)) = &mut self.off {
            off.displaced = Some(by);
        }
    }

    /// Counts a tick (`--count-interval`).
    pub(super) fn ticked(&mut self) {
        if let Some(current) = self.current() {
            current.counts.extras.ticks += 1;
        }
        self.own.so_far.extras.ticks += 1;
    }

    fn encountered(&mut self) {
        if let Some(current) = self.current() {
            current.counts.extras.encounters += 1;
        }
        self.own.so_far.extras.encounters += 1;
    }

    pub(super) fn switch_in(&mut self, time: TraceNs, cpu: Cpu) {
        self.missed_switch_in = false;
        self.counts_begin_anew();
        let cpu = self.place(cpu);
        let migrated = cpu != self.cpu && self.cpu != Cpu::UNKNOWN;
        let early = self.woken_early.take();
        if let Some((off, since)) = &mut self.off {
            // The wake-up came before the switch was recorded.
            if !off.runnable && off.woken.is_none() {
                off.woken = early.map(|by| (*since, by));
            }
            self.settle_off(time, Some(cpu));
            self.off = None;
            self.go_on(time);
        }
        if migrated {
            if let Some(current) = self.current() {
                current.counts.migrations += 1;
            }
            self.visits
                .iter_mut()
                .for_each(|visit| visit.flags |= visit_flag::MIGRATED);
        }
        self.cpu = cpu;
    }

    /// The CPU of a record, or the last known one if the record has none.
    const fn place(&self, cpu: Cpu) -> Cpu {
        if cpu.known().is_some() { cpu } else { self.cpu }
    }

    /// Counts an interruption for the current visit.
    pub(super) fn interference(
        &mut self,
        time: TraceNs,
        cpu: Cpu,
        (which, ns): (Interference, u64),
    ) {
        self.on_cpu(time, cpu);
        if let Some(current) = self.current() {
            current.counts.page_faults += u32::from(which == Interference::PageFault);
            current.taken.add(which, ns);
            current.counts.extras.add(which);
        }
        self.own.so_far.page_faults += u64::from(which == Interference::PageFault);
        self.own.so_far.extras.add(which);
    }

    /// Handles a record made on a CPU: the thread is there, even if records were lost.
    #[inline]
    pub(super) fn on_cpu(&mut self, time: TraceNs, cpu: Cpu) {
        if self.off.is_some() || cpu != self.cpu {
            let is_wait = self.off.is_some() && !self.visits.is_empty();
            let missed_switch_in = self.missed_switch_in || is_wait;
            self.switch_in(time, cpu);
            self.missed_switch_in = missed_switch_in;
            self.counts_begin_unseen();
        }
    }

    /// Number of leading `sps` inside the frame of the current visit; all of them if it has no frame.
    #[inline]
    pub(super) fn inside_frame(&self, sps: &[u64], probes: &[ProbeRule]) -> usize {
        if let Some(sp) = self.turns.frame() {
            return inside_frame(sp, sps);
        }
        match self.visits.last() {
            Some(current)
                if !self.has_stacks && probes[current.probe.0 as usize].rule == VisitRule::Call =>
            {
                inside_frame(current.sp, sps)
            }
            _ => sps.len(),
        }
    }

    /// Whether it is on that CPU, without open visits.
    #[inline]
    pub(super) fn is_free_on(&self, cpu: Cpu) -> bool {
        self.off.is_none() && self.cpu == cpu && self.visits.is_empty()
    }

    /// Number of last visits whose frame lies below the stack pointer, and is gone.
    ///
    /// The return address above the frame still belongs to it: it is popped before a uretprobe makes the return mark.
    #[inline]
    pub(super) fn frames_gone(&self, sp: u64, probes: &[ProbeRule]) -> usize {
        let gone = |visit: &&OpenVisit| {
            !self.has_stacks
                && probes[visit.probe.0 as usize].rule == VisitRule::Call
                && visit.sp.saturating_add(RETURN_ADDRESS) < sp
                && same_stack(visit.sp, sp)
        };
        self.visits.iter().rev().take_while(gone).count()
    }

    /// Books the time off the CPU so far to the current visit.
    fn settle_off(&mut self, time: TraceNs, to: Option<Cpu>) {
        let Some((off, since)) = &mut self.off else {
            return;
        };
        let begin = std::mem::replace(since, time);
        let in_mark = off.in_mark;
        if off.is_asleep() {
            self.slept_ns += (time.0 - begin.0).max(0);
        }
        if in_mark && begin < time {
            self.own.so_far.marks_ns += (time.0 - begin.0).cast_unsigned();
        }
        if begin >= time {
            return;
        }
        let wait = RawWait {
            begin,
            end: time,
            tid: Tid(0),
            ip: off.ip,
            caller: None,
            state: off.state,
            from: self.cpu,
            to: to.unwrap_or(self.cpu),
            woken: off.woken,
            displaced: off.displaced,
            stack: off.stack,
        };
        match self.current() {
            Some(current) if in_mark => {
                current.mark_waits.0 += 1;
                current.mark_waits.1 += wait.end.0 - wait.begin.0;
            }
            Some(current) => {
                let tid = current.thread();
                current.waited(RawWait { tid, ..wait });
            }
            None if in_mark => {}
            None => self.other_waits.iter_mut().for_each(|it| it.push(wait)),
        }
    }

    /// Removes and returns the finished waits in which no visit was current.
    pub(super) fn take_other_waits(&mut self) -> impl Iterator<Item = RawWait> + '_ {
        self.other_waits.iter_mut().flat_map(|it| it.drain(..))
    }
}

/// Its counts, see [`super::counts`].
impl Thread {
    /// Starts counting at the thread's first mark, if `counts`.
    pub(super) fn count_from_here(&mut self, counts: bool) {
        if counts && self.counts_known == CountsState::NotCounted {
            self.counts_known = CountsState::UpToNow;
        }
    }

    /// Adds the counts up to now to the current visit.
    pub(super) fn counted(&mut self, time: TraceNs, cpu: Cpu, counted: &Counted<'_>) {
        self.on_cpu(time, cpu);
        let incomplete = self.counts_known == CountsState::BeginMissing;
        if let Some(current) = self.current() {
            current.events.add(counted);
            current.events.incomplete |= incomplete;
        }
        self.counts_known = CountsState::UpToNow;
        if counted.tick {
            self.counts_begin();
        }
    }

    /// Ends the period at a mark or when the thread leaves the CPU; its counts should have arrived by now.
    pub(super) fn counts_end(&mut self) {
        if self.is_before_counts() {
            self.flag_incomplete_counts();
            self.counts_known = CountsState::UpToNow;
        }
    }

    /// Begins a new period.
    pub(super) fn counts_begin(&mut self) {
        if self.counts_known != CountsState::NotCounted {
            self.counts_known = CountsState::Before;
        }
    }

    /// Handles the thread taking the CPU. If it seems to be on the CPU, its switch-out is missing, and so are the
    /// counts up to then, unless a record that came before the switch-in has shown it there.
    pub(super) fn counts_begin_anew(&mut self) {
        match self.counts_known {
            CountsState::BeginMissing => self.counts_known = CountsState::Before,
            _ => self.flag_incomplete_counts(),
        }
    }

    /// Handles a record of the thread on a CPU whose switch-in is missing.
    pub(super) fn counts_begin_unseen(&mut self) {
        if self.counts_known == CountsState::Before {
            self.counts_known = CountsState::BeginMissing;
        }
    }

    fn is_before_counts(&self) -> bool {
        matches!(
            self.counts_known,
            CountsState::Before | CountsState::BeginMissing
        )
    }

    /// Flags the current visit's counts as incomplete if its period changes hands before its counts arrived.
    pub(super) fn flag_incomplete_counts(&mut self) {
        if self.off.is_none()
            && self.is_before_counts()
            && let Some(current) = self.current()
        {
            current.events.incomplete = true;
        }
    }
}
