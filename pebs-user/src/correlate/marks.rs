//! Begin and end of visits at marks.

use pebs_common::config::STR_CUT;
use pebs_common::record::{Role, goroutine_of};

use super::frames::same_stack;
use super::thread::Thread;
use super::turns::Ends;
use super::visit::OpenVisit;
use super::{Correlator, IdKey, Lost, ProbeRule, Sink};
use crate::ledger::Reason;
use crate::probe::set::ArgField;
use crate::store::run::VisitRule;
use crate::store::schema::{ArgType, ArgValue, visit_flag};
use crate::stream::decode::{ArgBytes, Payloads, Record};
use crate::stream::text::escape;
use crate::units::{Cpu, Pid, ProbeId, Tid, TraceNs};

/// Most open visits of one thread. More than any event loop serves at once; beyond that they are items whose end
/// is never marked, which must not fill the memory.
pub(super) const MAX_OPEN: usize = 1 << 16;

/// The mark being handled.
pub(super) struct MarkAt<'a> {
    pub record: &'a Record,
    pub probe: ProbeId,
    /// Whether the instruction is single-stepped.
    pub stepped: bool,
    /// Time that its program had run, ns.
    pub ran_ns: Option<u16>,
    pub id: Option<u64>,
    pub sp: u64,
    pub args: ArgBytes,
    pub payloads: &'a Payloads,
}

impl Correlator {
    pub(super) fn mark(&mut self, role: Role, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Some((rule, resumes)) = self
            .probes
            .get(mark.probe.0 as usize)
            .map(|probe| (probe.rule, probe.resumes))
        else {
            return sink.lost(mark.record.cpu, Lost::Mark, Reason::Malformed);
        };
        let own = self.mark_times[mark.probe.0 as usize].of(role, mark.stepped);
        let cold = self.coldness.more(mark.stepped, mark.ran_ns);
        if self.marked.is_some() {
            return self.mark_item(role, own, cold, mark, sink);
        }
        if let Some(thread) = self.threads.get_mut(mark.record.tid) {
            thread.on_cpu(mark.record.time, mark.record.cpu);
            thread.counts_end();
            thread.own.so_far.marks_ns += own.before_ns;
            thread.own.so_far.cold_ns += cold.before_ns;
        }
        if rule.is_of_goroutine() {
            match resumes {
                true => self.schedule(role, mark, sink),
                false => self.in_goroutine((role, rule), mark, sink),
            }
        } else if resumes {
            self.resume((role, rule), mark, sink);
        } else {
            self.act(role, rule, mark, sink);
        }
        if let Some(thread) = self.threads.get_mut(mark.record.tid) {
            thread.own.so_far.marks_ns += own.after_ns;
            thread.own.so_far.cold_ns += cold.after_ns;
            thread.counts_begin();
        }
    }

    fn act(&mut self, role: Role, rule: VisitRule, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        if role == Role::Begin {
            self.make_room(mark.record, sink);
        }
        match (role, rule) {
            (Role::Begin, VisitRule::Call) => {
                self.unwind_below(mark, sink);
                self.begin(mark);
            }
            (Role::Begin, VisitRule::ById) => {
                if let Some(id) = mark.id {
                    let key = (mark.probe, mark.record.pid, id);
                    self.close_by_id(key, mark, visit_flag::END_MISSING, sink);
                    self.begin(mark);
                    self.by_id.insert(key, mark.record.tid);
                } else {
                    sink.lost(mark.record.cpu, Lost::Mark, Reason::UnmatchedMark);
                }
            }
            (Role::Begin, _) => {
                self.close_on_thread(mark, visit_flag::END_MISSING, sink);
                self.begin(mark);
            }
            (Role::Next, _) => {
                self.close_on_thread(mark, 0, sink);
                self.begin(mark);
            }
            (Role::End, VisitRule::ById) => {
                let closed = mark.id.is_some_and(|id| {
                    self.close_by_id((mark.probe, mark.record.pid, id), mark, 0, sink)
                });
                if !closed {
                    self.without_begin(mark, sink);
                }
            }
            (Role::Return, VisitRule::Call) => self.returned(mark, sink),
            (Role::End | Role::Return, _) => {
                if !self.close_on_thread(mark, 0, sink) {
                    self.without_begin(mark, sink);
                }
            }
        }
    }

