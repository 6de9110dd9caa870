//! `perf.data` files of `perf record`, seekable or piped.
//!
//! ```text
//! file:  header | attrs + ids | records ... | feature sections      the header knows where each is
//! pipe:  header | records: attr, feature, tracing data, ... , build id
//! ```
//!
//! A file's sections are read when it is opened; a piped file has the same data among its records, build ids possibly
//! last. Records are borrowed one at a time; memory is bounded by the largest record (64 KiB) and by the header
//! sections, which are never larger than the file.
//!
//! The crate `linux-perf-data` is not used: version 0.13 returns no records of piped files with tracing data and of
//! unfinished files, and allocates whatever size a file claims.
//! Source: tools/perf/Documentation/perf.data-file-format.txt; tools/perf/util/header.c.

pub(crate) mod attr;
mod blocks;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod format;
pub(crate) mod machine;
pub mod reader;
pub mod records;
mod sections;
pub(crate) mod stat;
pub(crate) mod tracing;
