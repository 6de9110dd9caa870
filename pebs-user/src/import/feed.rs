//! Feeds a recording's records to the pipeline.

use super::names::is_guest;
use super::roles::{MarkSource, Roles, Use};
use super::survey::{Survey, cpu};
use super::switches::{Partners, Place, Sight};
use crate::binary::mapping::Backing;
use crate::perf::calls::{self, Calls};
use crate::perf::data::format::Field;
use crate::perf::data::reader::PerfData;
use crate::perf::data::records::Item;
use crate::perf::record::{Mode, RawRecord, Record as PerfRecord, RecordKind};
use crate::perf::sample::{Malformed, Sample, Words};
use crate::pipeline::{ImportedRound, Pipeline, ReportedLoss};
use crate::stream::access::{self, Access};
use crate::stream::decode::{ArgBytes, Body, Inbox as _, Record, STATE_UNKNOWN};
use crate::stream::fast_samples::{Alike, Run};
use crate::stream::sample::{RawSample, SampleKind};
use crate::stream::sideband::{SidebandEvent, SidebandKind};
use crate::stream::stacks::StackKey;
use crate::symbolize::unwind::UserStack;
use crate::units::{Cpu, Ip, KtimeNs, Pid, ProbeId, Tid, TraceNs};
use pebs_common::record::{MAX_FRAMES, Role};
use perf_event_open_sys::bindings::{PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN};
use rustc_hash::FxHashSet;

/// Registers of 64-bit code. Source: `PERF_SAMPLE_REGS_ABI_64`, include/uapi/linux/perf_event.h.
const REGISTERS_64: u64 = 2;

/// Call-chain words from this value on are context markers, not addresses. Source: `PERF_CONTEXT_MAX`,
/// include/uapi/linux/perf_event.h.
const CONTEXTS: u64 = -4095_i64 as u64;

/// Imports have one probe.
const PROBE: ProbeId = ProbeId(0);

/// Counts of a finished feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fed {
    /// Marks of threads that have no record in the file, so no sample could belong to them.
    pub unknown_threads: u64,
    /// Switches of threads with items whose counterpart is missing.
    pub lone_switches: u64,
}

/// Feeds a surveyed recording to a pipeline; `origin`: ns 0 of the trace on the recording's clock.
///
/// Cost: as reading the file. Memory: the records of three rounds, and those of open visits.
pub fn feed(
    data: &PerfData,
    survey: &Survey,
    parts: (&Roles, &MarkSource),
    origin: KtimeNs,
    pipeline: &mut Pipeline,
) -> Fed {
    let known = FileInfo { data, survey };
    let mut feed = Feed::new(survey, parts, origin, pipeline);
    let mut losses = survey.losses.as_slice();
    let mut settle = |feed: &mut Feed<'_>, frontier: u64| {
        let due = losses.partition_point(|loss| loss.begin.0 < frontier);
        let (due, later) = losses.split_at(due);
        losses = later;
        feed.settle(known, due, frontier);
    };
    let mut records = data.records();
    loop {
        if let Some((event, run)) = survey.names.run(records.ahead())
            && feed.run(survey, event, &run)
        {
            let bytes = run.bytes.len();
            records.skip(bytes);
            continue;
        }
        let Some(item) = records.next_item() else {
            break;
        };
        match item {
            Item::Event(raw) => feed.record(known, raw, &survey.names.decode(raw)),
            Item::Round => {
                let frontier = feed.round();
                settle(&mut feed, frontier);
            }
            Item::Perf { .. } => {}
        }
    }
    for frontier in feed.last_frontiers() {
        settle(&mut feed, frontier);
    }
    feed.fed
}

/// The file's metadata and survey.
#[derive(Clone, Copy)]
pub(super) struct FileInfo<'a> {
    pub data: &'a PerfData,
    pub survey: &'a Survey,
}

/// Feeds records in file order.
///
/// Records below a frontier go to the pipeline one round later than perf's rule allows: a full ring reports its loss
/// when it is read the second time, so by then all losses before the frontier are known.
pub(super) struct Feed<'a> {
    roles: &'a Roles,
    partners: Partners,
    origin: KtimeNs,
    pipeline: &'a mut Pipeline,
    pending: ImportedRound,
    /// Processes with marks from a table.
    marked: FxHashSet<u32>,
    /// Number of execs in such processes.
    replaced: u32,
    /// Marks of the table that are not fed yet.
    marks: &'a [super::marks::MarkRow],
    /// Time of the newest record, ns on the recording's clock.
    newest: u64,
    /// `newest` at the end of the last two rounds, oldest first.
    rounds: [u64; 2],
    pub fed: Fed,
}

