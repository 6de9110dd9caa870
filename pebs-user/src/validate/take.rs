//! Takes samples of a piece of work on its own thread, as recordings do: the same settings of the event, the same decoding.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Barrier;

use crate::collect::perf_ring::{PerfRing, PerfRingError};
use crate::cost::calibrate::Bench;
use crate::perf::layout::Layout;
use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::host::CpuModel;
use crate::pmu::open::{AttachError, BpfLink, ControlError, OpenError, PerfEvent, Times};
use crate::pmu::sysfs::UprobePmu;
use crate::pmu::target::Target;
use crate::stream::access::{Access, Registers};
use crate::stream::bulk::{Reading, RingKind, RingReport, RingState};
use crate::stream::clock::Clock;
use crate::stream::decode::{Inbox, Payloads, Record};
use crate::stream::sample::RawSample;
use crate::units::{Cpu, EventId, KtimeNs, Pid, Tid};

/// Bytes of a perf ring: some 100,000 samples.
const RING_BYTES: u32 = 4 << 20;

/// Bytes of the program's ring.
const PROGRAM_RING_BYTES: u32 = 8 << 20;

/// Destination of samples.
#[derive(Clone, Copy)]
pub(crate) enum Delivery<'a> {
    /// Nowhere: the kernel takes them and has no ring to put them into.
    Nowhere,
    /// The kernel writes them into a ring.
    Bulk,
    /// An eBPF program gets each of them and puts it into a ring.
    Bpf(&'a Bench),
}

impl Delivery<'_> {
    /// As rows name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "not delivered",
            Self::Bulk => "bulk",
            Self::Bpf(_) => "bpf",
        }
    }
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Fields that every sample has. Its time is on `CLOCK_MONOTONIC` if the event is set to it.
    pub raw: RawSample,
    /// Data on its memory access or op.
    pub access: Option<Access>,
}

/// Result of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSamples {
    /// Samples in the order of the ring.
    pub samples: Vec<Sample>,
    /// Samples that found no room.
    pub lost: u64,
    /// The counter's value, the time it was enabled, and the time it counted.
    pub times: Times,
    /// Times that the kernel stopped the event for sampling too fast.
    pub throttled: u64,
}

