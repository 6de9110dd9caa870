//! Decodes bytes to records on the trace clock.
//!
//! Invariant: no input makes it fail; unknown records are counted and skipped by their length. Knows the wire
//! format; knows nothing about items, files or the kernel.

mod fast_samples;
mod wire;

use std::borrow::Cow;

use pebs_common::record::{
    ClockPair, Counts, Encounter, Head, Interference, Kind, Mark, MarkArgs, REGISTER_WORDS, Role,
    Sample, SampleAccess, SampleStack, SampleUser, StackDepth, Switch, SwitchUser, Task, TaskKind,
    UserState, count_flag, encounter_flag, mark_flag, sample_flag, switch_flag,
};

use crate::stream::access::Access;
use crate::stream::clock::Clock;
use crate::stream::sample::RawSample;
use crate::stream::samples::SampleSource;
use crate::stream::stacks::StackKey;
use crate::stream::text::escape;
use crate::units::{Cpu, EventId, Ip, KtimeNs, PerfNs, Pid, ProbeId, Tid, TraceNs};
use fast_samples::{Alike, Source};
use wire::{Frames, SampleFrame, read};

/// Position of a mark's named arguments in the [`Payloads`] of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgBytes {
    /// Bit n: argument n could be read.
    pub valid: u32,
    /// Offset, bytes.
    pub start: u32,
    /// Length, bytes.
    pub length: u32,
}

/// State of a thread that could not run, if the record has no details.
pub const STATE_UNKNOWN: u32 = u32::MAX;

/// State of a thread that waits within a mark.
pub const STATE_IN_MARK: u32 = u32::MAX - 1;

/// Interruptions that are recorded with their time; page faults that are only counted don't matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interferences {
    /// Interrupts and softirqs.
    pub irq: bool,
    /// Page faults.
    pub faults: bool,
}

/// Records that the kernel programs make beside marks and samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordKinds {
    /// Switches.
    pub switches: bool,
    /// Page faults.
    pub page_faults: bool,
    /// Wake-ups and preemptions; needs switches.
    pub encounters: bool,
    /// The same, from some time on if at all: where items wait and the budget allows it.
    pub encounters_later: bool,
    /// Times of interrupts, softirqs and page faults.
    pub interference: Interferences,
}

/// A thread that woke or displaced another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    pub pid: Pid,
    pub tid: Tid,
    /// Name, NUL-terminated.
    comm: [u8; 16],
}

impl Actor {
    /// The thread's name.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        let bytes = self.comm.split(|byte| *byte == 0).next();
        let bytes = bytes.unwrap_or_default();
        // The kernel cuts longer names, wherever that is.
        escape(bytes, bytes.len() == self.comm.len() - 1)
    }
}

/// Content of a record, without its time, thread and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Mark {
        /// Probe that made it.
        probe: ProbeId,
        /// Meaning of the mark for its item.
        role: Role,
        /// Whether the probed instruction is single-stepped, which is slow.
        stepped: bool,
        /// Time that its program had run until it read the clock, ns; `None` if unknown.
        ran_ns: Option<u16>,
        /// Item id; `None` if not configured or not readable.
        id: Option<u64>,
        /// Stack pointer at the function's first instruction.
        sp: u64,
        /// Named arguments.
        args: ArgBytes,
    },
    /// The thread left the CPU.
    SwitchOut {
        /// User-space instruction pointer; `None` if unknown.
        ip: Option<Ip>,
        /// The kernel's `TASK_*` bits, [`STATE_UNKNOWN`] or [`STATE_IN_MARK`].
        state: u32,
        /// Whether the thread could have run.
        preempted: bool,
        /// Call stack.
        stack: StackKey,
    },
    /// The thread took the CPU.
    SwitchIn,
    /// The waiting thread was woken.
    Wake {
        /// Waker; `None`: an interrupt.
        by: Option<Actor>,
    },
    /// Another thread took the CPU from the thread, which could have run.
    Displace { by: Actor },
    /// The thread created another one.
    Fork {
        /// Process of the new thread.
        pid: Pid,
        /// The new thread.
        tid: Tid,
    },
    /// The process replaced its program.
    Exec {
        /// Tid that the thread had before.
        old_tid: Tid,
    },
    /// The thread ended.
    Exit {
        /// Whether it was the last thread of its process.
        last: bool,
        /// Signal that ended it; 0: none.
        signal: u8,
    },
    /// The thread was interrupted until now.
    Interference {
        which: Interference,
        /// Duration, ns; 0 for a page fault that is only counted.
        ns: u64,
    },
    /// Event counts of the thread from its last mark, or from when it took the CPU, until now.
    Counts {
        /// Length of that period, ns.
        ns: u64,
        /// One word per event, or three if `times`: count, time enabled, time running.
        words: ArgBytes,
        /// Whether some counters did not run all the time.
        times: bool,
        /// Whether this is the tick at the end of an interval, and the thread goes on.
        tick: bool,
    },
    /// The kernel stopped a counter until the next tick because it sampled too often. The thread is the one that
    /// ran.
    Throttle {
        /// The counter's event.
        event: EventId,
    },
}

