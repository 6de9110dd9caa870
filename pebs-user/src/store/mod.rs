//! The trace on disk.

pub(crate) mod args;
pub mod argument;
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
mod declaration;
mod declare;
pub mod descriptions;
pub mod fields;
mod files;
mod flags;
pub(crate) mod joined;
mod net;
pub mod options;
mod output;
mod own_function;
mod pages;
mod prefix;
mod read_error;
mod row_columns;
pub(crate) mod scan;
mod segment;
mod segment_error;
mod segment_files;
pub mod snapshot;
mod stored;
pub mod table;
mod thrift;
mod values;
pub(crate) mod visit_set;
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
