//! CPU time of the tracers themselves per mark and sample, until a file with names is written; for bpftrace, with
//! addresses.
//!
//! Time of the tracer's processes minus the workload's own, for much work minus for little work, so that the fixed cost
//! cancels out. The slow-down of the workload is not included; see [`super::compare`].

use anyhow::Result;

use super::tracer::{Run, Tracer, Tracers};
use super::{Load, Measure, SPIN};
use crate::frame::rounds::rounds;
use crate::frame::statistics::median;

/// Calls of the marked function in a run of much work; each makes two marks.
const CALLS: u64 = 1_000_000;

/// Ratio of much work to little work.
const FACTOR: u64 = 20;

/// Prints the cost of each tracer.
pub fn compare(tracers: &Tracers, period_ns: u64, number: usize) -> Result<()> {
    let marks = Load {
        measure: Measure::Mark,
        calls: CALLS,
        spin: 0,
        period_ns,
    };
    let samples = Load {
        measure: Measure::Sample,
        calls: 0,
        spin: 10 * SPIN,
        ..marks
    };
    for load in [marks, samples] {
        let unit = load.unit();
        println!("CPU time of the recorder itself for a {unit}, median of {number} rounds");
        let is_one = |it: &&Tracer| **it != Tracer::Nobody;
        let all: Vec<Tracer> = tracers.available.iter().filter(is_one).copied().collect();
        let costs = rounds(number, &all, |_, tracer| cost(tracers, *tracer, load))?;
        for (tracer, costs) in all.iter().zip(costs) {
            let name = match tracer {
                Tracer::Perf => "perf record, perf script",
                other => other.name(),
            };
            println!("  {name:<24} {:>6.0} ns", median(costs));
        }
    }
    Ok(())
}

/// Cost of one mark or sample, ns.
fn cost(tracers: &Tracers, tracer: Tracer, load: Load) -> Result<f64> {
    let little = Load {
        calls: load.calls / FACTOR,
        spin: load.spin / FACTOR,
        ..load
    };
    let few: Run = tracers.run(tracer, little)?;
    let many = tracers.run(tracer, load)?;
    let records = many.recorded.saturating_sub(few.recorded);
    Ok((many.recorder_ns - few.recorder_ns) / records as f64)
}
