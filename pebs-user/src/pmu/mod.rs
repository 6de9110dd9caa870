//! Events: from a name as typed to an opened counter.
//!
//! `event` (text to [`event::EventSpec`], pure) -> `sysfs` and `host` (what the machine offers, as
//! plain data), `table` (what Intel calls events) -> `attr` (spec and host to the kernel's settings, pure) ->
//! `reset`, `counters`, `bulk` (checks, pure) -> `open` (system calls). `memory` and `ibs` decode what the
//! hardware says of a sample (pure).

pub mod attr;
pub mod auto;
pub mod bits;
pub mod bulk;
pub mod catalog;
pub mod counters;
pub mod event;
pub mod host;
pub mod ibs;
pub mod memory;
pub mod open;
pub mod reset;
pub mod sysfs;
pub mod table;
