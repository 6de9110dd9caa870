//! Bias and attribution: four instructions of a loop make equally many events; nothing else makes any.
//!
//! Source: section IV.C of the paper. Its reset value of 100,000 is a multiple of the four events of a round: a counter
//! that overflows exactly then always hits the same instruction, however precise it is. So two values are tried: one
//! coprime to the loop, which is judged, and one that is a multiple.

use super::accuracy::with_pages;
use super::offers::{self, Offer, Truth, is_hardware, is_ibs};
use super::report::{Basis, Experiment, Figure, Name, Row};
use super::statistics::ChiSquare;
use super::take::{Delivery, EventSamples, Sample, TakeError, on_thread, take};
use super::work::{self, Loop};
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::units::Cpu;

/// Least probability at which unequal shares are attributed to chance.
const LEAST_P: f64 = 0.001;

/// Largest share of samples off the event's instructions, percent.
const MOST_OFF: f64 = 1.0;

/// Samples of an event of software, or of hardware.
const SAMPLES: u64 = 2_000;

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool) -> Experiment {
    let mut rows = Vec::new();
    let samples = if quick { SAMPLES / 2 } else { SAMPLES };
    let loads = Loop::loads();
    let ops = Offer {
        only_misses: true,
        ..Offer::new("IBS ops, loads", &[offers::OPS], Truth::Loads, Basis::Exact)
    };
    for offer in [offers::loads(), ops] {
        for reset in [100_003, 100_000] {
            rows.push(one(host, &offer, (reset, samples), &loads));
        }
    }
    for (n, address) in loads.sites.iter().enumerate() {
        let (label, spec) = (
            format!("breakpoint on load {}", n + 1),
            format!("mem:{address:#x}:x"),
        );
        let offer = Offer::new(&label, &[&spec], Truth::Loads, Basis::Exact);
        let only = Loop {
            sites: [*address; 4],
            ..loads
        };
        rows.push(one(host, &offer, (1, samples), &only));
    }
    for reset in [1, 3, 4] {
        rows.push(one(
            host,
            &offers::page_faults(),
            (reset, samples),
            &Loop::touches(),
        ));
    }
    let [clock, _] = offers::clocks();
    rows.push(one(host, &clock, (50_000, samples / 2), &loads));
    Experiment::new(Name::Bias, rows)
}

fn one(host: &Host, offer: &Offer, (reset, samples): (u64, u64), code: &Loop) -> Row {
    let case = format!("R {reset}");
    let event = match offer.find(host, reset) {
        Ok(event) => event,
        Err(why) => return Row::not_here(&offer.label, case, why),
    };
    match on_thread(|cpu| sampled(host, (offer, &event), samples, cpu)) {
        Ok(taken) => row(offer, &event, case, &Places::of(&taken, code)),
        Err(error) => Row::not_here(&offer.label, case, error.to_string()),
    }
}

/// Addresses of the samples that count.
fn sampled(
    host: &Host,
    (offer, event): (&Offer, &ResolvedEvent),
    samples: u64,
    cpu: Cpu,
) -> Result<Vec<SampleAddress>, TakeError> {
    let events = [(event, Delivery::Bulk)];
    let total = samples * event.reset.0.get();
    let taken: Vec<EventSamples> = match offer.truth {
        Truth::Pages => {
            with_pages(
                total,
                cpu,
                || (),
                |pages, ready| take(cpu, &events, &host.cpu, ready, || pages.touch()),
            )?
            .1
        }
        Truth::CpuTime => {
            let begin = super::accuracy::cpu_ns();
            let until = begin + total;
            let work = || {
                while super::accuracy::cpu_ns() < until {
                    work::load_four(20_000);
                }
            };
            take(cpu, &events, &host.cpu, || (), work)?.1
        }
        _ => {
            // Each breakpoint is on one of the four loads.
            let per_round = if is_hardware(event) { 4 } else { 1 };
            work::load_four(1);
            let work = || work::load_four(total / per_round);
            take(cpu, &events, &host.cpu, || (), work)?.1
        }
    };
    let wanted = |sample: &&Sample| !is_ibs(event) || is_load(sample);
    let all = taken.iter().flat_map(|one| &one.samples);
    let wanted = all.filter(wanted).filter(|it| !it.raw.ip.is_kernel());
    Ok(wanted
        .map(|sample| (sample.raw.ip.0, sample.raw.kind.is_exact()))
        .collect())
}

/// Whether an op was a load.
fn is_load(sample: &Sample) -> bool {
    let op = sample.access.and_then(|access| access.op);
    matches!(op, Some("load" | "load+store"))
}

/// Address of a sample, and whether the kernel marks it as exact.
type SampleAddress = (u64, bool);

/// Places of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Places {
    /// Samples within the loop.
    inside: u64,
    /// Samples outside of the loop.
    outside: u64,
    /// Samples marked as exact by the kernel.
    exact: u64,
    /// At each of the instructions.
    sites: [u64; 4],
    /// Samples at the instruction just behind one of them, as by a skid of one.
    skidded: u64,
}

