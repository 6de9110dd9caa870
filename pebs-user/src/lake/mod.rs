//! A lake: the traces of many machines in an object store, or in a directory that machines share.
//!
//! ```text
//! LAKE/TABLE/date=YYYY-MM-DD/host=NAME/TRACE-ID.parquet     rows of a table, with its columns; -2, -3 .. if it is large
//! LAKE/traces/date=YYYY-MM-DD/host=NAME/TRACE-ID.parquet    the manifest of the trace: one row, written last
//! ```
//!
//! Engines that read partitions by Hive's names (DuckDB, Spark, Trino) read what a question needs by date and host. A trace has
//! the date on which it began, in UTC.
//!
//! Invariant: an object never changes, and what has no manifest does not exist for readers. The id of a trace is made from its
//! `trace.json`, so that the same trace has the same names whoever pushes it, however often, and goes on where it was cut off.

mod address;
mod buckets;
mod error;
#[cfg(feature = "object-stores")]
mod http;
mod layout;
mod list;
mod manifest;
mod push;
mod remote;
mod store;

pub use address::Address;
pub use error::LakeError;
pub use layout::{Host, TraceId};
pub use list::{Filter, Listed, find, list};
pub use manifest::{Manifest, Object};
pub use push::{Pushed, Tags, Window, push};
pub use remote::{Remote, TraceAddress};
pub use store::Lake;

#[cfg(test)]
mod tests;
