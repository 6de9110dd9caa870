//! One counter for each possible outcome of a record in the eBPF programs.
//!
//! Counters are in one memory-mapped array with a row of [`Counter::COUNT`] slots per CPU, so that user space reads
//! them without a system call. "Emitted" counters balance the ledger: the records emitted on a CPU equal the
//! records decoded from that CPU's rings.

/// Counters of the eBPF programs.
///
/// Units: records, per CPU, since the programs were loaded.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Samples put into a ring.
    SampleEmitted = 0,
    /// Samples refused because the rest of the ring was reserved for marks, or the ring was full.
    SampleDropped = 1,
    /// Samples of processes that are not traced. Not a loss.
    SampleFiltered = 2,
    /// Samples taken in a mode (kernel or user) that the run leaves out. Not a loss.
    SampleExcluded = 3,
    /// Marks put into a ring.
    MarkEmitted = 4,
    /// Marks refused because the ring was full.
    MarkDropped = 5,
    /// Marks of processes that are not traced. Not a loss.
    MarkFiltered = 6,
    /// Argument reads that failed (the page was not there, or the address was wrong). The mark
    /// itself is emitted with that argument unknown.
    ArgumentFault = 7,
    /// Switch, fork, exec, exit, interference, throttle and clock records put into a ring.
    TaskEmitted = 8,
    /// Switch, fork, exec, exit, interference, throttle and clock records refused because the ring was full.
    TaskDropped = 9,
    /// Processes not traced because the table of traced processes was full.
    ProcessTableFull = 10,
    /// Samples on a CPU without a ring (one added to the machine during the run).
    SampleNoRing = 11,
    /// Samples without a time stamp of their own from the kernel.
    SampleNoTime = 12,
    /// Marks, on a CPU that had no ring.
    MarkNoRing = 13,
    /// Switch, fork, exec, exit, interference, throttle and clock records, on a CPU that had no ring.
    TaskNoRing = 14,
    /// Marks at a site without configuration. Zero unless a probe outlives its recording.
    MarkNoSite = 15,
    /// Clock pairs without the perf clock's time.
    ClockNoTime = 16,
    /// Samples whose item id could not be read (the page was not in memory, or another program ran). The sample
    /// itself is emitted, in no item.
    ItemFault = 17,
}

impl Counter {
    /// Slots per CPU in the counter array; a power of two with room to grow.
    pub const COUNT: u32 = 32;

    /// Every counter, in slot order.
    pub const ALL: [Self; 18] = [
        Self::SampleEmitted,
        Self::SampleDropped,
        Self::SampleFiltered,
        Self::SampleExcluded,
        Self::MarkEmitted,
        Self::MarkDropped,
        Self::MarkFiltered,
        Self::ArgumentFault,
        Self::TaskEmitted,
        Self::TaskDropped,
        Self::ProcessTableFull,
        Self::SampleNoRing,
        Self::SampleNoTime,
        Self::MarkNoRing,
        Self::TaskNoRing,
        Self::MarkNoSite,
        Self::ClockNoTime,
        Self::ItemFault,
    ];
}
