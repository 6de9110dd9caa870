//! Call stacks of the target: where its CPU time goes, and where it reads, writes and waits.
//!
//! Each CPU gets a slow clock and a counter of system calls, whose samples have the registers and a copy of the
//! stack; they are unwound here, by the binaries' tables. Nothing is probed.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};
use rustc_hash::FxHashMap;

use super::calls::{self, Call, Channel};
use super::thread::{Thread, value};
use super::tracepoint::{self, CALLS};
use crate::arch::Register;
use crate::arch::unwind::{IP_OF_PERF, OF_PERF};
use crate::binary::process;
use crate::collect::perf_ring::PerfRing;
use crate::failure::{Context as _, Failure, Result};
use crate::limits;
use crate::perf::layout::Layout;
use crate::perf::sample::Sample;
use crate::pmu::attr::READ_FORMAT;
use crate::pmu::host::online_cpus;
use crate::pmu::open::PerfEvent;
use crate::pmu::target::Target;
use crate::store::schema::FunctionRow;
use crate::symbolize::unwind::{Unwinder, UserStack};
use crate::symbolize::{SymbolizeOptions, Symbolizer};
use crate::units::{Cpu, FunctionId, Ip, Pid, Tid, TraceNs};

/// CPU time between two samples, ns. A sample takes some 5 us.
const CLOCK_NS: u64 = 2_970_000;

/// Stacks that are taken of system calls.
const CALL_STACKS: f64 = 500.0;

/// Shortest time in which they are taken, s.
const LEAST_S: f64 = 0.1;

/// Cost that the counter adds to a system call, ns, with its filter; rather too much.
const COUNTED_NS: f64 = 1000.0;

/// Part of the target's time that the counter of system calls may take.
const COUNTED_PART: f64 = 0.003;

/// Time in which the rate of system calls is learnt before stacks of them are taken.
const RATE: Duration = Duration::from_millis(100);

/// Bytes of a stack that are copied.
const STACK_BYTES: u32 = 32 << 10;

/// Most stacks that are kept, of a copy each.
const MOST_STACKS: usize = 2000;

/// Pages of a CPU's ring.
const RING_PAGES: usize = 512;

/// Time between two looks at the rings.
const TICK: Duration = Duration::from_millis(10);

/// Time after which children are looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Offsets of the call's number and of its first argument in the tracepoint's data.
/// Source: events/raw_syscalls/sys_enter/format.
const NUMBER: usize = 8;
const FIRST_ARGUMENT: usize = 16;

/// Registers of 64-bit code.
const REGISTERS_64: u64 = sys::PERF_SAMPLE_REGS_ABI_64 as u64;

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub function: FunctionId,
    /// Its address: in all but the innermost frame, the one to which the call returns.
    pub address: u64,
}

/// A call stack.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stack {
    pub thread: Thread,
    /// The system call that it was taken at; `None`: by the clock.
    pub call: Option<Call>,
    /// Whether the clock's sample was taken in the kernel.
    pub in_kernel: bool,
    /// Number of calls that it stands for.
    pub weight: f64,
    /// The innermost first; user space only.
    pub frames: Vec<Frame>,
}

/// Call stacks that were taken, and their circumstances.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub stacks: Vec<Stack>,
    /// Functions by their numbers.
    pub functions: Vec<FunctionRow>,
    /// CPUs that it took.
    pub cpus: f64,
    /// Time for which system calls were counted, s; 0: they could not be.
    pub counted_s: f64,
    /// Samples that found no room, and stacks that were not whole.
    pub lost: u64,
    pub cut: u64,
}

/// The events of a CPU.
struct Sampled {
    cpu: Cpu,
    clock: PerfEvent,
    calls: Option<PerfEvent>,
    ring: PerfRing,
}