/// A record on the trace clock; samples are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub time: TraceNs,
    pub pid: Pid,
    pub tid: Tid,
    pub cpu: Cpu,
    pub body: Body,
}

/// Named arguments of the marks in a batch of records.
#[derive(Debug, Default)]
pub struct Payloads {
    bytes: Vec<u8>,
}

impl Payloads {
    /// Returns the bytes of one mark's arguments.
    #[must_use]
    pub fn get(&self, args: ArgBytes) -> &[u8] {
        let start = args.start as usize;
        self.bytes
            .get(start..start + args.length as usize)
            .unwrap_or_default()
    }

    /// Copies `bytes` in; returns their position.
    pub fn push(&mut self, valid: u32, bytes: &[u8]) -> ArgBytes {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        ArgBytes {
            valid,
            start,
            length: bytes.len() as u32,
        }
    }

    /// Removes all bytes, keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Number of decoded records of each kind.
///
/// `samples` to `tasks` and `malformed` add up to the records in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    pub samples: u64,
    pub marks: u64,
    /// Switch, fork, exec, exit, interference, throttle and clock records.
    pub tasks: u64,
    /// Switches out and in, included in `tasks`.
    pub switches: u64,
    /// Clock pairs, included in `tasks`; they are used here and not passed on.
    pub clocks: u64,
    /// Event counts, included in `tasks`.
    pub counts: u64,
    /// Ticks, included in `counts`.
    pub ticks: u64,
    /// Records that could not be decoded.
    pub malformed: u64,
}

/// Receives decoded records.
pub trait Inbox {
    /// Takes a sample.
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample);
    /// Takes consecutive samples of one thread.
    #[inline(always)]
    fn samples(&mut self, pid: Pid, tid: Tid, samples: &impl SampleSource) {
        samples
            .iter()
            .for_each(|sample| self.sample(pid, tid, sample));
    }
    /// Takes the memory access of the sample before.
    fn access(&mut self, _tid: Tid, _sample: &RawSample, _access: Access) {}
    /// Takes any other record. Arguments of a mark are in [`Inbox::payloads`].
    fn record(&mut self, record: Record);
    /// Storage for the bytes of named arguments.
    fn payloads(&mut self) -> &mut Payloads;
    /// Takes the stack of the next sample or switch of a process at a time. Returns its number.
    fn user_stack(&mut self, _of: (Pid, TraceNs), _copy: &UserCopy<'_>) -> StackKey {
        StackKey::NONE
    }
    /// Takes the call stack of the next sample: number of kernel frames and whether outer frames are missing, then
    /// the frames. Returns its number; [`StackKey::NONE`] if stacks are not wanted.
    fn stack(
        &mut self,
        _pid: Pid,
        _shape: (usize, bool),
        _frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        StackKey::NONE
    }
}

/// A thread's stack to be unwound.
#[derive(Clone, Copy, Debug)]
pub struct UserCopy<'a> {
    /// Instruction pointer of a sample in user mode, which may be more exact than the registers'.
    pub ip: Option<u64>,
    /// Frames in the kernel.
    pub kernel: &'a [[u8; 8]],
    /// Whether outer ones of them are missing.
    pub is_cut: bool,
    /// Registers in user mode, as in the kernel's `struct pt_regs`.
    pub registers: [u64; REGISTER_WORDS],
    /// Memory from the stack pointer on.
    pub stack: &'a [u8],
}

