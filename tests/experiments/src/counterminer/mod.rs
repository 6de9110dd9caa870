//! `cargo xtask counterminer`: counts of real programs, multiplexed as by the kernel, cleaned and ranked, compared with
//! the known truth.

mod across;
mod cleaning;
mod events;
mod programs;
mod scale;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use pebs_mine::rank::{Options, rank};
use pebs_stats::summary::mean;

use self::cleaning::{Errors, Measure, Measured};
use self::events::Counts;
use self::programs::{Program, counted};
use crate::frame::rounds::parallel;
use crate::frame::shell;
use crate::frame::verdict::{Verdict, exit_code};

/// Runs of each program: two exact ones differ, and each is compared with the other.
const RUNS: u32 = 2;

/// Simulated turns, readings and intervals, ms, and the standard deviation of the logarithm of the machine's speed. The
/// requirements are judged by the first ones.
const TIMES: [(f64, f64, &[f64], f64); 5] = [
    (1.0, 1.0, &[10.0, 40.0], 0.0),
    (1.0, 10.0, &[10.0], 0.0),
    (1.0, 40.0, &[40.0], 0.0),
    (1.0, 1.0, &[10.0, 40.0], 0.1),
    (1.0, 10.0, &[10.0], 0.1),
];

/// Programs that are counted or measured at a time.
const AT_ONCE: usize = 2;

#[derive(clap::Args)]
pub struct Args {
    /// Errors by DTW of these programs alone, without the musts
    #[arg(value_enum, value_name = "PROGRAM")]
    only: Vec<Program>,
    /// Read, rank and pair the events of a table, and print seconds and GiB
    #[arg(long, value_name = "FILE", hide = true)]
    mine: Option<PathBuf>,
    /// The musts on 229 events over 20 runs alone
    #[arg(long, conflicts_with_all = ["only", "mine"])]
    runs: bool,
}

/// Counts the events of all programs.
fn count_all(programs: &[Program]) -> Result<()> {
    let wanted: Vec<(u32, Program)> = (1..=RUNS)
        .flat_map(|run| programs.iter().map(move |program| (run, *program)))
        .collect();
    parallel(AT_ONCE, &wanted, |&(run, program)| {
        let began = Instant::now();
        let file = counted(program, run)?;
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("{} ({seconds:.0} s)", file.display());
        Ok(())
    })
    .map(drop)
}

/// The table of requirements: name, value, limit.
#[derive(Default)]
struct Musts(Verdict);

impl Musts {
    fn row(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        let is_met = value <= limit;
        self.0.goal(what, is_met);
        let verdict = if is_met { "met" } else { "missed" };
        println!("| {what} | {value:.2}{unit} | {limit:.2}{unit} | {verdict} |");
    }
}

/// Prints errors by DTW; returns numbers of events, the error after cleaning, and the paper's.
fn dtw_errors(programs: &[(&str, Vec<Counts>)]) -> Result<Vec<(usize, f64, f64)>> {
    println!("Error by DTW before and after cleaning, and at best, in %:\n");
    let names: Vec<&str> = programs.iter().map(|it| it.0).collect();
    println!(
        "| turn, reading, interval, unrest | events | {} | mean | paper |",
        names.join(" | ")
    );
    println!("|{}", "---|".repeat(names.len() + 4));
    let mut of_paper = Vec::new();
    for (events, paper_raw, paper_clean) in cleaning::PAPER {
        for (number, (turn, read, intervals, unrest)) in TIMES.into_iter().enumerate() {
            let how = Measure { turn, read, unrest };
            let measured = measure_all(programs, events, &how)?;
            for (place, interval) in intervals.iter().enumerate() {
                let errors = measured.iter().map(|it| it.errors(*interval));
                let errors: Vec<Errors> = errors.collect::<Result<_>>()?;
                let percent = |it: f64| format!("{:.1}", 100.0 * it);
                let cell = |it: &Errors| [it.raw, it.clean, it.best].map(percent).join(" ");
                let of = |which: fn(&Errors) -> f64| {
                    mean(&errors.iter().map(which).collect::<Vec<f64>>())
                };
                let means = Errors {
                    raw: of(|it| it.raw),
                    clean: of(|it| it.clean),
                    best: of(|it| it.best),
                };
                println!(
                    "| {turn}, {read}, {interval} ms, {unrest} | {events} | {} | {} | {:.1} {:.1} |",
                    errors.iter().map(cell).collect::<Vec<String>>().join(" | "),
                    cell(&means),
                    100.0 * paper_raw,
                    100.0 * paper_clean
                );
                if (number, place) == (0, 0) {
                    of_paper.push((events, means.clean, paper_clean));
                }
            }
        }
    }
    Ok(of_paper)
}

