//! Accuracy of counts: samples against the events that there were, per event and number of threads.
//!
//! Source: section IV.A of the paper; its accuracy is 1 - |samples - expected| / expected.

use std::sync::Barrier;

use super::offers::{self, Offer, Truth, is_hardware};
use super::report::{Basis, Experiment, Figure, Name, Row};
use super::take::{Delivery, EventSamples, Sample, TakeError, bound, on_threads, take};
use super::work::{Chase, Pages, Ratio};
use crate::cost::calibrate::Bench;
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::pmu::memory::Level;
use crate::units::Cpu;

/// Difference from the truth that a hardware event may have. The paper found PEBS within 0.1 %.
pub(crate) const HARDWARE_BOUND: f64 = 0.01;

/// Largest difference of a clock: the kernel's timer is delayed by the duration of each interrupt.
pub(crate) const CLOCK_BOUND: f64 = 0.05;

/// Events that an event of software costs a run: each takes some us.
const SOFTWARE_EVENTS: u64 = 4_000;

/// Amount of work in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Samples wanted from hardware and clocks.
    pub samples: u64,
    /// Runs, where there are several.
    pub runs: usize,
}

impl Size {
    /// Sizes of the quick or the full suite.
    pub(crate) const fn of(quick: bool) -> Self {
        if quick {
            Self {
                samples: 200,
                runs: 3,
            }
        } else {
            Self {
                samples: 1_000,
                runs: 5,
            }
        }
    }
}

/// Number of samples, and the expected number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Samples.
    pub samples: u64,
    /// Samples that there was no room for.
    pub lost: u64,
    /// Times that the kernel stopped the event for sampling too fast.
    pub throttled: u64,
    /// Time in which the event was not counted though its thread ran, because of multiplexing or because the virtual
    /// CPU was taken away, ns.
    pub waited_ns: u64,
    /// Events over the reset value: for exact truths rounded down.
    pub expected: f64,
}

impl Counted {
    /// Samples, lost ones included, per expected one.
    pub(crate) fn ratio(&self) -> f64 {
        (self.samples + self.lost) as f64 / self.expected
    }
}

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool, bench: Option<&Bench>) -> Experiment {
    let mut rows = Vec::new();
    for ratio in [Ratio::In20, Ratio::In100] {
        let chase = Chase::new(ratio);
        let offers = offers::of_chase(host, &chase);
        rows.extend(
            offers
                .iter()
                .flat_map(|it| of_offer(host, it, &chase, (quick, bench))),
        );
    }
    let chase = Chase::new(Ratio::In20);
    let others = [offers::page_faults()].into_iter().chain(offers::clocks());
    rows.extend(others.flat_map(|offer| of_offer(host, &offer, &chase, (quick, bench))));
    Experiment::new(Name::Accuracy, rows)
}

/// Numbers of threads: 1, 2, 4 and so on, up to the number of CPUs.
pub(crate) fn thread_counts(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2))
        .take_while(|&n| n < cpus)
        .collect();
    counts.push(cpus.max(1));
    counts
}

fn of_offer(
    host: &Host,
    offer: &Offer,
    chase: &Chase,
    (quick, bench): (bool, Option<&Bench>),
) -> Vec<Row> {
    let load = match (offer.truth, chase.ratio()) {
        (Truth::Pages | Truth::CpuTime, _) => "",
        (_, Ratio::In20) => "1 miss in 20, ",
        (_, Ratio::In100) => "1 miss in 100, ",
    };
    let reset = reset_of(offer);
    let event = match offer.find(host, reset) {
        Ok(event) => event,
        Err(why) => {
            return vec![Row::not_here(
                &offer.label,
                load.trim_end_matches(", "),
                why,
            )];
        }
    };
    let plan = Plan::new(host, offer, &event, Size::of(quick).samples);
    let row = |case: String, counted: Result<Counted, TakeError>| match counted {
        Ok(counted) => row_of(offer, &event, case, &counted),
        Err(error) => Row::not_here(&offer.label, case, error.to_string()),
    };
    let threads = thread_counts(super::take::cpus().len()).into_iter();
    let mut rows: Vec<Row> = threads
        .map(|threads| {
            let s = if threads == 1 { "" } else { "s" };
            let case = format!("{load}R {reset}, {threads} thread{s}");
            row(case, plan.count(chase, threads))
        })
        .collect();
    // Samples seen by an eBPF program have no data on the access.
    if let Some(bench) = bench.filter(|_| !offer.only_misses) {
        let case = format!("{load}R {reset}, 1 thread, bpf");
        rows.push(row(case, plan.count_by_program(chase, bench)));
    }
    rows
}

