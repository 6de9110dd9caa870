//! `pebs-trace` without a subcommand: records, shows what happens meanwhile, and prints the report.

pub mod args;
mod control;
mod finish;
mod messages;

use std::process::ExitCode;

use self::args::RecordArgs;
use self::control::Control;
use self::messages::Messages;
use super::ending::EndSignals;
use crate::collect::signals;
use crate::failure::{Failure, Result};
use crate::limits;
use crate::record::Remote;

/// Records with these options, and prints the report.
///
/// # Errors
/// If it could not run. Data already written stays.
pub fn run(args: &RecordArgs) -> Result<ExitCode> {
    signals::heed_interrupt();
    check_address_space(limits::address_space())?;
    let recording = args.recording()?;
    let mut messages = Messages::new(&recording);
    let planned = recording.plan(|event| messages.show(event))?;
    let noted = messages.take_notes();
    let remote = Remote::default();
    let _signals = EndSignals::listen(&remote)?;
    let control = args.control.as_deref();
    let _control = control
        .map(|path| Control::listen(path, &remote))
        .transpose()?;
    let recorded = planned.run(&remote, |event| messages.show(event))?;
    Ok(finish::finish(args, &noted, recorded))
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
