//! Event counts of each visit.
//!
//! A counts record comes right before the mark or switch that ends its period; the period began at the thread's last
//! mark or when it took the CPU. The counts go to the visit that is current when they arrive. If the current visit
//! changed within the period without a mark or switch of the thread, both visits are flagged as incomplete, because
//! nobody knows how to divide the counts.
//!
//! Some kernels don't report every switch. The next counts of a thread whose switch-in is missing may begin only at a
//! tick, and those after a missing switch-out begin at the next switch-in: what was counted before is lost, and the
//! visit is flagged as incomplete.

/// Count of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of events while the counter was running.
    pub events: u64,
    /// Time that the counter was enabled, ns.
    pub enabled_ns: u64,
    /// Time that the counter was running, ns.
    pub running_ns: u64,
}

/// Event counts of a visit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// One entry per counter.
    pub each: Vec<Count>,
    /// Whether some counts are missing.
    pub incomplete: bool,
}

impl Count {
    pub(super) const fn add(&mut self, more: Self) {
        self.events += more.events;
        self.enabled_ns += more.enabled_ns;
        self.running_ns += more.running_ns;
    }
}

impl EventCounts {
    /// Sets the counts of `counters` counters to 0.
    pub(super) fn reset(&mut self, counters: usize) {
        self.each.clear();
        self.each.resize(counters, Count::default());
        self.incomplete = false;
    }

    pub(super) fn add(&mut self, more: &Counted<'_>) {
        let each = self.each.iter_mut().zip(more.each());
        each.for_each(|(sum, more)| sum.add(more));
    }
}

/// Payload of a counts record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted<'a> {
    /// Length of the period, ns.
    pub ns: u64,
    /// One word per counter, or three if `times`: count, enabled ns, running ns.
    pub words: &'a [u8],
    pub times: bool,
    /// Read at a tick: no mark or switch of the thread follows.
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

/// State of a thread's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CountsState {
    /// Counters are off.
    #[default]
    NotCounted,
    /// Counts arrived up to now.
    UpToNow,
    /// Counts of the current period have not arrived yet.
    Before,
    /// The same, but the switch-in that began the period is missing, so they may lack its begin.
    BeginMissing,
}

#[cfg(test)]
mod tests;
