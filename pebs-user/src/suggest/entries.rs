//! Calls of functions, by hardware breakpoints: how often, how long, with which arguments.
//!
//! A thread has four breakpoints: one where the function begins, the others where its calls return to. The code is not
//! changed, so nothing can be harmed, and each breakpoint ends itself after a number of hits.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};

use super::thread::{Thread, value};
use super::tracepoint::{self, CALLS};
use crate::arch::Register;
use crate::binary::mapping::Mapping;
use crate::binary::proc_maps::proc_maps;
use crate::collect::perf_ring::PerfRing;
use crate::failure::Result;
use crate::perf::layout::Layout;
use crate::perf::sample::Sample;
use crate::pmu::attr::READ_FORMAT;
use crate::pmu::open::PerfEvent;
use crate::pmu::target::Target;
use crate::units::{Pid, Tid};

/// Breakpoints that a thread can have.
pub(crate) const SLOTS: usize = 4;

/// Threads that are watched.
pub(crate) const THREADS: usize = 32;

/// Most hits after which a breakpoint ends itself.
const MOST_HITS: i32 = 40;

/// Least: fewer calls say nothing.
const LEAST_HITS: i32 = 6;

/// Calls whose arguments are read.
const READ_CALLS: usize = 24;

/// Pages of a thread's ring.
const RING_PAGES: usize = 16;

/// Time between two looks at the rings: texts are read that long after the call.
const TICK: Duration = Duration::from_millis(1);

/// Bytes of the stack that are copied: the return address.
const RETURN_ADDRESS: u64 = 8;

/// Cost of a hit, and the number of hits after which a breakpoint ends itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Time that a hit takes of the thread, ns.
    pub hit_ns: f64,
    pub hits: i32,
    /// The tracepoint of system calls, if there is one.
    pub tracepoint: Option<u64>,
}

impl Limit {
    /// For so many functions, if their calls may take so much time in all, ns.
    pub(crate) fn of(functions: usize, ns: f64) -> Self {
        let hit_ns = hit_ns().unwrap_or(0.0);
        // A call hits two breakpoints.
        let most = ns / (2.0 * hit_ns.max(1.0) * functions.max(1) as f64);
        Self {
            hit_ns,
            hits: (most as i32).clamp(LEAST_HITS, MOST_HITS),
            tracepoint: tracepoint::id(CALLS),
        }
    }
}

/// A function to watch.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Addresses by process; of processes that are missing here as in the others.
    pub entries: Vec<(Pid, u64)>,
    pub returns: Vec<(Pid, u64)>,
    /// Registers of its arguments.
    pub arguments: &'static [Register],
}

/// Calls of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Calls {
    /// Calls per second on the watched threads.
    pub rate: f64,
    /// Calls that began.
    pub entries: u64,
    /// Durations of calls that ended, ns.
    pub durations: Vec<u64>,
    /// Calls within a call of the same function.
    pub nested: u64,
    /// Most calls at a time, on different threads.
    pub at_once: usize,
    /// Return addresses of calls, as seen.
    pub returns: Vec<(Pid, u64)>,
    /// Arguments of some calls.
    pub arguments: Vec<Vec<Argument>>,
    /// Reads, writes and waits per second of the watched threads meanwhile, as far as counted.
    pub system_calls: f64,
    /// Time for which it was watched, s.
    pub seconds: f64,
}

/// An argument of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Argument {
    pub value: u64,
    /// Text that it points to, directly or by the pointer at an offset.
    pub text: Option<(Option<u64>, String)>,
}

/// Cost of a hit to the thread, ns, as measured on a thread of this process; `None`: it has no breakpoints.
///
/// Some us; on virtual machines whose host intercepts debug exceptions, some 10 us.
fn hit_ns() -> Option<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let (said, tid) = mpsc::channel();
    let until = Arc::clone(&stop);
    let called = std::thread::spawn(move || {
        // Nobody listens if the caller has given up.
        let _ = said.send(rustix::thread::gettid());
        while !until.load(Ordering::Relaxed) {
            empty();
            std::thread::sleep(Duration::from_micros(50));
        }
    });
    let pid = Pid(std::process::id());
    let measured = || {
        let tid = Tid(tid.recv().ok()?.as_raw_nonzero().get().unsigned_abs());
        let mut watched = Watched {
            entries: vec![(pid, empty as extern "C" fn() as usize as u64)],
            returns: Vec::new(),
            arguments: &[],
        };
        let threads = [Thread { pid, tid }];
        let mut last = None;
        for _ in 0..2 {
            let calls = watch(
                &[watched.clone()],
                &threads,
                Duration::from_millis(100),
                Limit {
                    hit_ns: 0.0,
                    hits: MOST_HITS,
                    tracepoint: None,
                },
            )
            .ok()?
            .pop()?;
            watched.returns = calls.returns.iter().take(SLOTS - 1).copied().collect();
            last = calls
                .durations
                .get(calls.durations.len() / 2)
                .map(|ns| *ns as f64);
        }
        last
    };
    let found = measured();
    stop.store(true, Ordering::Relaxed);
    // It can't panic.
    let _ = called.join();
    found
}

