//! One counter per thing that can happen to a record inside the kernel programs.
//!
//! Counters live in one memory-mapped array with a row of [`Counter::COUNT`] slots per CPU, so
//! that reading them costs user space no system call. "Emitted" counters make the ledger
//! balance: records emitted on a CPU are the records decoded from that CPU's rings.

/// What a kernel-side counter counts.
///
/// Units: records, per CPU, since the programs were loaded.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Samples put into a ring.
    SampleEmitted = 0,
    /// Samples refused because the ring kept its last room for marks, or was full.
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
    /// Processes that could not be added to the table of traced processes because it was full.
    ProcessTableFull = 10,
    /// Samples, on a CPU that had no ring (one that was added to the machine during the run).
    SampleNoRing = 11,
    /// Samples whose own time stamp was not filled in by the kernel.
    SampleNoTime = 12,
    /// Marks, on a CPU that had no ring.
    MarkNoRing = 13,
    /// Switch, fork, exec, exit, interference, throttle and clock records, on a CPU that had no ring.
    TaskNoRing = 14,
    /// Marks at a site that nobody configured. Not seen unless a probe outlives its recording.
    MarkNoSite = 15,
    /// Clock pairs without the perf clock's time.
    ClockNoTime = 16,
    /// Samples whose item id could not be read (the page was not there, or another program ran). The
    /// sample itself is emitted, in no item.
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
