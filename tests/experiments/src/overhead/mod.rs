//! `cargo xtask overhead`: predicted cost of sampling against the measured one, by reset value, on work of four kinds
//! on one core and on two; whether the size of the rings matters; the estimates of recordings of servers and items
//! of several lengths against external measurements; and whether the default bound holds.
//!
//! Source: Akiyama and Hirofuchi 2017, sections 4.4, 4.5 and 4.6.
//! Writes tables and a picture to `target/overhead/`. The exit code is 1 if a prediction is off by more than 4 %.

mod again;
mod bound;
pub mod caches;
mod items;
pub mod rings;
pub mod runs;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use crate::frame::lab::Lab;
use crate::frame::machine::load;
use crate::frame::pictures::{self, Panel, dots, line, panel};
use crate::frame::rounds::beside;
use crate::frame::statistics::{Spread, median};
use crate::frame::table::Table;
use crate::frame::verdict::exit_code;
pub use again::{Again, write_table as again_table};
use runs::{Bench, KINDS, Run, Work};

/// Error of a prediction that no case may exceed, and that most keep to, as in the paper.
const MOST_ERROR: f64 = 0.04;
const USUAL_ERROR: f64 = 0.02;

/// Times between two samples, ns.
const RESETS: [u64; 6] = [20_000, 40_000, 80_000, 160_000, 320_000, 640_000];

/// Cases that are measured again, those that were off most.
const MOST_AGAIN: usize = 4;

/// Recordings of each target and reset value.
const ITEM_ROUNDS: usize = 9;

/// Options of `cargo xtask overhead`.
#[derive(clap::Args)]
pub struct Args {
    /// Time between two samples of cpu-clock, ns, separated by commas
    #[arg(long, value_delimiter = ',')]
    #[arg(default_values_t = RESETS)]
    reset: Vec<u64>,
    /// Kinds of work, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    #[arg(value_parser = PossibleValuesParser::new(KINDS), default_values = KINDS)]
    work: Vec<String>,
    /// Seconds of CPU time of the work, without sampling
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Number of rounds; each figure is the median
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of rounds for a case that was off, measured again
    #[arg(long, default_value_t = 25)]
    again: usize,
    /// Skip the sizes of rings
    #[arg(long, conflicts_with = "only_rings")]
    no_rings: bool,
    /// Measure only the sizes of rings
    #[arg(long)]
    only_rings: bool,
    /// Only compare the cost that recordings report with the cost seen from outside
    #[arg(long, conflicts_with_all = ["only_rings", "no_items"])]
    only_items: bool,
    /// Skip that comparison
    #[arg(long)]
    no_items: bool,
    /// Only see from outside whether the default bound holds, however items are recorded
    #[arg(long, conflicts_with_all = ["only_rings", "only_items"])]
    only_bound: bool,
    /// Measure this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

impl Args {
    /// Options for the page of the papers' figures: this many rounds of the predictions alone.
    pub fn of_predictions(rounds: usize, again: usize, seconds: f64) -> Self {
        Self {
            reset: RESETS.to_vec(),
            work: KINDS.map(str::to_owned).to_vec(),
            seconds,
            rounds,
            again,
            no_rings: true,
            only_rings: false,
            only_items: false,
            only_bound: false,
            no_items: true,
            tool: None,
        }
    }
}

/// One reset value on some work.
struct Case {
    reset: u64,
    /// CPU time of a thread by the samples that were taken, ns: without any, and alpha for each.
    expected: f64,
    /// Predicted by `plan`, which does not know the number of samples yet; `None`: they would take all of the time.
    planned: Option<f64>,
    measured: f64,
    samples: f64,
    /// Equation (1) of the paper: measured / expected - 1, the median over the rounds.
    error: f64,
    /// The same for runs without sampling, against those before and after them: the machine's own noise.
    noise: f64,
}

/// A run with sampling, and the mean time without just before and after: a machine's speed changes within a minute by
/// more than the effect to measure.
#[derive(Clone, Copy)]
struct Pair {
    native: f64,
    measured: f64,
    samples: f64,
}

impl Pair {
    /// CPU time of a thread if a sample costs `alpha` ns.
    fn expected(&self, alpha: f64, threads: u32) -> f64 {
        self.native + alpha * self.samples / f64::from(threads)
    }