/// A function that takes no time.
#[inline(never)]
extern "C" fn empty() {
    std::hint::black_box(());
}

/// A hit of a breakpoint.
struct Hit {
    time: u64,
    thread: Thread,
    ip: u64,
    sp: u64,
    /// The word at the stack pointer.
    top: Option<u64>,
    values: Vec<u64>,
    arguments: Option<Vec<Argument>>,
}

/// The breakpoints of a thread.
struct Broken {
    thread: Thread,
    /// With the number of the function, whether it is its entry, and the address.
    events: Vec<(PerfEvent, usize, bool, u64)>,
    ring: PerfRing,
}

/// Watches calls of functions, which have at most [`SLOTS`] addresses together, for a time or until all were called often.
/// What hits take is left out of times and rates.
///
/// # Errors
/// The threads can't have breakpoints: the machine has none, or a debugger uses them.
pub(crate) fn watch(
    functions: &[Watched],
    threads: &[Thread],
    longest: Duration,
    limit: Limit,
) -> Result<Vec<Calls>> {
    let mut broken = Vec::new();
    let mut failure = None;
    for thread in threads.iter().take(THREADS) {
        match open(*thread, functions) {
            Ok(Some(one)) => broken.push(one),
            Ok(None) => {}
            Err(error) => failure = Some(error),
        }
    }
    if let (true, Some(failure)) = (broken.is_empty(), failure) {
        return Err(failure);
    }
    let counted = broken.iter().filter_map(|it| {
        let target = Target::Thread(it.thread.tid);
        let event = tracepoint::counter(&tracepoint::attr(limit.tracepoint?), target, &[])?;
        event.enable().ok()?;
        Some(event)
    });
    let counted: Vec<PerfEvent> = counted.collect();
    let begin = now_ns();
    for (event, _, is_entry, _) in broken.iter().flat_map(|it| &it.events) {
        // Fails only for a thread that has ended.
        if let Err(error) = event.enable_for(if *is_entry {
            limit.hits
        } else {
            2 * limit.hits
        }) {
            tracing::debug!("{error}");
        }
    }
    let start = Instant::now();
    let mut reader = Reader::new(functions, limit.hits);
    while start.elapsed() < longest && !reader.has_enough() {
        std::thread::sleep(TICK);
        for one in &mut broken {
            reader.drain(one);
        }
    }
    for (event, ..) in broken.iter().flat_map(|it| &it.events) {
        let _ = event.disable();
    }
    let end = now_ns();
    let system_calls: u64 = counted
        .iter()
        .filter_map(|it| it.times().ok())
        .map(|it| it.value)
        .sum();
    drop(counted);
    for one in &mut broken {
        reader.drain(one);
    }
    let places = |function: usize| {
        let events = broken
            .iter()
            .flat_map(move |it| it.events.iter().map(move |e| (it.thread, e)));
        events
            .filter(move |(_, event)| event.1 == function)
            .map(|(thread, event)| (thread, event.2, event.3))
            .collect::<Vec<_>>()
    };
    tracing::debug!("{} hits of {} threads", reader.hits.len(), broken.len());
    let all = functions.iter().enumerate();
    let own = reader.hits.len() as f64 * limit.hit_ns / broken.len().max(1) as f64;
    let seconds = ((end - begin) as f64 - own).max(1.0) / 1e9;
    let made = all.map(|(n, _)| Calls {
        system_calls: system_calls as f64 / seconds,
        ..calls(&reader.hits, &places(n), (begin, end), limit)
    });
    Ok(made.collect())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Addresses in a process, or those of another one if it has none of its own: processes are forked with their mappings.
fn of_process(all: &[(Pid, u64)], pid: Pid) -> Vec<u64> {
    let own: Vec<u64> = all.iter().filter(|it| it.0 == pid).map(|it| it.1).collect();
    if !own.is_empty() {
        return own;
    }
    let mut others: Vec<u64> = Vec::new();
    for (_, address) in all {
        if !others.contains(address) {
            others.push(*address);
        }
    }
    others
}

fn attr(address: u64) -> perf_event_attr {
    let registers = Register::ARGUMENTS
        .iter()
        .chain(&Register::GO_ARGUMENTS)
        .chain(&[Register::STACK]);
    let mut attr = perf_event_attr {
        type_: sys::PERF_TYPE_BREAKPOINT,
        bp_type: sys::HW_BREAKPOINT_X,
        sample_type: u64::from(
            sys::PERF_SAMPLE_IP
                | sys::PERF_SAMPLE_TIME
                | sys::PERF_SAMPLE_REGS_USER
                | sys::PERF_SAMPLE_STACK_USER,
        ),
        read_format: READ_FORMAT,
        sample_regs_user: registers.fold(0, |mask, it| mask | 1 << it.perf_number()),
        sample_stack_user: RETURN_ADDRESS as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_3.bp_addr = address;
    attr.__bindgen_anon_4.bp_len = size_of::<libc::c_long>() as u64;
    attr.set_use_clockid(1);
    attr.set_exclude_kernel(1);
    attr.set_disabled(1);
    attr
}

/// `None`: the thread has no code of these functions.
fn open(thread: Thread, functions: &[Watched]) -> Result<Option<Broken>> {
    let mut events: Vec<(PerfEvent, usize, bool, u64)> = Vec::new();
    for (n, function) in functions.iter().enumerate() {
        let entries = of_process(&function.entries, thread.pid)
            .into_iter()
            .take(1);
        let returns = of_process(&function.returns, thread.pid).into_iter();
        let places = entries
            .map(|it| (it, true))
            .chain(returns.map(|it| (it, false)));
        for (address, is_entry) in places {
            if events.len() == SLOTS {
                break;
            }
            let event = PerfEvent::open(&attr(address), Target::Thread(thread.tid), "breakpoint")?;
            events.push((event, n, is_entry, address));
        }
    }
    let Some((first, ..)) = events.first() else {
        return Ok(None);
    };
    let ring = PerfRing::map(first.as_fd(), RING_PAGES)?;
    // A ring can be shared only once it is there.
    for (event, ..) in &events[1..] {
        event.share_ring_of(first)?;
    }
    Ok(Some(Broken {
        thread,
        events,
        ring,
    }))
}

struct Reader<'a> {
    layout: Layout,
    functions: &'a [Watched],
    enough: i32,
    hits: Vec<Hit>,
    memory: FxHashMap<Pid, Option<Memory>>,
    /// Hits by function: of its entry, of its returns.
    counts: Vec<(i32, i32)>,
}

impl<'a> Reader<'a> {
    fn new(functions: &'a [Watched], enough: i32) -> Self {
        Self {
            layout: Layout::of(&attr(0)),
            functions,
            enough,
            hits: Vec::new(),
            memory: FxHashMap::default(),
            counts: vec![(0, 0); functions.len()],
        }
    }

    fn has_enough(&self) -> bool {
        let mut all = self.counts.iter().zip(self.functions);
        all.all(|((begun, ended), of)| {
            *begun >= self.enough && (*ended >= self.enough || of.returns.is_empty())
        })
    }

    fn drain(&mut self, broken: &mut Broken) {
        let (thread, events) = (broken.thread, &broken.events);
        // An impossible record ends this look at the ring.
        let _ = broken.ring.drain(|record| {
            if record.kind != sys::PERF_RECORD_SAMPLE {
                return;
            }
            let Ok(sample) = Sample::decode(&self.layout, record.body) else {
                return;
            };
            let Some(mut hit) = hit(&self.layout, thread, &sample) else {
                return;
            };
            let mut entry = None;
            for (_, n, is_entry, _) in events.iter().filter(|it| it.3 == hit.ip) {
                let count = &mut self.counts[*n];
                match is_entry {
                    true => {
                        count.0 += 1;
                        entry = Some(*n);
                    }
                    false => count.1 += 1,
                }
            }
            if let Some(n) = entry.filter(|n| self.counts[*n].0 as usize <= READ_CALLS) {
                let pid = thread.pid;
                let memory = self.memory.entry(pid).or_insert_with(|| Memory::of(pid));
                hit.arguments = Some(arguments(
                    &self.functions[n],
                    &hit,
                    memory.as_ref(),
                    self.layout.regs_user,
                ));
            }
            self.hits.push(hit);
        });
    }
}

fn hit(layout: &Layout, thread: Thread, sample: &Sample<'_>) -> Option<Hit> {
    let rest = sample.rest();
    let values: Vec<u64> = rest.regs_user?.values.iter().collect();
    let top = rest
        .stack_user
        .and_then(|it| Some(u64::from_ne_bytes(*it.bytes.first_chunk()?)));
    Some(Hit {
        time: sample.time?,
        thread,
        ip: sample.ip?,
        sp: value(layout.regs_user, &values, Register::STACK)?,
        top,
        values,
        arguments: None,
    })
}

fn arguments(of: &Watched, hit: &Hit, memory: Option<&Memory>, mask: u64) -> Vec<Argument> {
    let values = of
        .arguments
        .iter()
        .map(|it| value(mask, &hit.values, *it).unwrap_or(0));
    values
        .map(|value| Argument {
            value,
            text: memory.and_then(|memory| text(memory, value)),
        })
        .collect()
}

/// Longest text that is shown, and shortest that counts as one.
const TEXT: usize = 48;
const SHORTEST: usize = 4;

/// Bytes of a structure that are searched for pointers to texts.
const SEARCHED: usize = 64;

/// Memory of a process.
struct Memory {
    file: File,
    code: Vec<Mapping>,
}

impl Memory {
    fn of(pid: Pid) -> Option<Self> {
        let file = File::open(format!("/proc/{}/mem", pid.0)).ok()?;
        let code = proc_maps(pid).unwrap_or_default();
        Some(Self { file, code })
    }

    /// Fills a buffer from an address of data; returns how far.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<usize> {
        let is_data = is_pointer(address) && !self.code.iter().any(|it| it.contains(address));
        is_data
            .then(|| self.file.read_at(bytes, address).ok())
            .flatten()
    }
}

