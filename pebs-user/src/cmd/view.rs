//! `pebs-trace view`: browses a trace in the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use super::moment::PeriodArgs;
use super::progress::Progress;
use super::source::open;
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::failure::{Context as _, Failure, Result};
use crate::out::view::data::Data;
use crate::out::view::follow::{self, Source};
use crate::out::view::screen;
use crate::store::reader::TraceState;

/// Maximum of listed items per probe: more than a person looks through.
const SLOWEST: usize = 10_000;

/// Options of `pebs-trace view`.
#[derive(Clone, Debug, clap::Args)]
pub struct ViewArgs {
    /// Directory of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// List this many of the slowest items of each probe
    ///
    /// Memory use grows with it, and by four bytes per item of the trace. Medians and histograms cover all items.
    #[arg(long, value_name = "ITEMS", default_value_t = SLOWEST)]
    pub slowest: usize,

    /// Rule for slow items
    ///
    /// Parts of an item are shown beside those of typical ones, which are not slow. p99: the slowest 1 % of the items of
    /// a probe (p50 to p99.99); 3x: at least three times their median; 500us: at least this time. With cpu: before it
    /// (cpu:p99, cpu:3x, cpu:500us), or cpu for the default rule: by time on the CPU, which then also ranks the items.
    /// Default: as in the report.
    #[arg(long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    #[command(flatten)]
    pub period: PeriodArgs,

    /// Include visits that overlap a loss
    ///
    /// Default: left out, as some of their records may be missing.
    #[arg(long)]
    pub all: bool,

    /// Follow a trace that is being written
    ///
    /// Reads it again about every second, or less often if that takes more than a fifth of the time; keeps the
    /// selection. Items appear a second or two after they end. A trace that is not being written is shown as without
    /// --live.
    #[arg(long, conflicts_with_all = ["since", "until"])]
    pub live: bool,
}

/// Runs `pebs-trace view`.
///
/// # Errors
/// If there is no terminal, or the trace can't be read.
pub fn run(args: &ViewArgs) -> Result<ExitCode> {
    let mut trace = open(&args.trace)?;
    let streams = [
        ("stdin", io::stdin().is_terminal()),
        ("stdout", io::stdout().is_terminal()),
    ];
    if let Some((stream, _)) = streams.into_iter().find(|(_, is_terminal)| !is_terminal) {
        let dir = args.trace.display();
        let message = format!("cannot show trace {dir}: {stream} is not a terminal");
        return Err(Failure::new(message, format!("pebs-trace report {dir}")));
    }
    let losses = if args.all {
        LossVisits::Include
    } else {
        LossVisits::LeaveOut
    };
    if args.live && trace.state() == TraceState::Live {
        return follow_on(Source {
            dir: args.trace.clone(),
            slowest: args.slowest,
            losses,
            slow: args.slow,
        });
    }
    args.period.apply(&mut trace)?;
    let progress = Progress::new();
    trace.watch = progress.watch();
    let data = Data::read(&trace, (args.slowest, args.slow), losses)?;
    drop(progress);
    screen::show(data, None).context("cannot use the terminal")?;
    Ok(ExitCode::SUCCESS)
}

fn follow_on(source: Source) -> Result<ExitCode> {
    // Retried once: a writer may rename a file during the first read.
    let (data, _) = source.read().or_else(|_| source.read())?;
    let news = follow::follow(source).context("cannot follow the trace")?;
    screen::show(data, Some(&news)).context("cannot use the terminal")?;
    Ok(ExitCode::SUCCESS)
}
