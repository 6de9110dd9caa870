//! The program that the self-test records: random items, logged as they are handled.
//!
//! Three kinds of items alternate (two of the first, one of each other), all measured in sample
//! intervals g, so that each reset value has the same task:
//!
//! * `many`: 8..16 calls of four functions in random order, 2..8 g each;
//! * `first`, `middle`, `last`: one call of each, 5..9 g, always in this order: effects at an item's
//!   edges show here. With one change or two the error is uniform or triangular, which 1.96 standard
//!   errors cover more often than 95 %: expect 100, 96 and 100 % of these;
//! * `short`: 1..6 calls of four functions in random order, 0.05..1.5 g each: items that may be
//!   shorter than the sample interval.
//!
//! Or items are as regular as samples might be ([`Order`]): one call each of `first`, `middle` and `last`, 0.6 g together,
//! all equal, of three lengths in turn, or one for each g of the clock.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pebs_stats::summary::upper_median;
use rustix::time::{ClockId, clock_gettime};

use super::calls::{FUNCTIONS, Stay, Tsc, now, selftest_item};
use super::truth::{CLOCK_NOTE, PEAK_NOTE, STAMP_NOTE, STOP_NOTE, STOPPED_NOTE};
use crate::rng::SplitMix64;

/// Runs the built-in workload of the self-test
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// Where to log
    pub log: PathBuf,
    /// Sample interval that the calls are measured in, ns
    pub interval_ns: u64,
    /// How long to run
    pub seconds: f64,
    /// Seed of the random choices
    pub seed: u64,
    /// How items come
    #[arg(value_enum, default_value_t)]
    pub order: Order,
}

/// Order of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// By chance.
    #[default]
    Random,
    /// All equal, one after the other.
    Equal,
    /// Of three lengths in turn.
    Lengths,
    /// All equal, in step with a timer.
    Timer,
}

impl Order {
    /// As arguments name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Equal => "equal",
            Self::Lengths => "lengths",
            Self::Timer => "timer",
        }
    }

    /// Least mean length of an item in tenths of an interval.
    const fn tenths(self) -> u64 {
        match self {
            Self::Random => 10 * MEAN_ITEM,
            Self::Equal | Self::Lengths | Self::Timer => 6,
        }
    }
}

/// Lengths of the calls of regular items, in intervals.
const REGULAR: [f64; 3] = [0.27, 0.21, 0.12];

/// Calls of an item at most.
const MAX_STAYS: usize = 16;

/// Mean length of an item in intervals, over a turn: (2 x 12 x 5 + 3 x 7 + 3.5 x 0.8) / 4.
const MEAN_ITEM: u64 = 36;

/// The fastest of the pairs of clocks taken within this many ns is used.
const WINDOW_NS: i64 = 5_000_000;

/// A round of work that takes longer than this was interrupted, ns. Undisturbed it takes some 15;
/// the shortest interrupt some 500.
const INTERRUPTED_NS: f64 = 300.0;

/// An item was disturbed if it was stopped for longer than this many samples' interrupts.
const DISTURBED_COSTS: f64 = 2.0;

/// And at least for this long, ns.
const DISTURBED_NS: f64 = 5_000.0;

/// One item: planned, and as it came.
#[derive(Clone, Copy, Default)]
struct Item {
    stays: [Stay; MAX_STAYS],
    count: usize,
    before: Tsc,
    edges: [Tsc; 2],
    after: Tsc,
}

/// The counter just before and after `CLOCK_MONOTONIC` was read.
#[derive(Clone, Copy, Default)]
struct Pair {
    from: Tsc,
    monotonic_ns: i64,
    to: Tsc,
}

impl Pair {
    fn take() -> Self {
        let from = now();
        let time = clock_gettime(ClockId::Monotonic);
        Self {
            from,
            monotonic_ns: time.tv_sec * 1_000_000_000 + time.tv_nsec,
            to: now(),
        }
    }

    const fn width(&self) -> u64 {
        self.to.0 - self.from.0
    }

