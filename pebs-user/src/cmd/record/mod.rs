//! Recording: from what was typed to a finished trace and its report.
//!
//! `plan` works out what the options mean on this machine, `run` sets the session up and waits for
//! its end, `finish` closes the books and writes `trace.json`.

mod cost;
mod finish;
mod governor;
mod plan;
mod run;
mod status;

use std::process::ExitCode;

use crate::cli::RecordArgs;
use crate::store::run::RunInfo;

/// Records as the options say, and prints the report.
///
/// # Errors
/// If it could not run. What was already written stays.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let mut plan = plan::Plan::make(args)?;
    plan.say();
    let recorded = run::record(&mut plan)?;
    Ok(finish::finish(&plan, recorded))
}

/// Records as the options say without a word: for a part of the program that reads the trace itself.
/// Gives what `trace.json` says.
///
/// # Errors
/// If it could not run or not write the whole trace, or was interrupted.
pub fn run_silently(args: &RecordArgs) -> anyhow::Result<RunInfo> {
    let mut plan = plan::Plan::make(args)?;
    plan.voice = plan::Voice::Silent;
    let recorded = run::record(&mut plan)?;
    finish::close_silently(&plan, recorded)
}
