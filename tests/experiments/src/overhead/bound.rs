//! Whether the default bound on the slow-down of items holds, by a clock outside, however items are recorded.
//!
//! What marks cost is not bounded: a recording with hardly a sample tells it, and the rest is due to samples. Each recording is
//! compared with the lots of items just before and after it, without one.

use std::fmt::Write as _;

use anyhow::Result;

use super::items::{Target, percent, recorded};
use crate::frame::lab::Lab;
use crate::frame::statistics::{Spread, median};
use crate::frame::table::Table;

/// The bound.
const GOAL: f64 = 0.05;

/// Events and options of a recording with hardly a sample.
const MARKS_ALONE: &[&str] = &["--event", "cpu-clock", "--reset", "1000000000"];

/// Those without `--reset`.
const WAYS: [&[&str]; 5] = [
    &["--event", "cpu-clock"],
    &["--event", "cpu-clock", "--keep", "slow"],
    &["--event", "cpu-clock", "--keep", "none"],
    &["--event", "cpu-clock", "--event", "page-faults"],
    &["--event", "cpu-clock", "--transport", "bulk"],
];

/// Lengths of items, ns, and their memory, KiB.
const ITEMS: [(u64, u64); 2] = [(20_000, 16), (500_000, 64)];

/// Measures all, and returns the table and whether the bound was kept.
pub fn measure(lab: &Lab, rounds: usize) -> Result<(String, bool)> {
    let program = lab.compile("paced", &[])?;
    let mut table = Table::new(
        "target | recorded with | marks alone: | all: | middle half of the rounds: | samples: | kept",
    );
    let (mut kept, mut all) = (0, 0);
    for target in ITEMS.map(|(ns, kib)| Target::paced(&program, ns, kib)) {
        rows(target?, lab, rounds, &mut table, &mut kept, &mut all)?;
    }
    rows(
        Target::sqlite()?,
        lab,
        rounds,
        &mut table,
        &mut kept,
        &mut all,
    )?;
    let mut text = String::from("# Whether the default bound holds\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "CPU time of the target with a recording against that of the same items just before and after, by /proc/PID/schedstat; \
         medians of {rounds} rounds. `samples`: what is left without the marks, which a recording with --reset 1000000000 \
         tells. Kept: at most {}.\n\n{table}\n{kept} of {all} are kept",
        percent(GOAL)
    );
    Ok((text, kept == all))
}

/// A row for each way to record a target.
fn rows(
    mut target: Target,
    lab: &Lab,
    rounds: usize,
    table: &mut Table,
    kept: &mut usize,
    all: &mut usize,
) -> Result<()> {
    let mut measured = vec![Vec::new(); 1 + WAYS.len()];
    for _ in 0..rounds.max(1) {
        for (way, slower) in [MARKS_ALONE].iter().chain(&WAYS).zip(&mut measured) {
            let before = target.whole_lot()?;
            let (with, _) = recorded(&mut target, lab, way)?;
            let after = target.whole_lot()?;
            slower.push(with / f64::midpoint(before, after) - 1.0);
        }
    }
    let marks = median(measured.remove(0));
    for (way, slower) in WAYS.iter().zip(measured) {
        let slower = Spread::between(slower, 0.25, 0.75);
        let samples = slower.median - marks;
        let is_kept = samples <= GOAL;
        *all += 1;
        *kept += usize::from(is_kept);
        let row = format!(
            "{} | {} | {} | {} | {} .. {} | {} | {}",
            target.name,
            way.join(" "),
            percent(marks),
            percent(slower.median),
            percent(slower.low),
            percent(slower.high),
            percent(samples),
            if is_kept { "yes" } else { "no" }
        );
        eprintln!("{row}");
        table.row(row);
    }
    Ok(())
}