    /// Time that each sample added, ns.
    fn cost(&self, threads: u32) -> f64 {
        (self.measured - self.native) * f64::from(threads) / self.samples
    }
}

/// Some work on this many threads.
struct Validated {
    work: Work,
    /// CPU time of a thread without sampling, ns.
    native: f64,
    /// Calibrated cost of a sample, ns: the mean of before and after.
    alpha: f64,
    cases: Vec<Case>,
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let bench = Bench::new(Lab::new("overhead", args.tool.as_deref())?.with_own_cache())?;
    if args.only_rings {
        size_of_rings(&bench, args)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.only_bound {
        return Ok(exit_code(bound_of_items(&bench, args)?));
    }
    if args.only_items {
        return Ok(exit_code(cost_of_items(&bench, args)?));
    }
    let dir = &bench.lab.dir;
    let table = dir.join("overhead.md");
    let Predictions {
        text,
        picture,
        cases,
        within,
        ..
    } = predictions(&bench, args, &table)?;
    let svg = dir.join("overhead.svg");
    fs::write(&svg, picture)?;
    println!("{text}");
    println!("table: {}\npicture: {}", table.display(), svg.display());
    if !args.no_rings {
        size_of_rings(&bench, args)?;
    }
    let good = args.no_items || cost_of_items(&bench, args)?;
    Ok(exit_code(within.1 == cases && good))
}

/// Result of the predictions.
pub struct Predictions {
    /// The tables.
    pub text: String,
    pub picture: String,
    pub cases: usize,
    /// Number of cases with at most the error of most of the paper's, and number of all.
    pub within: (usize, usize),
    /// Number of the others that are still off when repeated, without an explanation.
    pub stays: usize,
}

/// Measures all kinds of work, and repeats cases that were off; writes intermediate results to the file.
pub fn predictions(bench: &Bench, args: &Args, table: &Path) -> Result<Predictions> {
    let before = load();
    let mut all = Vec::new();
    let mut alpha = bench.calibrate()?;
    let asked = |kind: &&str| args.work.iter().any(|asked| asked == kind);
    for kind in KINDS.into_iter().filter(asked) {
        for threads in [1, 2] {
            let work = bench.work(kind, threads, args.seconds)?;
            all.push(validate(bench, work, args, &mut alpha)?);
            // All of it takes a while: the file has intermediate results.
            let text = write_table(&all, args, (before, load()));
            fs::write(table, text)?;
            eprintln!("{kind}, threads: {threads}: in {}", table.display());
        }
    }
    let mut text = write_table(&all, args, (before, load()));
    let mut off: Vec<(&Work, &Case)> = all
        .iter()
        .flat_map(|found| found.cases.iter().map(|case| (&found.work, case)))
        .filter(|(_, case)| case.error.abs() > MOST_ERROR)
        .collect();
    off.sort_by(|a, b| b.1.error.abs().total_cmp(&a.1.error.abs()));
    let mut tried = Vec::new();
    for (work, case) in off.into_iter().take(MOST_AGAIN) {
        let (work, error) = (work.clone(), case.error);
        tried.push(Again::measure(bench, work, case.reset, args.again, error)?);
    }
    if !tried.is_empty() {
        text.push('\n');
        text += &again_table("Cases that were off most, measured again", &tried);
    }
    fs::write(table, &text)?;
    let title = "CPU time of fixed work with samples of cpu-clock: expected and measured";
    let errors = all.iter().flat_map(|found| &found.cases);
    let errors: Vec<f64> = errors.map(|case| case.error.abs()).collect();
    Ok(Predictions {
        text,
        picture: pictures::draw(title, &panels(&all)),
        cases: errors.len(),
        within: (within(&errors, USUAL_ERROR), within(&errors, MOST_ERROR)),
        stays: tried.iter().filter(|it| !it.is_explained()).count(),
    })
}

/// Compares both figures with external measurements, prints the table and writes it to a separate file.
fn cost_of_items(bench: &Bench, args: &Args) -> Result<bool> {
    // With the costs that the tool has saved for this machine, as any recording.
    let lab = Lab::at(&bench.lab.dir, &bench.lab.tool)?;
    let (text, good) = items::measure(&lab, args.rounds.min(ITEM_ROUNDS))?;
    bench.lab.publish("items.md", &text)?;
    Ok(good)
}

/// Sees whether the default bound holds, prints the table and writes it to a separate file.
fn bound_of_items(bench: &Bench, args: &Args) -> Result<bool> {
    // With the costs that the tool has saved for this machine, as any recording.
    let lab = Lab::at(&bench.lab.dir, &bench.lab.tool)?;
    let (text, kept) = bound::measure(&lab, args.rounds.min(ITEM_ROUNDS))?;
    bench.lab.publish("bound.md", &text)?;
    Ok(kept)
}

/// Measures rings of all sizes, prints the table and writes it to a separate file.
fn size_of_rings(bench: &Bench, args: &Args) -> Result<()> {
    let text = rings::write_table(&rings::measure(bench, args.seconds, args.rounds)?);
    bench.lab.publish("rings.md", &text)
}

/// Rounds of the work with each reset value, and without sampling between each two.
///
/// `alpha`: cost of a sample, ns; before the call the value calibrated before, after it the one calibrated after.
fn validate(bench: &Bench, work: Work, args: &Args, alpha: &mut f64) -> Result<Validated> {
    let before = *alpha;
    let slower = bench.predict(&work)?;
    let (pairs, natives) = pairs(bench, &work, &args.reset, args.rounds)?;
    // On a busy machine the cost of a sample changes with the load of others.
    *alpha = bench.calibrate()?;
    let alpha = f64::midpoint(before, *alpha);
    let native = median_of(pairs.iter().flatten(), |pair| pair.native);
    let cases = args
        .reset
        .iter()
        .zip(&pairs)
        .enumerate()
        .map(|(n, (&reset, pairs))| {
            let expected = |pair: &Pair| pair.expected(alpha, work.threads);
            Case {
                reset,
                expected: median_of(pairs, expected),
                planned: slower.of(reset).map(|factor| factor * native),
                measured: median_of(pairs, |pair| pair.measured),
                samples: median_of(pairs, |pair| pair.samples),
                error: median_of(pairs, |pair| pair.measured / expected(pair) - 1.0),
                noise: noise(&natives[n..], args.reset.len()),
            }
        });
    Ok(Validated {
        cases: cases.collect(),
        work,
        native,
        alpha,
    })
}

/// Rounds of the work with each reset value, by reset value, and the runs without sampling between each two, ns.
fn pairs(
    bench: &Bench,
    work: &Work,
    resets: &[u64],
    rounds: usize,
) -> Result<(Vec<Vec<Pair>>, Vec<f64>)> {
    let native = || bench.native(work);
    let found = beside(rounds, resets, native, |&reset| {
        bench.sampled(work, reset, "512KiB")
    })?;
    let pair = |(native, run): (f64, Run)| Pair {
        native,
        measured: run.cpu_ns,
        samples: run.samples,
    };
    let pairs = found.cases.into_iter();
    let pairs = pairs.map(|runs| runs.into_iter().map(pair).collect());
    Ok((pairs.collect(), found.without))
}

/// The error of runs without sampling, by those before and after each.
fn noise_spread(natives: &[f64]) -> Spread {
    let error = |runs: &[f64]| runs[1] / f64::midpoint(runs[0], runs[2]) - 1.0;
    Spread::of(natives.windows(3).map(error).collect())
}

/// The error of every `every`-th run without sampling, computed like that of runs with sampling.
fn noise(natives: &[f64], every: usize) -> f64 {
    let error = |runs: &[f64]| runs[1] / f64::midpoint(runs[0], runs[2]) - 1.0;
    median(natives.windows(3).step_by(every).map(error).collect())
}

/// Median of a figure of pairs.
fn median_of<'a>(
    pairs: impl IntoIterator<Item = &'a Pair>,
    figure: impl Fn(&'a Pair) -> f64,
) -> f64 {
    median(pairs.into_iter().map(figure).collect())
}

/// The whole table.
fn write_table(all: &[Validated], args: &Args, load: (f64, f64)) -> String {
    let mut text = String::from("# What sampling costs: expected and measured\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "cpu-clock; CPU time of a thread, ms, medians of {} rounds; load average {:.1} at the begin, {:.1} at the end. \
         E = measured / expected - 1 (the median of the rounds' own), expected = without + cost of a sample x samples \
         taken by the thread, where `without` is the mean of a run just before and one just after. The cost is what `pebs-trace calibrate` found, the mean of before and after the rounds. `plan` is what \
         `pebs-trace plan` predicted before any sample was taken. `noise` is E of runs without sampling, by those \
         just before and just after them: no prediction can be seen to be better than that.\n",
        args.rounds, load.0, load.1
    );
    let mut table = Table::new(
        "work | threads: | a sample, us: | without: | reset, ns: | samples, all threads: | plan: | expected: | measured: | \
         E, %: | noise, %:",
    );
    let (mut errors, mut noise) = (Vec::new(), Vec::new());
    for found in all {
        for case in &found.cases {
            let show = |ns: Option<f64>| {
                ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns / 1e6))
            };
            let error = case.error;
            errors.push(error.abs());
            noise.push(case.noise.abs());
            table.row(format_args!(
                "{} | {} | {:.2} | {:.0} | {} | {:.0} | {} | {:.0} | {:.0} | {:+.1} | {:+.1}",
                found.work.kind,
                found.work.threads,
                found.alpha / 1e3,
                found.native / 1e6,
                case.reset,
                case.samples,
                show(case.planned),
                case.expected / 1e6,
                case.measured / 1e6,
                error * 100.0,
                case.noise * 100.0,
            ));
        }
    }
    text += &table.to_string();
    for (what, errors) in [("runs", &errors), ("runs without sampling", &noise)] {
        let _ = writeln!(
            text,
            "\nOf {} {what} {} are off by at most 2 %, {} by at most 4 %; the largest error is {:.1} %.",
            errors.len(),
            within(errors, USUAL_ERROR),
            within(errors, MOST_ERROR),
            100.0 * errors.iter().copied().fold(0.0, f64::max)
        );
    }
    text
}

fn within(errors: &[f64], most: f64) -> usize {
    errors.iter().filter(|error| **error <= most).count()
}

/// A panel for each work: samples against CPU time, as in figure 4 of the paper.
fn panels(all: &[Validated]) -> Vec<Panel> {
    let of_work = |found: &Validated| {
        let threads = found.work.threads;
        let s = if threads == 1 { "" } else { "s" };
        let of = |time: &dyn Fn(&Case) -> f64| {
            let cases = found.cases.iter().rev();
            let points = cases.map(|case| (case.samples / f64::from(threads), time(case) / 1e9));
            std::iter::once((0.0, found.native / 1e9))
                .chain(points)
                .collect()
        };
        panel(
            &format!("{}, {threads} thread{s}", found.work.kind),
            "samples of a thread",
            "CPU time of a thread, s",
            vec![
                line("expected", of(&|case| case.expected)),
                dots("measured", of(&|case| case.measured)),
            ],
        )
    };
    all.iter().map(of_work).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With two reset values, each is compared with the runs without sampling around its own: a machine that gets
    /// slower and slower is no noise, one that hiccups is.
    #[test]
    fn noise_of_runs() {
        let steady = [100.0, 110.0, 120.0, 130.0, 140.0, 150.0];
        assert!(noise(&steady, 2).abs() < 1e-9 && noise(&steady[1..], 2).abs() < 1e-9);
        let hiccups = [100.0, 150.0, 100.0, 150.0, 100.0];
        assert!((noise(&hiccups, 2) - 0.5).abs() < 1e-9);
        assert!((noise(&hiccups[1..], 2) + 1.0 / 3.0).abs() < 1e-9);
        assert!(noise(&hiccups[..2], 2).is_nan());
    }
}