/// Measures all programs.
fn measure_all(
    programs: &[(&str, Vec<Counts>)],
    events: usize,
    how: &Measure,
) -> Result<Vec<Measured>> {
    parallel(AT_ONCE, programs, |(_, runs)| {
        Measured::of(runs, events, how)
    })
}

pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some(file) = &args.mine {
        scale::mine(file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let heading = "\n| must | value | limit | |\n|---|--:|--:|---|";
    if args.runs {
        println!("{heading}");
        let mut musts = Musts::default();
        across::musts(&mut musts)?;
        return Ok(exit_code(musts.0.is_met()));
    }
    let wanted = match args.only.as_slice() {
        [] => &Program::ALL,
        only => only,
    };
    count_all(wanted)?;
    let mut programs = Vec::new();
    for &program in wanted {
        let runs = (1..=RUNS).map(|run| Counts::read(&counted(program, run)?));
        programs.push((program.name(), runs.collect::<Result<Vec<Counts>>>()?));
    }
    let of_paper = dtw_errors(&programs)?;
    if !args.only.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{heading}");
    let mut musts = Musts::default();
    for (events, clean, paper) in of_paper {
        let limit = if events == 10 { 0.077 } else { paper };
        musts.row(
            &format!("DTW error of {events} events on 4 counters"),
            100.0 * clean,
            100.0 * limit,
            " %",
        );
    }
    let mut errors = Vec::new();
    for (name, runs) in &programs {
        let Some(run) = runs.first() else { continue };
        let series = run.series();
        let ranking = rank(&series, &run.cycles, &Options::default())?;
        let best = &ranking.ranked[0].events;
        let best: Vec<&str> = best.iter().map(|&it| &*series.events[it].name).collect();
        let error = ranking.steps[ranking.best].error;
        eprintln!(
            "{name}: cycles depend most on {}; model error {:.2} %",
            best.join(" = "),
            100.0 * error
        );
        errors.push(error);
    }
    musts.row(
        "model error of cycles, mean of programs",
        100.0 * mean(&errors),
        6.3,
        " %",
    );
    let dir = shell::workspace().join("target/counterminer");
    match scale::beside(&dir)? {
        Some(it) => {
            musts.row(
                "model error beside scikit-learn's",
                100.0 * it.ours.1,
                100.0 * it.theirs.1 * 1.02,
                " %",
            );
            musts.row(
                "seconds to fit beside scikit-learn's",
                it.ours.0,
                it.theirs.0,
                " s",
            );
        }
        None => eprintln!(
            "scikit-learn is not in target/tools/mine-venv: python3 -m venv target/tools/mine-venv && target/tools/mine-venv/bin/pip install scikit-learn"
        ),
    }
    across::musts(&mut musts)?;
    let (seconds, gib) = scale::large(&dir)?;
    musts.row("10^6 items of 30 events: time", seconds, 60.0, " s");
    musts.row("10^6 items of 30 events: memory", gib, 2.0, " GiB");
    Ok(exit_code(musts.0.is_met()))
}