impl Places {
    fn of(found: &[SampleAddress], code: &Loop) -> Self {
        let mut places = Self::default();
        for (ip, is_exact) in found {
            places.exact += u64::from(*is_exact);
            if !(code.range.0..code.range.1).contains(ip) {
                places.outside += 1;
                continue;
            }
            places.inside += 1;
            match code.sites.iter().position(|site| site == ip) {
                Some(at) => places.sites[at] += 1,
                None => places.skidded += 1,
            }
        }
        places
    }

    const fn all(&self) -> u64 {
        self.inside + self.outside
    }

    fn at_sites(&self) -> u64 {
        self.sites.iter().sum()
    }
}

fn row(offer: &Offer, event: &ResolvedEvent, case: String, places: &Places) -> Row {
    let is_one = offer.label.starts_with("breakpoint");
    let off = places.all() - places.at_sites();
    let n = places.at_sites();
    let mut row = Row::new(&offer.label, case, offer.basis)
        .figures([Figure::count("samples", places.all(), "samples")])
        .figures(Figure::share(
            "off the event's instructions",
            off,
            places.all(),
        ));
    if !is_one {
        let chi = ChiSquare::of_equal(&places.sites);
        row = row
            .figures(chi.map(|chi| Figure::new("p of equal shares", chi.p, "", n)))
            .figures(chi.map(|chi| Figure::new("chi-square", chi.value, "", n)));
        for (n, count) in places.sites.iter().enumerate() {
            let name = format!("at instruction {}", n + 1);
            row = row.figures(Figure::share(&name, *count, places.all()));
        }
    }
    row = row.figures(Figure::share(
        "elsewhere in the loop",
        places.skidded,
        places.all(),
    ));
    if is_hardware(event) {
        row = row.figures(Figure::share(
            "said to be exact",
            places.exact,
            places.all(),
        ));
    }
    if offer.truth == Truth::CpuTime {
        return row
            .note("a clock has no instruction of its own: where it finds the loop is not judged");
    }
    let share = off as f64 / (places.all() as f64).max(1.0) * 100.0;
    let is_exact = !is_hardware(event);
    let in_place = places.all() > 0
        && if is_exact {
            off == 0
        } else {
            share <= MOST_OFF
        };
    let reset = event.reset.0.get();
    if is_one {
        return row.judged(in_place, "all have to be at the instruction");
    }
    if is_ibs(event) {
        return row.judged(
            in_place,
            "R counts all ops of the loop, and is a multiple of 16: only attribution is judged",
        );
    }
    if reset.is_multiple_of(4) {
        return row.judged(
            in_place,
            "R is a multiple of the events of a round: all may be at one instruction; only attribution is judged",
        );
    }
    let is_equal = ChiSquare::of_equal(&places.sites).is_some_and(|chi| chi.p >= LEAST_P);
    row.judged(
        in_place && is_equal,
        format!("p at least {LEAST_P}, {MOST_OFF} % off at most"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const CODE: Loop = Loop {
        sites: [10, 20, 30, 40],
        range: (10, 60),
    };

    /// Samples are at an instruction of the event, elsewhere in the loop, or outside.
    #[test]
    fn places() {
        let found = [10, 20, 30, 40, 40, 41, 59, 60, 9].map(|ip| (ip, ip < 20));
        let places = Places::of(&found, &CODE);
        let expected = Places {
            exact: 2,
            inside: 7,
            outside: 2,
            sites: [1, 1, 1, 2],
            skidded: 2,
        };
        assert_eq!(places, expected);
        assert_eq!((places.all(), places.at_sites()), (9, 5));
    }

    /// On this machine page faults are found at their stores, in equal shares if the reset value is coprime to the
    /// loop, and all at one store if it is a multiple; breakpoints are at their instruction.
    #[test]
    fn this_machine() {
        if let Some(missing) = crate::limits::missing_privileges() {
            println!("SKIP {missing}");
            return;
        }
        let host = Host::probe(Path::new("/"));
        let experiment = run(&host, true);
        let row = |event: &str, case: &str| {
            let mut rows = experiment.rows.iter();
            rows.find(|row| row.event == event && row.case == case)
                .unwrap()
        };
        for case in ["R 1", "R 3", "R 4"] {
            let row = row("page-faults", case);
            assert_eq!(row.holds, Some(true), "{row:?}");
            assert_eq!(
                row.value("off the event's instructions"),
                Some(0.0),
                "{row:?}"
            );
        }
        assert_eq!(row("page-faults", "R 1").value("chi-square"), Some(0.0));
        assert_eq!(
            row("page-faults", "R 4").value("at instruction 4"),
            Some(100.0)
        );
        for n in 1..=4 {
            let row = row(&format!("breakpoint on load {n}"), "R 1");
            assert_eq!(
                (row.holds, row.value("samples")),
                (Some(true), Some(1_000.0)),
                "{row:?}"
            );
        }
    }
}
