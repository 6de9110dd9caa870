//! What a run cost: measured unit costs times what was counted.

use std::path::Path;

use super::plan::Plan;
use crate::collect::calibrate::{self, UnitCosts, Wanted};
use crate::pipeline::Outcome;
use crate::pmu::open::UprobePmu;
use crate::store::run::CostInfo;
use crate::target::probe::Site;

/// Slow-down from which on it is worth a remark.
const HEAVY: f64 = 0.25;

/// Share of the CPU that a gentler reset value would take.
const GENTLE: f64 = 0.05;

/// Measures what a mark at each class of probed instruction and a sample cost on this machine.
pub(super) fn measure(plan: &Plan) -> UnitCosts {
    let Some(pmu) = UprobePmu::read(Path::new("/")) else {
        return UnitCosts::default();
    };
    let classes: Vec<_> = sites(plan)
        .filter(|site| !site.uretprobe)
        .map(|site| site.class)
        .collect();
    let uretprobes = sites(plan).any(|site| site.uretprobe);
    calibrate::measure(
        &pmu,
        Wanted {
            classes: &classes,
            uretprobes,
            event: plan.events.first(),
        },
    )
}

fn sites(plan: &Plan) -> impl Iterator<Item = &Site> {
    plan.probes.probes.iter().flat_map(|probe| &probe.sites)
}

/// Mean cost of a mark over the sites of the run, ns: for the status line.
pub(super) fn mean_mark(plan: &Plan, costs: &UnitCosts) -> Option<f64> {
    let each: Option<Vec<f64>> = sites(plan)
        .map(|site| costs.of_mark(site.class, site.uretprobe))
        .collect();
    let each = each.filter(|each| !each.is_empty())?;
    Some(each.iter().sum::<f64>() / each.len() as f64)
}

/// The whole cost. What a mark cost follows from its probe and role: the sites that share both are
/// of one class but for exceptions.
pub(super) fn total(plan: &Plan, costs: &UnitCosts, outcome: &Outcome) -> CostInfo {
    let marks_ns = marks_ns(plan, costs, outcome);
    let samples_ns = match plan.events.as_slice() {
        // Of several events only the first was measured.
        [_] => costs.sample_ns.map(|ns| ns * outcome.samples as f64),
        _ => None,
    };
    let slowdown = slowdown(marks_ns, samples_ns, outcome);
    CostInfo {
        marks: outcome.marks,
        samples: outcome.samples,
        tool_cpu_ns: tool_cpu_ns(),
        marks_ns,
        samples_ns,
        pause_before_ns: costs.pause.map(|pause| pause.before),
        pause_after_ns: costs.pause.map(|pause| pause.after),
        visits_oncpu_ns: outcome.visits_oncpu_ns,
        slowdown,
    }
}

/// Cost over what the visits would have taken without it.
fn slowdown(marks_ns: Option<f64>, samples_ns: Option<f64>, outcome: &Outcome) -> Option<f64> {
    // Samples outside visits do not slow visits down.
    let inside = 1.0 - ratio(outcome.ledger.samples_unmatched, outcome.samples);
    let cost = marks_ns? + samples_ns? * inside;
    let undisturbed = outcome.visits_oncpu_ns? - cost;
    (undisturbed > 0.0).then(|| cost / undisturbed)
}

/// A remark for runs that slowed the target down a lot, and what to do.
pub(super) fn remark(plan: &Plan, costs: &UnitCosts, cost: &CostInfo) -> Option<(String, String)> {
    let slowdown = cost.slowdown.filter(|share| *share > HEAVY)?;
    let (marks, samples) = (cost.marks_ns?, cost.samples_ns?);
    let text = format!(
        "recording made items about {:.0} % slower",
        slowdown * 100.0
    );
    if marks > samples {
        let hint = "most of it are marks: probe a function that is called less often";
        return Some((text, hint.to_owned()));
    }
    let sample_ns = costs.sample_ns?;
    let reset = (sample_ns / GENTLE).ceil() as u64;
    let unit = plan.events.first()?.unit;
    let hint = format!(
        "a sample costs {:.1} us here; --reset {reset} would take about {:.0} % ({unit} between samples)",
        sample_ns / 1000.0,
        GENTLE * 100.0
    );
    Some((text, hint))
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn marks_ns(plan: &Plan, costs: &UnitCosts, outcome: &Outcome) -> Option<f64> {
    let mut sum = 0.0;
    for (probe, by_role) in plan.probes.probes.iter().zip(&outcome.marks_by) {
        for site in &probe.sites {
            let same = probe
                .sites
                .iter()
                .filter(|other| other.role == site.role)
                .count();
            let share = by_role[site.role as usize] as f64 / same as f64;
            if share > 0.0 {
                sum += share * costs.of_mark(site.class, site.uretprobe)?;
            }
        }
    }
    Some(sum)
}

/// CPU time of this process so far, user and system, ns.
fn tool_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
