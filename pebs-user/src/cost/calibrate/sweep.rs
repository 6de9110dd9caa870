//! Runs the busy loop at many reset values: elapsed time against samples gives the cost of a sample with its error.
//!
//! Every round runs the same work once without sampling and once with each reset value, so that a slow period
//! affects all of them; for each the median round counts. Time is the thread's own CPU time. Samples are counted in
//! the ring, which holds all of a run; refused samples are counted too.
//!
//! Source: Akiyama and Hirofuchi 2017, section 4.2.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use pebs_common::counter::Counter;
use pebs_stats::summary::median;
use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE};

use super::with_options::Extras;
use super::{Bench, TABLE, Work, own_thread, timed, work_for};
use crate::collect::error::SessionError;
use crate::collect::kernel_map;
use crate::collect::perf_ring::PerfRing;
use crate::collect::programs::StackLimits;
use crate::collect::session::Transport;
use crate::cost::Point;
use crate::failure::{Failure, Hint};
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::open::{BpfLink, PerfEvent};
use crate::pmu::sysfs::UprobePmu;
use crate::units::ResetValue;

/// Bytes of the ring. A clock whose samples last longer than its interval takes them back to back: in a virtual
/// machine that can be 30,000 in a run.
const RING_BYTES: u32 = 8 << 20;
/// Time of the work without samples.
const WORK: Duration = Duration::from_millis(20);
/// Rounds wanted.
pub(crate) const ROUNDS: u32 = 15;
/// Minimum number of rounds for a result.
pub(crate) const LEAST_ROUNDS: u32 = 3;
/// Number of reset values: each is twice the previous one.
const RESETS: u32 = 7;

/// The smallest reset value of each kind of event that is tried.
const FIRST_CLOCK_NS: u64 = 10_000;
const FIRST_STEADY: u64 = 2_000;
const FIRST_FAULT: u64 = 1;

/// Result for one reset value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Swept {
    /// The reset value; `None` for the run without sampling.
    pub reset: Option<u64>,
    /// Medians over the rounds.
    pub point: Point,
    /// Samples that the ring had no room for, over all rounds.
    pub refused: u64,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    /// Without sampling, then from the largest reset value to the smallest.
    pub points: Vec<Swept>,
    /// Rounds that were run.
    pub rounds: u32,
}

/// Errors of calibrating an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    /// There is no work that makes it happen.
    #[error("cannot calibrate event '{0}': no built-in work makes it happen steadily")]
    NoWork(String),
    /// Programs, ring or counter could not be set up.
    #[error("cannot calibrate event '{event}': {why}")]
    Refused {
        /// The event.
        event: String,
        /// The kernel's error.
        why: String,
    },
    /// The programs could not be loaded.
    #[error("cannot calibrate event '{event}'")]
    Programs {
        /// The event.
        event: String,
        /// Why.
        #[source]
        source: Box<SessionError>,
    },
    /// Too little time.
    #[error("cannot calibrate event '{event}': {rounds} of {LEAST_ROUNDS} rounds within {} s", most.as_secs_f64())]
    TooSlow {
        /// The event.
        event: String,
        /// Rounds that were run.
        rounds: u32,
        /// The time that there was.
        most: Duration,
    },
}

impl Hint for SweepError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoWork(_) => {
                "calibrate a clock (cpu-clock), cycles, instructions or page-faults".to_owned()
            }
            Self::Refused { .. } | Self::Programs { .. } => {
                "'pebs-trace doctor' says what this machine can do".to_owned()
            }
            Self::TooSlow { .. } => {
                "give a longer --duration, or wait until the machine is less busy".to_owned()
            }
        })
    }
}

/// Reset values to try, largest first; `None` for events that no known work causes.
#[must_use]
pub(crate) fn resets(event: &ResolvedEvent) -> Option<Vec<u64>> {
    let first = match event.class {
        EventClass::Clock => FIRST_CLOCK_NS,
        EventClass::Hardware { steady: true, .. } => FIRST_STEADY,
        EventClass::Software if event.is_page_faults() => FIRST_FAULT,
        _ => return None,
    };
    Some((0..RESETS).rev().map(|n| first << n).collect())
}

