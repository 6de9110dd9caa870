//! `pebs-trace export`: converts a trace for other tools.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use super::progress::Progress;
use super::result_file::{OnTerminal, ResultFile};
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::select::Selection;
use crate::failure::Result;
use crate::out::export::{Format, export};
use crate::store::reader::Trace;
use crate::terminal::say;

/// Options of `pebs-trace export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// Directory of the trace
    ///
    /// As printed at the end of the recording.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: Format,

    /// Export only the visits of this item
    #[arg(long, value_name = "ID", conflicts_with = "slow")]
    pub item: Option<u64>,

    /// Export only slow items, by this rule
    ///
    /// p99: the slowest 1 % of the visits of a probe (p50 to p99.99); 3x: at least three times their median; 500us:
    /// at least this time. cpu:p99, cpu:3x, cpu:500us: the same of their times on the CPU; cpu: those above a gap in
    /// these, else cpu:p99.
    #[arg(long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    /// Include visits that overlap a loss
    ///
    /// Default: formats that add up times of functions leave them out, as some of their records may be missing; the
    /// others (perfetto, firefox, csv) show their flags.
    #[arg(long)]
    pub all: bool,

    /// Destination.
    #[command(flatten)]
    pub result: ResultFile,
}

/// Runs `pebs-trace export`: the summary of the output and remarks on the trace go to stderr.
///
/// # Errors
/// If the trace can't be read, nothing is selected, or the output can't be written.
pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    let selection = match (args.item, args.slow) {
        (Some(item), _) => Selection::Item(item),
        (None, Some(rule)) => Selection::Slow(rule),
        (None, None) => Selection::All,
    };
    let losses = if args.all {
        LossVisits::Include
    } else {
        LossVisits::LeaveOut
    };
    let mut trace = Trace::open(&args.trace)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let on_terminal = if args.to.is_text() {
        OnTerminal::Show
    } else {
        OnTerminal::Refuse
    };
    // No progress line where text output goes to the terminal: it would be mixed into it.
    let progress = Progress::unless(args.to.is_text() && io::stdout().is_terminal());
    trace.watch = progress.watch();
    let written = args.result.write(on_terminal, |out| {
        export(&trace, args.to, (selection, losses), out)
    });
    drop(progress);
    match written {
        Ok(note) => say!("{note}"),
        Err(error) if error.is_broken_pipe() => {}
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    /// Every option is accepted, and options that exclude each other are refused.
    #[test]
    fn arguments() {
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        let args = parse("export t --to csv --slow 3x --all -o f --force");
        let args = args.unwrap_or_else(|error| panic!("{error}")).args;
        assert_eq!(
            (args.to, args.slow.map(|it| it.to_string())),
            (Format::Csv, Some("3x".to_owned()))
        );
        assert!(args.all && args.result.force);
        assert!(parse("export t --to csv --slow 3x --item 4").is_err());
        assert!(parse("export t --to xml").is_err());
        assert!(parse("export t").is_err());
    }
}