/// Looks at a process, and those that descend from it.
///
/// All CPUs are sampled, and samples of other processes left out: a clock of a thread would be set anew each time that the
/// thread takes a CPU, which costs threads that often wait as much as their work.
///
/// # Errors
/// There is no such process, or this user may not sample it.
pub(crate) fn look(pid: Pid, length: Duration) -> Result<Look> {
    let tracepoint = tracepoint::id(CALLS);
    let root = Path::new("/");
    let processes = std::iter::once(pid).chain(process::children(pid));
    let mut threads: Vec<Tid> = processes
        .flat_map(|it| process::threads(it).unwrap_or_default())
        .collect();
    if limits::pid_namespace(root) != Some(false) {
        // The kernel's filter has other numbers.
        threads.clear();
    }
    let cpus = online_cpus(root);
    let sampled = cpus.iter().map(|cpu| open(*cpu, tracepoint, &threads));
    let mut sampled = sampled.collect::<Result<Vec<_>>>()?;
    let has_calls = sampled.iter().any(|it| it.calls.is_some());
    let mut reader = Reader::new(pid);
    let start = Instant::now();
    let mut counting = Counting::Rate;
    while start.elapsed() < length {
        std::thread::sleep(TICK);
        for one in &mut sampled {
            reader.drain(one);
        }
        let now = start.elapsed();
        counting = counting.next(
            &mut sampled,
            now,
            length,
            tracepoint,
            &threads,
            &mut reader.every,
        );
        if reader.looked.elapsed() >= LOOK_AGAIN {
            reader.find_processes();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    for one in &mut sampled {
        reader.drain(one);
    }
    if reader.processes.is_empty() {
        return Err(Failure::new(
            format!("process {} has ended", pid.0),
            "look while it works".to_owned(),
        ));
    }
    let counted_s = match counting {
        _ if !has_calls => 0.0,
        Counting::Rate | Counting::Sampling { .. } => seconds - RATE.as_secs_f64(),
        Counting::Over(time) => (time - RATE).as_secs_f64(),
    };
    let raw = std::mem::take(&mut reader.raw);
    let stacks: Vec<Stack> = raw.into_iter().filter_map(|it| reader.stack(it)).collect();
    let Reader {
        lost,
        mut symbolizer,
        unwinder,
        ..
    } = reader;
    let mut functions = Vec::new();
    symbolizer.take_new_functions(&mut functions);
    functions.sort_by_key(|row| row.function_id);
    let ended = &unwinder.ended;
    tracing::debug!("{ended:?}");
    let samples = stacks.iter().filter(|it| it.call.is_none()).count();
    Ok(Look {
        cpus: samples as f64 * CLOCK_NS as f64 / 1e9 / seconds,
        stacks,
        functions,
        counted_s: counted_s.max(0.0),
        lost,
        cut: ended.not_copied + ended.no_table + ended.no_code + ended.unusable + ended.too_long,
    })
}

/// Progress of the counter of system calls.
#[derive(Clone, Copy)]
enum Counting {
    /// Their rate is learnt.
    Rate,
    /// Stacks are taken until then.
    Sampling { until: Duration },
    /// It was stopped then.
    Over(Duration),
}

impl Counting {
    fn next(
        self,
        sampled: &mut [Sampled],
        now: Duration,
        length: Duration,
        tracepoint: Option<u64>,
        threads: &[Tid],
        every: &mut u64,
    ) -> Self {
        match self {
            Self::Rate if now >= RATE => {
                // A CPU that went offline counts no more calls.
                let counts = sampled
                    .iter()
                    .filter_map(|it| it.calls.as_ref()?.times().ok());
                let rate = counts.map(|it| it.value).sum::<u64>() as f64 / now.as_secs_f64();
                // CPUs that were busy with calls all the time would have this part of them counted.
                let most =
                    COUNTED_PART * length.as_secs_f64() / (rate * COUNTED_NS / 1e9).max(1e-9);
                let rest = length.saturating_sub(now).as_secs_f64();
                let sampled_s = most.clamp(LEAST_S, rest.max(LEAST_S));
                *every = prime_from((rate * sampled_s / CALL_STACKS) as u64);
                for one in sampled {
                    one.calls = one.sample_calls(tracepoint, threads, *every);
                }
                Self::Sampling {
                    until: now + Duration::from_secs_f64(sampled_s),
                }
            }
            Self::Sampling { until } if now >= until => {
                for one in sampled {
                    one.calls = None;
                }
                Self::Over(now)
            }
            _ => self,
        }
    }
}

/// The first prime number from `least` on: calls that come in turns are sampled alike.
fn prime_from(least: u64) -> u64 {
    let is_prime = |n: &u64| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (least.max(1)..).find(is_prime).unwrap_or(1)
}

/// The registers of a user stack, as a mask.
fn registers() -> u64 {
    let known = OF_PERF
        .iter()
        .enumerate()
        .filter(|(_, number)| number.is_some());
    known.fold(1 << IP_OF_PERF, |mask, (bit, _)| mask | 1 << bit)
}

/// Not with PERF_SAMPLE_PERIOD: the kernel then takes a sample of each call. Source: kernel/events/core.c
/// (`perf_swevent_event`).
fn attr(kind: u32, config: u64, period: u64) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: kind,
        config,
        sample_type: u64::from(
            sys::PERF_SAMPLE_TID
                | sys::PERF_SAMPLE_RAW
                | sys::PERF_SAMPLE_REGS_USER
                | sys::PERF_SAMPLE_STACK_USER,
        ),
        read_format: READ_FORMAT,
        sample_regs_user: registers(),
        sample_stack_user: STACK_BYTES,
        ..perf_event_attr::default()
    };
    attr.__bindgen_anon_1.sample_period = period;
    attr.set_disabled(1);
    attr
}

