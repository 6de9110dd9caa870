//! The trace on disk.

pub mod run;
pub mod schema;
pub mod tables;

mod closer;
mod columns;
mod files;
mod output;
mod pages;
mod prefix;
mod read_error;
mod scan;
mod segment;
mod write_error;

pub mod reader;
pub mod recover;
pub mod writer;

#[cfg(test)]
mod tests;
