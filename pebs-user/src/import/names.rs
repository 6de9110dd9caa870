//! Which event a record is of, and what the events are called.

use perf_event_open_sys::bindings::{PERF_RECORD_SAMPLE, PERF_SAMPLE_IDENTIFIER};
use rustc_hash::FxHashMap;

use super::error::ImportError;
use crate::perf::data::attr::Event;
use crate::perf::data::reader::PerfData;
use crate::perf::data::tracing::Formats;
use crate::perf::layout::Layout;
use crate::perf::record::{Mode, RawRecord, Record, decode};
use crate::perf::sample::Malformed;

/// Tells the events of a recording apart.
#[derive(Clone, Debug, Default)]
pub struct EventNames {
    layouts: Vec<Layout>,
    by_id: FxHashMap<u64, usize>,
    names: Vec<String>,
    /// Records of all of them lie alike.
    alike: bool,
}

impl EventNames {
    /// Of the events that a file names. Of a piped file, once all of them were read.
    #[must_use]
    pub fn new(events: &[Event], formats: &Formats) -> Self {
        let mut by_id = FxHashMap::default();
        for (n, event) in events.iter().enumerate() {
            by_id.extend(event.ids.iter().map(|id| (*id, n)));
        }
        let name = |event: &Event| {
            let traced = || {
                let is_traced = event.attr.is_tracepoint();
                is_traced.then(|| formats.name(event.attr.config)).flatten()
            };
            let name = event.name.clone().or_else(traced);
            name.unwrap_or_else(|| event.attr.plain_name())
        };
        let mut layouts = events.iter().map(|event| event.attr.layout);
        let first = layouts.next().unwrap_or_default();
        Self {
            alike: layouts.all(|layout| layout.agrees(&first)),
            layouts: events.iter().map(|event| event.attr.layout).collect(),
            by_id,
            names: events.iter().map(name).collect(),
        }
    }

    /// Checks that records can be told apart.
    ///
    /// # Errors
    /// If they lie differently and do not say of which event they are.
    pub fn check(&self, data: &PerfData) -> Result<(), ImportError> {
        let Some(first) = self.layouts.first() else {
            return Ok(());
        };
        let has_identifier = |layout: &Layout| {
            layout.has(PERF_SAMPLE_IDENTIFIER) && layout.sample_id_all == first.sample_id_all
        };
        if self.alike || self.layouts.iter().all(has_identifier) {
            return Ok(());
        }
        Err(ImportError::NoIds {
            path: data.path().to_owned(),
        })
    }

    /// The events' names, in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How the records of an event lie.
    #[must_use]
    pub fn layout(&self, event: usize) -> &Layout {
        &self.layouts[event]
    }

    /// The event that a record is of; `None` if it names one that the file does not.
    #[inline]
    #[must_use]
    pub fn event_of(&self, raw: RawRecord<'_>) -> Option<usize> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        match first.id_of(raw.kind, raw.body) {
            // Made by perf, or of a kernel that does not say.
            None | Some(0) => Some(0),
            Some(id) => {
                let known = self.by_id.get(&id).copied();
                let is_sample = raw.kind == PERF_RECORD_SAMPLE;
                known.or((self.alike && !is_sample).then_some(0))
            }
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is of no event that is known, or does not lie as its event says.
    #[inline]
    pub fn decode<'a>(&self, raw: RawRecord<'a>) -> Result<(usize, Record<'a>), Malformed> {
        let event = self.event_of(raw).ok_or(Malformed::Short)?;
        let record = decode(&self.layouts[event], raw)?;
        Ok((event, record))
    }
}

/// Whether a sample is one of a guest, whose addresses and processes are not the recorded machine's.
#[must_use]
pub const fn is_guest(raw: RawRecord<'_>) -> bool {
    matches!(raw.mode(), Mode::Guest)
}
