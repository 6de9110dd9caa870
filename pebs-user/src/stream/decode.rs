//! From bytes to records on the trace clock.
//!
//! Invariant: no input makes it fail. What can't be understood is counted and skipped by its
//! length. Knows the wire format; knows nothing about items, files or the kernel.

mod fast_samples;
mod sample;
mod wire;

use pebs_common::record::{
    ClockPair, Counts, Encounter, Head, Interference, Kind, Mark, MarkArgs, Role, STACK_WORDS,
    Sample, SampleAccess, SampleStack, StackDepth, Switch, SwitchStack, Task, count_flag,
    encounter_flag, mark_flag, switch_flag,
};

use crate::stream::access::Access;
use crate::stream::clock::Clock;
use crate::stream::samples::SampleSource;
use crate::stream::stacks::StackKey;
use crate::units::{Cpu, EventId, Ip, KtimeNs, PerfNs, Pid, ProbeId, Tid, TraceNs};
use fast_samples::{Alike, Source};
pub use sample::{RawSample, SampleKind};
use wire::{Frames, SampleFrame, read};

/// Bytes of a mark's named arguments, kept in the [`Payloads`] of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgBytes {
    /// Bit n: argument n could be read.
    pub valid: u32,
    /// Where they start.
    pub start: u32,
    /// How many there are.
    pub length: u32,
}

/// State of a thread that could not go on, where the record says no more than that.
pub const STATE_UNKNOWN: u32 = u32::MAX;

/// State of a thread that waits within a mark.
pub const STATE_IN_MARK: u32 = u32::MAX - 1;

/// What is recorded of interrupts and page faults; page faults that are only counted are not meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interferences {
    /// Interrupts.
    pub irq: bool,
    /// The time of page faults.
    pub faults: bool,
}

/// A thread that did something to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Name, NUL behind it.
    comm: [u8; 16],
}

impl Actor {
    /// The thread's name, as far as it is text.
    #[must_use]
    pub fn name(&self) -> &str {
        let bytes = self.comm.split(|byte| *byte == 0).next();
        let bytes = bytes.unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_else(|error| {
            let text = bytes.get(..error.valid_up_to()).unwrap_or_default();
            str::from_utf8(text).unwrap_or_default()
        })
    }
}

/// What a record says, its time, thread and CPU aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Mark {
        /// Probe that made it.
        probe: ProbeId,
        /// What it says about its item.
        role: Role,
        /// Whether the probed instruction is single-stepped, which costs.
        stepped: bool,
        /// Item id; `None` if none was asked for or it could not be read.
        id: Option<u64>,
        /// Stack pointer at the function's first instruction.
        sp: u64,
        /// Named arguments.
        args: ArgBytes,
    },
    /// The thread left the CPU.
    SwitchOut {
        /// Where it left user space; `None` if unknown.
        ip: Option<Ip>,
        /// The kernel's `TASK_*` bits, [`STATE_UNKNOWN`] or [`STATE_IN_MARK`].
        state: u32,
        /// It could have gone on.
        preempted: bool,
        /// Its call stack.
        stack: StackKey,
    },
    /// The thread took the CPU.
    SwitchIn,
    /// The thread, which waited, was woken.
    Wake {
        /// By this one; `None`: by an interrupt.
        by: Option<Actor>,
    },
    /// Another thread took the CPU from the thread, which could have gone on.
    Displace { by: Actor },
    /// The thread made another one.
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
        /// It was its process's last.
        last: bool,
        /// Signal that ended it; 0: none.
        signal: u8,
    },
    /// The thread was interrupted, up to now.
    Interference {
        which: Interference,
        /// How long it took, ns; 0 of a page fault that is counted.
        ns: u64,
    },
    /// What was counted of the thread up to now, since its last mark or since it took the CPU.
    Counts {
        /// Since then, ns.
        ns: u64,
        /// A word for each event, or with `times` three: count, time enabled and time running.
        words: ArgBytes,
        /// Whether some were not counted all the time.
        times: bool,
        /// Whether an interval ends, and the thread goes on.
        tick: bool,
    },
    /// The kernel stopped a counter until the next tick, for it came too often. The thread is the
    /// one that ran.
    Throttle {
        /// The counter's event.
        event: EventId,
    },
}