    const fn middle(&self) -> u64 {
        self.from.0 + self.width() / 2
    }
}

/// Handles items until the time is over, then writes the log.
///
/// # Errors
/// If the log can't be written.
pub(crate) fn run(args: &WorkloadArgs) -> io::Result<()> {
    stay_on_one_cpu();
    let (rounds_per_ns, ticks_per_ns) = speed();
    let mut plan = Plan {
        rng: SplitMix64::new(args.seed),
        rounds: args.interval_ns as f64 * rounds_per_ns,
        limit: (INTERRUPTED_NS * ticks_per_ns) as u64,
        next: 0,
        order: args.order,
    };
    let tenth_ns = (args.interval_ns / 10).max(1);
    let room = (args.seconds * 1e9) as u64 / (args.order.tenths() * tenth_ns) * 2 + 100;
    // Written to, so that no page is missing while it counts.
    let mut items = vec![(Item::default(), Pair::default()); room as usize];
    items.fill((plan.item(), Pair::take()));
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(args.seconds);
    let mut used = 0;
    for (n, (item, pair)) in items.iter_mut().enumerate() {
        *item = plan.item();
        if args.order == Order::Timer {
            wait_for_tick(begin, args.interval_ns);
        }
        *pair = Pair::take();
        item.before = now();
        selftest_item(
            n as u64 + 1,
            item.stays.as_mut_ptr(),
            item.count,
            &mut item.edges,
        );
        item.after = now();
        used = n + 1;
        if Instant::now() > end {
            break;
        }
    }
    items.truncate(used);
    write(&args.log, &items, Pair::take())
}

/// Binds the program to the last CPU it may run on, and raises its priority there: the fewer
/// interruptions, the more visits can be compared. Failures are ignored.
fn stay_on_one_cpu() {
    use rustix::process::setpriority_process;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    if let Ok(allowed) = sched_getaffinity(None)
        && let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu))
    {
        let mut only = CpuSet::new();
        only.set(last);
        let _ = sched_setaffinity(None, &only);
    }
    let _ = setpriority_process(None, -20);
}

/// Looks at the clock until the next multiple of a time since `begin` has passed.
fn wait_for_tick(begin: Instant, ns: u64) {
    let ticks = || begin.elapsed().as_nanos() as u64 / ns.max(1);
    let before = ticks();
    while ticks() == before {
        std::hint::spin_loop();
    }
}

/// Rounds and ticks that fill a ns: the best of several tries.
fn speed() -> (f64, f64) {
    const ROUNDS: u64 = 50_000;
    let try_one = || {
        let mut stay = Stay {
            rounds: ROUNDS,
            limit: u64::MAX,
            ..Stay::default()
        };
        let start = Instant::now();
        FUNCTIONS[0].1(&mut stay);
        let ns = start.elapsed().as_nanos() as f64;
        (ns, (stay.leave.0 - stay.enter.0) as f64)
    };
    let tries = (0..9).map(|_| try_one());
    let best = tries.min_by(|a, b| a.0.total_cmp(&b.0));
    let (ns, ticks) = best.unwrap_or((1.0, 1.0));
    (ROUNDS as f64 / ns, ticks / ns)
}

/// Items to handle.
struct Plan {
    rng: SplitMix64,
    /// Rounds of an interval.
    rounds: f64,
    /// See [`Stay::limit`].
    limit: u64,
    next: usize,
    order: Order,
}

