//! `cargo xtask papers`: the figures of the papers that pebs-trace builds on, measured on this machine, beside the
//! published ones.
//!
//! Writes the page and its pictures to `tests/papers/`. The exit code is 1 if a requirement is not met.

mod acl;
mod beside;
mod buffer;
mod error;
mod firewall;
mod interval;
mod query;

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::frame::lab;
use crate::frame::machine::{describe, load};
use crate::frame::page::{self, Section};
use crate::frame::verdict::exit_code;
use crate::frame::{recorder, shell};

/// Text before the sections.
const HEAD: &str = "# The papers' figures, by pebs-trace\n\n\
    Made by `cargo xtask papers`. Every section has what was published, what pebs-trace measured on the machine that the \
    section names, and an experiment for what differs. No machine of the project has PEBS: samples are of a software clock, \
    so a reset value is a time in ns.\n\n\
    Papers: Akiyama, Hirofuchi, Takano 2018, *Diagnosing Performance Fluctuations of High-throughput Software for Multi-core \
    CPUs* (the method); Akiyama, Hirofuchi 2017, *Quantitative Evaluation of Intel PEBS Overhead* (overhead); Sasongko, \
    Chabbi, Kelly, Unat 2023, *Precise Event Sampling on AMD Versus Intel* (comparison); Weaver 2015, *Self-monitoring \
    Overhead of the Linux perf_event Performance Counter Interface*; Lv and others 2018, *CounterMiner*.\n";

/// Options of `cargo xtask papers`.
#[derive(clap::Args)]
pub struct Args {
    /// Measure only these, separated by commas; the others on the page are unchanged
    #[arg(long, value_delimiter = ',', value_name = "FIGURE")]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// Measure each once, and write to target/papers: a test of some minutes that all works
    #[arg(long)]
    quick: bool,
    /// Write the page and its pictures to this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Measure this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// A group of figures that are measured together.
struct Figure {
    name: &'static str,
    /// Name of a missing prerequisite; `None` if setup installed all of them.
    missing: fn() -> Option<&'static str>,
    measure: fn(&Lab) -> Result<Section>,
    /// No measurement: the section repeats an earlier result.
    is_repeated: bool,
}

impl Figure {
    const fn new(name: &'static str, measure: fn(&Lab) -> Result<Section>) -> Self {
        Self {
            name,
            missing: || None,
            measure,
            is_repeated: false,
        }
    }
}

/// In the order of the page.
const FIGURES: [Figure; 9] = [
    Figure::new("query", query::measure),
    Figure {
        missing: acl::missing,
        ..Figure::new("acl", acl::measure)
    },
    Figure {
        missing: firewall::missing,
        ..Figure::new("firewall", firewall::measure)
    },
    Figure::new("interval", interval::measure),
    Figure::new("error", error::measure),
    Figure::new("buffer", buffer::measure),
    Figure::new("comparison", beside::comparison),
    Figure::new("reading", beside::reading),
    Figure {
        is_repeated: true,
        ..Figure::new("mining", beside::mining)
    },
];

fn names() -> [&'static str; 9] {
    FIGURES.map(|figure| figure.name)
}

/// The lab, and the lengths of measurements.
struct Lab {
    lab: lab::Lab,
    quick: bool,
}

impl Deref for Lab {
    type Target = lab::Lab;

    fn deref(&self) -> &lab::Lab {
        &self.lab
    }
}

impl Lab {
    /// Rounds of an experiment; one is enough to see that it works.
    fn rounds(&self, usual: usize) -> usize {
        if self.quick { 1 } else { usual }
    }
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let is_asked =
        |figure: &&Figure| args.only.is_empty() || args.only.iter().any(|name| name == figure.name);
    let asked: Vec<&Figure> = FIGURES.iter().filter(is_asked).collect();
    for figure in &asked {
        if let Some(missing) = (figure.missing)() {
            bail!(
                "figure {} needs {missing}, which 'cargo xtask setup' did not find or install; --only measures the others",
                figure.name
            );
        }
    }
    let target = shell::target_dir()?.join("papers");
    let output = match &args.output {
        Some(dir) => dir.clone(),
        None if args.quick => target.clone(),
        None => shell::workspace().join("tests/papers"),
    };
    let tool = recorder::of(args.tool.as_deref())?;
    let lab = Lab {
        lab: lab::Lab::at(&target.join("work"), &tool)?.with_own_cache(),
        quick: args.quick,
    };
    fs::create_dir_all(&output)?;
    let page = output.join("README.md");
    let mut missed = 0;
    for figure in asked {
        let (began, before) = (Instant::now(), load());
        eprintln!("papers: {}", figure.name);
        let section = (figure.measure)(&lab).with_context(|| format!("figure {}", figure.name))?;
        for (file, svg) in &section.pictures {
            fs::write(output.join(file), svg)?;
        }
        let by = format!("`cargo xtask papers --only {}`", figure.name);
        let measured = match figure.is_repeated {
            true => format!("A result of before, not measured anew ({by})."),
            false => format!(
                "Measured{} on {}, load average {before:.1} to {:.1}, in {:.0} s ({by}).",
                if args.quick { ", once only," } else { "" },
                describe(),
                load(),
                began.elapsed().as_secs_f64(),
            ),
        };
        let new = [(figure.name, section.markdown(&measured))];
        // Finished sections are kept, even if the rest fails.
        let old = fs::read_to_string(&page).unwrap_or_default();
        fs::write(&page, page::assemble(HEAD, &old, &names(), &new))?;
        for what in section.musts.missed() {
            missed += 1;
            println!("missed: {}: {what}", figure.name);
        }
    }
    println!("page: {}", page.display());
    Ok(exit_code(missed == 0))
}
