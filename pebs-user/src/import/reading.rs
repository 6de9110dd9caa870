//! Imports a recording in one pass: surveys it while its records are fed.
//!
//! The first round is decoded twice; it gives the premises needed before the first row: the recording's begin, the
//! events with samples and their reset values, whether switches are recorded, the kernel's address. At the end they are
//! compared with the survey of the whole file. If they differ (records older than the first round, damaged times, a
//! loss reported too late, a build id behind the records of a piped file), the records must be fed again after that
//! survey.
//!
//! Two inputs need the whole file from the start: a table of marks, whose threads' processes must be known, and
//! `sched_switch`, which counts as switches only if threads come back as often as they leave.

use super::error::ImportError;
use super::feed::{Fed, Feed, FileInfo};
use super::info::events;
use super::roles::{MarkSource, Roles, roles};
use super::survey::{Survey, Surveyor};
use crate::perf::data::attr::Event;
use crate::perf::data::features::Features;
use crate::perf::data::reader::PerfData;
use crate::perf::data::records::{Item, Records};
use crate::pipeline::Pipeline;
use crate::store::run::EventInfo;
use crate::symbolize::RecordedKernel;
use crate::units::KtimeNs;

/// A recording being read.
pub struct Reading {
    surveyor: Surveyor,
    records: Records,
    /// Whether more than one round is there.
    goes_on: bool,
}

/// Facts from the first round, assumed to hold for the whole file.
pub struct Premises {
    /// Survey of the first round.
    pub survey: Survey,
    pub roles: Roles,
    /// Begin of the recording: its first time, on its own clock.
    pub first: u64,
    events: Vec<EventInfo>,
    kernel: Option<RecordedKernel>,
    metadata: (Vec<Event>, Features),
}

impl Premises {
    fn new(data: &PerfData, survey: Survey, roles: Roles) -> Option<Self> {
        let (first, _) = survey.times.filter(|_| survey.far.records == 0)?;
        Some(Self {
            first,
            events: events(data, &survey, &roles),
            kernel: survey.recorded_kernel(data),
            metadata: (data.events.clone(), data.features.clone()),
            survey,
            roles,
        })
    }

    /// Whether the survey of the whole file confirms the premises.
    #[must_use]
    pub fn hold(&self, data: &PerfData, survey: &Survey, roles: &Roles) -> bool {
        let Self {
            survey: begin,
            roles: expected,
            first,
            events: expected_events,
            kernel,
            metadata,
        } = self;
        survey.far.records == 0
            && survey.times.is_some_and(|(begin, _)| begin == *first)
            && roles == expected
            && events(data, survey, roles) == *expected_events
            && survey.recorded_kernel(data) == *kernel
            && survey.registers == begin.registers
            && (&data.events, &data.features) == (&metadata.0, &metadata.1)
    }
}

impl Reading {
    /// Reads the first round.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub fn begin(data: &mut PerfData) -> Result<Self, ImportError> {
        let mut surveyor = Surveyor::default();
        let mut records = data.records();
        let goes_on = surveyor.round(data, &mut records)?;
        Ok(Self {
            surveyor,
            records,
            goes_on,
        })
    }

    /// Names of the events seen so far.
    #[cfg(any(test, fuzzing))]
    pub(super) fn names(&self) -> &[String] {
        self.surveyor.survey.names.names()
    }

    /// The premises; `None`: the whole file must be surveyed first. See [`roles`] for the arguments.
    pub fn premises(
        &mut self,
        data: &PerfData,
        marks: &MarkSource,
        wanted: &[String],
    ) -> Option<Premises> {
        if !self.goes_on || matches!(marks, MarkSource::Table(_)) {
            return None;
        }
        // An error here may vanish with the rest of the file; the whole survey reports it if not.
        let survey = self.surveyor.so_far(data).ok()?;
        if survey.timed() == 0 || survey.switch_formats.iter().any(Option::is_some) {
            return None;
        }
        let roles = roles(data, &survey, marks, wanted).ok()?;
        Premises::new(data, survey, roles)
    }

    /// Reads all records and feeds them to a pipeline; `None` as soon as the premises turn out wrong.
    ///
    /// Cost: as reading the file, and the first round again. Memory: as [`super::feed()`], and by the number of threads
    /// and losses.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub fn feed(
        &mut self,
        data: &mut PerfData,
        (premises, marks): (&Premises, &MarkSource),
        pipeline: &mut Pipeline,
    ) -> Result<Option<Fed>, ImportError> {
        let surveyor = &mut self.surveyor;
        let (first, parts) = (premises.first, (&premises.roles, marks));
        let mut feed = Feed::new(&premises.survey, parts, KtimeNs(first), pipeline);
        let mut records = data.records();
        let mut is_new = false;
        loop {
            if surveyor.knows_events(data)
                && let Some((event, run)) = surveyor.survey.names.run(records.ahead())
                && feed.run(&surveyor.survey, event, &run)
            {
                if is_new {
                    surveyor.run(event, &run);
                }
                let bytes = run.bytes.len();
                records.skip(bytes);
                continue;
            }
            let Some(item) = records.next_item() else {
                break;
            };
            let is_vain = match item {
                Item::Event(raw) => {
                    surveyor.look_at_events(data)?;
                    let decoded = surveyor.survey.names.decode(raw);
                    let known = FileInfo {
                        data: &*data,
                        survey: &surveyor.survey,
                    };
                    feed.record(known, raw, &decoded);
                    if is_new {
                        surveyor.record(raw, &decoded);
                    }
                    false
                }
                Item::Perf { kind, misc, body } if is_new => {
                    data.learn(kind, misc, body);
                    data.events.len() != premises.metadata.0.len()
                }
                Item::Perf { .. } => false,
                Item::Round => {
                    if is_new {
                        surveyor.losses.round();
                    }
                    is_new = true;
                    let frontier = feed.round();
                    settle(&mut feed, (&*data, &mut *surveyor), (frontier, first));
                    let has_switches = surveyor.survey.switches > 0;
                    surveyor.is_otherwise(first) || has_switches && !premises.roles.switches
                }
            };
            if is_vain {
                self.records = records;
                return Ok(None);
            }
        }
        self.records = records;
        let last = surveyor.span().map_or(0, |(_, last)| last);
        surveyor.losses.end(last);
        for frontier in feed.last_frontiers() {
            settle(&mut feed, (&*data, &mut *surveyor), (frontier, first));
        }
        Ok((!surveyor.is_otherwise(first)).then_some(feed.fed))
    }

    /// Reads the rest of the records, and returns the survey of the whole file.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub fn close(mut self, data: &mut PerfData) -> Result<Survey, ImportError> {
        while self.surveyor.round(data, &mut self.records)? {}
        self.surveyor.close(data, &self.records)
    }
}

/// Hands the records before `frontier` to the pipeline, of a recording that begins at `first`.
fn settle(
    feed: &mut Feed<'_>,
    (data, surveyor): (&PerfData, &mut Surveyor),
    (frontier, first): (u64, u64),
) {
    let (losses, frontier) = surveyor.losses.due(frontier, first);
    let survey = &surveyor.survey;
    feed.settle(FileInfo { data, survey }, &losses, frontier);
}
