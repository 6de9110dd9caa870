//! The method's Figure 4 and section V.C: interval between samples by reset value.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Lab;
use crate::frame::page::Section;
use crate::frame::pictures::{Panel, dots, draw, line, medians, panel};
use crate::frame::statistics::{Line, Spread, fit};
use crate::frame::table::Table;
use crate::frame::{perf, shell};
use crate::overhead::runs::{Bench, Work};

/// Programs in place of the paper's astar, bzip2 and gcc.
const KINDS: [&str; 3] = ["integer", "branchy", "chase"];

/// Reset values, ns. The kernel's clock goes no faster than the first (`perf_swevent_start_hrtimer()` in
/// kernel/events/core.c), and pebs-trace does not take less.
const RESETS: [u64; 8] = [
    10_000, 12_000, 16_000, 20_000, 24_000, 32_000, 64_000, 128_000,
];

/// Smaller reset values, ns, which perf accepts.
const BELOW: [u64; 3] = [2_000, 4_000, 8_000];

/// Bytes that PEBS wrote in a second, MB, by reset value, and bytes of a record on Skylake (`struct pebs_record_skl` of
/// arch/x86/events/intel/ds.c): their quotient is the interval.
/// Source: Akiyama 2018, section IV.C.3.
pub const PUBLISHED: [(f64, f64); 5] = [
    (8e3, 270.0),
    (12e3, 194.0),
    (16e3, 153.0),
    (20e3, 125.0),
    (24e3, 106.0),
];
const RECORD: f64 = 200.0;

/// Interval between two samples at a reset value of this many micro-operations, us.
pub fn published_us(at: usize) -> f64 {
    RECORD / PUBLISHED[at].1
}

/// The published intervals, us, by reset value in 1,000 micro-operations.
fn published() -> Vec<(f64, f64)> {
    (0..PUBLISHED.len())
        .map(|at| (PUBLISHED[at].0 / 1e3, published_us(at)))
        .collect()
}

/// Time that a record of PEBS takes by the published intervals, us.
pub fn published_record_us() -> f64 {
    fit(&published()).zero
}

pub fn measure(lab: &Lab) -> Result<Section> {
    let bench = Bench::new(lab.lab.clone())?;
    let seconds = if lab.quick { 0.1 } else { 0.4 };
    let mut ours = vec![Vec::new(); KINDS.len()];
    for (kind, ours) in KINDS.into_iter().zip(&mut ours) {
        let work = bench.work(kind, 1, seconds)?;
        for reset in RESETS {
            bench.sampled(&work, reset, "16MiB")?;
            ours.push(of_trace(lab, &bench)?);
        }
    }
    let mut rival = Vec::new();
    if perf::perf().is_some() {
        let work = bench.work(KINDS[0], 1, seconds)?;
        for reset in BELOW.into_iter().chain(RESETS) {
            match of_perf(lab, &bench, &work, reset) {
                Ok(found) => rival.push(found),
                Err(error) => {
                    // Some versions fail with many samples: only a comparison, not the subject.
                    eprintln!("papers: {error:#}");
                    rival.push(Spread::UNKNOWN);
                }
            }
        }
    }
    Ok(section(&ours, &rival))
}

/// Intervals between the samples of the recording that the bench just made.
fn of_trace(lab: &Lab, bench: &Bench) -> Result<Spread> {
    let json = lab.clean("intervals.json")?;
    let mut command = lab.tool();
    command.args(["export", "--to", "firefox", "--output"]);
    shell::output(command.arg(&json).arg(bench.lab.trace()))?;
    let profile: Value = serde_json::from_slice(&fs::read(&json)?)?;
    let threads = profile["threads"].as_array().into_iter().flatten();
    let deltas = threads.filter_map(|it| it["samples"]["timeDeltas"].as_array());
    let longest = deltas
        .max_by_key(|it| it.len())
        .context("the export has no samples")?;
    // Milliseconds. The first is the time before the first sample.
    let deltas = longest.iter().skip(1).filter_map(Value::as_f64);
    Ok(Spread::middle(deltas.map(|ms| ms * 1e3).collect()))
}

/// The same by `perf record`.
fn of_perf(lab: &Lab, bench: &Bench, work: &Work, reset: u64) -> Result<Spread> {
    let data = lab.dir.join("perf.data");
    let mut command = perf::recording(&data, reset).context("no perf")?;
    shell::output(command.args(bench.command(work)))?;
    let mut command = perf::perf().context("no perf")?;
    command.args(["script", "--ns", "-F", "time", "-i"]);
    let text = shell::output(command.arg(&data))?;
    let times = text
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(':').parse().ok());
    let times: Vec<f64> = times.collect();
    Ok(Spread::middle(
        times
            .windows(2)
            .map(|two| (two[1] - two[0]) * 1e6)
            .collect(),
    ))
}

/// Reset values in us.
fn us(resets: &[u64]) -> impl Iterator<Item = f64> {
    resets.iter().map(|reset| *reset as f64 / 1e3)
}