    /// Closes a thread's oldest visit if it has [`MAX_OPEN`]: its end was missed.
    pub(super) fn make_room(&mut self, record: &Record, sink: &mut impl Sink) {
        let Some(thread) = self.threads.get_mut(record.tid) else {
            return;
        };
        if thread.visits.len() < MAX_OPEN {
            return;
        }
        let mut oldest = thread.close_at(0, record.time);
        oldest.flags |= visit_flag::END_MISSING;
        self.close(oldest, Some((record.time, None)), record.time, sink);
    }

    /// Returns the thread on which the item with this id is open.
    pub(super) fn owner_of(&self, pid: Pid, id: Option<u64>) -> Option<Tid> {
        let id = id?;
        let by_id = |(_, rule): &(usize, &ProbeRule)| rule.rule == VisitRule::ById;
        let probes = self.probes.iter().enumerate().filter(by_id);
        let mut keys = probes.map(|(probe, _)| (ProbeId(probe as u16), pid, id));
        keys.find_map(|key| self.by_id.get(&key).copied())
    }

    /// Handles a resume mark: the thread turns to an item, or leaves it.
    pub(super) fn resume(
        &mut self,
        (role, rule): (Role, VisitRule),
        mark: &MarkAt<'_>,
        sink: &mut impl Sink,
    ) {
        let (time, tid) = (mark.record.time, mark.record.tid);
        // The time of the mark itself belongs to no item.
        let own = self.mark_times[usize::from(mark.probe.0)].of(role, mark.stepped);
        let cold = self.coldness.more(mark.stepped, mark.ran_ns);
        let before_ns = own.before_ns.cast_signed() + cold.before_ns;
        let ends = match rule {
            VisitRule::Call => Ends::Call(mark.sp),
            VisitRule::UntilNext => Ends::Next,
            _ => Ends::Mark,
        };
        if matches!(role, Role::End | Role::Return) {
            // If no turn is open, there is nothing to leave.
            if let Some(thread) = self.threads.get_mut(tid)
                && thread.turns.leave(mark.probe, ends)
            {
                thread.turn(TraceNs(time.0 - before_ns));
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
        let (options, counts) = (self.thread_options(), self.options.counters > 0);
        let new = || Thread::new(pid, cpu, options);
        let thread = self.threads.or_insert_with(tid, new);
        thread.count_from_here(counts);
        thread.turns.resume((mark.probe, id), ends);
        let after_ns = own.after_ns.cast_signed() + cold.after_ns;
        thread.turn(TraceNs(time.0 + after_ns));
    }

    /// Opens a visit at a begin mark and makes it the thread's current one.
    pub(super) fn begin(&mut self, mark: &MarkAt<'_>) {
        let visit = self.begun(mark);
        self.open(visit, mark.record.time);
    }

    /// The visit that a begin mark begins.
    pub(super) fn begun(&mut self, mark: &MarkAt<'_>) -> OpenVisit {
        let Record {
            time,
            pid,
            tid,
            cpu,
            ..
        } = *mark.record;
        let probe = &self.probes[mark.probe.0 as usize];
        let counter = &mut self.next_item[mark.probe.0 as usize];
        let number = *counter;
        *counter += 1;
        // Without `id=`, or where it could not be read, the item id is a running number.
        let item_id = mark.id.filter(|_| probe.has_id).unwrap_or(number);
        let mut visit = self.new_visit(mark.probe, item_id, (time, cpu), mark.sp);
        (visit.pid, visit.tid, visit.id) = (pid, tid, mark.id);
        let probe = &self.probes[mark.probe.0 as usize];
        visit.by_id = probe.rule == VisitRule::ById;
        if probe.rule.is_of_goroutine() {
            visit.goroutine = goroutine_of(mark.sp);
        }
        read_args(
            &probe.begin_fields,
            mark.args,
            mark.payloads,
            &mut visit.args,
        );
        if let Some(each) = probe.batch {
            let payload = mark.payloads.get(mark.args);
            let flags = visit.batch.read(each, mark.args.valid, payload);
            visit.flags |= flags;
        }
        visit
    }

    /// Returns a reset visit from the pool, with room for its arguments.
    pub(super) fn new_visit(
        &mut self,
        probe: ProbeId,
        item_id: u64,
        begin: (TraceNs, Cpu),
        sp: u64,
    ) -> OpenVisit {
        let mut visit = self.pool.pop().unwrap_or_default();
        visit.reset(probe, item_id, begin.0, begin.1, sp);
        visit.args.resize(self.columns, None);
        visit.events.reset(self.options.counters);
        visit
    }

    /// Adds the visit to its thread and makes it the current one.
    pub(super) fn open(&mut self, visit: OpenVisit, time: TraceNs) {
        let (pid, cpu) = (visit.pid, visit.cpu);
        let (options, counts) = (self.thread_options(), self.options.counters > 0);
        let new = || Thread::new(pid, cpu, options);
        let thread = self.threads.or_insert_with(visit.tid, new);
        thread.count_from_here(counts);
        thread.pid = pid;
        thread.open(visit, time);
    }

    /// Handles the return of a probed function: closes the visit of the same frame, and the visits of frames
    /// inside it, which are gone.
    fn returned(&mut self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Record { time, tid, cpu, .. } = *mark.record;
        let matching = self.threads.get(tid).and_then(|thread| {
            thread
                .visits
                .iter()
                .rposition(|v| v.probe == mark.probe && v.sp == mark.sp)
        });
        let Some(index) = matching else {
            if let Some(thread) = self.threads.get_mut(tid) {
                thread.learn_of_stacks(mark.probe, mark.sp);
            }
            return self.without_begin(mark, sink);
        };
        while let Some(inner) = self.frame_inside(tid, index, mark.sp) {
            self.unwind_at(tid, inner, time, sink);
        }
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let mut visit = thread.close_at(index, time);
        self.end_args(&mut visit, mark);
        self.close(visit, Some((time, Some(cpu))), time, sink);
    }

    /// Returns the index of the last open call above `index` whose frame lies inside the frame at `sp`.
    fn frame_inside(&self, tid: Tid, index: usize, sp: u64) -> Option<usize> {
        let thread = self.threads.get(tid).filter(|thread| !thread.has_stacks)?;
        let visits = &thread.visits;
        let inside = |v: &OpenVisit| {
            self.probes[v.probe.0 as usize].rule == VisitRule::Call
                && same_stack(v.sp, sp)
                && v.sp < sp
        };
        (index + 1..visits.len())
            .rev()
            .find(|&i| inside(&visits[i]))
    }

    /// Closes calls whose frame the new call at `mark.sp` has overwritten.
    fn unwind_below(&mut self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let Record { time, tid, .. } = *mark.record;
        loop {
            let Some(thread) = self.threads.get(tid) else {
                return;
            };
            if !thread.may_be_overwritten(mark.sp) {
                return;
            }
            let gone = thread.visits.iter().rposition(|v| {
                self.probes[v.probe.0 as usize].rule == VisitRule::Call
                    && (v.sp == mark.sp && v.probe == mark.probe
                        || !thread.has_stacks && v.sp < mark.sp && same_stack(v.sp, mark.sp))
            });
            let Some(index) = gone else { return };
            self.unwind_at(tid, index, time, sink);
        }
    }

    pub(super) fn unwind_last(&mut self, tid: Tid, time: TraceNs, sink: &mut impl Sink) {
        if let Some(last) = self
            .threads
            .get(tid)
            .and_then(|t| t.visits.len().checked_sub(1))
        {
            self.unwind_at(tid, last, time, sink);
        }
    }

    pub(super) fn unwind_at(
        &mut self,
        tid: Tid,
        index: usize,
        time: TraceNs,
        sink: &mut impl Sink,
    ) {
        let Some(thread) = self.threads.get_mut(tid) else {
            return;
        };
        let mut visit = thread.close_at(index, time);
        visit.flags |= visit_flag::UNWOUND;
        thread.remember_unwound(visit.probe, visit.sp);
        self.close(visit, Some((time, None)), time, sink);
    }

    /// Closes the thread's last open visit of the mark's probe; returns whether there was one.
    pub(super) fn close_on_thread(
        &mut self,
        mark: &MarkAt<'_>,
        flag: u32,
        sink: &mut impl Sink,
    ) -> bool {
        let Record { time, tid, cpu, .. } = *mark.record;
        let Some(thread) = self.threads.get_mut(tid) else {
            return false;
        };
        let Some(index) = thread.visits.iter().rposition(|v| v.probe == mark.probe) else {
            return false;
        };
        let mut visit = thread.close_at(index, time);
        visit.flags |= flag;
        if visit.tid != tid {
            visit.flags |= visit_flag::ENDED_ELSEWHERE;
        }
        if flag == 0 && !is_next(&self.probes, mark.probe) {
            self.end_args(&mut visit, mark);
        }
        self.close(visit, Some((time, Some(cpu))), time, sink);
        true
    }

    /// Closes the open visit with that id, on any thread; returns whether there was one.
    fn close_by_id(
        &mut self,
        key: IdKey,
        mark: &MarkAt<'_>,
        flag: u32,
        sink: &mut impl Sink,
    ) -> bool {
        let Record { time, tid, cpu, .. } = *mark.record;
        let Some(owner) = self.by_id.remove(&key) else {
            return false;
        };
        let Some(thread) = self.threads.get_mut(owner) else {
            return false;
        };
        let position = thread
            .visits
            .iter()
            .rposition(|v| v.probe == key.0 && v.id == Some(key.2));
        let Some(index) = position else { return false };
        let mut visit = thread.close_at(index, time);
        visit.flags |= flag;
        if owner != tid {
            visit.flags |= visit_flag::ENDED_ELSEWHERE;
        }
        if flag == 0 {
            self.end_args(&mut visit, mark);
        }
        self.close(visit, Some((time, Some(cpu))), time, sink);
        true
    }

    fn end_args(&self, visit: &mut OpenVisit, mark: &MarkAt<'_>) {
        let fields = &self.probes[mark.probe.0 as usize].end_fields;
        read_args(fields, mark.args, mark.payloads, &mut visit.args);
    }
}

fn is_next(probes: &[ProbeRule], probe: ProbeId) -> bool {
    probes[probe.0 as usize].rule == VisitRule::UntilNext
}

/// Reads the named arguments from a mark's payload into their columns.
pub(super) fn read_args(
    fields: &[ArgField],
    args: ArgBytes,
    payloads: &Payloads,
    row: &mut [Option<ArgValue>],
) {
    let bytes = payloads.get(args);
    for field in fields
        .iter()
        .filter(|field| args.valid & (1 << field.bit) != 0)
    {
        let number = || -> Option<u64> {
            let bytes = bytes.get(field.offset..field.offset + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let whole = number().and_then(|number| match field.r#type {
            _ if field.names.is_some() => Some(ArgValue::Str(field.name_of(number))),
            ArgType::U64 => Some(ArgValue::U64(number)),
            ArgType::I64 => Some(ArgValue::I64(number as i64)),
            ArgType::Str => {
                let start = field.offset + 8;
                let length = (number & !STR_CUT) as usize;
                let bytes = bytes.get(start..start.checked_add(length)?)?;
                Some(ArgValue::Str(string(bytes, number & STR_CUT != 0)))
            }
        });
        let value = match (whole, &field.redact) {
            (Some(ArgValue::Str(text)), Some(redact)) => {
                Some(ArgValue::Str(redact.apply(&text).into()))
            }
            (whole, _) => whole,
        };
        if let Some(slot) = row.get_mut(field.column) {
            *slot = value;
        }
    }
}

/// Ends a string that was cut.
const CUT: char = '…';

/// Converts a string of the target; [`CUT`] is appended if it was cut.
fn string(bytes: &[u8], cut: bool) -> Box<str> {
    let mut text = escape(bytes, cut).into_owned();
    if cut {
        text.push(CUT);
    }
    text.into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cut string ends in [`CUT`].
    #[test]
    fn strings() {
        assert_eq!(&*string(b"all of it", false), "all of it");
        assert_eq!(&*string(b"caf\xc3", true), "caf…");
        assert_eq!(&*string(b"", true), "…");
    }
}