/// One record on the trace clock, samples aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub time: TraceNs,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    pub cpu: Cpu,
    pub body: Body,
}

/// The bytes of named arguments of a batch of records.
#[derive(Debug, Default)]
pub struct Payloads {
    bytes: Vec<u8>,
}

impl Payloads {
    /// The bytes of one mark's arguments.
    #[must_use]
    pub fn get(&self, args: ArgBytes) -> &[u8] {
        let start = args.start as usize;
        self.bytes
            .get(start..start + args.length as usize)
            .unwrap_or_default()
    }

    /// Copies bytes in; gives their place.
    pub fn push(&mut self, valid: u32, bytes: &[u8]) -> ArgBytes {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        ArgBytes {
            valid,
            start,
            length: bytes.len() as u32,
        }
    }

    /// Forgets all bytes, keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// How many records of each kind came out of some bytes.
///
/// Units: records. The sum is what the ring held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    pub samples: u64,
    pub marks: u64,
    /// Switch, fork, exec, exit, interference, throttle and clock records.
    pub tasks: u64,
    /// The clock pairs among them, which end here.
    pub clocks: u64,
    /// The records of counts among them.
    pub counts: u64,
    /// Those of ticks among these.
    pub ticks: u64,
    /// Records that made no sense.
    pub malformed: u64,
}

/// Where decoded records go.
pub trait Inbox {
    /// Takes a sample.
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample);
    /// Takes samples of one thread that came one after another.
    #[inline(always)]
    fn samples(&mut self, pid: Pid, tid: Tid, samples: &impl SampleSource) {
        samples
            .iter()
            .for_each(|sample| self.sample(pid, tid, sample));
    }
    /// Takes what a sample that it took says about its memory access.
    fn access(&mut self, _tid: Tid, _sample: &RawSample, _access: Access) {}
    /// Takes any other record. Arguments of a mark are in [`Inbox::payloads`].
    fn record(&mut self, record: Record);
    /// Where the bytes of named arguments go.
    fn payloads(&mut self) -> &mut Payloads;
    /// Takes the call stack of the next switch. Gives its number.
    fn wait_stack(&mut self, pid: Pid, stack: &WaitStack<'_>) -> StackKey {
        let frames = stack.frames.iter().map(|word| u64::from_ne_bytes(*word));
        self.stack(pid, (stack.kernel, stack.is_cut), frames)
    }
    /// Takes the call stack of the next sample: frames in the kernel and in user space, and whether outer ones are
    /// missing. Gives its number; none where nobody wants stacks.
    fn stack(
        &mut self,
        _pid: Pid,
        _shape: (usize, bool),
        _frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        StackKey::NONE
    }
}

/// Where a thread went to wait, as the record has it.
#[derive(Clone, Copy, Debug)]
pub struct WaitStack<'a> {
    /// How many of the frames are in the kernel.
    pub kernel: usize,
    /// Whether there are outer frames that the record has not.
    pub is_cut: bool,
    /// Frames in the kernel, then in user space, as far as frame pointers lead.
    pub frames: &'a [[u8; 8]],
    /// User stack pointer.
    pub sp: u64,
    /// Memory from there on; empty if it could not be read.
    pub words: &'a [[u8; 8]],
}

/// Records as they came, for those who need no order.
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

/// Decodes the content of one ring, as the kernel framed it, in ring order.
///
/// Clock pairs go to `clock`, all other records to `inbox`. Bytes at the end that are no whole record
/// count as one that made no sense. Cost: a few ns a record.
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
        // Most samples differ from the one before them in time and place alone.
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

