//! Collecting: the kernel programs, their rings, and the session that ties them together.

pub(crate) mod behind;
pub(crate) mod btf;
pub(crate) mod bulk;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod copies;
pub(crate) mod counted;
mod counters;
pub(crate) mod cpu_time;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod frequency;
pub(crate) mod hotplug;
pub(crate) mod jitter;
pub(crate) mod kernel_map;
mod lookout;
pub(crate) mod perf_ring;
pub(crate) mod privileges;
pub(crate) mod programs;
pub(crate) mod ring;
pub(crate) mod session;
pub(crate) mod sideband;
pub(crate) mod signals;
mod threads;
