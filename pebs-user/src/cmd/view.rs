//! `pebs-trace view`: looks at a trace in the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::Hinted;
use crate::analysis::report::{LossVisits, ReportError};
use crate::store::reader::Trace;
use crate::view::data::Data;
use crate::view::screen;

/// Items of a probe that are listed: more than a person goes through.
const SLOWEST: usize = 10_000;

/// Look at a trace in the terminal: items in a list, enter to open one
#[derive(Clone, Debug, clap::Args)]
pub struct ViewArgs {
    /// Directory of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// List this many of the slowest items of each probe
    ///
    /// Memory grows with it, and with the trace by four bytes an item. Medians and histograms are of all.
    #[arg(long, value_name = "ITEMS", default_value_t = SLOWEST)]
    pub slowest: usize,

    /// List and count visits that overlap a loss, too
    ///
    /// Default: they are left out, as records of theirs may be missing.
    #[arg(long)]
    pub all: bool,
}

/// Runs `pebs-trace view`.
///
/// # Errors
/// If there is no terminal, or the trace can't be read.
pub fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let trace = Trace::open(&args.trace).map_err(ReportError::from)?;
    let streams = [
        ("stdin", io::stdin().is_terminal()),
        ("stdout", io::stdout().is_terminal()),
    ];
    if let Some((stream, _)) = streams.into_iter().find(|(_, is_terminal)| !is_terminal) {
        let dir = args.trace.display();
        let message = format!("cannot show trace {dir}: {stream} is not a terminal");
        return Err(Hinted::new(message, format!("pebs-trace report {dir}")).into());
    }
    let losses = if args.all {
        LossVisits::Include
    } else {
        LossVisits::LeaveOut
    };
    let data = Data::read(&trace, args.slowest, losses)?;
    screen::show(&data).context("cannot use the terminal")?;
    Ok(ExitCode::SUCCESS)
}
