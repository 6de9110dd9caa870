//! Sensitivity to the reset value, and stability: the same counts at reset values of four decades, over several runs.
//!
//! Source: section IV.B of the paper.

use super::accuracy::{Counted, Plan, Size, judge};
use super::offers::{self, Offer, Truth};
use super::report::{Experiment, Figure, Name, Row};
use super::statistics::Summary;
use super::take::TakeError;
use super::work::{Chase, Ratio};
use crate::pmu::host::Host;

/// Samples of a clock at the largest reset value, where each takes 1 ms.
const FEW: u64 = 20;

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool) -> Experiment {
    let chase = Chase::new(Ratio::In20);
    let size = Size::of(quick);
    let mut offers = offers::of_chase(host, &chase);
    offers.push(offers::page_faults());
    offers.extend(offers::clocks());
    let rows = offers.iter().flat_map(|offer| {
        let resets = resets(offer).into_iter();
        resets.map(|reset| row(host, offer, &chase, (reset, size)))
    });
    Experiment::new(Name::Sensitivity, rows.collect())
}

/// Reset values: for hardware those of the paper. For software events, each of which takes some us, values small enough
/// for samples; the kernel's clocks do not tick faster than every 10 us.
fn resets(offer: &Offer) -> Vec<u64> {
    match offer.truth {
        Truth::Pages => vec![1, 10, 100, 1_000],
        Truth::CpuTime => vec![10_000, 100_000, 1_000_000],
        _ if offer.label.starts_with("breakpoint") => vec![1, 10, 100, 1_000],
        _ => vec![1_000, 10_000, 100_000, 1_000_000],
    }
}

fn row(host: &Host, offer: &Offer, chase: &Chase, (reset, size): (u64, Size)) -> Row {
    let case = format!("R {reset}");
    let event = match offer.find(host, reset) {
        Ok(event) => event,
        Err(why) => return Row::not_here(&offer.label, case, why),
    };
    let samples = if reset >= 1_000_000 {
        size.samples.min(FEW)
    } else {
        size.samples
    };
    let plan = Plan::new(host, offer, &event, samples);
    let runs: Result<Vec<Counted>, TakeError> =
        (0..size.runs).map(|_| plan.count(chase, 1)).collect();
    match runs {
        Ok(runs) => {
            let row = Row::new(&offer.label, case, offer.basis).figures(figures(&runs));
            let sum = |of: fn(&Counted) -> u64| runs.iter().map(of).sum::<u64>();
            let all = Counted {
                samples: sum(|it| it.samples),
                lost: sum(|it| it.lost),
                throttled: sum(|it| it.throttled),
                waited_ns: sum(|it| it.waited_ns),
                expected: runs.iter().map(|it| it.expected).sum(),
            };
            judge(row, offer.basis, &event, &all)
        }
        Err(error) => Row::not_here(&offer.label, case, error.to_string()),
    }
}

/// Mean and standard deviation of the accuracy over runs.
fn figures(runs: &[Counted]) -> Vec<Figure> {
    let ratios: Vec<f64> = runs.iter().map(Counted::ratio).collect();
    let sum = |of: fn(&Counted) -> u64| runs.iter().map(of).sum();
    let ratio = Summary::of(&ratios).map(|summary| Figure::mean("samples/expected", summary, ""));
    ratio
        .into_iter()
        .chain([
            Figure::count("samples", runs.iter().map(|it| it.samples).sum(), "samples"),
            Figure::count("lost", sum(|it| it.lost), "samples"),
            Figure::count("throttled", sum(|it| it.throttled), "events"),
            Figure::new(
                "time not counted",
                sum(|it| it.waited_ns) as f64,
                "ns",
                runs.len() as u64,
            ),
        ])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::report::Spread;

    /// Equal runs have no deviation; runs that differ have.
    #[test]
    fn stability() {
        let run = |samples| Counted {
            samples,
            lost: 0,
            throttled: 0,
            waited_ns: 0,
            expected: 100.0,
        };
        let spread = |runs: &[Counted]| figures(runs)[0].spread;
        assert_eq!(spread(&[run(100); 5]), Some(Spread::Deviation(0.0)));
        let Some(Spread::Deviation(deviation)) = spread(&[run(98), run(100), run(102)]) else {
            panic!("no deviation");
        };
        assert!((deviation - 0.02).abs() < 1e-12);
    }
}
