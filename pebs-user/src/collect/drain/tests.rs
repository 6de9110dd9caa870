//! Tests of draining on the running kernel: real rings, filled by the real mark program.
//!
//! There is a ring per CPU. To fill 64 rings with fewer CPUs, the rings are swapped behind each CPU: the eBPF
//! programs look up their ring at every record.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{bounded, unbounded};
use pebs_common::config::{ArgKind, ArgProgram, MAX_ARGS, SiteConfig, Step};
use pebs_common::counter::Counter;
use pebs_common::record::Role;

use super::*;
use crate::collect::kernel_map;
use crate::collect::programs::{Programs, Settings};
use crate::cost::calibrate::place_of;
use crate::limits;
use crate::pmu::open::{
    BpfLink, Keeper, PerfEvent, UprobeAt, UprobeScope, UprobeSite, open_uprobe,
};
use crate::pmu::sysfs::UprobePmu;
use crate::stream::clock::Clock;
use crate::stream::decode::{Body, decode};
use crate::stream::order::{Order, Turn};
use crate::units::{Pid, Tid, TraceNs};

const RINGS: u16 = 64;
/// Room for some 6,500 marks.
const RING_BYTES: u32 = 256 << 10;
/// Threads that make marks.
const THREADS: u64 = 2;
/// Marks in flight, so that no ring can run full.
const ON_THEIR_WAY: u64 = 2000;
/// Marks made between two turns of the rings.
const TURN: u64 = 200;
/// Number of turns of every ring on every CPU.
const ROUNDS: u16 = 2;
/// More than any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Offset of the first argument in `pt_regs`. Source: arch/x86/include/uapi/asm/ptrace.h.
const RDI: u16 = 112;

#[inline(never)]
extern "C" fn marked(id: u64) -> u64 {
    std::hint::black_box(id) + 1
}

/// A mark with this id, if the probe is attached.
fn mark(id: u64) {
    std::hint::black_box(marked as extern "C" fn(u64) -> u64)(id);
}

/// Every probe on [`marked`] sees every call, so only one test may run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The kernel side: programs, and a probe on [`marked`].
struct Kernel {
    programs: Programs,
    cpus: u32,
    _probe: (BpfLink, PerfEvent),
    _alone: MutexGuard<'static, ()>,
}

impl Kernel {
    /// `None` if not possible here, with a message.
    fn new() -> Option<Self> {
        let pmu = UprobePmu::read(Path::new("/"));
        let (None, Some(pmu)) = (limits::missing_privileges(), pmu) else {
            eprintln!("SKIP no right to trace, or no uprobe PMU");
            return None;
        };
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let programs = Programs::load(&Settings::default()).unwrap();
        let pid = Pid(std::process::id());
        programs.trace(pid).unwrap();
        let id = ArgProgram {
            reg_offset: RDI,
            kind: ArgKind::Unsigned as u8,
            width: 8,
            ..ArgProgram::NONE
        };
        let config = SiteConfig {
            probe: 0,
            role: Role::Begin as u8,
            args: 0,
            has_id: 1,
            payload: 0,
            condition: 0,
            may_lack: 0,
            sp_adjust: 0,
            step: Step::NONE,
            goid: 0,
            id,
            count: ArgProgram::NONE,
            named: [ArgProgram::NONE; MAX_ARGS],
            lengths: [ArgProgram::NONE; MAX_ARGS],
        };
        programs.set_site(0, &config).unwrap();
        let function = marked as extern "C" fn(u64) -> u64 as usize as u64;
        let (path, file_offset) = place_of(function).unwrap();
        let site = UprobeSite {
            path,
            file_offset,
            at: UprobeAt::Instruction,
            semaphore: None,
        };
        let mut keeper = Keeper::start().unwrap();
        let event = open_uprobe(&mut keeper, &pmu, &site, UprobeScope::Process(pid)).unwrap();
        let link = event.attach(programs.mark().unwrap(), Some(0)).unwrap();
        let cpus = crate::pmu::host::online_cpus(Path::new("/"));
        Some(Self {
            programs,
            cpus: cpus.iter().map(|cpu| u32::from(cpu.0) + 1).max().unwrap(),
            _probe: (link, event),
            _alone: alone,
        })
    }

    /// New rings of a size.
    fn rings(bytes: u32) -> Vec<(Cpu, Ring)> {
        let ring = || Ring::map(kernel_map::create_ring(bytes).unwrap(), bytes as usize).unwrap();
        (0..RINGS).map(|n| (Cpu(n), ring())).collect()
    }

    /// Directs the records of `cpu` into this ring from now on.
    fn route(&self, cpu: u32, ring: BorrowedFd<'_>) {
        kernel_map::set_map(self.programs.map("RINGS").unwrap(), cpu, ring).unwrap();
    }

