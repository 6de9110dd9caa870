//! Formats of the perf subsystem: records in rings and files, and `perf.data`.
//!
//! [`record`] and [`sample`] decode bytes, and are shared by all readers: of the rings of events opened here and of
//! files written by `perf record`. Invariant: no input makes them fail or allocate; records that don't match their
//! layout are reported ([`sample::Malformed`]).

mod bytes;
pub(crate) mod calls;
pub mod data;
pub mod layout;
pub mod record;
pub(crate) mod sample;
