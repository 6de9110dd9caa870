//! The trace on disk.

pub(crate) mod args;
pub mod call_stacks;
pub mod estimates;
pub mod run;
pub mod samples;
pub mod schema;
pub mod tables;
pub mod view;
pub mod visit_block;

mod columns;
mod compacted;
mod compactor;
mod declare;
pub mod descriptions;
mod files;
mod net;
pub mod options;
mod output;
mod pages;
mod prefix;
mod read_error;
mod scan;
mod segment;
mod segment_error;
mod segment_files;
mod thrift;
mod write_error;

pub mod reader;
pub mod recover;
pub mod writer;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