/// The reset value of the paper for hardware; for software events one that makes enough samples in a short time.
fn reset_of(offer: &Offer) -> u64 {
    match offer.truth {
        Truth::CpuTime => 100_000,
        Truth::Pages => 1,
        _ if offer.label.starts_with("breakpoint") => 7,
        _ => 100_000,
    }
}

fn row_of(offer: &Offer, event: &ResolvedEvent, case: String, counted: &Counted) -> Row {
    let row = Row::new(&offer.label, case, offer.basis).figures([
        Figure::count("samples", counted.samples, "samples"),
        Figure::new("expected", counted.expected, "samples", counted.samples),
        Figure::new("samples/expected", counted.ratio(), "", counted.samples),
        Figure::count("lost", counted.lost, "samples"),
        Figure::count("throttled", counted.throttled, "events"),
        Figure::new(
            "time not counted",
            counted.waited_ns as f64,
            "ns",
            counted.samples,
        ),
    ]);
    judge(row, offer.basis, event, counted)
}

/// Judges counts: exact events counted by the kernel have to be equal, others close.
pub(crate) fn judge(row: Row, basis: Basis, event: &ResolvedEvent, counted: &Counted) -> Row {
    let bound = match basis {
        Basis::Exact if !is_hardware(event) => {
            let holds = counted.samples == counted.expected as u64 && counted.lost == 0;
            return row.judged(holds, "has to be equal");
        }
        _ if is_hardware(event) => HARDWARE_BOUND,
        _ => CLOCK_BOUND,
    };
    let holds = is_near(counted.ratio(), counted.expected, bound);
    row.judged(holds, format!("within {} %, or one sample", bound * 100.0))
}

/// Whether samples per expected one are within a bound, or one sample: where in an interval work begins and ends is chance.
pub(crate) fn is_near(ratio: f64, expected: f64, bound: f64) -> bool {
    (ratio - 1.0).abs() <= bound.max(1.0 / expected)
}

/// One event with its work.
pub(crate) struct Plan<'a> {
    host: &'a Host,
    offer: &'a Offer,
    event: &'a ResolvedEvent,
    /// Events that are wanted.
    events: u64,
}

impl<'a> Plan<'a> {
    /// Work for this many samples; for software events fewer, if each event is slow.
    pub(crate) fn new(
        host: &'a Host,
        offer: &'a Offer,
        event: &'a ResolvedEvent,
        samples: u64,
    ) -> Self {
        let reset = event.reset.0.get();
        let is_slow = !is_hardware(event) && offer.truth != Truth::CpuTime;
        let events = if is_slow {
            SOFTWARE_EVENTS.max(reset * 4)
        } else {
            samples * reset
        };
        Self {
            host,
            offer,
            event,
            events,
        }
    }

    /// Runs the work on this many threads, each sampled separately, and sums the results.
    pub(crate) fn count(&self, chase: &Chase, threads: usize) -> Result<Counted, TakeError> {
        let each = on_threads(threads, |cpu, barrier| {
            self.one(chase, cpu, (Delivery::Bulk, barrier))
        })?;
        let add = |sum: Counted, one: Counted| Counted {
            samples: sum.samples + one.samples,
            lost: sum.lost + one.lost,
            throttled: sum.throttled + one.throttled,
            waited_ns: sum.waited_ns + one.waited_ns,
            expected: sum.expected + one.expected,
        };
        Ok(each.into_iter().fold(Counted::default(), add))
    }

    /// Runs the work on this thread, while a program sees each sample.
    fn count_by_program(&self, chase: &Chase, bench: &Bench) -> Result<Counted, TakeError> {
        bound(|cpu| self.one(chase, cpu, (Delivery::Bpf(bench), &Barrier::new(1))))
    }

