//! Items whose ids samples read: checks of the options, and the probe that stands for items without marks.

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

/// The same for items with marks.
const MARKED_NOTE: &str = "between its marks a thread is at the item whose id its samples have: its turns begin and \
    end half way between two samples (cut at its marks, and where the thread slept), and a turn without a sample is not seen";

/// The set of these probes, whose items have their ids read at samples as well; without probes the set with the single one
/// that stands for the ids.
///
/// # Errors
/// The marks are no begin and end by id, no process is named, or there is nothing to read.
pub(super) fn probes(
    recording: &Recording,
    pids: &[Pid],
    typed: Typed<'_>,
    marked: ProbeSet,
) -> Result<ProbeSet> {
    check_marked(recording, &marked)?;
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
    if !marked.probes.is_empty() {
        let mut set = marked;
        set.item = Some(item);
        set.notes.push(MARKED_NOTE.to_owned());
        return Ok(set);
    }
    let probe = Probe::without_sites(item.spec.clone(), VisitRule::SameId);
    Ok(ProbeSet {
        probes: vec![probe],
        columns: Vec::new(),
        item: Some(item),
        notes: vec![NOTE.to_owned()],
    })
}

/// Checks that items with marks can be joined with ids at samples.
fn check_marked(recording: &Recording, marked: &ProbeSet) -> Result<()> {
    if !recording.presets.is_empty() || !recording.resumes.is_empty() {
        return Err(Failure::new(
            "cannot tell by marks and by ids at samples which item a thread is at".to_owned(),
            "leave out --preset and --resume, or --item-reg, --item-mem and --item-tls".to_owned(),
        ));
    }
    let other = marked.probes.iter().find(|it| it.rule != VisitRule::ById);
    if let Some(other) = other {
        return Err(Failure::new(
            format!(
                "cannot join the items of {} with ids at samples: its begin and end are not matched by id",
                other.spec
            ),
            "write BIN:START(id=EXPR)..END(id=EXPR), with the id that the register or variable has"
                .to_owned(),
        ));
    }
    if !marked.probes.is_empty() && !recording.counts.is_empty() {
        return Err(Failure::new(
            "cannot count events of items whose turns are known from samples".to_owned(),
            "leave out --count, or --item-reg, --item-mem and --item-tls".to_owned(),
        ));
    }
    Ok(())
}

/// The program that is traced first.
fn program(recording: &Recording, pids: &[Pid]) -> Option<PathBuf> {
    match (pids.first(), recording.command().first()) {
        (Some(pid), _) => process::exe_file(*pid),
        (None, Some(command)) => command::find(command).ok(),
        (None, None) => None,
    }
}