/// The last user-space address of a sample's thread, if known.
fn left_user_space(sample: &Sample<'_>) -> Option<Ip> {
    let chain = sample.rest().callchain;
    let chain = chain.iter().flat_map(|chain| chain.iter());
    let frames = chain.filter(|word| *word < CONTEXTS);
    let mut known = sample.ip.into_iter().chain(frames).map(Ip);
    known.find(|ip| !ip.is_kernel())
}

/// A thread and CPU at an instant.
#[derive(Clone, Copy)]
struct ThreadAt {
    time: u64,
    pid: u32,
    tid: u32,
    cpu: Cpu,
}

impl<'a> Feed<'a> {
    pub(super) fn new(
        survey: &Survey,
        (roles, marks): (&'a Roles, &'a MarkSource),
        origin: KtimeNs,
        pipeline: &'a mut Pipeline,
    ) -> Self {
        let marks: &[_] = match marks {
            MarkSource::Table(marks) => &marks.0,
            MarkSource::None | MarkSource::Events { .. } => &[],
        };
        let pid = |tid: u32| survey.pids.get(&tid).copied();
        Self {
            roles,
            partners: Partners::default(),
            origin,
            pipeline,
            pending: ImportedRound::default(),
            marked: marks.iter().filter_map(|mark| pid(mark.tid)).collect(),
            replaced: 0,
            marks,
            newest: 0,
            rounds: [0; 2],
            fed: Fed::default(),
        }
    }

    /// Ends a round. Returns the frontier up to which to settle.
    pub(super) const fn round(&mut self) -> u64 {
        let [frontier, last] = self.rounds;
        self.rounds = [last, self.newest];
        frontier
    }

    /// The frontiers up to which to settle after the last record.
    pub(super) fn last_frontiers(&self) -> [u64; 2] {
        let last_mark = self.marks.last().map_or(0, |mark| mark.time);
        [self.rounds[0], self.newest.max(last_mark).saturating_add(1)]
    }

    /// Hands everything before `frontier` to the pipeline, with the ranges without full data that begin before it.
    pub(super) fn settle(&mut self, known: FileInfo<'_>, losses: &[ReportedLoss], frontier: u64) {
        while let Some((mark, rest)) = self.marks.split_first().filter(|(m, _)| m.time < frontier) {
            self.marks = rest;
            self.table_mark(known.survey, mark);
        }
        self.pending.losses.extend_from_slice(losses);
        self.missing_switches(frontier);
        self.pending.frontier = KtimeNs(frontier);
        self.pipeline.settle(&mut self.pending);
    }

    /// Reports a gap where a thread with items leaves twice in a row: the switch-in between is missing.
    fn missing_switches(&mut self, frontier: u64) {
        let (losses, fed) = (&mut self.pending.losses, &mut self.fed);
        self.partners.settle(frontier, |tid, (begin, end)| {
            fed.lone_switches += 1;
            losses.push(ReportedLoss {
                begin: KtimeNs(begin),
                end: KtimeNs(end),
                cpu: None,
                tid: Some(Tid(tid)),
                records: Some(1),
            });
        });
    }

    fn table_mark(&mut self, survey: &Survey, mark: &super::marks::MarkRow) {
        let pid = survey.pids.get(&mark.tid).copied();
        self.fed.unknown_threads += u64::from(pid.is_none());
        let at = ThreadAt {
            time: mark.time,
            // A thread without records is taken for a process.
            pid: pid.unwrap_or(mark.tid),
            tid: mark.tid,
            cpu: Cpu::UNKNOWN,
        };
        // Ends a gap here rather than at the thread's next switch: its visits may be closed by then.
        self.sight(mark.time, mark.tid, Place::Marked);
        self.mark(at, mark.begin, mark.id);
    }

