//! Cost of reading counters in eBPF: at a mark, by empty functions with a mark that reads some counters and with one
//! that reads none; at the end of an interval, by work of known length with and without such ticks.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::with_options::Extras;
use super::{Bench, CALLS, Function, RING_BYTES, ROUNDS, own_thread, spin, timed, work_for};
use crate::collect::counted::CountedCounters;
use crate::collect::programs::StackLimits;
use crate::failure::Failure;
use crate::pmu::attr::{EventClass, calibrator};
use crate::pmu::counted::{self, CountedEvent};
use crate::pmu::host::Host;
use crate::pmu::open::{PerfEvent, UprobeAt};
use crate::pmu::sysfs::UprobePmu;

/// Number of functions: one for marks that read nothing, one for each set of counters.
const FUNCTIONS: usize = 9;

/// Distance of the functions, bytes.
const STEP: usize = 16;

/// Interval of ticks while their cost is measured, ns: long enough for the work to fill the first-level cache between
/// two of them, as a target does.
const TICK_NS: u64 = 100_000;

/// Words that the work uses: more than the first-level cache holds.
const WORDS: u64 = 32 << 10;

/// Length of a round with ticks.
const TICKING: Duration = Duration::from_millis(2);

unsafe extern "C" {
    fn pebs_calibrate_counts();
}

/// The function of that number.
fn function(number: usize) -> Function {
    assert!(number < FUNCTIONS);
    let first: Function = pebs_calibrate_counts;
    // SAFETY: FUNCTIONS functions of this type, STEP bytes each, begin there, and `number` is below FUNCTIONS.
    unsafe { std::mem::transmute::<usize, Function>(first as usize + number * STEP) }
}

/// Marks that read counters, and marks that read none.
pub(crate) struct CountingMarks {
    plain: Bench,
    /// By set of counters.
    counting: Vec<Counting>,
}

struct Counting {
    bench: Bench,
    /// Declared after the programs that read them.
    _counters: CountedCounters,
}

impl CountingMarks {
    /// Places marks that read each of these sets of counters.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(crate) fn place(
        pmu: &UprobePmu,
        sets: &[&[CountedEvent]],
        host: &Host,
    ) -> Result<Self, Failure> {
        let plain = Bench::new(pmu, RING_BYTES, StackLimits::default(), Extras::default())?;
        plain.keep_mark(function(0))?;
        let mut counting = Vec::new();
        for (number, set) in (1..).zip(sets) {
            let bench = Bench::counting(pmu, set)?;
            let opened = CountedCounters::open(set, &host.online)?;
            for (slot, cpu, counter) in opened.iter() {
                bench.programs.set_counter(slot, cpu, counter)?;
            }
            opened.enable()?;
            bench.keep_mark(function(number))?;
            counting.push(Counting {
                bench,
                _counters: opened,
            });
        }
        Ok(Self { plain, counting })
    }

    /// ns that reading the counters of a set adds to a mark, by the quartile of the faster rounds of each.
    pub(crate) fn more_ns(&self, set: usize) -> Option<f64> {
        let counting = &self.counting.get(set)?.bench;
        let round = |bench: &Bench, number: usize| {
            bench.empty();
            // SAFETY: the function is ours, takes nothing, and returns.
            timed(|| (0..CALLS).for_each(|_| unsafe { black_box(function(number))() }))
        };
        let (mut plain, mut read) = (Vec::new(), Vec::new());
        // Interleaved, so that a slow period affects both.
        for _ in 0..ROUNDS {
            plain.push(round(&self.plain, 0));
            read.push(round(counting, set + 1));
        }
        let quartile = |mut rounds: Vec<Duration>| {
            rounds.sort_unstable();
            rounds[rounds.len() / 4].as_nanos() as f64 / f64::from(CALLS)
        };
        Some((quartile(read) - quartile(plain)).max(0.0))
    }

    /// Cost of a tick that reads the counters of a set, ns: lower quartiles of rounds with and without ticks.
    pub(crate) fn tick_ns(&self, set: usize) -> Option<f64> {
        let bench = &self.counting.get(set)?.bench;
        let clock = bench.kept(PerfEvent::open(
            &calibrator(TICK_NS),
            own_thread(),
            "clock of intervals",
        ))?;
        let tick = bench.kept(bench.programs.tick())?;
        let _link = bench.kept(clock.attach(tick, None))?;
        let table: Vec<AtomicU64> = (0..WORDS).map(AtomicU64::new).collect();
        let steps = work_for(TICKING, &table);
        let (mut plain, mut ticking) = (Vec::new(), Vec::new());
        // Interleaved, so that a slow period affects both.
        for _ in 0..ROUNDS {
            plain.push(timed(|| spin(steps, &table)));
            bench.empty();
            bench.kept(clock.enable())?;
            ticking.push(timed(|| spin(steps, &table)));
            bench.kept(clock.disable())?;
        }
        let quartile = |mut rounds: Vec<Duration>| {
            rounds.sort_unstable();
            rounds[rounds.len() / 4].as_nanos() as f64
        };
        let (plain, ticking) = (quartile(plain), quartile(ticking));
        // The clock of the thread ticks on meanwhile.
        Some((ticking - plain).max(0.0) / (ticking / TICK_NS as f64))
    }

    /// Makes a mark that reads nothing and one that reads a set, reading `clock` around each; returns the
    /// difference.
    pub(crate) fn once(&self, set: usize, clock: impl Fn() -> u64) -> Option<u64> {
        let counting = &self.counting.get(set)?.bench;
        self.plain.empty();
        counting.empty();
        let taken = |number: usize| {
            let before = clock();
            // SAFETY: the function is ours, takes nothing, and returns.
            unsafe { black_box(function(number))() };
            clock() - before
        };
        // The first call warms up the caches.
        taken(0);
        let plain = taken(0);
        Some(taken(set + 1).saturating_sub(plain))
    }
}

