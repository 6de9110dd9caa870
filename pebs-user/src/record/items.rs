//! Items without marks: checks of the options, and the probe that stands for them.

use std::path::PathBuf;

use super::recording::Recording;
use crate::binary::process;
use crate::collect::command;
use crate::failure::{Failure, Result};
use crate::probe::item::{self, Context, Typed};
use crate::probe::set::{Probe, ProbeSet};
use crate::store::run::VisitRule;
use crate::units::Pid;

/// The remark that belongs to the numbers.
const NOTE: &str = "visits are runs of samples with the same item id: their begin and end are half way \
    between two samples (cut where the thread slept), and an item without a sample is not seen";

/// The set with the single probe that stands for item ids read at samples.
///
/// # Errors
/// Marks were requested too, no process is named, or there is nothing to read.
pub(super) fn probes(recording: &Recording, pids: &[Pid], typed: Typed<'_>) -> Result<ProbeSet> {
    if !recording.uprobes.is_empty() || !recording.presets.is_empty() {
        return Err(Failure::new(
            "cannot mark items and read their ids at samples in one run".to_owned(),
            "leave out --uprobe and --preset, or --item-reg, --item-mem and --item-tls".to_owned(),
        ));
    }
    if pids.is_empty() && recording.command().is_empty() {
        return Err(Failure::new(
            "cannot read item ids in every process: without marks it is unknown which to trace"
                .to_owned(),
            "give -p PID, or a command after '--'".to_owned(),
        ));
    }
    let program = program(recording, pids);
    let context = Context {
        program: program.as_deref(),
        pid: pids.first().copied(),
        none: recording.item_none,
    };
    let item = item::resolve(typed, &context)?;
    let probe = Probe::without_sites(item.spec.clone(), VisitRule::SameId);
    Ok(ProbeSet {
        probes: vec![probe],
        columns: Vec::new(),
        item: Some(item),
        notes: vec![NOTE.to_owned()],
    })
}

/// The program that is traced first.
fn program(recording: &Recording, pids: &[Pid]) -> Option<PathBuf> {
    match (pids.first(), recording.command().first()) {
        (Some(pid), _) => process::exe_file(*pid),
        (None, Some(command)) => command::find(command).ok(),
        (None, None) => None,
    }
}
