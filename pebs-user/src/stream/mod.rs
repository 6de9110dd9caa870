//! From raw bytes to one ordered stream of records. Pure: no I/O, no clock is read.

pub(crate) mod access;
pub mod bulk;
pub mod clock;
pub mod cycle;
pub mod decode;
pub(crate) mod fast_samples;
pub mod order;
pub mod sample;
pub mod samples;
pub mod sideband;
pub(crate) mod stacks;
pub(crate) mod text;