impl Plan {
    fn item(&mut self) -> Item {
        let mut item = Item::default();
        if self.order != Order::Random {
            let times = match self.order {
                Order::Lengths => 1 + self.next % 3,
                _ => 1,
            };
            self.next += 1;
            item.count = REGULAR.len();
            for (n, (stay, length)) in item.stays.iter_mut().zip(REGULAR).enumerate() {
                stay.function = 4 + n;
                stay.rounds = ((length * self.rounds) as u64).max(1) * times as u64;
                stay.limit = self.limit;
            }
            return item;
        }
        let kind = self.next % 4;
        self.next += 1;
        let (first, functions, count, lengths) = match kind {
            0 | 2 => (0, 4, 8 + self.rng.below(9), (2.0, 8.0)),
            1 => (4, 3, 3, (5.0, 9.0)),
            _ => (7, 4, 1 + self.rng.below(6), (0.05, 1.5)),
        };
        item.count = count as usize;
        let mut last = self.rng.below(functions);
        for (n, stay) in item.stays[..item.count].iter_mut().enumerate() {
            if kind == 1 {
                last = n as u32;
            } else if n > 0 {
                last = (last + 1 + self.rng.below(functions - 1)) % functions;
            }
            stay.function = first + last as usize;
            stay.rounds = self.length(lengths);
            stay.limit = self.limit;
        }
        item
    }

    fn length(&mut self, (shortest, longest): (f64, f64)) -> u64 {
        let unit = self.rng.next_u64() as f64 / u64::MAX as f64;
        let intervals = shortest + (longest - shortest) * unit;
        ((intervals * self.rounds) as u64).max(1)
    }
}

/// Turns readings of the counter into `CLOCK_MONOTONIC`, on lines through the best pair of each
/// window: so a clock that is being adjusted is followed.
struct Line {
    knots: Vec<Pair>,
    ns_per_tick: f64,
}

impl Line {
    /// `None` if the pairs do not fill two windows.
    fn through(pairs: impl Iterator<Item = Pair>) -> Option<Self> {
        let mut knots: Vec<Pair> = Vec::new();
        let mut window = i64::MIN;
        for pair in pairs {
            let this = pair.monotonic_ns / WINDOW_NS;
            match knots.last_mut() {
                Some(best) if this == window => {
                    if pair.width() < best.width() {
                        *best = pair;
                    }
                }
                _ => knots.push(pair),
            }
            window = this;
        }
        // A pair with an interrupt in it is inaccurate, even if it is the best of its window.
        let usual = upper_median(knots.iter().map(Pair::width).collect())?;
        knots.retain(|knot| knot.width() <= usual * 2);
        let (first, last) = (knots.first()?, knots.last()?);
        let ns = (last.monotonic_ns - first.monotonic_ns) as f64;
        let ticks = last
            .middle()
            .checked_sub(first.middle())
            .filter(|ticks| *ticks > 0)?;
        let ns_per_tick = ns / ticks as f64;
        Some(Self { knots, ns_per_tick })
    }

    fn ns(&self, tsc: Tsc) -> i64 {
        let after = self.knots.partition_point(|knot| knot.middle() <= tsc.0);
        let after = after.clamp(1, self.knots.len() - 1);
        let (from, to) = (self.knots[after - 1], self.knots[after]);
        let slope =
            (to.monotonic_ns - from.monotonic_ns) as f64 / (to.middle() - from.middle()) as f64;
        let ticks = tsc.0.wrapping_sub(from.middle()).cast_signed();
        from.monotonic_ns + (ticks as f64 * slope).round() as i64
    }

    /// Half of the 99th percentile of the pairs' widths, ns.
    fn error_ns(&self) -> f64 {
        let mut widths: Vec<u64> = self.knots.iter().map(Pair::width).collect();
        widths.sort_unstable();
        widths[(widths.len() - 1) * 99 / 100] as f64 * self.ns_per_tick / 2.0
    }
}

/// Interrupts in the functions' time.
struct Stops {
    /// Median over the functions of their mean interruption, ns.
    typical_ns: f64,
    /// Longest interruption by a sample, ns: longer ones have another cause.
    longest_ns: f64,
    /// Share of interrupts in the time of the functions that were stopped by nothing else.
    share: f64,
}