    /// Feeds a run of samples; `false`: it must be fed record by record.
    #[inline]
    pub(super) fn run(&mut self, survey: &Survey, event: usize, run: &Run<'_>) -> bool {
        let roles = self.roles;
        if survey.far.records > 0 && run.times().any(|time| survey.is_far(time)) {
            return false;
        }
        let event = match &roles.uses[event] {
            Use::Samples(_) if is_guest(run.first) => None,
            // The raw bytes may describe a memory access: decode record by record.
            Use::Samples(_) if run.raw().is_some() => return false,
            Use::Samples(event) => Some(*event),
            Use::LeftOut => None,
            Use::Mark { begin, id } => {
                self.marks(run, (*begin, id.as_ref()));
                return true;
            }
            Use::Switches => return false,
        };
        if let Some(event) = event {
            let ((pid, tid), origin) = (run.pid_tid, self.origin);
            let cpu = cpu(run.cpu()).unwrap_or(Cpu::UNKNOWN);
            let trace_time = |time: u64| TraceNs(time.wrapping_sub(origin.0).cast_signed());
            let source = run.source((cpu, event), trace_time);
            self.pipeline.inbox().samples(Pid(pid), Tid(tid), &source);
            self.pending.decoded.entry(cpu).or_default().samples += run.len() as u64;
        } else {
            self.pending.filtered += run.len() as u64;
        }
        self.newest = run.times().fold(self.newest, u64::max);
        true
    }

    /// Feeds a run of samples that are marks.
    fn marks(&mut self, run: &Run<'_>, (begin, id): (bool, Option<&Field>)) {
        let cpu = cpu(run.cpu()).unwrap_or(Cpu::UNKNOWN);
        let (pid, tid) = run.pid_tid;
        let id = id.and_then(|field| field.number(run.raw()?));
        for Alike { time, .. } in run.samples() {
            self.newest = self.newest.max(time);
            self.sight(time, tid, Place::Marked);
            let at = ThreadAt {
                time,
                pid,
                tid,
                cpu,
            };
            self.mark(at, begin, id);
        }
    }

