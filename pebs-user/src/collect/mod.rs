//! Collecting: the kernel programs, their rings, and the session that ties them together.

pub mod btf;
pub mod bulk;
pub mod command;
pub mod copies;
mod counters;
pub mod cpu_time;
pub mod drain;
pub mod frequency;
pub mod hotplug;
pub mod kernel_map;
pub mod perf_ring;
pub mod privileges;
pub mod programs;
pub mod ring;
pub mod session;
pub mod sideband;
pub mod signals;