impl Stops {
    fn of(items: &[(Item, Pair)], ns_per_tick: f64) -> Self {
        let stays = || items.iter().flat_map(|(item, _)| &item.stays[..item.count]);
        let interrupted = stays().filter(|stay| stay.stops > 0);
        let means = interrupted.map(|stay| stay.stopped / stay.stops).collect();
        let typical = upper_median(means).unwrap_or(0);
        let typical_ns = typical as f64 * ns_per_tick;
        let longest_ns = typical_ns * DISTURBED_COSTS + DISTURBED_NS;
        let is_whole = |stay: &&Stay| stay.longest as f64 * ns_per_tick <= longest_ns;
        let whole = || stays().filter(is_whole);
        let stopped: u64 = whole().map(|stay| stay.stopped).sum();
        let all: u64 = whole().map(|stay| stay.leave.0 - stay.enter.0).sum();
        Self {
            typical_ns,
            longest_ns,
            share: stopped as f64 / all.max(1) as f64,
        }
    }
}

/// The longest interruption of an item by something other than samples, ns; `None`: there was none.
fn disturbed_ns(item: &Item, line: &Line, stops: &Stops) -> Option<f64> {
    let stays = &item.stays[..item.count];
    let calls = stays.iter().flat_map(|stay| [stay.enter, stay.leave]);
    let begin = [item.before, item.edges[0]];
    let times: Vec<Tsc> = begin
        .into_iter()
        .chain(calls)
        .chain([item.edges[1], item.after])
        .collect();
    // The functions report their own interruptions.
    let is_call = |n: usize| n >= 2 && n.is_multiple_of(2) && n < 2 + 2 * stays.len();
    let outside = times.windows(2).enumerate().filter(|(n, _)| !is_call(*n));
    let outside = outside.map(|(_, pair)| pair[1].0 - pair[0].0);
    let longest = outside.chain(stays.iter().map(|stay| stay.longest)).max();
    let ns = longest.unwrap_or(0) as f64 * line.ns_per_tick;
    (ns > stops.longest_ns).then_some(ns)
}

fn write(path: &Path, items: &[(Item, Pair)], last: Pair) -> io::Result<()> {
    let too_short = || io::Error::other("the run was too short to tell the time from the counter");
    let pairs = items.iter().map(|(_, pair)| *pair).chain([last]);
    let line = Line::through(pairs).ok_or_else(too_short)?;
    let mut out = BufWriter::new(File::create(path)?);
    let stops = Stops::of(items, line.ns_per_tick);
    let pid = std::process::id();
    for (n, (item, _)) in items.iter().enumerate() {
        let id = n + 1;
        let [enter, leave] = item.edges.map(|tsc| line.ns(tsc));
        let (before, after) = (line.ns(item.before), line.ns(item.after));
        writeln!(
            out,
            "item {id} {pid} {pid} {before} {enter} {leave} {after}"
        )?;
        for stay in &item.stays[..item.count] {
            let (name, _) = FUNCTIONS[stay.function];
            let (enter, leave) = (line.ns(stay.enter), line.ns(stay.leave));
            writeln!(out, "call {name} {id} {pid} {enter} {leave}")?;
        }
        if let Some(ns) = disturbed_ns(item, &line, &stops) {
            writeln!(out, "disturbed {id} {ns:.0}")?;
        }
    }
    writeln!(out, "note {CLOCK_NOTE} {}", line.error_ns().ceil())?;
    writeln!(out, "note {STAMP_NOTE} {}", stamp_ns(&line))?;
    writeln!(out, "note {STOP_NOTE} {:.0}", stops.typical_ns)?;
    writeln!(out, "note {STOPPED_NOTE} {:.0}", stops.share * 1e6)?;
    if let Some(kib) = peak_kib() {
        writeln!(out, "note {PEAK_NOTE} {kib}")?;
    }
    out.flush()
}

