//! Words for the reasons of waits.

use crate::compare::wait_reason::Reason;

/// `waited for a lock`.
pub(crate) const fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Cpu => "waited for a CPU",
        Reason::Stopped => "was stopped",
        Reason::PageFromDisk => "waited for a page from disk",
        Reason::PageFault => "waited for a page fault",
        Reason::MallocLock => "waited for malloc's lock",
        Reason::Semaphore => "waited for a semaphore (lock, WaitGroup)",
        Reason::KernelLock => "waited for a lock of the kernel",
        Reason::Lock => "waited for a lock",
        Reason::Condition => "waited for a condition variable",
        Reason::OtherThread => "waited for another thread",
        Reason::Events => "waited for events",
        Reason::Slept => "slept",
        Reason::Child => "waited for a child process",
        Reason::Disk => "waited for the disk",
        Reason::Socket => "waited for a socket",
        Reason::Pipe => "waited for a pipe",
        Reason::Channel => "waited for a channel",
        Reason::Collector => "waited for the garbage collector",
        Reason::File => "waited for a file, pipe or socket",
        Reason::InKernel => "was blocked in the kernel",
        Reason::Parked => "was parked",
        Reason::Ended => "ended",
        Reason::Blocked => "was blocked",
    }
}
