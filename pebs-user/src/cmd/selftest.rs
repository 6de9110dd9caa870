//! `pebs-trace selftest`: measures how exact this tool is on this machine.

mod show;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;

use crate::cmd::record;
use crate::cmd::record::args::RecordArgs;
use crate::selftest::calls;
use crate::selftest::compare::compare;
use crate::selftest::findings::Findings;
use crate::selftest::trace::Recorded;
use crate::selftest::truth::Truth;
use crate::selftest::workload::{self, WorkloadArgs};
use crate::terminal::say;

/// Measure how exact this tool is on this machine
///
/// Records a built-in program that logs when each of its functions ran, and compares the trace
/// with the log: bias and standard error of the functions' times, coverage of the 95 % interval,
/// samples in a wrong item. Times come with the machine's noise: repeat it on an idle machine
/// before blaming the tool. Exit status: 0 all targets reached; 1 one was missed, which is named;
/// 2 could not run.
#[derive(Clone, Debug, clap::Args)]
pub struct SelftestArgs {
    /// Test these sample intervals, separated by commas
    ///
    /// In ns of CPU time, as --reset of a recording with cpu-clock; at least 10000.
    #[arg(short = 'c', long, value_name = "NS", value_delimiter = ',')]
    #[arg(default_value = "16000,25013,50021,100003")]
    pub reset: Vec<u64>,
    /// Run this long for each interval
    ///
    /// A run needs 200 items at least.
    #[arg(short, long, value_name = "SECONDS", value_parser = crate::cmd::values::seconds, default_value = "5")]
    pub duration: std::time::Duration,
    /// Print in this form
    #[arg(long, value_enum, default_value_t)]
    pub format: SelftestFormat,
    /// Choose other random lengths of functions
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Keep the traces and logs, and say where
    #[arg(long)]
    pub keep: bool,
    /// Compare a trace with the log of its workload instead.
    #[arg(long, num_args = 2, value_names = ["TRACE", "LOG"], hide = true)]
    pub against: Option<Vec<PathBuf>>,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SelftestFormat {
    /// For people
    #[default]
    Text,
    /// For programs: everything
    Json,
}

/// What keeps the self-test from running.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// The recording failed.
    #[error("cannot record the built-in workload at a reset value of {reset}")]
    Record {
        /// The reset value, ns.
        reset: u64,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
}

impl SelftestError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let Self::Record { source, .. } = self;
        super::hint_of(source)
    }
}

/// Runs the self-test and prints what was found.
///
/// # Errors
/// If it could not run.
pub fn run(args: &SelftestArgs) -> anyhow::Result<ExitCode> {
    if let Some([trace, log]) = args.against.as_deref() {
        let found = compare(&Recorded::read(trace)?, &Truth::read(log)?);
        return show::show(&[found], args.format);
    }
    let place = Place::new(args.keep)?;
    let mut all = Vec::with_capacity(args.reset.len());
    for &reset in &args.reset {
        let found = measure(args, reset, &place.dir);
        all.push(found.map_err(|source| SelftestError::Record { reset, source })?);
    }
    show::show(&all, args.format)
}

/// Is the workload.
///
/// # Errors
/// If the log can't be written.
pub fn workload(args: &WorkloadArgs) -> anyhow::Result<ExitCode> {
    let log = args.log.display();
    workload::run(args).with_context(|| format!("cannot write the workload's log {log}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Records the workload and compares.
fn measure(args: &SelftestArgs, reset: u64, dir: &Path) -> anyhow::Result<Findings> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let (trace, log) = (
        dir.join(format!("trace-{reset}")),
        dir.join(format!("log-{reset}")),
    );
    let mut spec = program.clone().into_os_string();
    spec.push(format!(":{}(id=arg1)", calls::ITEM));
    let words: Vec<OsString> = vec![
        "pebs-trace".into(),
        "--event".into(),
        "cpu-clock".into(),
        "--reset".into(),
        reset.to_string().into(),
        "--uprobe".into(),
        spec,
        "--return".into(),
        "uretprobe".into(),
        "--output".into(),
        trace.clone().into(),
        "--".into(),
        program.into(),
        "selftest-workload".into(),
        log.clone().into(),
        reset.to_string().into(),
        args.duration.as_secs_f64().to_string().into(),
        args.seed.to_string().into(),
    ];
    record::run_silently(&RecordArgs::parse(words)?)?;
    Ok(compare(&Recorded::read(&trace)?, &Truth::read(&log)?))
}

/// A directory of our own for traces and logs, removed at the end unless it is kept.
struct Place {
    dir: PathBuf,
    keep: bool,
}

impl Place {
    fn new(keep: bool) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("pebs-trace-selftest-{}", std::process::id()));
        // Fails if it exists, so nobody else's can be taken for ours.
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir, keep })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.keep {
            say!("traces and logs are in {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