impl<'a> UserCopy<'a> {
    /// The copy in a record; `None` if the record is too short.
    fn of(user: &UserState, frame: &'a [u8]) -> Option<Self> {
        let UserState { shape, registers } = *user;
        let behind = frame.get(size_of::<SampleUser>()..)?;
        let (room, stack) = behind.split_at_checked(shape.room() * 8)?;
        let (frames, _) = room.as_chunks::<8>();
        Some(Self {
            ip: None,
            kernel: frames.get(..shape.frames())?,
            is_cut: shape.is_cut(),
            registers,
            stack: stack.get(..shape.copied())?,
        })
    }
}

/// Records as they came, for users that need no order.
#[derive(Debug, Default)]
pub struct Unordered {
    pub samples: Vec<(Pid, Tid, RawSample)>,
    /// All other records.
    pub records: Vec<Record>,
    /// Bytes of their arguments.
    pub payloads: Payloads,
}

impl Inbox for Unordered {
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample) {
        self.samples.push((pid, tid, sample));
    }

    fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    fn payloads(&mut self) -> &mut Payloads {
        &mut self.payloads
    }
}

/// Decodes the content of one ring, as framed by the kernel, in ring order.
///
/// Clock pairs go to `clock`, all other records to `inbox`. An incomplete record at the end counts as malformed.
/// Cost: a few ns a record.
pub fn decode(cpu: Cpu, bytes: &[u8], clock: &mut Clock, inbox: &mut impl Inbox) -> Decoded {
    let decoded = Decoded::default();
    let mut decoder = Decoder {
        cpu,
        clock,
        inbox,
        decoded,
    };
    let mut frames = Frames::new(bytes);
    loop {
        // Most samples have the same head as the one before.
        if let Some((head, samples)) = frames.samples() {
            decoder.samples(head, samples);
            continue;
        }
        let Some(frame) = frames.next() else { break };
        if decoder.frame(frame).is_none() {
            decoder.decoded.malformed += 1;
        }
    }
    decoder.decoded.malformed += u64::from(!frames.is_empty());
    decoder.decoded
}

/// Destinations of the records of one ring.
struct Decoder<'a, I> {
    cpu: Cpu,
    clock: &'a mut Clock,
    inbox: &'a mut I,
    decoded: Decoded,
}

