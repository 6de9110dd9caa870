//! Interface between the eBPF programs and user space: wire records, loss counters, and the configuration that user
//! space writes before the programs are loaded.
//!
//! Independent of how records are produced or used. Both sides compile this crate, so every struct is `repr(C)`,
//! has no implicit padding, and has its size asserted.
#![no_std]

mod arch;
pub mod condition;
pub mod config;
pub mod counter;
pub mod record;
