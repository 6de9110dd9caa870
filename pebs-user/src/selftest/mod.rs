//! Measures the tool itself: a workload that logs when each of its functions ran, recorded like any
//! other program, and the trace compared with the log.
//!
//! `workload` is the program, `calls` its functions, `truth` the log's format, `trace` the recorded
//! data, `compare` compares the two, `findings` has the results.
//!
//! Compared are visits with items one by one; the time of every function within every visit with
//! the log; and for every sample, whether it is in the right item and names the function that ran.
//! Visits that left the CPU are not compared function by function: the log does not show which of
//! their time was spent elsewhere.
//!
//! Interrupts of probes and samples within a function are part of its time, in the log as in the
//! trace: that is its time while being traced.

pub(crate) mod calls;
pub(crate) mod compare;
pub(crate) mod findings;
pub(crate) mod trace;
pub(crate) mod truth;
pub(crate) mod workload;
