//! Overhead in time: work with and without sampling, per event, reset value, way of delivery and number of threads.
//!
//! Runs with and without sampling alternate, so that a slow spell of the machine affects both; the figures are of
//! pairs. The spread of runs without sampling is shown beside: an overhead below that noise is not significant.
//!
//! Source: section IV.D of the paper. It delivers a signal for each sample; here delivery is that of recordings: the
//! kernel writes into a ring (`bulk`), or an eBPF program gets each sample (`bpf`).

use super::accuracy::{cpu_ns, thread_counts};
use super::offers::{self, Offer, Truth, is_hardware};
use super::report::{Figure, Row};
use super::statistics::{Summary, median};
use super::take::{Delivery, TakeError, bound, on_threads, take};
use super::work::{Chase, Pages, Ratio};
use crate::cost::calibrate::Bench;
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::units::Cpu;

/// Loads of a run of hardware and clocks: some 10 ms.
const LOADS: u64 = 400_000;

/// Events of a run of software events, each of which takes some us.
const SOFTWARE_EVENTS: u64 = 2_000;

/// Rows of the experiment.
pub(crate) fn run(host: &Host, quick: bool, bench: Option<&Bench>) -> Vec<Row> {
    let chase = Chase::new(Ratio::In20);
    let rounds = if quick { 5 } else { 11 };
    let mut offers = offers::of_chase(host, &chase);
    offers.push(offers::page_faults());
    offers.extend(offers::clocks());
    let mut rows = Vec::new();
    for offer in &offers {
        for reset in resets(offer) {
            rows.extend(of_offer(host, offer, &chase, reset, rounds, bench));
        }
    }
    rows
}

/// The paper's reset value, and a tenth of it; for clocks a quarter, as each sample takes some us; for software events
/// 1 and 10.
fn resets(offer: &Offer) -> [u64; 2] {
    match offer.truth {
        Truth::Pages => [1, 10],
        Truth::CpuTime => [100_000, 25_000],
        _ if offer.label.starts_with("breakpoint") => [1, 10],
        _ => [100_000, 10_000],
    }
}

fn of_offer(
    host: &Host,
    offer: &Offer,
    chase: &Chase,
    reset: u64,
    rounds: usize,
    bench: Option<&Bench>,
) -> Vec<Row> {
    let event = match offer.find(host, reset) {
        Ok(event) => event,
        Err(why) => return vec![Row::not_here(&offer.label, format!("R {reset}"), why)],
    };
    let measure = |delivery: Delivery<'_>, threads: usize| {
        let s = if threads == 1 { "" } else { "s" };
        let case = format!("R {reset}, {}, {threads} thread{s}", delivery.name());
        let run = Run {
            host,
            event: &event,
            truth: offer.truth,
            chase,
        };
        let row = Row::new(&offer.label, case.clone(), offer.basis);
        match run.compare(delivery, threads, rounds) {
            Ok(found) if offer.label.starts_with("breakpoint") => row
                .figures(figures(&found))
                .note("each execution stops at a breakpoint, sampled or not"),
            Ok(found) => row.figures(figures(&found)),
            Err(error) => Row::not_here(&offer.label, case, error.to_string()),
        }
    };
    let mut rows = vec![measure(Delivery::Nowhere, 1)];
    for threads in thread_counts(super::take::cpus().len()) {
        rows.push(measure(Delivery::Bulk, threads));
    }
    match bench {
        Some(bench) => rows.push(measure(Delivery::Bpf(bench), 1)),
        None => rows.push(Row::not_here(
            &offer.label,
            format!("R {reset}, bpf, 1 thread"),
            "the kernel does not load the program",
        )),
    }
    rows
}

/// A pair of runs: ns on the CPU without and with sampling, and samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    plain_ns: f64,
    sampled_ns: f64,
    samples: u64,
}

/// One run.
struct Run<'a> {
    host: &'a Host,
    event: &'a ResolvedEvent,
    truth: Truth,
    chase: &'a Chase,
}