fn open(cpu: Cpu, tracepoint: Option<u64>, threads: &[Tid]) -> Result<Sampled> {
    let target = Target::Cpu(cpu);
    let mut clock = attr(
        sys::PERF_TYPE_SOFTWARE,
        sys::PERF_COUNT_SW_CPU_CLOCK.into(),
        CLOCK_NS,
    );
    clock.set_exclude_idle(1);
    let clock = PerfEvent::open(&clock, target, "cpu-clock")?;
    let ring = PerfRing::map(clock.as_fd(), RING_PAGES)?;
    // It only counts, until their rate is known.
    let calls = tracepoint.and_then(|id| {
        let event = tracepoint::counter(&tracepoint::attr(id), target, threads)?;
        event.enable().ok()?;
        Some(event)
    });
    clock.enable().context("cannot start sampling")?;
    Ok(Sampled {
        cpu,
        clock,
        calls,
        ring,
    })
}

impl Sampled {
    /// Takes a stack of one of so many calls; `None` if the kernel refuses.
    fn sample_calls(
        &self,
        tracepoint: Option<u64>,
        threads: &[Tid],
        every: u64,
    ) -> Option<PerfEvent> {
        let attr = attr(sys::PERF_TYPE_TRACEPOINT, tracepoint?, every);
        let event = tracepoint::counter(&attr, Target::Cpu(self.cpu), threads)?;
        event.share_ring_of(&self.clock).ok()?;
        event.enable().ok()?;
        Some(event)
    }
}

/// A sample of the target, not yet unwound: that takes long where a binary is new.
struct Raw {
    thread: Thread,
    call: Option<Call>,
    in_kernel: bool,
    weight: f64,
    /// Registers of the mask.
    values: Vec<u64>,
    stack: Vec<u8>,
}

/// Makes stacks of samples.
struct Reader {
    layout: Layout,
    /// The process, and those that descend from it, as of `looked`.
    pid: Pid,
    processes: Vec<Pid>,
    looked: Instant,
    symbolizer: Symbolizer,
    unwinder: Unwinder,
    channels: FxHashMap<(Pid, u64), Channel>,
    memory: FxHashMap<Pid, Option<fs::File>>,
    raw: Vec<Raw>,
    /// System calls between two stacks of them.
    every: u64,
    lost: u64,
}

impl Reader {
    fn new(pid: Pid) -> Self {
        let mut reader = Self {
            pid,
            processes: Vec::new(),
            looked: Instant::now(),
            layout: Layout::of(&attr(sys::PERF_TYPE_SOFTWARE, 0, 1)),
            symbolizer: Symbolizer::new(SymbolizeOptions::default()),
            unwinder: Unwinder::default(),
            channels: FxHashMap::default(),
            memory: FxHashMap::default(),
            raw: Vec::new(),
            every: 1,
            lost: 0,
        };
        reader.find_processes();
        reader
    }

    fn find_processes(&mut self) {
        self.looked = Instant::now();
        self.processes = match process::exists(self.pid) {
            true => std::iter::once(self.pid)
                .chain(process::children(self.pid))
                .collect(),
            false => Vec::new(),
        };
    }