    fn counters(&self) -> Counters {
        Counters::map(self.programs.map("COUNTERS").unwrap(), self.cpus as usize).unwrap()
    }

    /// A counter's sum over CPUs.
    fn count(&self, counter: Counter) -> u64 {
        let counters = self.counters();
        let rows = (0..counters.cpus()).map(|cpu| counters.row(cpu)[counter as usize]);
        rows.sum()
    }
}

/// A draining thread and its far end.
struct Draining {
    thread: JoinHandle<()>,
    cycles: Receiver<Cycle>,
    waiting_bytes: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    _spare: Sender<Cycle>,
}

impl Draining {
    fn start(kernel: &Kernel, rings: Vec<(Cpu, Ring)>, max_waiting_bytes: usize) -> Self {
        let (full, cycles) = unbounded();
        let (spare, empty) = bounded(1);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let drain = Drain {
            bulk: Vec::new(),
            more_bulk: crossbeam_channel::never(),
            rings,
            counters: kernel.counters(),
            sideband: None,
            lag_ns: 0,
            full,
            empty,
            waiting_bytes: Arc::clone(&waiting_bytes),
            max_waiting_bytes,
            patient: false,
            stop: Arc::clone(&stop),
        };
        Self {
            thread: thread::spawn(|| drain.run()),
            cycles,
            waiting_bytes,
            stop,
            _spare: spare,
        }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

/// Processes cycles like the pipeline, and keeps what the test checks.
struct Consumer {
    clock: Clock,
    order: Order,
    frontier: KtimeNs,
    /// Marks of each ring.
    by_ring: Vec<u64>,
    /// Ids in the order in which they were released.
    ids: Vec<u64>,
    /// Time of each thread's last mark.
    last: HashMap<Tid, TraceNs>,
}

impl Consumer {
    fn new() -> Self {
        Self {
            clock: Clock::new(KtimeNs(0)),
            order: Order::new(&[false]),
            frontier: KtimeNs(0),
            by_ring: vec![0; usize::from(RINGS)],
            ids: Vec::new(),
            last: HashMap::new(),
        }
    }

    /// Checks that no record in the cycle is before the previous frontier, and that records below its own frontier
    /// are released in order for each thread.
    fn take(&mut self, cycle: &Cycle) {
        for (ring, bytes) in &cycle.streams {
            let decoded = decode(*ring, bytes, &mut self.clock, &mut self.order);
            assert_eq!((decoded.malformed, decoded.samples), (0, 0), "{decoded:?}");
            self.by_ring[usize::from(ring.0)] += decoded.marks;
        }
        assert!(cycle.frontier >= self.frontier, "the frontier went back");
        self.frontier = cycle.frontier;
        self.advance(self.clock.trace_of_ktime(cycle.frontier));
    }

    fn advance(&mut self, frontier: TraceNs) {
        let Self {
            order, ids, last, ..
        } = self;
        let mut ready = order.advance(frontier, |late| panic!("{late:?}"));
        ready.parts().each(|lane, _| {
            let last = last.entry(lane.tid).or_insert(TraceNs(0));
            while let Some(Turn::Record(record)) = lane.next(frontier) {
                assert!(record.time >= *last, "{record:?} comes after {last:?}");
                *last = record.time;
                if let Body::Mark { id: Some(id), .. } = record.body {
                    ids.push(id);
                }
            }
        });
    }

    fn marks(&self) -> u64 {
        self.by_ring.iter().sum()
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Marks made and marks taken in, by all threads.
#[derive(Default)]
struct Flow {
    made: AtomicU64,
    taken: AtomicU64,
    done: AtomicBool,
}

impl Flow {
    /// Makes marks until done, never more than fit the rings.
    fn make(&self, thread: u64) {
        let mut n = 0;
        while !self.done.load(Ordering::Acquire) {
            let made = self.made.load(Ordering::Acquire);
            // Marks are taken in before they are added up.
            if made.saturating_sub(self.taken.load(Ordering::Acquire)) >= ON_THEIR_WAY {
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            for _ in 0..10 {
                n += 1;
                mark(thread << 32 | n);
            }
            self.made.fetch_add(10, Ordering::AcqRel);
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Ends makers and draining thread, also if the test fails in between.
struct Finish<'a>(&'a AtomicBool, &'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        // The last round is well after the last mark.
        thread::sleep(BUSY_PAUSE);
        self.1.store(true, Ordering::Release);
    }
}

/// 64 rings that take turns behind the CPUs, so that most are idle at any time: every mark of every ring is
/// released once, in order of time; none is lost or late, and idle rings do not block the frontier.
#[test]
fn rings_64() {
    let Some(kernel) = Kernel::new() else { return };
    let rings = Kernel::rings(RING_BYTES);
    let fds: Vec<_> = rings
        .iter()
        .map(|(_, ring)| ring.fd().try_clone().unwrap())
        .collect();
    let turn = |n: u16, cpu: u32| {
        let ring = (u32::from(n) + cpu * 31) % u32::from(RINGS);
        kernel.route(cpu, fds[ring as usize].as_fd());
    };
    (0..kernel.cpus).for_each(|cpu| turn(0, cpu));
    let draining = Draining::start(&kernel, rings, 1 << 20);
    let (flow, mut consumer) = (Flow::default(), Consumer::new());
    thread::scope(|scope| {
        let makers: Vec<_> = (1..=THREADS)
            .map(|thread| {
                scope.spawn({
                    let flow = &flow;
                    move || flow.make(thread)
                })
            })
            .collect();
        let consumed = scope.spawn(|| {
            while let Ok(cycle) = draining.cycles.recv() {
                consumer.take(&cycle);
                draining
                    .waiting_bytes
                    .fetch_sub(cycle.bytes(), Ordering::AcqRel);
                flow.taken.store(consumer.marks(), Ordering::Release);
            }
        });
        let finish = Finish(&flow.done, &draining.stop);
        for n in 0..RINGS * ROUNDS {
            (0..kernel.cpus).for_each(|cpu| turn(n % RINGS, cpu));
            let before = flow.made.load(Ordering::Acquire);
            wait_for("marks", || {
                flow.made.load(Ordering::Acquire) >= before + TURN
            });
        }
        flow.done.store(true, Ordering::Release);
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        drop(finish);
        consumed.join().unwrap();
    });
    draining.stop();
    assert_eq!(
        consumer.order.waiting(),
        0,
        "marks behind the last frontier"
    );

    let made = flow.made.load(Ordering::Acquire);
    assert_eq!(kernel.count(Counter::MarkEmitted), made);
    assert_eq!(kernel.count(Counter::MarkDropped), 0);
    assert_eq!(kernel.count(Counter::MarkNoRing), 0);
    assert_eq!(consumer.marks(), made);
    // Both makers may have been on one CPU while the other's ring had its turn.
    let used = consumer.by_ring.iter().filter(|&&marks| marks > 0).count();
    assert!(used > consumer.by_ring.len() / 2, "{:?}", consumer.by_ring);
    for thread in 1..=THREADS {
        let ids = consumer.ids.iter().filter(|id| *id >> 32 == thread);
        assert!(
            ids.copied()
                .map(|id| id as u32)
                .eq(1..=own(&consumer, thread))
        );
    }
}

/// Number of marks made by a thread.
fn own(consumer: &Consumer, thread: u64) -> u32 {
    consumer.ids.iter().filter(|id| *id >> 32 == thread).count() as u32
}

/// Cycles are not consumed: the waiting bytes stay within the bound and one round of all rings, the rings run full,
/// and every mark dropped then is counted.
#[test]
fn waiting_is_bounded() {
    const MAX_WAITING: usize = 64 << 10;
    const SMALL_RING: u32 = 64 << 10;
    let Some(kernel) = Kernel::new() else { return };
    let rings = Kernel::rings(SMALL_RING);
    for cpu in 0..kernel.cpus {
        kernel.route(cpu, rings[cpu as usize % rings.len()].1.fd().as_fd());
    }
    let draining = Draining::start(&kernel, rings, MAX_WAITING);
    let mut made = 0;
    let mut more = || {
        (0..100).for_each(|n| mark(made + n));
        made += 100;
    };
    let waiting = || draining.waiting_bytes.load(Ordering::Acquire);
    wait_for("the bound", || {
        more();
        waiting() > MAX_WAITING
    });
    // This may come before a ring is full, as long as the thread did not run.
    let before = kernel.count(Counter::MarkDropped);
    wait_for("a full ring", || {
        more();
        kernel.count(Counter::MarkDropped) > before
    });
    let waiting = waiting();
    // Only the CPUs' own rings can contain records.
    let round = SMALL_RING as usize * kernel.cpus as usize;
    assert!(waiting > MAX_WAITING, "{waiting} bytes wait");
    assert!(waiting <= MAX_WAITING + round, "{waiting} bytes wait");

    let mut consumer = Consumer::new();
    draining.stop.store(true, Ordering::Release);
    for cycle in &draining.cycles {
        consumer.take(&cycle);
    }
    draining.stop();
    let dropped = kernel.count(Counter::MarkDropped);
    assert_eq!(kernel.count(Counter::MarkEmitted) + dropped, made);
    assert_eq!(consumer.marks() + dropped, made);
}
