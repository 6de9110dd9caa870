//! Input of the pipeline: the contents of the rings, and the data read with them.

use pebs_common::counter::Counter;

use crate::stream::sideband::SidebandEvent;
use crate::units::{Cpu, EventId, KtimeNs};

/// Data of one round through the rings.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    /// Bytes of each ring, as framed by the kernel.
    pub streams: Vec<(Cpu, Vec<u8>)>,
    /// Records of perf's rings: samples of the bulk transport.
    pub bulk: Vec<BulkStream>,
    /// Counters of each CPU, read after the rings.
    pub counters: Vec<CounterRow>,
    /// Mappings, forks, execs and exits from the perf subsystem.
    pub sideband: Vec<SidebandEvent>,
    /// No record of an earlier time can still arrive.
    pub frontier: KtimeNs,
    /// Time at which the counters were read.
    pub counted_at: KtimeNs,
}

/// Contents of a ring of the bulk transport.
#[derive(Clone, Debug, Default)]
pub struct BulkStream {
    /// CPU of the ring.
    pub cpu: Cpu,
    pub event: EventId,
    /// Records, headers included.
    pub bytes: Vec<u8>,
    /// Samples that the ring had no room for during the whole run, and the time of that count: read
    /// when the ring was found full, and at the end, if the kernel reports it.
    pub lost: Option<(u64, KtimeNs)>,
    /// Time at which an invalid record was found: it and all records behind it are discarded.
    pub broken: Option<KtimeNs>,
}

impl Cycle {
    /// Number of bytes in all streams.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ours = self.streams.iter().map(|(_, bytes)| bytes.len());
        let bulk = self.bulk.iter().map(|stream| stream.bytes.len());
        ours.chain(bulk).sum()
    }
}

/// Counters of one CPU, by [`Counter`].
pub type CounterRow = [u64; Counter::COUNT as usize];

/// Frequency of a CPU at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyReading {
    pub time: KtimeNs,
    pub cpu: Cpu,
    /// Frequency, kHz.
    pub khz: u32,
}
