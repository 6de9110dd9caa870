//! Many events at once: one to six, more than the CPU has counters.
//!
//! With too few counters the kernel multiplexes events; recordings refuse that unless `--multiplex` is given. An event
//! without a counter has no samples: the expected number follows from the time counted.
//!
//! Source: section IV.F of the paper.

use super::accuracy::{CLOCK_BOUND, HARDWARE_BOUND, cpu_ns, is_near};
use super::offers::{self, Offer, Truth, is_hardware};
use super::report::{Basis, Experiment, Figure, Name, Row};
use super::take::{Delivery, EventSamples, TakeError, on_thread, own_thread, take};
use super::work::{Pages, RoundEvent, many};
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::counters;
use crate::pmu::host::Host;
use crate::pmu::open::PerfEvent;
use crate::units::Cpu;

/// Reset value of hardware events: the paper's, made prime, so that it hits all instructions of the loop.
const RESET: u64 = 100_003;

/// Reset value of breakpoints.
const BREAKPOINT_RESET: u64 = 3;

/// Reset value of the clock, ns.
const CLOCK_RESET: u64 = 100_000;

/// Difference from the truth that scaled counts of events in turn may have.
const TURNS_BOUND: f64 = 0.1;

/// Number of pages touched beside the loop.
const PAGES: u64 = 256;

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool) -> Experiment {
    let mut rows = hardware(host, if quick { 100 } else { 1_000 });
    rows.push(ibs(host, if quick { 2_000 } else { 20_000 }));
    rows.extend(software(host, if quick { 1_000 } else { 4_000 }));
    rows.push(most_breakpoints(host));
    Experiment::new(Name::ManyEvents, rows)
}

/// An event and its expected number of samples.
struct Wanted {
    label: String,
    event: ResolvedEvent,
    expected: f64,
    is_exact: bool,
}

impl Wanted {
    fn ratio(&self, taken: &EventSamples) -> f64 {
        (taken.samples.len() as u64 + taken.lost) as f64 / self.expected
    }
}

/// Part of the time in which an event was counted.
fn counted(taken: &EventSamples) -> f64 {
    taken.times.running_ns as f64 / taken.times.enabled_ns.max(1) as f64
}

fn case(n: usize) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} event{s}")
}

/// One to six hardware events, as recordings take them: refused without `--multiplex` where they do not fit.
fn hardware(host: &Host, samples: u64) -> Vec<Row> {
    let label = "loads, stores, branches, taken, locked, returns";
    let rounds = samples * RESET;
    let find = |kind: RoundEvent| {
        let found = offers::of_kind(kind).find(host, RESET);
        found.map(|event| Wanted {
            label: kind.name().to_owned(),
            expected: kind.events(rounds) as f64 / event.reset.0.get() as f64,
            event,
            is_exact: false,
        })
    };
    let all: Result<Vec<Wanted>, String> = RoundEvent::ALL.into_iter().map(find).collect();
    let all = match all {
        Ok(all) => all,
        Err(why) => return vec![Row::not_here(label, "1 to 6 events, with --multiplex", why)],
    };
    let mut rows = Vec::new();
    for n in 1..=all.len() {
        let events: Vec<ResolvedEvent> = all[..n].iter().map(|it| it.event.clone()).collect();
        let refused = counters::check(&events, host).err();
        let case = match &refused {
            Some(_) => format!("{}, with --multiplex", case(n)),
            None => case(n),
        };
        let result = on_thread(|cpu| {
            let events: Vec<_> = all[..n]
                .iter()
                .map(|it| (&it.event, Delivery::Bulk))
                .collect();
            many(1);
            take(cpu, &events, &host.cpu, || (), || many(rounds))
        });
        let mut row = match result {
            Ok(((), taken)) => row(Row::new(label, case, Basis::Exact), &all[..n], &taken),
            Err(error) => Row::not_here(label, case, error.to_string()),
        };
        if let (Some(error), Some(note)) = (refused, &mut row.note) {
            *note += &format!("; without --multiplex a recording is refused: {error}");
        }
        rows.push(row);
    }
    rows
}

