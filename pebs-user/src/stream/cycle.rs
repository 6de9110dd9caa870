//! What comes in: what one round through the rings gave, and what was read beside it.

use pebs_common::counter::Counter;

use crate::stream::sideband::SidebandEvent;
use crate::units::{Cpu, EventId, KtimeNs};

/// What one round through the rings gave.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    /// Bytes of each ring, as the kernel framed them.
    pub streams: Vec<(Cpu, Vec<u8>)>,
    /// Records of perf's rings, as the kernel made them: samples of the bulk transport.
    pub bulk: Vec<BulkStream>,
    /// Counters of each CPU, read after the rings.
    pub counters: Vec<CounterRow>,
    /// Mappings, forks, execs and exits from the perf subsystem.
    pub sideband: Vec<SidebandEvent>,
    /// No record of an earlier time can still arrive.
    pub frontier: KtimeNs,
    /// When the counters were read.
    pub counted_at: KtimeNs,
}

/// What a ring of the bulk transport held.
#[derive(Clone, Debug, Default)]
pub struct BulkStream {
    /// CPU of the ring.
    pub cpu: Cpu,
    pub event: EventId,
    /// Records, headers included.
    pub bytes: Vec<u8>,
    /// Samples that the ring had no room for during the whole run, and when they were counted: where it
    /// was found full, and at the end, if the kernel says so.
    pub lost: Option<(u64, KtimeNs)>,
    /// When a record was found that can't be: it and all that waited behind it are gone.
    pub broken: Option<KtimeNs>,
}

impl Cycle {
    /// Bytes of all streams.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ours = self.streams.iter().map(|(_, bytes)| bytes.len());
        let bulk = self.bulk.iter().map(|stream| stream.bytes.len());
        ours.chain(bulk).sum()
    }
}

/// Counters of one CPU, by [`Counter`].
pub type CounterRow = [u64; Counter::COUNT as usize];

/// How fast a CPU ran at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyReading {
    /// When.
    pub time: KtimeNs,
    pub cpu: Cpu,
    /// Its frequency.
    pub khz: u32,
}