impl<I: Inbox> Decoder<'_, I> {
    /// Decodes one record; `None` if it is malformed.
    #[inline(always)]
    fn frame(&mut self, frame: &[u8]) -> Option<()> {
        match Kind::from_u8(frame.first()? & 0xf)? {
            Kind::Sample => self.sample(&read(frame)?),
            Kind::SampleAccess => self.sample_access(&read(frame)?),
            Kind::SampleStack => self.sample_stack(frame)?,
            Kind::SampleUser => self.sample_user(frame)?,
            Kind::Mark => self.mark(&read(frame)?, ArgBytes::default()),
            Kind::MarkArgs => self.mark_args(frame)?,
            Kind::SwitchOut => {
                let switch: Switch = read(frame)?;
                let body = switch_out_body(&switch, StackKey::NONE);
                self.decoded.switches += 1;
                self.task(switch.head, switch.time_ns, body);
            }
            Kind::SwitchUser => {
                let SwitchUser { switch, user } = read(frame)?;
                let head = switch.head;
                let copy = UserCopy::of(&user, frame)?;
                let time = self.trace_time(switch.time_ns);
                let stack = self.inbox.user_stack((Pid(head.pid()), time), &copy);
                self.decoded.switches += 1;
                self.task(head, switch.time_ns, switch_out_body(&switch, stack));
            }
            Kind::SwitchIn => {
                let switch: Switch = read(frame)?;
                self.decoded.switches += 1;
                self.task(switch.head, switch.time_ns, Body::SwitchIn);
            }
            Kind::Task => {
                let task: Task = read(frame)?;
                self.task(task.head, task.time_ns, task_body(&task)?);
            }
            kind @ (Kind::Wake | Kind::Displace) => {
                let encounter: Encounter = read(frame)?;
                let body = encounter_body(kind, &encounter);
                self.task(encounter.head, encounter.time_ns, body);
            }
            Kind::Counts => self.counts(frame)?,
            Kind::Clock => {
                let pair: ClockPair = read(frame)?;
                self.clock
                    .observe(PerfNs(pair.perf_ns), KtimeNs(pair.monotonic_ns));
                self.decoded.tasks += 1;
                self.decoded.clocks += 1;
            }
        }
        Some(())
    }

    /// Decodes samples with the same head.
    #[inline(always)]
    fn samples(&mut self, head: Head, frames: &[SampleFrame]) {
        let alike = Alike::new(head, self.cpu);
        let (pid, tid) = (Pid(head.pid()), Tid(head.tid()));
        let clock = &*self.clock;
        let perf = |time_ns| clock.trace_of_perf(PerfNs(time_ns));
        let ktime = |time_ns| clock.trace_of_ktime(KtimeNs(time_ns));
        let (same, calling) = (|_| alike.kind, |sp| alike.kind_of(sp));
        let inbox = &mut *self.inbox;
        // One source per clock, and one for samples in system calls, so that the choice is made once per run.
        match (alike.perf_clock, alike.has_entries()) {
            (true, false) => inbox.samples(pid, tid, &Source::new(frames, alike, (perf, same))),
            (true, true) => inbox.samples(pid, tid, &Source::new(frames, alike, (perf, calling))),
            (false, false) => inbox.samples(pid, tid, &Source::new(frames, alike, (ktime, same))),
            (false, true) => inbox.samples(pid, tid, &Source::new(frames, alike, (ktime, calling))),
        }
        self.decoded.samples += frames.len() as u64;
    }

    fn sample(&mut self, sample: &Sample) {
        let head = sample.head;
        let one = Alike::new(head, self.cpu).one(self.clock, sample);
        self.inbox.sample(Pid(head.pid()), Tid(head.tid()), one);
        self.decoded.samples += 1;
    }

    fn sample_access(&mut self, record: &SampleAccess) {
        let head = record.sample.head;
        let sample = Alike::new(head, self.cpu).one(self.clock, &record.sample);
        let tid = Tid(head.tid());
        self.inbox.sample(Pid(head.pid()), tid, sample);
        if let Some(access) = Access::of_words(record.addr, record.weight, record.data_src) {
            self.inbox.access(tid, &sample, access);
        }
        self.decoded.samples += 1;
    }

    fn sample_stack(&mut self, frame: &[u8]) -> Option<()> {
        let SampleStack { sample, depth } = read(frame)?;
        let (pid, tid) = (Pid(sample.head.pid()), Tid(sample.head.tid()));
        let stack = self.stack(pid, depth, frame.get(size_of::<SampleStack>()..)?)?;
        let mut sample = Alike::new(sample.head, self.cpu).one(self.clock, &sample);
        sample.kind = sample.kind.with_stack(stack);
        self.inbox.sample(pid, tid, sample);
        self.decoded.samples += 1;
        Some(())
    }

    fn sample_user(&mut self, frame: &[u8]) -> Option<()> {
        let SampleUser { sample, user } = read(frame)?;
        let (pid, tid) = (Pid(sample.head.pid()), Tid(sample.head.tid()));
        let mut copy = UserCopy::of(&user, frame)?;
        let is_kernel = sample.head.flags() & sample_flag::KERNEL != 0;
        copy.ip = (!is_kernel).then_some(sample.ip);
        let mut sample = Alike::new(sample.head, self.cpu).one(self.clock, &sample);
        let stack = self.inbox.user_stack((pid, sample.time), &copy);
        sample.kind = sample.kind.with_stack(stack);
        self.inbox.sample(pid, tid, sample);
        self.decoded.samples += 1;
        Some(())
    }

    /// Returns the number of the stack in these bytes; `None` if they are too short.
    fn stack(&mut self, pid: Pid, depth: StackDepth, bytes: &[u8]) -> Option<StackKey> {
        let (words, _) = bytes.as_chunks::<8>();
        let frames = words.get(..depth.kernel() + depth.user())?;
        let frames = frames.iter().map(|word| u64::from_ne_bytes(*word));
        let shape = (depth.kernel(), depth.is_cut());
        Some(self.inbox.stack(pid, shape, frames))
    }

    #[inline(always)]
    fn mark(&mut self, mark: &Mark, args: ArgBytes) {
        self.put(
            mark.head,
            self.clock.trace_of_mark(mark.clock),
            mark_body(mark, args),
        );
        self.decoded.marks += 1;
    }

    fn mark_args(&mut self, frame: &[u8]) -> Option<()> {
        let with_args: MarkArgs = read(frame)?;
        let payload = frame.get(size_of::<MarkArgs>()..)?;
        let args = self.inbox.payloads().push(with_args.valid as u32, payload);
        self.mark(&with_args.mark, args);
        Some(())
    }

    fn counts(&mut self, frame: &[u8]) -> Option<()> {
        let counts: Counts = read(frame)?;
        let times = counts.head.flags() & count_flag::TIMES != 0;
        let tick = counts.head.flags() & count_flag::TICK != 0;
        let length = usize::from(counts.head.index()) * if times { 24 } else { 8 };
        let words = frame.get(size_of::<Counts>()..)?.get(..length)?;
        let body = Body::Counts {
            ns: counts.ns,
            words: self.inbox.payloads().push(0, words),
            times,
            tick,
        };
        self.task(counts.head, counts.time_ns, body);
        self.decoded.counts += 1;
        self.decoded.ticks += u64::from(tick);
        Some(())
    }

    fn task(&mut self, head: Head, time_ns: u64, body: Body) {
        self.put(head, self.trace_time(time_ns), body);
        self.decoded.tasks += 1;
    }

    const fn trace_time(&self, ktime_ns: u64) -> TraceNs {
        self.clock.trace_of_ktime(KtimeNs(ktime_ns))
    }

    #[inline(always)]
    fn put(&mut self, head: Head, time: TraceNs, body: Body) {
        self.inbox.record(Record {
            time,
            pid: Pid(head.pid()),
            tid: Tid(head.tid()),
            cpu: self.cpu,
            body,
        });
    }
}

