//! `pebs-trace info`: shows how a trace was recorded, what it holds and what it lacks.

use std::path::PathBuf;
use std::process::ExitCode;

use super::explain::Format;
use super::source::open;
use super::{print_page, print_result};
use crate::compare::info::read;
use crate::failure::{Context as _, Result};
use crate::out::info::page;
use crate::present::json;
use crate::terminal::{say, width};

/// Options of `pebs-trace info`.
#[derive(Clone, Debug, clap::Args)]
pub struct InfoArgs {
    /// Directory of the trace
    ///
    /// As printed at the end of the recording.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Output format
    ///
    /// JSON has all of trace.json, and sizes in bytes.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Runs `pebs-trace info`: the result goes to stdout, remarks on the trace to stderr.
///
/// # Errors
/// If the trace can't be read or stdout can't be written.
pub fn run(args: &InfoArgs) -> Result<ExitCode> {
    let trace = open(&args.trace)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let info = read(&trace)?;
    match args.format {
        Format::Text => print_page(&page(&info, width()), "account")?,
        Format::Json => {
            let json = json::render(&info).context("cannot write the account as JSON")?;
            print_result(&json, "account")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