/// Text at an address, or behind a pointer there.
fn text(memory: &Memory, address: u64) -> Option<(Option<u64>, String)> {
    let mut bytes = [0; SEARCHED];
    let filled = memory.read(address, &mut bytes)?;
    if let Some(text) = printable(&bytes[..filled]) {
        return Some((None, text));
    }
    let (words, _) = bytes[..filled].as_chunks::<8>();
    let mut behind = [0; TEXT];
    for (n, word) in words.iter().enumerate() {
        let found = memory
            .read(u64::from_ne_bytes(*word), &mut behind)
            .and_then(|filled| printable(&behind[..filled]));
        if let Some(text) = found {
            return Some((Some(8 * n as u64), text));
        }
    }
    None
}

/// Whether a value may be an address in user space.
pub(super) const fn is_pointer(value: u64) -> bool {
    value >= 0x1_0000 && value < 1 << 47
}

/// The text that bytes begin with.
fn printable(bytes: &[u8]) -> Option<String> {
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t');
    let length = bytes.iter().take_while(|it| is_text(it)).count();
    let text = bytes.get(..length.min(TEXT))?;
    let has_letters = text.iter().filter(|it| it.is_ascii_alphanumeric()).count() * 2 > text.len();
    (length >= SHORTEST && has_letters).then(|| String::from_utf8_lossy(text).into_owned())
}