fn mark_body(mark: &Mark, args: ArgBytes) -> Body {
    let flags = mark.head.flags();
    Body::Mark {
        probe: ProbeId(u16::from(mark.head.index())),
        role: Role::from_flags(flags),
        stepped: flags & mark_flag::STEPPED != 0,
        ran_ns: mark.clock.ran_ns(),
        id: (flags & mark_flag::ID_VALID != 0).then_some(mark.id),
        sp: mark.sp,
        args,
    }
}

fn switch_out_body(switch: &Switch, stack: StackKey) -> Body {
    let flags = switch.head.flags();
    Body::SwitchOut {
        ip: (switch.ip != 0).then_some(Ip(switch.ip)),
        state: match flags & switch_flag::IN_MARK {
            0 => switch.state as u32,
            _ => STATE_IN_MARK,
        },
        preempted: flags & switch_flag::PREEMPTED != 0,
        stack,
    }
}

fn encounter_body(kind: Kind, encounter: &Encounter) -> Body {
    let [a, b] = encounter.comm.map(u64::to_ne_bytes);
    let mut comm = [0; 16];
    comm[..8].copy_from_slice(&a);
    comm[8..].copy_from_slice(&b);
    let by = Actor {
        pid: Pid(encounter.other as u32),
        tid: Tid((encounter.other >> 32) as u32),
        comm,
    };
    let is_thread = encounter.head.flags() & encounter_flag::INTERRUPT == 0;
    match kind {
        Kind::Wake => Body::Wake {
            by: is_thread.then_some(by),
        },
        _ => Body::Displace { by },
    }
}

fn task_body(task: &Task) -> Option<Body> {
    Some(match TaskKind::from_u8(task.head.flags())? {
        TaskKind::Fork => Body::Fork {
            pid: Pid(task.other as u32),
            tid: Tid((task.other >> 32) as u32),
        },
        TaskKind::Exec => Body::Exec {
            old_tid: Tid(task.other as u32),
        },
        TaskKind::Interference => Body::Interference {
            which: Interference::from_u8(task.head.index())?,
            ns: task.other,
        },
        TaskKind::Throttle => Body::Throttle {
            event: EventId(task.head.index()),
        },
        TaskKind::Exit => Body::Exit {
            last: task.other != 0,
            signal: task.head.index(),
        },
    })
}

#[cfg(test)]
pub(in crate::stream) mod tests;
