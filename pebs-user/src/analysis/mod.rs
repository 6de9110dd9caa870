//! From the tables of a trace to answers.

mod batches;
pub(crate) mod classes;
pub(crate) mod condensed;
pub(crate) mod counted;
pub(crate) mod diff;
pub(crate) mod explain;
mod frequencies;
pub(crate) mod info;
pub mod mine;
pub(crate) mod paths;
pub(crate) mod pool;
pub mod report;
pub(crate) mod rows;
#[cfg(test)]
mod simulation;
pub(crate) mod stages;
