//! Events: from the name on the command line to an opened counter.
//!
//! `event` (text to [`event::EventSpec`], pure) -> `sysfs` and `host` (features of the machine, as plain data),
//! `table` (Intel's event lists) -> `attr` (spec and host to the kernel's settings for a `target`, pure) -> `reset`,
//! `counters` (checks, pure), `jitter` (distances between samples, pure) -> `open` (system calls). `counted` resolves
//! events that are counted, not sampled. `memory` and `ibs` decode the hardware's data about a sample (pure); `watch` is what a data breakpoint
//! watches.

pub(crate) mod attr;
pub(crate) mod bits;
pub(crate) mod catalog;
pub(crate) mod counted;
pub(crate) mod counters;
pub mod event;
pub(crate) mod host;
pub(crate) mod ibs;
pub(crate) mod jitter;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod reset;
pub(crate) mod sysfs;
pub(crate) mod table;
pub(crate) mod target;
pub mod watch;
