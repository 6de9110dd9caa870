//! What was counted of events, for the visit that was current.
//!
//! Counts come before the mark or the switch that they lead up to, and are of the time since the thread's last mark or since
//! it took the CPU. So they are whose the time is when they come, unless it became another's in between without a mark or a
//! switch of the thread: the visit before and the one after then lack a part, and it is not known of what.

use super::thread::Thread;
use crate::units::{Cpu, TraceNs};

/// What was counted of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Events, while it was counted.
    pub events: u64,
    /// How long it was to be counted, ns.
    pub enabled_ns: u64,
    /// How long it was, ns.
    pub running_ns: u64,
}

/// What was counted of a visit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// By counter.
    pub each: Vec<Count>,
    /// It is not known what more there was.
    pub lacks: bool,
}

impl Count {
    pub(super) const fn add(&mut self, more: Self) {
        self.events += more.events;
        self.enabled_ns += more.enabled_ns;
        self.running_ns += more.running_ns;
    }
}

impl EventCounts {
    /// Nothing was counted yet, by so many counters.
    pub(super) fn reset(&mut self, counters: usize) {
        self.each.clear();
        self.each.resize(counters, Count::default());
        self.lacks = false;
    }

    pub(super) fn add(&mut self, more: &Counted<'_>) {
        let each = self.each.iter_mut().zip(more.each());
        each.for_each(|(sum, more)| sum.add(more));
    }
}

/// Counts as a record has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted<'a> {
    /// Since the last ones, ns.
    pub ns: u64,
    /// For each counter a word, or with its times three.
    pub words: &'a [u8],
    pub times: bool,
    /// No mark or switch of the thread follows.
    pub tick: bool,
}

impl Counted<'_> {
    pub(super) fn each(&self) -> impl Iterator<Item = Count> {
        let (words, _) = self.words.as_chunks::<8>();
        let of_each = if self.times { 3 } else { 1 };
        words.chunks_exact(of_each).map(|words| {
            let word = |n: usize| words.get(n).map(|word| u64::from_ne_bytes(*word));
            let enabled_ns = word(1).filter(|ns| *ns > 0).unwrap_or(self.ns);
            Count {
                events: word(0).unwrap_or_default(),
                enabled_ns,
                running_ns: word(2).unwrap_or(enabled_ns),
            }
        })
    }
}

/// Whether the counts of a thread are known up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing is counted.
    #[default]
    NotCounted,
    /// Counts came, and nothing since.
    UpToNow,
    /// Counts are to come.
    Before,
}

impl Thread {
    /// Events are counted of this thread, which makes its first mark.
    pub(super) const fn counting(mut self, counts: bool) -> Self {
        if counts {
            self.counts_known = Known::UpToNow;
        }
        self
    }

    /// Takes in counts up to now.
    pub(super) fn counted(&mut self, time: TraceNs, cpu: Cpu, counted: &Counted<'_>) {
        // Since a tick, where nobody saw it take the CPU.
        let lacks = self.off.is_some();
        self.on_cpu(time, cpu);
        if let Some(current) = self.current() {
            current.events.add(counted);
            current.events.lacks |= lacks;
        }
        self.counts_known = Known::UpToNow;
        if counted.tick {
            self.counts_begin();
        }
    }

    /// The thread makes a mark or leaves the CPU, before which counts come.
    pub(super) fn counts_end(&mut self) {
        if self.counts_known == Known::Before {
            self.lack_counts();
            self.counts_known = Known::UpToNow;
        }
    }

    /// Counting begins anew.
    pub(super) fn counts_begin(&mut self) {
        if self.counts_known != Known::NotCounted {
            self.counts_known = Known::Before;
        }
    }

    /// The thread's time becomes another's, or nobody's: the counts so far are in part of whoever has it now.
    pub(super) fn lack_counts(&mut self) {
        if self.off.is_none()
            && self.counts_known == Known::Before
            && let Some(current) = self.current()
        {
            current.events.lacks = true;
        }
    }
}

#[cfg(test)]
mod tests;
