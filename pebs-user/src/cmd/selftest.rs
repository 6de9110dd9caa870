//! The workload with a log, recorded and compared: an experiment of `pebs-trace validate`, and by itself a hidden command
//! for several reset values.

mod show;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::ending::EndSignals;
use super::status::StatusLine;
use crate::failure::{Context as _, Failure, Result};
use crate::probe::ReturnMode;
use crate::record::{Recording, Remote, Target, TransportChoice};
use crate::selftest::calls;
use crate::selftest::compare::compare;
use crate::selftest::findings::Findings;
use crate::selftest::trace::Recorded;
use crate::selftest::truth::Truth;
use crate::selftest::workload::{self, Order, WorkloadArgs};
use crate::terminal::say;

/// Options of the hidden `pebs-trace selftest`.
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
    /// A run needs at least 200 items.
    #[arg(short, long, value_name = "SECONDS", value_parser = crate::cmd::values::seconds, default_value = "5")]
    pub duration: std::time::Duration,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: SelftestFormat,
    /// Seed for the random lengths of functions
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Keep the traces and logs, and print where they are
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
    /// For programs; complete
    Json,
}

/// Runs the self-test and prints the result.
///
/// # Errors
/// If it could not run.
pub fn run(args: &SelftestArgs) -> Result<ExitCode> {
    if let Some([trace, log]) = args.against.as_deref() {
        let found = compare(&Recorded::read(trace)?, &Truth::read(log)?);
        return show::show(&[found], args.format);
    }
    let place = Place::new(args.keep)?;
    let mut all = Vec::with_capacity(args.reset.len());
    for &reset in &args.reset {
        let task = Task {
            reset,
            seconds: args.duration.as_secs_f64(),
            seed: args.seed,
            transport: TransportChoice::Auto,
            order: Order::Random,
        };
        let found = task.measure(&place.dir);
        let (found, _) = found.with_context(|| {
            format!("cannot record the built-in workload at a reset value of {reset}")
        })?;
        all.push(found);
    }
    show::show(&all, args.format)
}

/// Runs the workload.
///
/// # Errors
/// If the log can't be written.
pub fn workload(args: &WorkloadArgs) -> Result<ExitCode> {
    let log = args.log.display();
    workload::run(args).with_context(|| format!("cannot write the workload's log {log}"))?;
    Ok(ExitCode::SUCCESS)
}

/// A run of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Reset value, ns.
    pub reset: u64,
    /// Run time, seconds.
    pub seconds: f64,
    /// Seed of the random choices.
    pub seed: u64,
    pub transport: TransportChoice,
    pub order: Order,
}

impl Task {
    /// Records the workload and compares the trace with its log; returns that, too.
    pub(super) fn measure(&self, dir: &Path) -> Result<(Findings, Truth)> {
        let Self {
            reset, transport, ..
        } = self;
        let program = own_file()?;
        let order = self.order.name();
        let name = transport.name();
        let trace = dir.join(format!("trace-{name}-{reset}-{order}"));
        let log = dir.join(format!("log-{name}-{reset}-{order}"));
        let spec = format!("{}:{}(id=arg1)", program.display(), calls::ITEM);
        let recording = Recording {
            uprobes: vec![spec],
            events: vec!["cpu-clock".to_owned()],
            reset: Some(*reset),
            transport: *transport,
            return_mode: ReturnMode::Uretprobe,
            target: Target::Command(self.command(&log)?.into()),
            // Costly, but what its marks cost is known.
            force: true,
            ..Recording::new(&trace)
        };
        record(&recording)?;
        let truth = Truth::read(&log)?;
        Ok((compare(&Recorded::read(&trace)?, &truth), truth))
    }

    /// Runs the workload without recording; returns its log.
    pub(super) fn alone(&self, dir: &Path) -> Result<Truth> {
        let log = dir.join("log-alone");
        let words = self.command(&log)?;
        let status = std::process::Command::new(&words[0])
            .args(&words[1..])
            .status();
        let status = status.context("cannot start the built-in workload")?;
        if !status.success() {
            return Err(Failure::bare(format!(
                "the built-in workload failed: {status}"
            )));
        }
        Ok(Truth::read(&log)?)
    }

    /// The workload's command line.
    fn command(&self, log: &Path) -> Result<[OsString; 7]> {
        Ok([
            own_file()?.into(),
            "selftest-workload".into(),
            log.into(),
            self.reset.to_string().into(),
            self.seconds.to_string().into(),
            self.seed.to_string().into(),
            self.order.name().into(),
        ])
    }
}

/// Records a command to its end, with nothing but a line of status.
fn record(recording: &Recording) -> Result<()> {
    let planned = recording.plan(|_| {})?;
    let remote = Remote::default();
    let _signals = EndSignals::listen(&remote)?;
    let mut status = StatusLine::default();
    let recorded = planned.run(&remote, |event| status.show(&event))?;
    recorded.complete().map(drop)
}

fn own_file() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// A private directory for traces and logs, removed at the end unless it is kept.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    keep: bool,
}

impl Place {
    pub(super) fn new(keep: bool) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pebs-trace-selftest-{}", std::process::id()));
        // Fails if it exists, so that nobody else's directory is used.
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