/// Where the records of one ring go.
struct Decoder<'a, I> {
    cpu: Cpu,
    clock: &'a mut Clock,
    inbox: &'a mut I,
    decoded: Decoded,
}

impl<I: Inbox> Decoder<'_, I> {
    /// Takes in one record; `None` if it is malformed.
    #[inline(always)]
    fn frame(&mut self, frame: &[u8]) -> Option<()> {
        match Kind::from_u8(frame.first()? & 0xf)? {
            Kind::Sample => self.sample(&read(frame)?),
            Kind::SampleAccess => self.sample_access(&read(frame)?),
            Kind::SampleStack => self.sample_stack(frame)?,
            Kind::Mark => self.mark(&read(frame)?, ArgBytes::default()),
            Kind::MarkArgs => self.mark_args(frame)?,
            Kind::SwitchOut => {
                let switch: Switch = read(frame)?;
                let stack = self.switch_stack(&switch, frame)?;
                let body = switch_out_body(&switch, stack);
                self.task(switch.head, switch.time_ns, body);
            }
            Kind::SwitchIn => {
                let switch: Switch = read(frame)?;
                self.task(switch.head, switch.time_ns, Body::SwitchIn);
            }
            kind @ (Kind::Fork | Kind::Exec | Kind::Exit | Kind::Interference | Kind::Throttle) => {
                let task: Task = read(frame)?;
                self.task(task.head, task.time_ns, task_body(kind, &task)?);
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

    /// Takes in samples with the same head.
    #[inline(always)]
    fn samples(&mut self, head: Head, frames: &[SampleFrame]) {
        let alike = Alike::new(head, self.cpu);
        let (pid, tid) = (Pid(head.pid()), Tid(head.tid()));
        let clock = &*self.clock;
        let perf = |time_ns| clock.trace_of_perf(PerfNs(time_ns));
        let ktime = |time_ns| clock.trace_of_ktime(KtimeNs(time_ns));
        let (same, calling) = (|_| alike.kind, |sp| alike.kind_of(sp));
        let inbox = &mut *self.inbox;
        // One source a clock, and one where samples are in system calls, so that none of them has to ask.
        match (alike.perf_clock, alike.has_calls()) {
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

    /// The call stack behind a switch, if there is one.
    fn switch_stack(&mut self, switch: &Switch, frame: &[u8]) -> Option<StackKey> {
        if switch.head.flags() & switch_flag::STACK == 0 {
            return Some(StackKey::NONE);
        }
        let SwitchStack { switch, depth, sp } = read(frame)?;
        let behind = frame.get(size_of::<SwitchStack>()..)?;
        let (words, frames) = behind.split_at_checked(STACK_WORDS * 8)?;
        let (frames, _) = frames.as_chunks::<8>();
        let frames = frames.get(..depth.kernel() + depth.user())?;
        let (words, _) = words.as_chunks::<8>();
        let stack = WaitStack {
            kernel: depth.kernel(),
            is_cut: depth.is_cut(),
            frames,
            sp,
            words: if sp == 0 { &[] } else { words },
        };
        Some(self.inbox.wait_stack(Pid(switch.head.pid()), &stack))
    }

    /// The number of the stack in these bytes.
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
            self.trace_time(mark.time_ns),
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

fn task_body(kind: Kind, task: &Task) -> Option<Body> {
    Some(match kind {
        Kind::Fork => Body::Fork {
            pid: Pid(task.other as u32),
            tid: Tid((task.other >> 32) as u32),
        },
        Kind::Exec => Body::Exec {
            old_tid: Tid(task.other as u32),
        },
        Kind::Interference => Body::Interference {
            which: Interference::from_u8(task.head.index())?,
            ns: task.other,
        },
        Kind::Throttle => Body::Throttle {
            event: EventId(task.head.index()),
        },
        _ => Body::Exit {
            last: task.other != 0,
            signal: task.head.index(),
        },
    })
}

#[cfg(test)]
pub(in crate::stream) mod tests;
