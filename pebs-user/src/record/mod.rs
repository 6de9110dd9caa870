//! Recording: from the command line to a finished trace and its report.
//!
//! `plan` resolves the options on this machine, `run` sets the session up and waits for its end, `finish` closes
//! the trace and writes `trace.json`.

mod cost;
mod finish;
mod governor;
mod items;
mod pace;
mod placement;
mod plan;
mod preset;
mod replaced;
mod run;
mod status;
mod targets;
mod transport;

pub(crate) use targets::check_process;

use std::process::ExitCode;

use crate::cmd::record::args::RecordArgs;
use crate::collect::signals;
use crate::cost::calibrate::UnitCosts;
use crate::cost::calibrate::saved::Calibration;
use crate::failure::{Failure, Result};
use crate::limits;
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::pmu::open::Times;
use crate::store::run::RunInfo;

pub(crate) use plan::grant;

/// Records with these options, and prints the report.
///
/// # Errors
/// If it could not run. Data already written stays.
pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    signals::heed_interrupt();
    check_address_space(limits::address_space())?;
    let mut plan = plan::Plan::make(args)?;
    plan.say();
    let recorded = run::record(&mut plan)?;
    Ok(finish::finish(&plan, recorded))
}

/// Address space with which recordings are tested, bytes: rings, thread stacks and kernel symbols. With less,
/// allocation may fail, which aborts the process.
const ADDRESS_SPACE_MIN: u64 = 512 << 20;

/// Refuses to record where the address space is limited to too little.
fn check_address_space(limit: Option<u64>) -> Result<()> {
    match limit {
        Some(limit) if limit < ADDRESS_SPACE_MIN => Err(Failure::new(
            format!(
                "cannot record: the limit of address space is {} MiB, and recording takes up to {} MiB",
                limit >> 20,
                ADDRESS_SPACE_MIN >> 20
            ),
            "run 'ulimit -v unlimited' first".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Records with these options without output, for callers that read the trace themselves. Returns the content of
/// `trace.json`.
///
/// # Errors
/// If it could not run, could not write the whole trace, or was interrupted.
pub(crate) fn run_silently(args: &RecordArgs) -> Result<RunInfo> {
    let mut plan = plan::Plan::make(args)?;
    plan.voice = plan::Voice::Silent;
    let recorded = run::record(&mut plan)?;
    finish::close_silently(&plan, recorded)
}

/// Result of a run with marks but without samples.
pub(crate) struct Counting {
    /// The machine.
    pub host: Host,
    pub events: Vec<ResolvedEvent>,
    /// Count of each event in the traced threads; `None` if it can't be read.
    pub times: Vec<Option<Times>>,
    /// Costs of marks and samples.
    pub units: UnitCosts,
    /// Where the costs come from.
    pub source: String,
    /// The calibration that they come from, if any.
    pub calibration: Option<Box<Calibration>>,
    /// A calibration that is ignored, and why.
    pub note: Option<String>,
    /// Content of `trace.json`: length, ledger, cost.
    pub info: RunInfo,
    pub visits: u64,
    /// Bytes of marks, switches and the like in the ring of the CPU that had most of them.
    pub most_ring_bytes: u64,
    pub ended_by: &'static str,
    /// Message if there was no item.
    pub no_item: String,
}

/// Records with these options, but without samples: events are only counted. The trace contains visits.
///
/// # Errors
/// If it could not run or could not write the whole trace.
pub(crate) fn count(args: &RecordArgs) -> Result<Counting> {
    let mut plan = plan::Plan::make(args)?;
    plan.voice = plan::Voice::Silent;
    plan.counting = true;
    if let Some(event) = plan.events.first() {
        governor::check_known(event, "plan")?;
    }
    let recorded = run::record(&mut plan)?;
    finish::close_counted(plan, recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too little address space is refused with both figures; no limit and a large one are accepted.
    #[test]
    fn address_space() {
        assert!(check_address_space(None).is_ok());
        assert!(check_address_space(Some(1 << 30)).is_ok());
        let error = check_address_space(Some(195 << 20)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("195 MiB") && text.contains("512 MiB"),
            "{text}"
        );
    }
}
