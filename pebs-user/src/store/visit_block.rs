//! Kept visits on their way to the threads that estimate and encode them.

use std::mem::replace;
use std::ops::Range;

use super::samples::SampleBlock;
use crate::arch::will_write;
use crate::estimate::{Events, Series, VisitTimeline};
use crate::units::{EventId, Tid, TraceNs};

/// Samples with their functions, and the visits that contain some of them.
///
/// Memory: some hundred bytes per visit, in addition to its samples.
#[derive(Debug, Default)]
pub struct VisitBlock {
    pub samples: SampleBlock,
    visits: Vec<Entry>,
    active: Vec<(TraceNs, TraceNs)>,
    /// Events of the samples, for visits with several events.
    events: Vec<EventId>,
}

/// Numbers that a visit's rows have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitKey {
    pub visit_id: u64,
    pub item_id: u64,
    pub tid: Tid,
}

/// A visit. Single numbers are the ends of its parts of the block's vectors; each begins at the previous visit's end.
#[derive(Debug)]
struct Entry {
    key: VisitKey,
    begin: TraceNs,
    end: Option<TraceNs>,
    samples: Range<u32>,
    active: u32,
    events: u32,
    /// Event of all samples, unless `VisitBlock::events` has one for each.
    event: EventId,
}

impl VisitBlock {
    /// Adds a visit with the current samples, which are to be kept. `event`: event of the first sample; for the others
    /// see [`VisitTimeline`].
    #[inline]
    pub fn visit(
        &mut self,
        key: VisitKey,
        (begin, end): (TraceNs, Option<TraceNs>),
        active: &[(TraceNs, TraceNs)],
        event: EventId,
    ) {
        self.active.extend_from_slice(active);
        self.events.extend_from_slice(self.samples.events());
        let samples = self.samples.at_hand();
        self.visits.push(Entry {
            key,
            begin,
            end,
            samples: samples.start as u32..samples.end as u32,
            active: self.active.len() as u32,
            events: self.events.len() as u32,
            event,
        });
        will_write(self.visits.spare_capacity_mut(), 0, 2);
        will_write(self.active.spare_capacity_mut(), 0, 2);
    }

    /// The visits, in the order in which they were added.
    pub(super) fn visits(&self) -> impl Iterator<Item = (VisitKey, VisitTimeline<'_>)> {
        let next = |begin: &mut usize, end: u32| replace(begin, end as usize)..end as usize;
        let (mut active, mut events) = (0, 0);
        self.visits.iter().map(move |entry| {
            let samples = entry.samples.start as usize..entry.samples.end as usize;
            let (times, functions) = self.samples.times_and_functions(samples);
            let active = next(&mut active, entry.active);
            let events = next(&mut events, entry.events);
            let timeline = VisitTimeline {
                begin: entry.begin,
                end: entry.end,
                active: &self.active[active],
                samples: Series {
                    times,
                    functions,
                    events: match &self.events[events] {
                        [] => Events::All(entry.event),
                        events => Events::Each(events),
                    },
                },
            };
            (entry.key, timeline)
        })
    }

    /// Drops everything; keeps the memory, except that of a very large visit.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.visits.clear();
        self.active.clear();
        self.events.clear();
    }
}