/// The calls of a function by the hits of its places.
fn calls(
    hits: &[Hit],
    places: &[(Thread, bool, u64)],
    (begin, end): (u64, u64),
    limit: Limit,
) -> Calls {
    let mut calls = Calls {
        seconds: end.saturating_sub(begin) as f64 / 1e9,
        ..Calls::default()
    };
    let mut intervals = Vec::new();
    for (thread, _, entry) in places.iter().filter(|it| it.1) {
        let returns: Vec<u64> = places
            .iter()
            .filter(|it| it.0 == *thread && !it.1)
            .map(|it| it.2)
            .collect();
        // Stack pointer, time and number of the hit at which a call began.
        let mut open: Vec<(u64, u64, usize)> = Vec::new();
        let (mut entries, mut last) = (0_u64, (begin, 0));
        let of_thread = hits.iter().filter(|it| it.thread == *thread);
        let own = |hits: usize| (hits as f64 * limit.hit_ns) as u64;
        let mut number = 0;
        for (n, hit) in of_thread.enumerate() {
            number = n + 1;
            if hit.ip == *entry {
                entries += 1;
                last = (hit.time, n);
                // Frames below were left in another way.
                open.retain(|(sp, ..)| *sp > hit.sp);
                calls.nested += u64::from(!open.is_empty());
                open.push((hit.sp, hit.time, n));
                let top = hit.top.map(|top| (thread.pid, top));
                calls
                    .returns
                    .extend(top.filter(|it| !calls.returns.contains(it)));
                calls.arguments.extend(hit.arguments.clone());
            } else if returns.contains(&hit.ip) {
                let ended = open
                    .iter()
                    .position(|(sp, ..)| sp + RETURN_ADDRESS == hit.sp);
                if let Some(at) = ended {
                    let (_, began, first) = open[at];
                    open.truncate(at);
                    let length = hit.time.saturating_sub(began);
                    calls.durations.push(length.saturating_sub(own(n - first)));
                    if at == 0 {
                        intervals.push((began, hit.time));
                    }
                }
            }
        }
        calls.entries += entries;
        let watched = match entries {
            0 => continue,
            // The breakpoint has ended itself.
            _ if entries >= u64::from(limit.hits.unsigned_abs()) => {
                last.0.saturating_sub(begin).saturating_sub(own(last.1))
            }
            _ => end.saturating_sub(begin).saturating_sub(own(number)),
        };
        calls.rate += entries as f64 / (watched.max(1) as f64 / 1e9);
    }
    calls.durations.sort_unstable();
    calls.at_once = at_once(&intervals);
    calls
}

