//! `perf.data`: what `perf record` leaves, as a file or as a stream that was piped into one.
//!
//! ```text
//! file:  header | attrs + ids | records ... | feature sections      the header knows where each is
//! pipe:  header | records: attr, feature, tracing data, ... , build id
//! ```
//!
//! What a file's sections hold is read when it is opened; a piped file says the same by and by, among its records, build
//! ids perhaps last. Records are lent one at a time; memory is bounded by the largest record (64 KiB) and by what the
//! header sections hold, which is never more than the file's size.
//!
//! The crate `linux-perf-data` is not used: version 0.13 gives no records of piped files with tracing data and of files
//! that were not finished, and takes room for whatever size a file names.
//! Source: tools/perf/Documentation/perf.data-file-format.txt; tools/perf/util/header.c.

pub(crate) mod attr;
mod blocks;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod format;
pub mod reader;
pub mod records;
mod sections;
pub(crate) mod stat;
pub(crate) mod tracing;
