//! `pebs-trace html`: writes a trace as one self-contained page.

use std::path::PathBuf;
use std::process::ExitCode;

use super::moment::PeriodArgs;
use super::progress::Progress;
use super::result_file::{OnTerminal, ResultFile};
use super::source::open;
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::report::{ReportOptions, build};
use crate::failure::Result;
use crate::out::html;
use crate::out::report::text;
use crate::terminal::say;

/// Options of `pebs-trace html`.
#[derive(Clone, Debug, clap::Args)]
pub struct HtmlArgs {
    /// Directory of the trace
    ///
    /// As printed at the end of the recording.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Rule for the first selection of slow items
    ///
    /// p99: the slowest 1 % of the visits of a probe (p50 to p99.99); 3x: at least three times their median; 500us:
    /// at least this time. cpu:p99, cpu:3x, cpu:500us: the same of their times on the CPU; cpu: those above a gap in
    /// these, else cpu:p99. Default: as in the report.
    #[arg(long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    #[command(flatten)]
    pub period: PeriodArgs,

    /// Count visits that overlap a loss, too
    ///
    /// Default: shown, but not counted, as some of their records may be missing.
    #[arg(long)]
    pub all: bool,

    /// Destination.
    #[command(flatten)]
    pub result: ResultFile,
}

/// Runs `pebs-trace html`: the summary of the page and remarks on the trace go to stderr.
///
/// # Errors
/// If the trace can't be read or has no visits, or the page can't be written.
pub fn run(args: &HtmlArgs) -> Result<ExitCode> {
    let losses = if args.all {
        LossVisits::Include
    } else {
        LossVisits::LeaveOut
    };
    let mut trace = open(&args.trace)?;
    args.period.apply(&mut trace)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let progress = Progress::new();
    trace.watch = progress.watch();
    let options = ReportOptions {
        losses,
        ..ReportOptions::default()
    };
    let written = args.result.write(OnTerminal::Refuse, |out| {
        let report = match build(&trace, &options) {
            Ok(report) => text::render(&report),
            Err(error) => format!("no report: {error}"),
        };
        html::write(&trace, args.slow, losses, report, out)
    });
    drop(progress);
    match written {
        Ok(shows) => say!("{shows}"),
        Err(error) if error.is_broken_pipe() => {}
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}