    fn one(
        &self,
        chase: &Chase,
        cpu: Cpu,
        (delivery, barrier): (Delivery<'_>, &Barrier),
    ) -> Result<Counted, TakeError> {
        let events = [(self.event, delivery)];
        let ready = || {
            barrier.wait();
        };
        let model = &self.host.cpu;
        match self.offer.truth {
            Truth::Pages => {
                let (pages, taken) = with_pages(self.events, cpu, ready, |pages, ready| {
                    take(cpu, &events, model, ready, || pages.touch())
                })?;
                Ok(self.counted(&taken, pages))
            }
            Truth::CpuTime => {
                let (ns, taken) = take(cpu, &events, model, ready, || spin(chase, self.events))?;
                Ok(self.counted(&taken, ns))
            }
            Truth::Loads | Truth::Instructions | Truth::Counter => {
                let loads = match self.offer.truth {
                    Truth::Loads => self.events,
                    _ => self.events / chase.ratio().instructions(),
                };
                // Run once before, so that all memory is mapped while it counts.
                chase.run(1);
                let (truth, taken) = take(cpu, &events, model, ready, || chase.run(loads))?;
                let events = match self.offer.truth {
                    Truth::Loads => truth.loads,
                    Truth::Instructions => truth.instructions,
                    _ => taken[0].times.value,
                };
                Ok(self.counted(&taken, events))
            }
        }
    }

    fn counted(&self, taken: &[EventSamples], events: u64) -> Counted {
        let mut counted = Counted::default();
        let reset = self.event.reset.0.get();
        for one in taken {
            let wanted = |sample: &&Sample| {
                (!self.offer.only_misses || is_miss(sample)) && self.is_of_work(sample)
            };
            counted.samples += one.samples.iter().filter(wanted).count() as u64;
            counted.lost += one.lost;
            counted.throttled += one.throttled;
            counted.waited_ns += one.times.enabled_ns.saturating_sub(one.times.running_ns);
        }
        counted.expected = match self.offer.basis {
            Basis::Exact => (events / reset) as f64,
            Basis::StandIn | Basis::NotHere => events as f64 / reset as f64,
        };
        counted
    }
}

impl Plan<'_> {
    /// Whether a sample may belong to the work: IBS counts the kernel too.
    fn is_of_work(&self, sample: &Sample) -> bool {
        let is_user = matches!(self.offer.truth, Truth::Loads | Truth::Instructions);
        !is_user || !is_hardware(self.event) || !sample.raw.kind.is_kernel()
    }
}

/// Whether a sample reports that its data were not in the first level cache.
pub(crate) fn is_miss(sample: &Sample) -> bool {
    let place = sample.access.and_then(|access| access.place);
    place.is_some_and(|place| place.level != Level::L1 || place.hit == Some(false))
}

/// Takes samples while fresh pages are touched, once the same code has touched others. Gives their number too.
pub(crate) fn with_pages<R: FnOnce()>(
    count: u64,
    cpu: Cpu,
    ready: R,
    take: impl FnOnce(&Pages, R) -> Result<((), Vec<EventSamples>), TakeError>,
) -> Result<(u64, Vec<EventSamples>), TakeError> {
    let prepared = Pages::new(4).and_then(|warm| {
        warm.touch();
        Pages::new(count)
    });
    let pages = match prepared {
        Ok(pages) => pages,
        Err(errno) => {
            // The others wait.
            ready();
            let source = errno.into();
            return Err(TakeError::Prepare { cpu, source });
        }
    };
    let ((), taken) = take(&pages, ready)?;
    Ok((pages.count(), taken))
}

/// Runs for this many ns on the CPU; returns the time it took.
pub(crate) fn spin(chase: &Chase, ns: u64) -> u64 {
    let begin = cpu_ns();
    loop {
        chase.run(1_000);
        let took = cpu_ns() - begin;
        if took >= ns {
            return took;
        }
    }
}

/// Time of this thread on the CPU, ns.
pub(crate) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Powers of two, and all CPUs.
    #[test]
    fn threads() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8), [1, 2, 4, 8]);
    }

    /// Breakpoints and page faults are counted exactly on this machine, on one thread and on several; at no reset value
    /// is there one sample more or less.
    #[test]
    fn exact_events() {
        if let Some(missing) = crate::limits::missing_privileges() {
            println!("SKIP {missing}");
            return;
        }
        let host = Host::probe(Path::new("/"));
        let chase = Chase::new(Ratio::In20);
        let breakpoint = format!("mem:{:#x}:x", chase.load());
        let breakpoint = Offer::new("breakpoint", &[&breakpoint], Truth::Loads, Basis::Exact);
        for offer in [breakpoint, offers::page_faults()] {
            for (reset, threads) in [(1, 1), (7, 1), (100, 2)] {
                let event = offer.find(&host, reset).unwrap();
                let counted = Plan::new(&host, &offer, &event, 10)
                    .count(&chase, threads)
                    .unwrap();
                let each = SOFTWARE_EVENTS / reset;
                assert_eq!(counted.expected as u64, each * threads as u64, "{offer:?}");
                assert_eq!(
                    (counted.samples, counted.lost),
                    (each * threads as u64, 0),
                    "{offer:?} {counted:?}"
                );
            }
        }
    }
}
