//! Interval in which a trace is written to disk, and whether it is compacted meanwhile.

use std::time::Duration;

/// Intervals of writing, and compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Time after which an open segment is closed.
    pub segment: Duration,
    /// Time after which rows in memory are written to the open segment; `kill -9` loses up to this much.
    pub flush: Duration,
    /// Whether closed segments are compacted during the run, which costs about as much as writing them.
    pub compact: bool,
    /// Whether writing waits for compaction, if nothing is being recorded. Else segments are left uncompacted while the
    /// compacting thread is behind.
    pub compact_all: bool,
}

impl Default for WriterOptions {
    /// Segments of 10 s, flushed every second and compacted.
    fn default() -> Self {
        Self {
            segment: Duration::from_secs(10),
            flush: Duration::from_secs(1),
            compact: true,
            compact_all: false,
        }
    }
}
