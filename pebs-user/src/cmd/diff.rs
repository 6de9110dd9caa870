//! `pebs-trace diff`: which function's time per item changed between two traces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::explain::Format;
use super::progress::Progress;
use super::source::{self, Opened};
use super::{print_page, print_result};
use crate::compare::diff::{DiffOptions, DiffRows, diff};
use crate::compare::losses::LossVisits;
use crate::failure::{Context as _, Result};
use crate::out::diff::text;
use crate::present::json;
use crate::terminal::{self, say};

/// Exit status of a comparison with a figure above --fail-above.
const ABOVE_LIMIT: u8 = 3;

/// Options of `pebs-trace diff`.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// Directory of the trace before the change
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,

    /// Directory of the trace after the change
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,

    /// Compare functions, or whole modules
    #[arg(long, value_enum, default_value_t)]
    pub by: ByArg,

    /// Exit with 3 if a figure grew by more than this
    ///
    /// 5 and 5% are 5 percent: of the mean item before, for the time of a function or a wait per item; of the figure
    /// itself, for the time on the CPU per item and the median duration. The whole interval must be above it. Mean
    /// and p99 of durations and preemption never fail, as other programs on the machine change them.
    #[arg(long, value_name = "PERCENT", value_parser = limit)]
    pub fail_above: Option<f64>,

    /// Include visits that overlap a loss
    ///
    /// Default: left out, as some of their records may be missing.
    #[arg(long)]
    pub all: bool,

    /// Output format
    ///
    /// JSON has times in ns and shares from 0 to 1; unknown values are null.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Unit of comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// Each function
    #[default]
    Function,
    /// Binaries, libraries, the kernel
    Module,
}

fn limit(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|percent| percent.is_finite() && *percent >= 0.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "a percentage of 0 or more (5%)".to_owned())
}

fn open(dir: &Path, progress: &Progress) -> Result<Opened> {
    let mut trace = source::open(dir)?;
    trace.watch = progress.watch();
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    Ok(trace)
}

/// Runs `pebs-trace diff`: the comparison goes to stdout, remarks on the traces to stderr.
///
/// # Errors
/// If a trace can't be read or compared, or stdout can't be written. The hint, if there is one, is an
/// error of type [`DiffError`](crate::compare::diff::DiffError) in the chain.
pub fn run(args: &DiffArgs) -> Result<ExitCode> {
    let options = DiffOptions {
        by: match args.by {
            ByArg::Function => DiffRows::Function,
            ByArg::Module => DiffRows::Module,
        },
        fail_above: args.fail_above,
        losses: if args.all {
            LossVisits::Include
        } else {
            LossVisits::LeaveOut
        },
    };
    let progress = Progress::unless(args.format == Format::Json);
    let traces = (
        open(&args.before, &progress)?,
        open(&args.after, &progress)?,
    );
    let found = diff(&traces.0, &traces.1, &options)?;
    drop(progress);
    match args.format {
        Format::Text => print_page(&text::page(&found, terminal::width()), "comparison")?,
        Format::Json => {
            let json = json::render(&found).context("cannot write the comparison as JSON")?;
            print_result(&json, "comparison")?;
        }
    }
    Ok(if found.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ABOVE_LIMIT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit with and without a percent sign; anything else is refused.
    #[test]
    fn limits() {
        assert_eq!(limit("5%"), Ok(0.05));
        assert_eq!(limit("0.5 %"), Ok(0.005));
        assert_eq!(limit("150"), Ok(1.5));
        for text in ["", "%", "-1", "five", "inf", "NaN"] {
            assert!(limit(text).unwrap_err().contains("5%"), "{text}");
        }
    }
}
