//! Pairs of equal runs: changes reported by `diff` where there are none.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::mystery::{Cause, Mystery};
use super::{Args, compile, program, run};
use crate::frame::lab::Lab;
use crate::frame::verdict::exit_code;
use crate::frame::{recorder, shell};

/// Largest share of figures that may be reported as changed. `diff` allows for chance within a comparison, but two
/// processes of one program do differ, by 1 % or so: pages and threads lie elsewhere.
const LEVEL: f64 = 0.05;

/// Result of one comparison.
#[derive(Default)]
struct Compared {
    figures: usize,
    changed: Vec<String>,
}

/// Records servers with nothing wrong twice each, and fails if more than the level of the figures changed.
pub fn equal(pairs: usize, args: &Args) -> Result<ExitCode> {
    let cache = shell::target_dir()?.join("mysteries");
    std::fs::create_dir_all(&cache)?;
    let tool = recorder::of(args.tool.as_deref())?;
    let null = |it: &Mystery| it.cause == Cause::Nothing && program::can_compile(it.language);
    let seeds = (args.from..).map(|seed| Mystery::new(seed, args.seconds));
    let mysteries: Vec<Mystery> = seeds.filter(null).take(pairs).collect();
    let helper = program::helper(&cache)?;
    let programs = compile(&mysteries, &cache)?;
    let (mut figures, mut changed, mut with_any) = (0, 0, 0);
    for (it, program) in mysteries.iter().zip(programs) {
        let program = program.context("a compiler is gone")?;
        let found = pair(it, &tool, &program, &helper)?;
        println!(
            "seed {} ({}): {} of {} figures changed {}",
            it.seed,
            it.describe(),
            found.changed.len(),
            found.figures,
            found.changed.join(", ")
        );
        figures += found.figures;
        changed += found.changed.len();
        with_any += usize::from(!found.changed.is_empty());
    }
    let share = changed as f64 / figures.max(1) as f64;
    println!(
        "changed: {changed} of {figures} figures = {:.1} %, in {with_any} of {pairs} pairs; at most {:.0} % is the goal",
        share * 100.0,
        LEVEL * 100.0
    );
    Ok(exit_code(figures > 0 && share <= LEVEL))
}

fn pair(it: &Mystery, tool: &Path, program: &Path, helper: &Path) -> Result<Compared> {
    let mut traces = Vec::new();
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    for dir in &dirs {
        let lab = Lab::at(dir.path(), tool)?;
        run::record(it, &lab, program, helper)?.explanation?;
        traces.push(lab.trace());
    }
    let mut diff = shell::as_root(tool);
    diff.arg("diff").args(&traces).args(["--format", "json"]);
    let diff = shell::json(&mut diff)?;
    for trace in &traces {
        shell::remove(trace)?;
    }
    let mut found = Compared::default();
    let probes = diff["probes"].as_array().context("a diff without probes")?;
    let figures = probes
        .iter()
        .flat_map(|probe| [&probe["durations"], &probe["rows"]])
        .filter_map(Value::as_array)
        .flatten();
    for figure in figures.filter(|it| !it["change_low_ns"].is_null()) {
        found.figures += 1;
        if figure["changed"] == true {
            let name = ["name", "figure", "kind"].map(|it| figure[it].as_str());
            let name = name.into_iter().flatten().next().unwrap_or("-");
            let share = figure["share"].as_f64().unwrap_or(f64::NAN);
            found
                .changed
                .push(format!("{name} {:+.1} %", share * 100.0));
        }
    }
    Ok(found)
}