/// Size of a perf ring, bytes: each reset value has its own, with records of 40 bytes.
const PERF_RING_BYTES: u32 = 2 << 20;

/// Transport of the samples.
enum Taker {
    /// A program, for as long as the link lives.
    Program { _link: BpfLink },
    /// The kernel by itself, into a ring.
    Kernel(Box<RefCell<PerfRing>>),
}

/// The counter of one reset value, attached and stopped.
struct Setting {
    reset: Option<u64>,
    counter: Option<(Taker, PerfEvent)>,
    elapsed: Vec<f64>,
    samples: Vec<f64>,
    refused: u64,
}

/// Runs the work at all reset values, for at most a given time; calls `after_round` with the number of finished
/// rounds.
///
/// # Errors
/// See [`SweepError`].
pub(crate) fn sweep(
    pmu: &UprobePmu,
    (event, transport): (&ResolvedEvent, Transport),
    most: Duration,
    mut after_round: impl FnMut(u32),
) -> Result<Sweep, SweepError> {
    let no_work = || SweepError::NoWork(event.name.clone());
    let refused = |why: Failure| SweepError::Refused {
        event: event.name.clone(),
        why: why.to_string(),
    };
    let resets = resets(event).ok_or_else(no_work)?;
    let work = work_of(event).ok_or_else(no_work)?;
    let bench = Bench::new(pmu, RING_BYTES, StackLimits::default(), Extras::default()).map_err(
        |error| {
            let (event, source) = (event.name.clone(), Box::new(error));
            SweepError::Programs { event, source }
        },
    )?;
    let setting = |reset| Setting::new(&bench, (event, transport), reset).map_err(refused);
    let mut settings = vec![setting(None)?];
    for reset in resets {
        settings.push(setting(Some(reset))?);
    }
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && (begin.elapsed() < most || rounds == 0) {
        for n in 0..settings.len() {
            // Each setting is the first in one of the rounds.
            let at = (n + rounds as usize) % settings.len();
            settings[at].run(&bench, work).map_err(refused)?;
        }
        rounds += 1;
        after_round(rounds);
    }
    if rounds < LEAST_ROUNDS {
        let event = event.name.clone();
        return Err(SweepError::TooSlow {
            event,
            rounds,
            most,
        });
    }
    let points = settings.into_iter().map(Setting::result).collect();
    Ok(Sweep { points, rounds })
}

/// Work that takes [`WORK`], or touches as many pages as take about that time.
fn work_of(event: &ResolvedEvent) -> Option<(Work, u32)> {
    const TOUCHES: u32 = 40;
    match Work::of(event)? {
        Work::Spin(_) => Some((Work::Spin(work_for(WORK, &TABLE)), 1)),
        Work::Touch => Some((Work::Touch, TOUCHES)),
    }
}

impl Setting {
    fn new(
        bench: &Bench,
        (event, transport): (&ResolvedEvent, Transport),
        reset: Option<u64>,
    ) -> Result<Self, Failure> {
        let open = |reset: ResetValue| -> Result<_, Failure> {
            let mut attr = event.attr_for(own_thread());
            if transport == Transport::Bulk {
                attr = event.bulk_attr(own_thread(), PERF_RING_BYTES);
                // Inherited counters have no ring; there are no children.
                attr.set_inherit(0);
            }
            attr.__bindgen_anon_1.sample_period = reset.0.get();
            let counter = PerfEvent::open(&attr, own_thread(), &event.name)?;
            let taker = match transport {
                Transport::Bpf => {
                    let program = bench.programs.sample(crate::units::EventId(0))?;
                    Taker::Program {
                        _link: counter.attach(program, None)?,
                    }
                }
                Transport::Bulk => {
                    let pages = PERF_RING_BYTES as usize / rustix::param::page_size();
                    let ring = PerfRing::map(counter.as_fd(), pages)?;
                    Taker::Kernel(Box::new(RefCell::new(ring)))
                }
            };
            Ok((taker, counter))
        };
        let counter = match reset {
            None => None,
            Some(reset) => Some(open(crate::pmu::attr::reset_value(reset)?)?),
        };
        Ok(Self {
            reset,
            counter,
            elapsed: Vec::new(),
            samples: Vec::new(),
            refused: 0,
        })
    }

