//! The two passes over the visits that every report begins with: the first for their ranks, the second for their classes.

use super::request::{ReportError, ReportOptions};
use super::section::{self, Gather, Section};
use super::tally::{self, Tally};
use crate::compare::classes::{Ranker, Ranks};
use crate::compare::report::classes::VisitClasses;
use crate::compare::slots::Slots;
use crate::compare::waits::{IDLE, States};
use crate::store::reader::Trace;
use crate::store::view::Select as _;

fn ranker(trace: &Trace, options: &ReportOptions) -> Result<Ranker, ReportError> {
    Ranker::of(&trace.info, options.slow).ok_or_else(|| ReportError::NoCpuTime {
        trace: trace.dir.display().to_string(),
    })
}

pub(super) fn first_pass(
    trace: &Trace,
    options: &ReportOptions,
) -> Result<Slots<Tally>, ReportError> {
    let ranks = Ranks::of(&trace.info);
    let mut slots = Slots::new(&trace.info, options.probe, move || {
        Tally::new(ranks.clone())
    });
    let ranker = ranker(trace, options)?;
    for batch in tally::Visits::scan(trace)? {
        tally::add(&batch?, (options.losses, &ranker), &mut slots)?;
    }
    Ok(slots)
}

pub(super) fn gather<'a>(
    trace: &'a Trace,
    options: &'a ReportOptions,
    sections: Slots<Section>,
    states: &mut States,
) -> Result<Gather<'a>, ReportError> {
    let args = &trace.info.columns;
    let mut gather = Gather {
        options,
        columns: args,
        switches: trace.info.switches,
        idle: (!trace.info.resumes.is_empty()).then(|| states.index(IDLE)),
        ranker: ranker(trace, options)?,
        sections,
        classes: VisitClasses::default(),
    };
    for batch in section::scan(trace)? {
        gather.add(&batch?)?;
    }
    Ok(gather)
}
