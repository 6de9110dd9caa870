//! User and kernel mode: work in a known mode, against the mode in samples.
//!
//! Source: section IV.G of the paper, which counts locked instructions of a kernel module. Here the kernel does its own
//! work: faults while it fills fresh pages, and reads of `/dev/zero`, whose begin and end are timed.

use std::io::Read as _;

use super::offers::{self, Offer, Truth, is_hardware};
use super::report::{Basis, Experiment, Figure, Name, Row};
use super::statistics::median;
use super::take::{Delivery, Sample, TakeError, on_thread, take};
use super::work::{Chase, Pages, Ratio};
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::units::Cpu;

/// Pages of each mode.
const PAGES: u64 = 512;

/// Share of samples that may be in the wrong mode, where the truth is measured, percent.
const MOST_WRONG: f64 = 1.0;

/// Time around a change of mode in which samples are not judged, ns: an interrupt reads the clock when it is handled,
/// which a virtual machine may delay by some us.
const EDGE_NS: i64 = 20_000;

/// Bytes that the kernel fills in a read, and loads of a turn in user space: some 100 us each.
const READ_BYTES: usize = 2 << 20;
const LOADS: u64 = 20_000;

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool) -> Experiment {
    let mut rows: Vec<Row> = ["page-faults", "page-faults:u", "page-faults:k"]
        .into_iter()
        .map(|spec| faults(host, spec))
        .collect();
    let rounds = if quick { 200 } else { 2_000 };
    let timed = [
        ("instructions retired", "instructions:ppp", 20_011),
        ("instructions retired, user", "instructions:uppp", 20_011),
        ("instructions retired, kernel", "instructions:kppp", 20_011),
        ("IBS ops", offers::OPS, 20_000),
        ("cpu-clock", "cpu-clock", 20_000),
        ("cpu-clock, user", "cpu-clock:u", 20_000),
        ("cpu-clock, kernel", "cpu-clock:k", 20_000),
    ];
    rows.extend(timed.map(|(label, spec, reset)| reads(host, label, (spec, reset), rounds)));
    Experiment::new(Name::Modes, rows)
}

/// Modes that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Modes {
    user: bool,
    kernel: bool,
}

impl Modes {
    fn of(event: &ResolvedEvent) -> Self {
        Self {
            user: event.attr.exclude_user() == 0,
            kernel: event.attr.exclude_kernel() == 0,
        }
    }
}

/// Samples by the actual mode of the work, and the mode recorded in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Confusion {
    user_as_user: u64,
    user_as_kernel: u64,
    kernel_as_user: u64,
    kernel_as_kernel: u64,
    /// Too near to a change of mode to judge, or in a turn that was too long.
    edge: u64,
}

impl Confusion {
    fn add(&mut self, is_kernel: Option<bool>, sample: &Sample) {
        let says_kernel = sample.raw.kind.is_kernel();
        *match (is_kernel, says_kernel) {
            (None, _) => &mut self.edge,
            (Some(false), false) => &mut self.user_as_user,
            (Some(false), true) => &mut self.user_as_kernel,
            (Some(true), false) => &mut self.kernel_as_user,
            (Some(true), true) => &mut self.kernel_as_kernel,
        } += 1;
    }

    const fn wrong(&self) -> u64 {
        self.user_as_kernel + self.kernel_as_user
    }

    const fn known(&self) -> u64 {
        self.user_as_user + self.kernel_as_kernel + self.wrong()
    }

    fn figures(&self) -> Vec<Figure> {
        let Self {
            user_as_user,
            user_as_kernel,
            kernel_as_user,
            kernel_as_kernel,
            edge,
        } = *self;
        let counts = [
            ("user as user", user_as_user),
            ("user as kernel", user_as_kernel),
            ("kernel as user", kernel_as_user),
            ("kernel as kernel", kernel_as_kernel),
            ("not known", edge),
        ];
        let counts = counts.map(|(name, count)| Figure::count(name, count, "samples"));
        let wrong = Figure::share("in the wrong mode", self.wrong(), self.known());
        wrong.into_iter().chain(counts).collect()
    }
}