fn section(ours: &[Vec<Spread>], rival: &[Spread]) -> Section {
    let cell = |it: Option<&Spread>| it.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
    let kinds = KINDS.map(|kind| format!(" | {kind}:")).concat();
    let mut table = Table::new(&format!("R, us:{kinds} | perf record, integer:"));
    for (at, reset) in BELOW.into_iter().chain(RESETS).enumerate() {
        let of = |kind: &Vec<Spread>| {
            let found = at.checked_sub(BELOW.len()).and_then(|at| kind.get(at));
            format!(" | {}", cell(found))
        };
        let ours = ours.iter().map(of).collect::<String>();
        table.row(format_args!(
            "{}{ours} | {}",
            reset / 1000,
            cell(rival.get(at))
        ));
    }
    let published = published();
    let of_paper = fit(&published);
    let points = |kind: &[Spread]| -> Vec<(f64, f64)> {
        us(&RESETS).zip(kind.iter().map(|it| it.median)).collect()
    };
    let fits: Vec<_> = ours.iter().map(|kind| fit(&points(kind))).collect();
    let below = rival
        .iter()
        .take(BELOW.len())
        .map(|it| format!("{:.2}", it.median));
    let below: Vec<String> = below.collect();
    let of_perf = match below.is_empty() {
        true => "perf was not at hand to show it".to_owned(),
        false => format!(
            "`perf record`, which asks for them, gets a sample every {} us, beside {:.2} us at R = 10 us",
            below.join(", "),
            rival.get(BELOW.len()).map_or(f64::NAN, |it| it.median)
        ),
    };
    let text = format!(
        "Median interval and the middle 68 % (one standard deviation to both sides, were there no pauses), us, by reset value of cpu-clock:\n\n\
         {table}\nInterval = slope x R + constant, with r2 {}.\n",
        fits.iter()
            .map(|it| format!("{:.5}", it.r2))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let is_linear = fits.iter().all(|it| it.r2 > 0.99);
    Section {
        title: "Figure 4 and section V.C of the method's paper: interval between samples by reset value",
        published: format!(
            "PEBS comes down to almost 1 us, perf with interrupts to no less than 10 us whatever it is asked for; intervals \
             are linear in R, with small deviations. From the amounts of data that section IV.C.3 gives, at {RECORD} bytes \
             a record, R = 8,000 to 24,000 micro-operations are intervals of {} us: {:.2} us + {:.1} ns for each \
             1,000 of R (r2 {:.5}). So R = 16,000 is {:.2} us.",
            published
                .iter()
                .map(|it| format!("{:.2}", it.1))
                .collect::<Vec<_>>()
                .join(", "),
            of_paper.zero,
            of_paper.slope * 1e3,
            of_paper.r2,
            published_us(2)
        ),
        ours: text,
        differs: format!(
            "No interval is below 10 us: what the paper shows of perf, not of PEBS. The limit is the kernel's clock, not what \
             pebs-trace takes, which refuses reset values below it. Experiment: {of_perf}. At R = 10 and 12 us \
             intervals are alike and spread from 10 to 15 us, of pebs-trace as of perf, as the interrupt itself takes about as \
             long (section of predictions); from 16 us on they are R. Of PEBS the interval is the time of R events and of the \
             record, which is the constant {:.2} us of \
             the published line (section 4.2 of the overhead's paper measured 0.23 to 0.29 us for it).",
            of_paper.zero
        ),
        pictures: vec![("interval.svg", picture(ours, rival, &published))],
        musts: vec![(
            "intervals are linear in R (r2 above 0.99)".to_owned(),
            is_linear,
        )]
        .into(),
    }
}

/// The upward axis of all panels.
const UP: &str = "us between samples";

fn picture(ours: &[Vec<Spread>], rival: &[Spread], published: &[(f64, f64)]) -> String {
    let of = |title: &str, name: &str, resets: &[u64], found: &[Spread]| {
        let ideal = us(resets).map(|us| (us, us)).collect();
        let found = us(resets).zip(found.iter().copied());
        let series = vec![line("ideal", ideal), medians(name, found)];
        panel(title, "R, us", UP, series)
    };
    let kinds = KINDS.iter().zip(ours);
    let mut panels: Vec<Panel> = kinds
        .map(|(kind, found)| of(kind, "pebs-trace", &RESETS, found))
        .collect();
    if !rival.is_empty() {
        let all: Vec<u64> = BELOW.into_iter().chain(RESETS).collect();
        panels.push(of("integer, by perf record", "perf", &all, rival));
    }
    let Line { slope, zero, .. } = fit(published);
    panels.push(panel(
        "published: PEBS, from its amounts of data",
        "R, 1,000 micro-operations",
        UP,
        vec![
            line("fit", vec![(0.0, zero), (24.0, zero + 24.0 * slope)]),
            dots("published", published.to_vec()),
        ],
    ));
    draw(
        "Interval between samples by reset value (Figure 4)",
        &panels,
    )
}

#[cfg(test)]
mod tests {
    /// The published amounts of data are a line, whose constant is about the measured size of a record.
    #[test]
    fn published_line() {
        let it = super::fit(&super::published());
        assert!((it.slope - 0.0718).abs() < 1e-3 && (0.1..0.3).contains(&it.zero) && it.r2 > 0.999);
    }
}