/// Largest memory of this process so far, KiB.
/// Source: proc_pid_status(5).
pub(crate) fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Cost of noting an instant, ns.
fn stamp_ns(line: &Line) -> i64 {
    const NOTES: i64 = 1000;
    let first = now();
    let last = (0..NOTES).fold(first, |_, _| now());
    (line.ns(last) - line.ns(first)) / NOTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::truth::{ItemTruth, Truth};

    /// A short run logs items in order, each with its calls inside it and one after another.
    #[test]
    fn the_log_is_consistent() {
        for order in [Order::Random, Order::Equal, Order::Lengths, Order::Timer] {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("log");
            let args = WorkloadArgs {
                log: log.clone(),
                interval_ns: 10_000,
                seconds: 0.05,
                seed: 1,
                order,
            };
            run(&args).unwrap();
            let truth = Truth::read(&log).unwrap();
            assert!(truth.items.len() >= 3);
            if order != Order::Random {
                let calls =
                    |item: &ItemTruth| item.calls.iter().map(|it| it.function).collect::<Vec<_>>();
                assert!(truth.items.values().all(|it| calls(it) == [0, 1, 2]));
                assert_eq!(
                    truth.functions,
                    ["selftest_first", "selftest_middle", "selftest_last"]
                );
            }
            let mut last = i64::MIN;
            for item in truth.items.values() {
                let mut times = vec![item.before.unwrap(), item.enter.unwrap()];
                times.extend(item.calls.iter().flat_map(|call| [call.enter, call.leave]));
                times.extend([item.leave.unwrap(), item.after.unwrap()]);
                assert!(times.is_sorted() && times[0] >= last, "{item:?}");
                last = times[times.len() - 1];
            }
            assert!(truth.notes[CLOCK_NOTE] < 1000);
        }
    }

    /// A long preemption is no sample's interrupt: neither it nor its function counts.
    #[test]
    fn what_samples_take() {
        let stay = |stops, stopped, longest| Stay {
            leave: Tsc(1_000_000),
            stops,
            stopped,
            longest,
            ..Stay::default()
        };
        let mut item = Item {
            count: 3,
            ..Item::default()
        };
        item.stays[..3].copy_from_slice(&[
            stay(10, 60_000, 6000),
            stay(20, 120_000, 7000),
            stay(11, 900_000, 840_000),
        ]);
        let stops = Stops::of(&[(item, Pair::default())], 0.5);
        assert!((stops.typical_ns - 3000.0).abs() < 1.0);
        assert!((stops.share - 0.09).abs() < 1e-6, "{}", stops.share);
    }

    /// Regular items are equal, or of three lengths in turn.
    #[test]
    fn regular_items() {
        let lengths = |order: Order| {
            let mut plan = Plan {
                rng: SplitMix64::new(5),
                rounds: 1000.0,
                limit: 0,
                next: 0,
                order,
            };
            let mut rounds = || {
                let item = plan.item();
                let stays = &item.stays[..item.count];
                assert!(stays.iter().map(|it| it.function).eq([4, 5, 6]));
                stays.iter().map(|it| it.rounds).sum::<u64>()
            };
            [(); 4].map(|()| rounds())
        };
        assert_eq!(lengths(Order::Equal), [600; 4]);
        assert_eq!(lengths(Order::Timer), [600; 4]);
        assert_eq!(lengths(Order::Lengths), [600, 1200, 1800, 600]);
    }

    /// The three kinds take turns, with lengths within their bounds and no function twice in a row.
    #[test]
    fn items_are_as_planned() {
        let mut plan = Plan {
            rng: SplitMix64::new(5),
            rounds: 1000.0,
            limit: 0,
            next: 0,
            order: Order::Random,
        };
        for n in 0..300 {
            let item = plan.item();
            let stays = &item.stays[..item.count];
            let (functions, rounds) = match n % 4 {
                0 | 2 => (0..=3, 2000..=8000),
                1 => (4..=6, 5000..=9000),
                _ => (7..=10, 50..=1500),
            };
            for stay in stays {
                assert!(functions.contains(&stay.function), "{stay:?}");
                assert!(rounds.contains(&stay.rounds), "{stay:?}");
            }
            assert!(
                stays
                    .windows(2)
                    .all(|two| two[0].function != two[1].function)
            );
        }
    }
}
