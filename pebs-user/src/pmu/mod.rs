//! Events: from a name as typed to an opened counter.
//!
//! `event` (text to [`event::EventSpec`], pure) -> `sysfs` and `host` (what the machine offers, as
//! plain data) -> `attr` (spec and host to the kernel's settings, pure) -> `reset` (checks of the
//! reset value, pure) -> `open` (system calls).

pub mod attr;
pub mod auto;
pub mod bits;
pub mod event;
pub mod host;
pub mod limits;
pub mod open;
pub mod reset;
pub mod sysfs;