    pub(super) fn record(
        &mut self,
        known: FileInfo<'_>,
        raw: RawRecord<'_>,
        decoded: &Result<(usize, PerfRecord<'_>), Malformed>,
    ) {
        match decoded {
            Ok((event, record)) => self.take(known, *event, raw, record),
            Err(Malformed::Short | Malformed::LeftOver(_)) if raw.kind == PERF_RECORD_SAMPLE => {
                self.pending
                    .decoded
                    .entry(Cpu::UNKNOWN)
                    .or_default()
                    .malformed += 1;
            }
            Err(_) => {}
        }
    }

    fn take(
        &mut self,
        known: FileInfo<'_>,
        event: usize,
        raw: RawRecord<'_>,
        record: &PerfRecord<'_>,
    ) {
        let recorded = record.time();
        let near = recorded.filter(|time| !known.survey.is_far(*time));
        let is_far = near.is_none() && recorded.is_some();
        if is_far && !matches!(record.kind, RecordKind::Sample(_) | RecordKind::Mmap(_)) {
            return;
        }
        let time = near.unwrap_or(0);
        if !matches!(record.kind, RecordKind::Other { .. }) {
            self.newest = self.newest.max(time);
        }
        let (pid, tid) = record.id.pid_tid.unwrap_or((0, 0));
        let at = ThreadAt {
            time,
            pid,
            tid,
            cpu: cpu(record.id.cpu).unwrap_or(Cpu::UNKNOWN),
        };
        match record.kind {
            RecordKind::Sample(sample) => self.sample(known, event, at, raw, &sample),
            RecordKind::Switch { out, preempted, .. } if near.is_some() => {
                let state = if preempted { 0 } else { STATE_UNKNOWN };
                let ip = None;
                self.task(
                    at,
                    if out {
                        Body::SwitchOut {
                            ip,
                            state,
                            preempted,
                            stack: StackKey::NONE,
                        }
                    } else {
                        Body::SwitchIn
                    },
                );
            }
            RecordKind::Exit(task) => {
                let at = ThreadAt {
                    pid: task.pid,
                    tid: task.tid,
                    ..at
                };
                if near.is_some() {
                    let last = task.pid == task.tid;
                    self.task(at, Body::Exit { last, signal: 0 });
                }
                self.process(known.data, (at, raw), &record.kind);
            }
            RecordKind::Mmap(_) | RecordKind::Comm { .. } | RecordKind::Fork(_) => {
                self.process(known.data, (at, raw), &record.kind);
            }
            _ => {}
        }
    }

    fn sample(
        &mut self,
        known: FileInfo<'_>,
        event: usize,
        at: ThreadAt,
        raw: RawRecord<'_>,
        sample: &Sample<'_>,
    ) {
        let survey = known.survey;
        if at.time == 0 {
            self.pending.untimed += 1;
            return;
        }
        match &self.roles.uses[event] {
            Use::LeftOut => self.pending.filtered += 1,
            // A guest's addresses are another machine's.
            Use::Samples(_) if is_guest(raw) => self.pending.filtered += 1,
            Use::Samples(number) => {
                let stack = self.stack(known, event, at, sample);
                let taken = RawSample {
                    time: self.trace_time(at.time),
                    ip: Ip(sample.ip.unwrap_or(0)),
                    // The stack pointer is needed only to match function calls.
                    sp: 0,
                    kind: SampleKind::new(at.cpu, *number, raw.flags()).with_stack(stack),
                };
                self.pipeline
                    .inbox()
                    .sample(Pid(at.pid), Tid(at.tid), taken);
                let registers = survey.registers[event];
                let layout = survey.names.layout(event);
                let watched = survey.names.watched(event);
                if watched.is_some() || access::may_have_access(layout, registers) {
                    let access = Access::of(sample, registers);
                    let access = match watched {
                        // 'perf record -d' alone records the address, but the breakpoint has it.
                        Some(it) => Some(Access {
                            addr: Some(it.address),
                            ..access.unwrap_or_default()
                        }),
                        None => access,
                    };
                    if let Some(access) = access {
                        self.pipeline.access(Tid(at.tid), &taken, access);
                    }
                }
                self.pending.decoded.entry(at.cpu).or_default().samples += 1;
            }
            Use::Mark { begin, id } => {
                let id = id.as_ref().zip(sample.rest().raw);
                let id = id.and_then(|(field, raw)| field.number(raw));
                self.sight(at.time, at.tid, Place::Marked);
                self.mark(at, *begin, id);
            }
            Use::Switches => self.sched_switch(known, event, at, sample),
        }
    }

    /// Key of a sample's call stack; its first frame is the sample's ip.
    fn stack(
        &mut self,
        known: FileInfo<'_>,
        event: usize,
        at: ThreadAt,
        sample: &Sample<'_>,
    ) -> StackKey {
        let layout = known.survey.names.layout(event);
        let has_calls = calls::has_call_stack(layout);
        if !layout.has(PERF_SAMPLE_CALLCHAIN) && !has_calls {
            return StackKey::NONE;
        }
        let rest = sample.rest();
        let calls = has_calls.then(|| Calls::of(&rest)).flatten();
        // Recorded calls cover user space only; kernel frames come from the chain.
        let chain = rest.callchain.or_else(|| calls.map(|_| Words::default()));
        let (Some(chain), Some(ip)) = (chain, sample.ip) else {
            return StackKey::NONE;
        };
        let frames = || chain.iter().filter(|word| *word < CONTEXTS);
        let callers = || frames().skip(1);
        let all = || std::iter::once(ip).chain(callers());
        let kernel = all().take_while(|frame| Ip(*frame).is_kernel()).count();
        if let Some(calls) = calls {
            let inside = (kernel == 0).then_some(ip);
            let frames = all().take(kernel).chain(calls.frames(inside));
            return self.pipeline.stack(Pid(at.pid), (kernel, true), frames);
        }
        if let Some(copy) = rest.stack_user
            && known.data.features.foreign().is_none()
        {
            // The kernel does not walk a user stack that it copies (`--call-graph dwarf`).
            let stack = rest.regs_user.filter(|it| it.abi == REGISTERS_64);
            let stack = stack.and_then(|registers| {
                let filled = copy.bytes.len().min(copy.filled as usize);
                let values = registers.values.iter();
                UserStack::of_perf(layout.regs_user, values, &copy.bytes[..filled])
            });
            let in_kernel: Vec<u64> = all().take(kernel).collect();
            let kernel = (in_kernel.into_iter(), kernel >= MAX_FRAMES);
            let of = (Pid(at.pid), self.trace_time(at.time));
            return self.pipeline.user_stack(of, kernel, stack.as_ref());
        }
        let is_cut = rest.stack_user.is_some()
            || kernel >= MAX_FRAMES
            || frames().count() >= kernel + MAX_FRAMES;
        self.pipeline.stack(Pid(at.pid), (kernel, is_cut), all())
    }

    fn mark(&mut self, at: ThreadAt, begin: bool, id: Option<u64>) {
        use crate::store::run::VisitRule;
        let role = match (begin, self.roles.rule) {
            (true, Some(VisitRule::UntilNext)) => Role::Next,
            (true, _) => Role::Begin,
            (false, _) => Role::End,
        };
        self.put(
            at,
            Body::Mark {
                probe: PROBE,
                role,
                stepped: false,
                ran_ns: None,
                id,
                sp: 0,
                args: ArgBytes::default(),
            },
        );
        self.pending.decoded.entry(at.cpu).or_default().marks += 1;
    }

    fn sched_switch(
        &mut self,
        known: FileInfo<'_>,
        event: usize,
        at: ThreadAt,
        sample: &Sample<'_>,
    ) {
        let survey = known.survey;
        let switched = survey.switch_formats[event].as_ref();
        let switched = switched.zip(sample.rest().raw);
        let Some(switched) = switched.and_then(|(format, raw)| format.read(raw)) else {
            self.pending.decoded.entry(at.cpu).or_default().malformed += 1;
            return;
        };
        self.sight(at.time, switched.prev, Place::Off);
        self.sight(at.time, switched.next, Place::On);
        let pid_of = |tid: u32| survey.pids.get(&tid).copied();
        let prev = ThreadAt {
            tid: switched.prev,
            pid: pid_of(switched.prev).unwrap_or(at.pid),
            ..at
        };
        let next = pid_of(switched.next).map(|pid| ThreadAt {
            tid: switched.next,
            pid,
            ..at
        });
        let state = switched.state;
        let preempted = state & 0xff == 0;
        // As in live recordings, preemptions have no stack: where they happen is chance.
        let stack = match preempted {
            true => StackKey::NONE,
            false => self.stack(known, event, prev, sample),
        };
        self.task(
            prev,
            Body::SwitchOut {
                ip: left_user_space(sample),
                state,
                preempted,
                stack,
            },
        );
        if let Some(next) = next {
            self.task(next, Body::SwitchIn);
        }
    }

    /// Notes where a thread was seen. Matters only for threads with items, and only if switches come from an event.
    fn sight(&mut self, time: u64, tid: u32, place: Place) {
        if self.roles.switched.contains(&tid) {
            self.partners.push(Sight { time, tid, place });
        }
    }

    fn task(&mut self, at: ThreadAt, body: Body) {
        self.put(at, body);
        self.pending.decoded.entry(at.cpu).or_default().tasks += 1;
    }

    fn put(&mut self, at: ThreadAt, body: Body) {
        let record = Record {
            time: self.trace_time(at.time),
            pid: Pid(at.pid),
            tid: Tid(at.tid),
            cpu: at.cpu,
            body,
        };
        self.pipeline.inbox().record(record);
    }

    /// Passes on mappings, forks, execs and exits.
    fn process(
        &mut self,
        data: &PerfData,
        (at, raw): (ThreadAt, RawRecord<'_>),
        kind: &RecordKind<'_>,
    ) {
        if raw.mode() == Mode::Kernel && matches!(kind, RecordKind::Mmap(_)) {
            return;
        }
        let Some(mut what) = SidebandKind::of(kind, raw.misc) else {
            if let RecordKind::Mmap(mmap) = kind
                && let Some(end) = mmap.start.checked_add(mmap.len)
            {
                let range = mmap.start..end;
                self.pipeline.data_mapping(Pid(mmap.pid), range, mmap.name);
            }
            return;
        };
        // An exec removes the program's own probes and so ends their items. Items of a table continue.
        if let SidebandKind::Comm {
            pid, exec: true, ..
        } = what
            && at.time > 0
            && self.marked.contains(&pid.0)
        {
            self.replaced += 1;
            what = SidebandKind::Replaced {
                pid,
                // Real process ids are below 2^22.
                earlier: Pid(u32::MAX - self.replaced),
            };
        }
        if let SidebandKind::Mapped { mapping, .. } = &mut what
            && let Backing::File(file) = &mut mapping.backing
        {
            let name = std::os::unix::ffi::OsStrExt::as_bytes(file.path.as_os_str());
            let listed = || data.features.build_id_of(name);
            file.build_id = file.build_id.or_else(listed);
        }
        self.pipeline.process(SidebandEvent {
            time: KtimeNs(at.time),
            cpu: at.cpu,
            what,
        });
    }

    const fn trace_time(&self, time: u64) -> TraceNs {
        TraceNs(time.wrapping_sub(self.origin.0).cast_signed())
    }
}