impl Run<'_> {
    /// Pairs of runs, of each thread; threads run at once.
    fn compare(
        &self,
        delivery: Delivery<'_>,
        threads: usize,
        rounds: usize,
    ) -> Result<Vec<Pair>, TakeError> {
        let Delivery::Bpf(_) = delivery else {
            let is_bulk = matches!(delivery, Delivery::Bulk);
            let each = on_threads(threads, |cpu, barrier| {
                barrier.wait();
                // An event with an eBPF program can't be passed to other threads.
                let delivery = if is_bulk {
                    Delivery::Bulk
                } else {
                    Delivery::Nowhere
                };
                self.pairs(delivery, cpu, rounds)
            })?;
            return Ok(each.into_iter().flatten().collect());
        };
        // The program's ring is this thread's.
        bound(|cpu| self.pairs(delivery, cpu, rounds))
    }

    fn pairs(
        &self,
        delivery: Delivery<'_>,
        cpu: Cpu,
        rounds: usize,
    ) -> Result<Vec<Pair>, TakeError> {
        // The first one fills caches.
        self.work(cpu)?();
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let work = self.work(cpu)?;
            let plain_ns = timed(work);
            let work = self.work(cpu)?;
            let events = [(self.event, delivery)];
            let (sampled_ns, taken) = take(cpu, &events, &self.host.cpu, || (), || timed(work))?;
            let samples = match delivery {
                // The kernel took one at each overflow of the counter.
                Delivery::Nowhere => taken[0].times.value / self.event.reset.0.get(),
                Delivery::Bulk | Delivery::Bpf(_) => taken[0].samples.len() as u64 + taken[0].lost,
            };
            pairs.push(Pair {
                plain_ns,
                sampled_ns,
                samples,
            });
        }
        Ok(pairs)
    }

    /// Work for this event, ready to be run.
    fn work(&self, cpu: Cpu) -> Result<Box<dyn FnOnce() + '_>, TakeError> {
        if self.truth == Truth::Pages {
            let pages = Pages::new(SOFTWARE_EVENTS).map_err(|errno| TakeError::Prepare {
                cpu,
                source: errno.into(),
            })?;
            return Ok(Box::new(move || pages.touch()));
        }
        let is_clock = self.truth == Truth::CpuTime;
        let loads = if is_hardware(self.event) || is_clock {
            LOADS
        } else {
            SOFTWARE_EVENTS
        };
        Ok(Box::new(move || {
            self.chase.run(loads);
        }))
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let begin = cpu_ns();
    work();
    (cpu_ns() - begin) as f64
}

/// Overhead and its standard deviation over pairs, cost of a sample, and the noise of runs without.
fn figures(pairs: &[Pair]) -> Vec<Figure> {
    let of = |value: &dyn Fn(&Pair) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
    let overhead = of(&|pair| (pair.sampled_ns / pair.plain_ns - 1.0) * 100.0);
    let plain = of(&|pair| pair.plain_ns);
    let n = pairs.len() as u64;
    let mut figures = Vec::new();
    if let (Some(middle), Some(summary)) = (median(&overhead), Summary::of(&overhead)) {
        let middle = Summary {
            mean: middle,
            ..summary
        };
        figures.push(Figure::mean("overhead", middle, "%"));
    }
    let samples = of(&|pair| pair.samples as f64);
    let difference = of(&|pair| pair.sampled_ns - pair.plain_ns);
    if let (Some(samples), Some(difference)) = (median(&samples), median(&difference)) {
        if samples > 0.0 {
            figures.push(Figure::new(
                "cost of a sample",
                difference / samples,
                "ns",
                n,
            ));
        }
        figures.extend(noise(&plain));
        figures.push(Figure::new("samples of a run", samples, "samples", n));
    }
    figures
}

/// Spread of runs without sampling.
fn noise(plain: &[f64]) -> Option<Figure> {
    let plain = Summary::of(plain)?;
    let noise = plain.deviation / plain.mean * 100.0;
    Some(Figure::new("noise without sampling", noise, "%", plain.n))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of 10 ms without and 11 ms with 1,000 samples: 10 %, 1 us a sample. The spread of the runs without is the
    /// noise.
    #[test]
    fn pairs() {
        let pair = |plain, sampled| Pair {
            plain_ns: plain,
            sampled_ns: sampled,
            samples: 1_000,
        };
        let found = figures(&[pair(1e7, 1.1e7), pair(1e7, 1.1e7), pair(1e7, 1.1e7)]);
        let value = |name: &str| {
            let figure = found.iter().find(|it| it.name == name).unwrap();
            (figure.value * 1e3).round() / 1e3
        };
        assert_eq!(value("overhead"), 10.0);
        assert_eq!(value("cost of a sample"), 1_000.0);
        assert_eq!(value("noise without sampling"), 0.0);
        let noisy = figures(&[pair(9e6, 9e6), pair(1.1e7, 1.1e7)]);
        let noise = noisy
            .iter()
            .find(|it| it.name.starts_with("noise"))
            .unwrap();
        assert!((noise.value - 14.14).abs() < 0.01, "{noise:?}");
        let none = figures(&[Pair {
            samples: 0,
            ..pair(1e7, 1e7)
        }]);
        assert!(none.iter().all(|it| it.name != "cost of a sample"));
    }
}
