//! From the tables of a trace to answers.

mod batches;
pub(crate) mod classes;
pub mod condensed;
pub mod diff;
pub mod explain;
#[cfg(test)]
pub(crate) mod fixtures;
mod frequencies;
pub(crate) mod paths;
pub mod pool;
pub mod report;
pub(crate) mod rows;
#[cfg(test)]
mod simulation;
pub(crate) mod stages;
