//! `cargo xtask papers`: the figures of the papers that pebs-trace builds on, measured on this machine, beside the
//! published ones.
//!
//! Writes the page and its pictures to `tests/papers/`. The exit code is 1 if a requirement is not met.

mod acl;
mod beside;
mod buffer;
mod error;
mod interval;
mod query;
mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;

use crate::frame::page::{self, Section};
use crate::frame::{recorder, shell};
use crate::overhead::load;

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

/// In the order of the page.
const FIGURES: [Figure; 8] = [
    Figure {
        name: "query",
        missing: || None,
        measure: query::measure,
        is_repeated: false,
    },
    Figure {
        name: "acl",
        missing: acl::missing,
        measure: acl::measure,
        is_repeated: false,
    },
    Figure {
        name: "interval",
        missing: || None,
        measure: interval::measure,
        is_repeated: false,
    },
    Figure {
        name: "error",
        missing: || None,
        measure: error::measure,
        is_repeated: false,
    },
    Figure {
        name: "buffer",
        missing: || None,
        measure: buffer::measure,
        is_repeated: false,
    },
    Figure {
        name: "comparison",
        missing: || None,
        measure: beside::comparison,
        is_repeated: false,
    },
    Figure {
        name: "reading",
        missing: || None,
        measure: beside::reading,
        is_repeated: false,
    },
    Figure {
        name: "mining",
        missing: || None,
        measure: beside::mining,
        is_repeated: true,
    },
];

fn names() -> [&'static str; 8] {
    FIGURES.map(|figure| figure.name)
}

/// The tool, a working folder, and the lengths of measurements.
struct Lab {
    tool: PathBuf,
    dir: PathBuf,
    quick: bool,
}

impl Lab {
    /// The tool as root, with a cache of its own, so that it measures the machine anew.
    fn tool(&self) -> Command {
        let mut command = shell::as_root("env");
        command.arg(self.cache()).arg(&self.tool);
        command
    }

    /// Folder of its cache, as an argument of `env`.
    fn cache(&self) -> String {
        format!("XDG_CACHE_HOME={}", self.dir.join("cache").display())
    }

    /// Rounds of an experiment; one is enough to see that it works.
    fn rounds(&self, usual: usize) -> usize {
        if self.quick { 1 } else { usual }
    }

    /// Removes files of root, as root.
    fn remove(&self, old: &Path) -> Result<()> {
        shell::output(shell::as_root("rm").arg("-rf").arg(old)).map(drop)
    }

    /// Builds a workload of `tests/`.
    fn compile(&self, name: &str, flags: &[String]) -> Result<PathBuf> {
        let program = self.dir.join(name);
        let source = shell::workspace().join(format!("tests/workloads/{name}.c"));
        let mut command = Command::new("cc");
        command.args(["-O2", "-g", "-pthread", "-o"]).arg(&program);
        shell::run(command.arg(source).args(flags))?;
        Ok(program)
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
    let lab = Lab {
        tool: match &args.tool {
            Some(tool) => fs::canonicalize(tool)?,
            None => recorder::build(true)?,
        },
        dir: target.join("work"),
        quick: args.quick,
    };
    fs::create_dir_all(&lab.dir)?;
    fs::create_dir_all(&output)?;
    let page = output.join("README.md");
    let mut missed = 0;
    for figure in asked {
        let (began, before) = (Instant::now(), load());
        eprintln!("papers: {}", figure.name);
        let section = (figure.measure)(&lab).with_context(|| format!("figure {}", figure.name))?;
        missed += section.missed();
        for (file, svg) in &section.pictures {
            fs::write(output.join(file), svg)?;
        }
        let by = format!("`cargo xtask papers --only {}`", figure.name);
        let measured = match figure.is_repeated {
            true => format!("A result of before, not measured anew ({by})."),
            false => format!(
                "Measured{} on {}, load average {before:.1} to {:.1}, in {:.0} s ({by}).",
                if args.quick { ", once only," } else { "" },
                machine(),
                load(),
                began.elapsed().as_secs_f64(),
            ),
        };
        let new = [(figure.name, section.markdown(&measured))];
        // Finished sections are kept, even if the rest fails.
        let old = fs::read_to_string(&page).unwrap_or_default();
        fs::write(&page, page::assemble(&old, &names(), &new))?;
        for (what, _) in section.musts.iter().filter(|(_, holds)| !holds) {
            println!("missed: {}: {what}", figure.name);
        }
    }
    println!("page: {}", page.display());
    Ok(ExitCode::from(u8::from(missed > 0)))
}

/// CPU and kernel.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let cpu = cpu.map_or("an unknown CPU", |it| {
        it.trim_start_matches([' ', '\t', ':'])
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel
        .split('-')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cpu}, {cpus} CPUs, Linux {kernel}")
}
