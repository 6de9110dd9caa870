//! What the perf subsystem writes: records of rings and files, and `perf.data`.
//!
//! [`record`] and [`sample`] know the bytes, and are shared by everything that reads them: the rings of events opened
//! here and files that `perf record` wrote. Invariant: no input makes them fail or allocate; what does not fit is
//! told ([`sample::Malformed`]).

mod bytes;
pub(crate) mod calls;
pub mod data;
pub mod layout;
pub mod record;
pub(crate) mod sample;
