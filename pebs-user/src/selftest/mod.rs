//! Measures the tool itself: a workload that logs when each of its functions ran, recorded like any
//! other program, and the trace compared with the log.
//!
//! `workload` is the program, `calls` its functions, `truth` the log's format, `trace` what was
//! recorded, `compare` puts the two side by side, `findings` says what came of it.
//!
//! What is compared: visits with items one by one; the time of every function within every visit
//! with what the log says; and for every sample, whether it is in the right item and names the
//! function that ran. Visits that left the CPU are not compared function by function: the log
//! cannot tell which of their time was spent elsewhere.
//!
//! The interrupts of probes and samples that fall into a function are part of its time, in the log
//! as in the trace: that is what the function took while it was being watched.

pub(crate) mod calls;
pub(crate) mod compare;
pub(crate) mod findings;
pub(crate) mod trace;
pub(crate) mod truth;
pub(crate) mod workload;