/// Most intervals that overlap.
fn at_once(intervals: &[(u64, u64)]) -> usize {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (begin, end) in intervals {
        edges.extend([(*begin, 1), (*end, -1)]);
    }
    edges.sort_unstable();
    let mut open = 0;
    let most = edges.iter().map(|(_, step)| {
        open += step;
        open
    });
    most.max().unwrap_or(0).unsigned_abs() as usize
}

impl Calls {
    /// Adds another look at the same function.
    pub(crate) fn add(&mut self, other: Self) {
        let seconds = self.seconds + other.seconds;
        let sum = self.rate * self.seconds + other.rate * other.seconds;
        self.rate = sum / seconds.max(1e-9);
        self.seconds = seconds;
        self.entries += other.entries;
        self.nested += other.nested;
        self.at_once = self.at_once.max(other.at_once);
        self.durations.extend(other.durations);
        self.durations.sort_unstable();
        for place in other.returns {
            if !self.returns.contains(&place) {
                self.returns.push(place);
            }
        }
        self.arguments.extend(other.arguments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(time: u64, tid: u32, ip: u64, sp: u64) -> Hit {
        Hit {
            time,
            thread: thread(tid),
            ip,
            sp,
            top: Some(0x99),
            values: Vec::new(),
            arguments: None,
        }
    }

    const fn limit(hit_ns: f64) -> Limit {
        Limit {
            hit_ns,
            hits: 40,
            tracepoint: None,
        }
    }

    const fn thread(tid: u32) -> Thread {
        Thread {
            pid: Pid(1),
            tid: Tid(tid),
        }
    }

    /// A call ends where it returns with its own stack pointer; recursion and other threads are distinguished.
    #[test]
    fn calls_of_hits() {
        let hits = [
            hit(10, 1, 0x10, 0x1000),
            hit(12, 2, 0x10, 0x2000),
            hit(15, 1, 0x10, 0xf00),
            hit(18, 1, 0x99, 0xf08),
            hit(20, 1, 0x99, 0x1008),
            hit(30, 2, 0x99, 0x3008),
            hit(32, 2, 0x99, 0x2008),
        ];
        let places = [
            (thread(1), true, 0x10),
            (thread(1), false, 0x99),
            (thread(2), true, 0x10),
            (thread(2), false, 0x99),
        ];
        let calls = calls(&hits, &places, (0, 1_000_000_000), limit(0.0));
        assert_eq!(calls.durations, [3, 10, 20]);
        let less = super::calls(&hits, &places, (0, 1_000_000_000), limit(1.0));
        assert_eq!(less.durations, [2, 7, 18]);
        assert_eq!((calls.entries, calls.nested, calls.rate), (3, 1, 3.0));
        assert_eq!(calls.at_once, 2);
        assert_eq!(calls.returns, [(Pid(1), 0x99)]);
    }

    /// Text has letters and a length.
    #[test]
    fn texts() {
        assert_eq!(
            printable(b"GET /a HTTP/1.1\r\n\0"),
            Some("GET /a HTTP/1.1\r\n".to_owned())
        );
        assert_eq!(printable(b"abc\0"), None);
        assert_eq!(printable(b"    ....    "), None);
        assert_eq!(printable(b"\x01abcd"), None);
    }
}