/// Why samples can't be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    /// The kernel refused the event.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Or to start, stop or read it.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Or its ring.
    #[error(transparent)]
    Ring(#[from] PerfRingError),
    /// Or the program.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A thread can't be bound to a CPU, or there is no memory for the work.
    #[error("cannot prepare the work on cpu {}", cpu.0)]
    Prepare {
        /// The CPU.
        cpu: Cpu,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The sample program can't be loaded.
    #[error("the sample program is not loaded")]
    Program,
}

/// Destination of an event's samples.
enum Place {
    Nowhere,
    Ring(Box<(PerfRing, RingKind)>),
    Program { _link: BpfLink },
}

/// An opened event.
struct Counter {
    event: PerfEvent,
    place: Place,
}

/// Binds this thread to a CPU.
///
/// # Errors
/// The CPU is not one that this process may use.
pub(crate) fn bind(cpu: Cpu) -> Result<(), TakeError> {
    let mut only = rustix::thread::CpuSet::new();
    only.set(cpu.0.into());
    rustix::thread::sched_setaffinity(None, &only).map_err(|errno| TakeError::Prepare {
        cpu,
        source: errno.into(),
    })
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> Vec<Cpu> {
    let allowed = rustix::thread::sched_getaffinity(None);
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    allowed.map_or_else(
        |_| vec![Cpu(0)],
        |set| {
            let set = all.filter(|&cpu| set.is_set(cpu));
            set.map(|cpu| Cpu(cpu as u16)).collect()
        },
    )
}

/// Runs some work on this many threads at once, each bound to a CPU of its own as long as there are enough. The work
/// gets its thread's CPU, and a barrier to wait at when it is ready.
///
/// # Errors
/// The first of a thread.
pub(crate) fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn(Cpu, &Barrier) -> Result<T, TakeError> + Sync,
) -> Result<Vec<T>, TakeError> {
    let cpus = cpus();
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let spawn = |n: usize| {
            // The first CPU takes most interrupts: it comes last.
            let cpu = cpus[cpus.len() - 1 - n % cpus.len()];
            let (work, barrier) = (&work, &barrier);
            scope.spawn(move || {
                let bound = bind(cpu);
                if bound.is_err() {
                    barrier.wait();
                }
                bound.and_then(|()| work(cpu, barrier))
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<T, TakeError>>| {
            handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    })
}

/// Runs something on this thread, bound to the last CPU meanwhile: the owner of an eBPF program's ring can't change
/// threads.
///
/// # Errors
/// Errors of the work, or that the thread can't be bound.
pub(crate) fn bound<T>(work: impl FnOnce(Cpu) -> Result<T, TakeError>) -> Result<T, TakeError> {
    let before = rustix::thread::sched_getaffinity(None);
    let cpu = cpus().last().copied().unwrap_or_default();
    bind(cpu)?;
    let result = work(cpu);
    if let Ok(before) = before {
        // If this fails, later work merely stays on this CPU.
        let _ = rustix::thread::sched_setaffinity(None, &before);
    }
    result
}

/// Loads the program that sees samples; `None` where the kernel refuses.
pub(crate) fn bench() -> Option<Bench> {
    let pmu = UprobePmu::read(Path::new("/"))?;
    Bench::load(&pmu, PROGRAM_RING_BYTES)
}

/// Runs something on a separate thread, bound to the last CPU.
///
/// # Errors
/// Errors of the work, or that the thread can't be bound.
pub(crate) fn on_thread<T: Send>(
    work: impl FnOnce(Cpu) -> Result<T, TakeError> + Send,
) -> Result<T, TakeError> {
    let cpu = cpus().last().copied().unwrap_or_default();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| bind(cpu).and_then(|()| work(cpu)));
        { thread.join() }.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// This thread, on the CPU that it is bound to.
pub(crate) fn own_thread(cpu: Cpu) -> Target {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    Target::ThreadOnCpu(Tid(tid.cast_unsigned()), cpu)
}

/// Takes samples of some work on this thread, which is bound to `cpu`; returns the result of the work, and that of each
/// event.
///
/// `ready` is called once all events are open and before they start: threads meet there.
///
/// # Errors
/// The kernel refused something.
pub(crate) fn take<T>(
    cpu: Cpu,
    events: &[(&ResolvedEvent, Delivery<'_>)],
    model: &CpuModel,
    ready: impl FnOnce(),
    work: impl FnOnce() -> T,
) -> Result<(T, Vec<EventSamples>), TakeError> {
    let open = |&(event, delivery): &(&ResolvedEvent, Delivery<'_>)| {
        Counter::open(cpu, event, delivery, model)
    };
    let opened: Result<Vec<Counter>, TakeError> = events.iter().map(open).collect();
    ready();
    let mut counters = opened?;
    let refused_before: Vec<u64> = { events.iter() }
        .map(|(_, delivery)| refused(*delivery))
        .collect();
    for counter in &counters {
        counter.event.enable()?;
    }
    let result = work();
    for counter in &counters {
        counter.event.disable()?;
    }
    let mut taken = Vec::new();
    for ((counter, (_, delivery)), before) in counters.iter_mut().zip(events).zip(refused_before) {
        let mut one = counter.drain(cpu)?;
        if let Delivery::Bpf(bench) = delivery {
            let samples = bench.take_samples().into_iter();
            one.samples
                .extend(samples.map(|raw| Sample { raw, access: None }));
            one.lost += refused(*delivery) - before;
        }
        taken.push(one);
    }
    Ok((result, taken))
}

fn refused(delivery: Delivery<'_>) -> u64 {
    match delivery {
        Delivery::Bpf(bench) => bench.refused().unwrap_or(0),
        Delivery::Nowhere | Delivery::Bulk => 0,
    }
}

impl Counter {
    fn open(
        cpu: Cpu,
        event: &ResolvedEvent,
        delivery: Delivery<'_>,
        model: &CpuModel,
    ) -> Result<Self, TakeError> {
        let target = own_thread(cpu);
        let mut attr = match delivery {
            Delivery::Bpf(_) => event.attr_for(target),
            Delivery::Bulk | Delivery::Nowhere => event.bulk_attr(target, RING_BYTES),
        };
        // Inherited events have no ring; the work has no children.
        attr.set_inherit(0);
        let opened = PerfEvent::open(&attr, target, &event.name)?;
        let place = match delivery {
            Delivery::Nowhere => Place::Nowhere,
            Delivery::Bulk => {
                let kind = RingKind {
                    layout: Layout::of(&attr),
                    perf_clock: event.perf_clock,
                    registers: registers(event, model),
                    item: None,
                    reports_throttling: true,
                };
                let pages = RING_BYTES as usize / rustix::param::page_size();
                Place::Ring(Box::new((PerfRing::map(opened.as_fd(), pages)?, kind)))
            }
            Delivery::Bpf(bench) => {
                // Drops samples of earlier events.
                bench.take_samples();
                let program = bench.sample_program().ok_or(TakeError::Program)?;
                Place::Program {
                    _link: opened.attach(program, None)?,
                }
            }
        };
        Ok(Self {
            event: opened,
            place,
        })
    }

    /// The samples in the ring, and the counter's values.
    fn drain(&mut self, cpu: Cpu) -> Result<EventSamples, TakeError> {
        // Reading the counter has the hardware's own buffer emptied into the ring first.
        let mut taken = EventSamples {
            times: self.event.times()?,
            ..EventSamples::default()
        };
        let Place::Ring(ring) = &mut self.place else {
            return Ok(taken);
        };
        let (ring, kind) = &mut **ring;
        let mut bytes = Vec::new();
        ring.drain(|record| {
            bytes.extend(record.kind.to_ne_bytes());
            bytes.extend(record.misc.to_ne_bytes());
            bytes.extend((record.body.len() as u16 + 8).to_ne_bytes());
            bytes.extend_from_slice(record.body);
        })?;
        decode(cpu, &bytes, kind, &mut taken);
        Ok(taken)
    }
}

/// Decodes the records of a ring as the `bulk` transport does.
fn decode(cpu: Cpu, bytes: &[u8], kind: &RingKind, taken: &mut EventSamples) {
    let mut inbox = Samples::default();
    let mut report = RingReport::default();
    let reading = Reading {
        kind,
        clock: &Clock::new(KtimeNs(0)),
        wanted: |_| true,
    };
    RingState::new(cpu, EventId(0)).decode(bytes, &reading, &mut inbox, &mut report);
    taken.samples = inbox.samples;
    for gap in report.gaps {
        match gap.records {
            Some(records) => taken.lost += records,
            None => taken.throttled += 1,
        }
    }
}

/// Registers that the samples of an event carry.
fn registers(event: &ResolvedEvent, model: &CpuModel) -> Option<Registers> {
    let EventClass::Hardware {
        unit: HardwareUnit::Ibs,
        ..
    } = event.class
    else {
        return None;
    };
    let pmu = if event.name.starts_with("ibs_fetch") {
        "ibs_fetch"
    } else {
        "ibs_op"
    };
    Registers::of_pmu(pmu, model)
}

/// Keeps samples with their accesses.
#[derive(Default)]
struct Samples {
    samples: Vec<Sample>,
    payloads: Payloads,
}

impl Inbox for Samples {
    fn sample(&mut self, _pid: Pid, _tid: Tid, raw: RawSample) {
        self.samples.push(Sample { raw, access: None });
    }

    fn access(&mut self, _tid: Tid, _sample: &RawSample, access: Access) {
        // An access directly follows its sample.
        if let Some(last) = self.samples.last_mut() {
            last.access = Some(access);
        }
    }

    fn record(&mut self, _record: Record) {}

    fn payloads(&mut self) -> &mut Payloads {
        &mut self.payloads
    }
}