/// Samples of IBS distinguish all kinds at once.
fn ibs(host: &Host, samples: u64) -> Row {
    let label = "IBS ops, told apart";
    let offer = Offer {
        only_misses: true,
        ..Offer::new(label, &[offers::OPS], Truth::Counter, Basis::Exact)
    };
    let event = match offer.find(host, RESET) {
        Ok(event) => event,
        Err(why) => return Row::not_here(label, "6 kinds in one run", why),
    };
    let reset = event.reset.0.get();
    // Nine instructions a round, of which the locked ones are several ops: the share of loads is not judged.
    let rounds = samples * reset / 9;
    let result = on_thread(|cpu| {
        take(
            cpu,
            &[(&event, Delivery::Bulk)],
            &host.cpu,
            || (),
            || many(rounds),
        )
    });
    let row = Row::new(
        label,
        format!("6 kinds in one run, R {reset}"),
        Basis::Exact,
    );
    match result {
        Ok(((), taken)) => row.figures(RoundEvent::ALL.map(|kind| {
            let is_kind = |sample: &&super::take::Sample| is_of(kind, sample);
            let found = taken[0].samples.iter().filter(is_kind).count() as u64;
            let expected = kind.events(rounds) as f64 / reset as f64;
            Figure::new(&ratio_of(kind.name()), found as f64 / expected, "", found)
        })),
        Err(error) => Row::not_here(label, "6 kinds in one run", error.to_string()),
    }
}

/// Whether an op is of this kind, by its IBS data; a return by its address.
fn is_of(kind: RoundEvent, sample: &super::take::Sample) -> bool {
    let Some(access) = sample.access else {
        return false;
    };
    let loads = matches!(access.op, Some("load" | "load+store"));
    match kind {
        RoundEvent::Loads => loads,
        RoundEvent::Stores => matches!(access.op, Some("store" | "load+store")),
        RoundEvent::Branches => access.op == Some("branch") || access.taken.is_some(),
        RoundEvent::Taken => access.taken == Some(true),
        RoundEvent::Locked => loads && access.locked == Some(true),
        RoundEvent::Returns => kind.site(1).is_some_and(|(ip, _)| ip == sample.raw.ip.0),
    }
}

fn ratio_of(label: &str) -> String {
    format!("{label} samples/expected")
}

/// Breakpoints, page faults and a clock at once, in place of six counters.
fn software(host: &Host, rounds: u64) -> Vec<Row> {
    let label = "breakpoints, page-faults, task-clock";
    let kinds = RoundEvent::ALL.into_iter();
    let sites = kinds.filter_map(|kind| Some((kind, kind.site(rounds)?)));
    let breakpoints = sites.map(|(kind, (address, executions))| {
        let spec = format!("mem:{address:#x}:x");
        let offer = Offer::new(kind.name(), &[&spec], Truth::Loads, Basis::Exact);
        (offer, BREAKPOINT_RESET, executions)
    });
    let [_, clock] = offers::clocks();
    let offers: Vec<(Offer, u64, u64)> = breakpoints
        .chain([(offers::page_faults(), 1, PAGES), (clock, CLOCK_RESET, 0)])
        .collect();
    let run = |n: usize| {
        let find = |(offer, reset, events): &(Offer, u64, u64)| {
            offer.find(host, *reset).map(|event| Wanted {
                label: offer.label.clone(),
                expected: (events / reset) as f64,
                event,
                is_exact: offer.basis == Basis::Exact,
            })
        };
        let found: Result<Vec<Wanted>, String> = offers[..n].iter().map(find).collect();
        let mut wanted = match found {
            Ok(wanted) => wanted,
            Err(why) => return Row::not_here(label, case(n), why),
        };
        let result = on_thread(|cpu| software_run(host, &wanted, cpu, rounds));
        match result {
            Ok((ns, taken)) => {
                for one in wanted.iter_mut().filter(|it| !it.is_exact) {
                    one.expected = ns as f64 / CLOCK_RESET as f64;
                }
                row(Row::new(label, case(n), Basis::Exact), &wanted, &taken)
            }
            Err(error) => Row::not_here(label, case(n), error.to_string()),
        }
    };
    (1..=offers.len()).map(run).collect()
}

