//! What the eBPF programs and user space agree on: wire records, loss counters, and the
//! configuration that user space writes before the programs are loaded.
//!
//! Nothing here knows how a record is produced or what is made of it. Both sides compile this
//! crate, so every struct is `repr(C)`, has no implicit padding, and has its size asserted.
#![no_std]

pub mod config;
pub mod counter;
pub mod record;