/// Faults of stores in user space and of the kernel filling pages.
fn faults(host: &Host, spec: &str) -> Row {
    let case = format!("{PAGES} by stores, {PAGES} by system calls");
    let offer = Offer::new(spec, &[spec], Truth::Pages, Basis::Exact);
    let event = match offer.find(host, 1) {
        Ok(event) => event,
        Err(why) => return Row::not_here(spec, case, why),
    };
    match on_thread(|cpu| faults_by_mode(host, &event, cpu)) {
        Ok(found) => {
            let modes = Modes::of(&event);
            let of = |counts| if counts { PAGES } else { 0 };
            let expected = Confusion {
                user_as_user: of(modes.user),
                kernel_as_kernel: of(modes.kernel),
                ..Confusion::default()
            };
            let row = Row::new(spec, case, Basis::Exact).figures(found.figures());
            row.judged(found == expected, "each page once, in its mode")
        }
        Err(error) => Row::not_here(spec, case, error.to_string()),
    }
}

fn faults_by_mode(host: &Host, event: &ResolvedEvent, cpu: Cpu) -> Result<Confusion, TakeError> {
    let prepare = |source| TakeError::Prepare { cpu, source };
    let pages = |count| Pages::new(count).map_err(|errno| prepare(errno.into()));
    let (user, kernel) = (pages(PAGES)?, pages(PAGES)?);
    pages(4)?.touch();
    pages(4)?.fill().map_err(prepare)?;
    let events = [(event, Delivery::Bulk)];
    let (filled, taken) = take(
        cpu,
        &events,
        &host.cpu,
        || (),
        || {
            user.touch();
            kernel.fill()
        },
    )?;
    filled.map_err(prepare)?;
    let mut confusion = Confusion::default();
    for sample in &taken[0].samples {
        // Other pages belong to neither.
        let address = sample.access.and_then(|access| access.addr).unwrap_or(0);
        for (pages, is_kernel) in [(&user, false), (&kernel, true)] {
            if pages.contains(address) {
                confusion.add(Some(is_kernel), sample);
            }
        }
    }
    Ok(confusion)
}

/// Times of system calls, `CLOCK_MONOTONIC`, ns.
type Calls = Vec<(i64, i64)>;

/// Alternating work in user space and in the kernel, distinguished by time.
fn reads(host: &Host, label: &str, (spec, reset): (&str, u64), rounds: u32) -> Row {
    let case = format!("R {reset}, reads of /dev/zero");
    let offer = Offer::new(label, &[spec], Truth::CpuTime, Basis::StandIn);
    let mut event = match offer.find(host, reset) {
        Ok(event) => event,
        Err(why) => return Row::not_here(label, case, why),
    };
    // Only here sample times are compared with those of the work.
    event.attr.set_use_clockid(1);
    event.attr.clockid = libc::CLOCK_MONOTONIC;
    event.perf_clock = false;
    let basis = if is_hardware(&event) {
        Basis::Exact
    } else {
        Basis::StandIn
    };
    let run = on_thread(|cpu| {
        let chase = Chase::new(Ratio::In20);
        let events = [(&event, Delivery::Bulk)];
        let prepare = |source| TakeError::Prepare { cpu, source };
        let mut zero = std::fs::File::open("/dev/zero").map_err(prepare)?;
        let mut buffer = vec![1; READ_BYTES];
        let work = || turns(&chase, &mut zero, &mut buffer, rounds);
        let (calls, taken) = take(cpu, &events, &host.cpu, || (), work)?;
        Ok((calls.map_err(prepare)?, taken))
    });
    let (calls, taken) = match run {
        Ok(run) => run,
        Err(error) => return Row::not_here(label, case, error.to_string()),
    };
    let mut found = Confusion::default();
    let longest = longest(&calls);
    for sample in &taken[0].samples {
        let is_kernel = is_in_kernel(&calls, longest, sample.raw.time.0);
        found.add(is_kernel, sample);
    }
    let row = Row::new(label, case, basis).figures(found.figures());
    // Some of the time in user space is still the kernel's: interrupts, and other threads' turns.
    let wrong = found.kernel_as_user as f64 / (found.known() as f64).max(1.0) * 100.0;
    let is_filtered = |counts, count| counts || count == 0;
    let modes = Modes::of(&event);
    let none_else = is_filtered(modes.user, found.user_as_user + found.kernel_as_user)
        && is_filtered(modes.kernel, found.user_as_kernel + found.kernel_as_kernel);
    row.judged(
        found.known() > 0 && none_else && wrong <= MOST_WRONG,
        format!(
            "{MOST_WRONG} % kernel as user at most, none in a mode that is left out; interrupts are 'user as kernel'"
        ),
    )
}