    fn run(&mut self, bench: &Bench, (work, times): (Work, u32)) -> Result<(), Failure> {
        bench.empty();
        let before = bench.refused()?;
        let counter = self.counter.as_ref().map(|(_, counter)| counter);
        if let Some(counter) = counter {
            counter.enable()?;
        }
        let elapsed = timed(|| (0..times).for_each(|_| work.run()));
        if let Some(counter) = counter {
            counter.disable()?;
        }
        let (samples, refused) = match &self.counter {
            Some((Taker::Kernel(ring), _)) => taken(&mut ring.borrow_mut())?,
            _ => (bench.take_samples().len() as u64, bench.refused()? - before),
        };
        self.refused += refused;
        self.elapsed.push(elapsed.as_nanos() as f64);
        // A refused sample costs nearly as much.
        self.samples.push((samples + refused) as f64);
        Ok(())
    }

    fn result(self) -> Swept {
        Swept {
            reset: self.reset,
            point: Point {
                samples: median(self.samples),
                elapsed_ns: median(self.elapsed),
            },
            refused: self.refused,
        }
    }
}

impl Bench {
    /// Number of samples refused so far, on all CPUs.
    pub(crate) fn refused(&self) -> Result<u64, Failure> {
        let map = self.programs.map("COUNTERS")?;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let counters = kernel_map::Counters::map(map, cpus)?;
        let of = |cpu| {
            let row = counters.row(cpu);
            row[Counter::SampleDropped as usize] + row[Counter::SampleNoRing as usize]
        };
        Ok((0..cpus).map(of).sum())
    }
}

/// Reads a perf ring: number of samples, and of those that the kernel dropped because the ring was full.
fn taken(ring: &mut PerfRing) -> Result<(u64, u64), Failure> {
    let (mut samples, mut lost) = (0, 0);
    ring.drain(|record| match record.kind {
        PERF_RECORD_SAMPLE => samples += 1,
        // An id, then the number.
        PERF_RECORD_LOST => {
            let number = record.body.get(8..16).and_then(|it| it.try_into().ok());
            lost += number.map_or(0, u64::from_ne_bytes);
        }
        _ => {}
    })?;
    Ok((samples, lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::calibrate::tests::uprobes;
    use crate::cost::fit;
    use crate::pmu::host::Host;

    /// A short sweep on this machine: more samples at smaller reset values, and a line through them.
    #[test]
    fn short_sweep() {
        let Some(pmu) = uprobes() else { return };
        let host = Host::probe(std::path::Path::new("/"));
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        let (bpf, bulk) = (Transport::Bpf, Transport::Bulk);
        for (name, transport, least) in [
            ("cpu-clock", bpf, 1_000.0),
            ("cpu-clock", bulk, 1_000.0),
            ("page-faults", bpf, 5_000.0),
            ("page-faults", bulk, 5_000.0),
        ] {
            let event = crate::pmu::attr::resolve(&name.parse().unwrap(), &host, reset).unwrap();
            let sweep = sweep(
                &pmu,
                (&event, transport),
                Duration::from_millis(900),
                |_| (),
            );
            let sweep = match sweep {
                Err(SweepError::TooSlow { .. }) => {
                    println!("SKIP the machine is too busy");
                    return;
                }
                other => other.unwrap(),
            };
            let samples: Vec<f64> = sweep.points.iter().map(|it| it.point.samples).collect();
            assert_eq!(samples[0], 0.0);
            assert!(
                samples.windows(2).all(|pair| pair[0] < pair[1]),
                "{samples:?}"
            );
            assert!(samples.last() >= Some(&least), "{name} {samples:?}");
            assert!(sweep.points.iter().all(|it| it.refused == 0), "{sweep:?}");
            let points: Vec<Point> = sweep.points.iter().map(|it| it.point).collect();
            println!(
                "{name} by {transport:?}: {:?} after {} rounds",
                fit(&points).unwrap(),
                sweep.rounds
            );
        }
    }
}
