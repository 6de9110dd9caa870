//! `pebs-trace` without a subcommand: records, and prints the report.

pub mod args;

pub(crate) use crate::record::{Counting, check_process, count, grant, run, run_silently};
