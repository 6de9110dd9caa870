//! Maps records to events, and names the events.

use perf_event_open_sys::bindings::{PERF_RECORD_SAMPLE, PERF_SAMPLE_IDENTIFIER};
use rustc_hash::FxHashMap;

use super::error::ImportError;
use crate::perf::data::attr::{Event, Watched};
use crate::perf::data::reader::PerfData;
use crate::perf::data::tracing::Formats;
use crate::perf::layout::Layout;
use crate::perf::record::{Mode, RawRecord, Record, decode};
use crate::perf::sample::Malformed;
use crate::stream::fast_samples::{Places, Run};

/// Ids above the lowest that are looked up in an array; the kernel numbers events consecutively.
const NEAR: u64 = 4096;

/// The event ids, layouts and names of a recording.
#[derive(Clone, Debug, Default)]
pub struct EventNames {
    layouts: Vec<Layout>,
    /// By event: what it watches.
    watched: Vec<Option<Watched>>,
    /// By event: offsets of the fields that imports need; `None` if they vary between samples, or samples have an access.
    places: Vec<Option<Places>>,
    /// Events by id minus `lowest`.
    near: Vec<Option<usize>>,
    lowest: u64,
    /// Events with ids at `lowest + NEAR` or above.
    far: FxHashMap<u64, usize>,
    /// Byte offset of the id in samples, if they have one.
    id_in_sample: Option<usize>,
    names: Vec<String>,
    /// Whether all events have the same record layout.
    alike: bool,
}

impl EventNames {
    /// From the events that a file describes; of a piped file, once all of them were read.
    #[must_use]
    pub fn new(events: &[Event], formats: &Formats) -> Self {
        let ids = || {
            let events = events.iter().enumerate();
            events.flat_map(|(n, event)| event.ids.iter().map(move |id| (*id, n)))
        };
        let lowest = ids().map(|(id, _)| id).min().unwrap_or(0);
        let (mut near, mut far) = (Vec::new(), FxHashMap::default());
        for (id, event) in ids() {
            if id - lowest < NEAR {
                let at = (id - lowest) as usize;
                near.resize(near.len().max(at + 1), None);
                near[at] = Some(event);
            } else {
                far.insert(id, event);
            }
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
            watched: events.iter().map(|event| event.attr.watch).collect(),
            places: events
                .iter()
                .map(|event| {
                    let places = Places::with_raw(&event.attr.layout);
                    places.filter(|_| event.attr.watch.is_none())
                })
                .collect(),
            near,
            lowest,
            far,
            id_in_sample: first.id_in_sample(),
            names: events.iter().map(name).collect(),
        }
    }

    /// Checks that each record's event can be found.
    ///
    /// # Errors
    /// If the events' layouts differ and their records carry no id.
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

    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The layout of an event's records.
    #[must_use]
    pub fn layout(&self, event: usize) -> &Layout {
        &self.layouts[event]
    }

    /// Returns the place that an event watches, if it is a data breakpoint.
    #[must_use]
    pub fn watched(&self, event: usize) -> Option<Watched> {
        self.watched[event]
    }

    /// The event of a record; `None`: its id is unknown.
    #[inline]
    #[must_use]
    pub fn event_of(&self, raw: RawRecord<'_>) -> Option<usize> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        let is_sample = raw.kind == PERF_RECORD_SAMPLE;
        let id = if is_sample {
            self.id_in_sample
                .and_then(|at| raw.body.get(at..)?.first_chunk())
                .map(|bytes| u64::from_ne_bytes(*bytes))
        } else {
            first.id_of(raw.kind, raw.body)
        };
        match id {
            // Records made by perf, or by a kernel that writes no id, count as the first event's.
            None | Some(0) => Some(0),
            Some(id) => {
                let known = self.by_id(id);
                known.or((self.alike && !is_sample).then_some(0))
            }
        }
    }

    #[inline]
    fn by_id(&self, id: u64) -> Option<usize> {
        let near = id.checked_sub(self.lowest).filter(|at| *at < NEAR);
        match near {
            Some(at) => self.near.get(at as usize).copied().flatten(),
            None => self.far.get(&id).copied(),
        }
    }

    /// The run of samples at the begin of `bytes`: of one event, and different in ip, time and mode only.
    #[inline(always)]
    #[must_use]
    pub(super) fn run<'a>(&self, bytes: &'a [u8]) -> Option<(usize, Run<'a>)> {
        let (first, _) = RawRecord::split(bytes)?;
        if first.kind != PERF_RECORD_SAMPLE {
            return None;
        }
        let event = self.event_of(first)?;
        let run = self.places[event]?.run_of_event(bytes)?;
        Some((event, run))
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If its event is unknown, or its length does not fit the event's layout.
    #[inline]
    pub fn decode<'a>(&self, raw: RawRecord<'a>) -> Result<(usize, Record<'a>), Malformed> {
        let event = self.event_of(raw).ok_or(Malformed::Short)?;
        let record = decode(&self.layouts[event], raw)?;
        Ok((event, record))
    }
}

/// Whether a record is of a guest, whose addresses and process ids are not the recorded machine's.
#[must_use]
pub(super) const fn is_guest(raw: RawRecord<'_>) -> bool {
    matches!(raw.mode(), Mode::Guest)
}