/// Cost of reading counters, ns; `None` if none are read, or it can't be measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Added to a mark.
    pub mark_ns: Option<f64>,
    /// A tick with its interrupt.
    pub tick_ns: Option<f64>,
}

/// Cost of reading the counters of these events at marks and, with `ticks`, at ticks.
///
/// # Errors
/// The kernel refuses a mark or a counter.
pub(crate) fn reading(
    pmu: &UprobePmu,
    counted: &[CountedEvent],
    ticks: bool,
    host: &Host,
) -> Result<Reading, Failure> {
    let stand_ins = stand_ins(counted, host)?;
    if stand_ins.is_empty() && !ticks {
        return Ok(Reading::default());
    }
    let marks = CountingMarks::place(pmu, &[&stand_ins], host)?;
    let reads = !stand_ins.is_empty();
    let reading = Reading {
        mark_ns: reads.then(|| marks.more_ns(0)).flatten(),
        tick_ns: ticks.then(|| marks.tick_ns(0)).flatten(),
    };
    // The kernel waits at each probe that is taken away.
    std::thread::spawn(move || drop(marks));
    Ok(reading)
}

/// Events to measure in place of these: breakpoints, which are few, are replaced by software events of equal cost, as
/// the kernel counts both itself.
fn stand_ins(counted: &[CountedEvent], host: &Host) -> Result<Vec<CountedEvent>, Failure> {
    let spec = ["page-faults".to_owned()];
    let other = counted::resolve_all(&counted::parse(&spec)?, host)?;
    let mut stand_ins = counted.to_vec();
    stand_ins.retain(|event| event.counter().is_some());
    for event in &mut stand_ins {
        let class = event.counter().map(|it| &it.class);
        if matches!(class, Some(EventClass::Breakpoint { .. })) {
            event.source.clone_from(&other[0].source);
        }
    }
    Ok(stand_ins)
}

impl Bench {
    /// Has a mark made at a function for as long as this lives.
    fn keep_mark(&self, function: Function) -> Result<(), Failure> {
        let refused = || {
            let why = self.failure.take();
            Failure::bare(why.unwrap_or_else(|| "a mark of our own can't be placed".to_owned()))
        };
        let probe = self
            .attach(function, UprobeAt::Instruction)
            .ok_or_else(refused)?;
        self.probes.borrow_mut().push(probe);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::calibrate::tests::uprobes;

    /// Reading counters costs something, and more of them more; no counters cost nothing. The times themselves
    /// depend on the machine.
    #[test]
    fn costs_of_reading() {
        let Some(pmu) = uprobes() else { return };
        let host = Host::probe(std::path::Path::new("/"));
        let resolve = |text: &str| {
            counted::resolve_all(&counted::parse(&[text.to_owned()]).unwrap(), &host).unwrap()
        };
        let (one, many) = (
            resolve("page-faults"),
            resolve(
                "page-faults,minor-faults,major-faults,cpu-migrations,alignment-faults,emulation-faults,faults:u,faults:k",
            ),
        );
        let marks = CountingMarks::place(&pmu, &[&one, &many], &host).unwrap();
        let ns = [0, 1].map(|set| marks.more_ns(set).unwrap());
        println!(
            "one {:.0} ns, eight {:.0} ns, each {:.0} ns",
            ns[0],
            ns[1],
            ns[1] / 8.0
        );
        assert!(ns[1] > ns[0] && ns[1] < 1e6, "{ns:?}");
        assert!(marks.once(1, || 0).is_some() && marks.once(2, || 0).is_none());
        let ns = [0, 1].map(|set| marks.tick_ns(set).unwrap());
        println!("a tick: one {:.0} ns, eight {:.0} ns", ns[0], ns[1]);
        // Beside other work the cost of a tick may be lost in what that takes.
        assert!(ns.iter().all(|it| *it >= 0.0 && *it < 1e6), "{ns:?}");
        let none = reading(&pmu, &resolve("context-switches"), true, &host).unwrap();
        assert!(none.mark_ns.is_none() && none.tick_ns.is_some());
        let breakpoint = reading(&pmu, &resolve("mem:0x1000:x"), false, &host).unwrap();
        assert!(breakpoint.mark_ns.is_some() && breakpoint.tick_ns.is_none());
    }
}