    fn drain(&mut self, sampled: &mut Sampled) {
        // An impossible record ends this look at the ring, and the next goes on behind it.
        let _ = sampled.ring.drain(|record| match record.kind {
            sys::PERF_RECORD_SAMPLE => {
                if let Ok(sample) = Sample::decode(&self.layout, record.body) {
                    let (_, in_kernel) = record.flags();
                    let raw = self.raw(in_kernel, &sample);
                    self.raw.extend(raw);
                }
            }
            sys::PERF_RECORD_LOST => {
                let count = record.body.get(8..16).and_then(|it| it.first_chunk());
                self.lost += count.map_or(1, |it| u64::from_ne_bytes(*it));
            }
            _ => {}
        });
    }

    /// Reads what the kernel did not copy of a stack: it stops at the first page that was never written, as in a large array
    /// of a frame. The outer frames are those of now, some ms later, which are of the same calls where a thread loops.
    fn complete(&mut self, pid: Pid, sp: u64, bytes: &mut Vec<u8>) {
        let open = || fs::File::open(format!("/proc/{}/mem", pid.0)).ok();
        let Some(memory) = self.memory.entry(pid).or_insert_with(open) else {
            return;
        };
        let known = bytes.len();
        bytes.resize(2 * STACK_BYTES as usize, 0);
        let read = memory.read_at(&mut bytes[known..], sp.wrapping_add(known as u64));
        // At the stack's top, or where the process has ended, there is no more.
        bytes.truncate(known + read.unwrap_or(0));
    }

    /// A sample with its stack; `None` if it has none, is of another process, or of a call that does not count.
    fn raw(&mut self, in_kernel: bool, sample: &Sample<'_>) -> Option<Raw> {
        let (pid, tid) = sample.pid_tid?;
        let thread = Thread {
            pid: Pid(pid),
            tid: Tid(tid),
        };
        if !self.processes.contains(&thread.pid) {
            return None;
        }
        if self.raw.len() >= MOST_STACKS {
            self.lost += 1;
            return None;
        }
        let rest = sample.rest();
        let registers = rest.regs_user.filter(|it| it.abi == REGISTERS_64)?;
        let copy = rest.stack_user?;
        let filled = copy.bytes.len().min(copy.filled as usize);
        let values: Vec<u64> = registers.values.iter().collect();
        let mut stack = copy.bytes[..filled].to_vec();
        if filled < copy.bytes.len() {
            let sp = value(self.layout.regs_user, &values, Register::STACK)?;
            self.complete(thread.pid, sp, &mut stack);
        }
        let word = |at: usize| {
            let bytes = rest.raw?.get(at..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        // A clock's samples have next to no such data.
        let call = match word(NUMBER) {
            None => None,
            Some(number) => {
                let fd = word(FIRST_ARGUMENT)?;
                let channels = &mut self.channels;
                let channel = || {
                    *channels
                        .entry((thread.pid, fd))
                        .or_insert_with(|| channel(thread.pid, fd))
                };
                Some(calls::call(number, channel)?)
            }
        };
        Some(Raw {
            thread,
            call,
            in_kernel,
            weight: self.every as f64,
            values,
            stack,
        })
    }

    /// Unwinds a stack and names its functions; `None` without what is needed.
    fn stack(&mut self, raw: Raw) -> Option<Stack> {
        let values = raw.values.into_iter();
        let user = UserStack::of_perf(self.layout.regs_user, values, &raw.stack)?;
        let (pid, symbolizer) = (raw.thread.pid, &mut self.symbolizer);
        let (addresses, _) = self.unwinder.frames((pid, TraceNs(0)), &user, symbolizer);
        let frames = addresses.iter().enumerate().map(|(n, address)| {
            let place = address.wrapping_sub(u64::from(n > 0));
            Frame {
                function: symbolizer.function(pid, Ip(place)),
                address: *address,
            }
        });
        Some(Stack {
            thread: raw.thread,
            call: raw.call,
            in_kernel: raw.in_kernel,
            weight: raw.weight,
            frames: frames.collect(),
        })
    }
}

/// Returns the role of a process's file descriptor.
fn channel(pid: Pid, fd: u64) -> Channel {
    let link = fs::read_link(format!("/proc/{}/fd/{fd}", pid.0));
    link.map_or(Channel::Other, |link| {
        Channel::of_link(&link.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every so many calls a stack: a prime number, at least one.
    #[test]
    fn primes() {
        let from = |least| prime_from(least);
        assert_eq!([0, 1, 2, 4, 8, 90].map(from), [1, 1, 2, 5, 11, 97]);
    }
}