/// Works in user space, then has the kernel fill the buffer, in turn.
fn turns(
    chase: &Chase,
    zero: &mut std::fs::File,
    buffer: &mut [u8],
    rounds: u32,
) -> std::io::Result<Calls> {
    let mut calls = Calls::with_capacity(rounds as usize);
    for _ in 0..rounds {
        chase.run(LOADS);
        let begin = now();
        zero.read_exact(buffer)?;
        calls.push((begin, now()));
    }
    Ok(calls)
}

fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The longest turns of user space and of the kernel that are judged, ns: in a longer one another thread had the CPU,
/// and it is unknown when this one got it back.
fn longest(calls: &[(i64, i64)]) -> [i64; 2] {
    const TIMES: f64 = 2.0;
    let user = calls.windows(2).map(|two| (two[1].0 - two[0].1) as f64);
    let kernel = calls.iter().map(|call| (call.1 - call.0) as f64);
    let most = |turns: Vec<f64>| (median(&turns).unwrap_or(0.0) * TIMES) as i64;
    [most(user.collect()), most(kernel.collect())]
}

/// Whether a system call ran at a time; `None` near its begin or end, in turns that were too long, and outside of the work.
fn is_in_kernel(calls: &[(i64, i64)], [user, kernel]: [i64; 2], time: i64) -> Option<bool> {
    let after = calls.partition_point(|call| call.0 <= time);
    let before = after.checked_sub(1).map(|at| calls[at]);
    let next = calls.get(after);
    if let Some((begin, end)) = before
        && time <= end + EDGE_NS
    {
        let is_inside = time > begin + EDGE_NS && time < end - EDGE_NS;
        return (is_inside && end - begin <= kernel).then_some(true);
    }
    // Before the first call and behind the last one the mode is unknown.
    let (begin, end) = (before?.1, next?.0);
    let is_inside = time < end - EDGE_NS && end - begin <= user;
    is_inside.then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Within a call is the kernel, between two is user space; unknown are times near a change, before the first and
    /// after the last call, and in a turn much longer than the others.
    #[test]
    fn by_time() {
        let calls = [(100_000, 200_000), (500_000, 600_000)];
        for (time, expected) in [
            (10_000, None),
            (95_000, None),
            (105_000, None),
            (150_000, Some(true)),
            (195_000, None),
            (205_000, None),
            (300_000, Some(false)),
            (550_000, Some(true)),
            (700_000, None),
        ] {
            let found = is_in_kernel(&calls, longest(&calls), time);
            assert_eq!(found, expected, "{time}");
        }
        let preempted = [(0, 100_000), (200_000, 300_000), (400_000, 900_000)];
        let at = |time| is_in_kernel(&preempted, longest(&preempted), time);
        assert_eq!(
            (at(250_000), at(350_000), at(650_000)),
            (Some(true), Some(false), None)
        );
    }

    /// Modes of page faults are exact on this machine, and `:u` and `:k` exclude the other mode.
    #[test]
    fn this_machine() {
        if let Some(missing) = crate::limits::missing_privileges() {
            println!("SKIP {missing}");
            return;
        }
        let host = Host::probe(Path::new("/"));
        for (spec, user, kernel) in [
            ("page-faults", 512.0, 512.0),
            ("page-faults:u", 512.0, 0.0),
            ("page-faults:k", 0.0, 512.0),
        ] {
            let row = faults(&host, spec);
            assert_eq!(row.holds, Some(true), "{row:?}");
            assert_eq!(row.value("user as user"), Some(user), "{row:?}");
            assert_eq!(row.value("kernel as kernel"), Some(kernel), "{row:?}");
        }
    }
}
