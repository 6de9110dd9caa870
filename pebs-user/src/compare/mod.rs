//! From the tables of a trace to answers, as data.

pub(crate) mod arguments;
pub(crate) mod batches;
pub(crate) mod blocks;
pub(crate) mod chance;
pub(crate) mod classes;
pub(crate) mod condensed;
pub(crate) mod counted;
pub(crate) mod counts;
pub(crate) mod diff;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod frequencies;
pub(crate) mod interrupts_and_faults;
pub(crate) mod lengths;
pub(crate) mod load;
pub(crate) mod losses;
pub mod mine;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod pool;
pub(crate) mod remarks;
pub mod report;
pub(crate) mod rows;
pub(crate) mod select;
#[cfg(test)]
mod simulation;
pub(crate) mod slots;
pub(crate) mod stages;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod wait_reason;
pub(crate) mod waits;
