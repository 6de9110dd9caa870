//! The presets of a recording: those that were asked for, or the one that fits its program.

use super::recording::Recording;
use crate::collect::command;
use crate::failure::{Failure, Result};
use crate::preset::Chosen;
use crate::preset::choose::{self, Program};
use crate::probe::ResolveOptions;

/// The presets with their SPECs; without presets, probes and ids the one that fits the program.
///
/// # Errors
/// One does not fit, or none does.
pub(super) fn chosen(recording: &Recording, options: &ResolveOptions) -> Result<Vec<Chosen>> {
    let asked = recording.presets.iter();
    let asked = asked.map(|typed| choose::asked(typed, || program(recording, options), options));
    let mut chosen = asked.collect::<Result<Vec<_>>>()?;
    if chosen.is_empty() && recording.uprobes.is_empty() {
        let program = program(recording, options)?.ok_or_else(|| {
            Failure::new(
                "nothing says where items begin and end".to_owned(),
                "give -u BIN:FUNC, or -p PID or -- CMD of a program that a preset fits ('pebs-trace presets')",
            )
        })?;
        chosen.push(choose::fitting(program, options)?);
    }
    Ok(chosen)
}

/// The program that is traced, if one is named.
fn program(recording: &Recording, options: &ResolveOptions) -> Result<Option<Program>> {
    if let Some(pid) = options.pid {
        let found = Program::of_process(pid).ok_or_else(|| {
            Failure::new(
                format!("cannot tell which program process {} runs", pid.0),
                "use sudo; name it: -u BIN:FUNC, or --preset NAME=BIN".to_owned(),
            )
        })?;
        return Ok(Some(found));
    }
    let Some(command) = recording.command().first() else {
        return Ok(None);
    };
    Program::of_file(&command::find(command)?).map(Some)
}
