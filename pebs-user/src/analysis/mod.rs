//! From the tables of a trace to answers.

pub mod baseline;
mod batches;
pub(crate) mod classes;
pub mod condensed;
pub mod cost;
pub mod diff;
pub mod estimate;
pub mod explain;
#[cfg(test)]
pub(crate) mod fixtures;
mod frequencies;
pub mod net;
pub(crate) mod paths;
pub mod pool;
pub mod report;
pub(crate) mod rng;
pub(crate) mod rows;
#[cfg(test)]
mod simulation;
pub mod sketch;
pub(crate) mod stages;