/// Runs the loop, and touches fresh pages; returns the time of both, ns.
fn software_run(
    host: &Host,
    wanted: &[Wanted],
    cpu: Cpu,
    rounds: u64,
) -> Result<(u64, Vec<EventSamples>), TakeError> {
    let pages = Pages::new(4).and_then(|warm| {
        warm.touch();
        Pages::new(PAGES)
    });
    let pages = pages.map_err(|errno| TakeError::Prepare {
        cpu,
        source: errno.into(),
    })?;
    many(1);
    let events: Vec<_> = wanted
        .iter()
        .map(|it| (&it.event, Delivery::Bulk))
        .collect();
    let work = || {
        let begin = cpu_ns();
        many(rounds);
        pages.touch();
        cpu_ns() - begin
    };
    take(cpu, &events, &host.cpu, || (), work)
}

/// Rows of events that ran at once.
fn row(row: Row, wanted: &[Wanted], taken: &[EventSamples]) -> Row {
    let error = |(it, one): (&Wanted, &EventSamples)| (it.ratio(one) - 1.0).abs() * 100.0;
    let worst = wanted.iter().zip(taken).map(error).fold(0.0, f64::max);
    let each = wanted.iter().zip(taken).map(|(it, one)| {
        let n = one.samples.len() as u64;
        Figure::new(&ratio_of(&it.label), it.ratio(one), "", n)
    });
    let mut row = row
        .figures([Figure::new("largest error", worst, "%", taken.len() as u64)])
        .figures(each);
    let least = taken.iter().map(counted).fold(1.0, f64::min);
    let n = taken.len() as u64;
    row = row.figures([Figure::new("least time counted", least * 100.0, "%", n)]);
    if least < 0.99 {
        let scaled =
            |(it, one): (&Wanted, &EventSamples)| (it.ratio(one) / counted(one) - 1.0).abs();
        let worst = wanted.iter().zip(taken).map(scaled).fold(0.0, f64::max);
        let figure = Figure::new(
            "largest error once scaled by the turns",
            worst * 100.0,
            "%",
            n,
        );
        let bound = format!("within {} % once scaled by the turns", TURNS_BOUND * 100.0);
        return row.figures([figure]).judged(worst <= TURNS_BOUND, bound);
    }
    let is_good = |(it, one): (&Wanted, &EventSamples)| {
        let bound = if is_hardware(&it.event) {
            HARDWARE_BOUND
        } else {
            CLOCK_BOUND
        };
        if it.is_exact {
            return it.ratio(one) == 1.0;
        }
        is_near(it.ratio(one), it.expected, bound)
    };
    let holds = wanted.iter().zip(taken).all(is_good);
    row.judged(
        holds,
        "exact events have to be equal, others within their bounds of accuracy",
    )
}

/// Number of breakpoints of the CPU for a thread: the only such resource that is limited on any machine.
fn most_breakpoints(host: &Host) -> Row {
    /// More than any CPU has.
    const MOST: u64 = 16;
    let label = "breakpoints";
    let mut held = Vec::new();
    let result = on_thread(|cpu| {
        let mut open = 0;
        for n in 0..MOST {
            // Distinct addresses: equal ones might share a breakpoint.
            let spec = format!("mem:{:#x}:x", super::work::Loop::loads().range.0 + n);
            let offer = Offer::new(label, &[&spec], Truth::Loads, Basis::Exact);
            let Ok(event) = offer.find(host, 1) else {
                return Ok(open);
            };
            let target = own_thread(cpu);
            match PerfEvent::open(&event.attr_for(target), target, label) {
                Ok(counter) => held.push(counter),
                Err(_) => return Ok(open),
            }
            open += 1;
        }
        Ok(open)
    });
    match result {
        Ok(0) => Row::not_here(label, "as many as open", "the kernel grants none"),
        Ok(open) => Row::new(label, "as many as open", Basis::Exact)
            .figures([Figure::new("open at once", open as f64, "events", open)])
            .note("the kernel refuses more: breakpoints take no turns"),
        Err(error) => Row::not_here(label, "as many as open", error.to_string()),
    }
}
