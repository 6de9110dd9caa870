//! From a `perf.data` to the pipeline: which records are samples, marks and switches, in which order, and what was
//! lost.
//!
//! ```text
//! Survey:   contents of the file: counts, times, threads, ranges without full data
//! Roles:    use of each event; where items begin and end
//! Feed:     records -> inbox, round by round -> the same pipeline as live recordings
//! Reading:  all three in one pass, each record decoded once; where that fails, a full survey and then a feed
//! ```
//!
//! Invariant: every sample in the file becomes a sample, mark or switch of the trace, or is counted in the ledger.
//!
//! The frontier follows perf's rule: perf writes what it found in all rings, then `FINISHED_ROUND`. Records of one
//! round may be out of order, but none is older than the newest record of the round before. Source:
//! `ordered_events__flush()`, tools/perf/util/ordered-events.c.

pub(crate) mod error;
mod feed;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod info;
mod losses;
pub(crate) mod marks;
mod names;
mod reading;
mod roles;
mod survey;
mod switches;
mod times;

pub use feed::{Fed, feed};
pub use info::run_info;
pub use names::EventNames;
pub use reading::{Premises, Reading};
pub use roles::{MarkSource, Roles, Use, roles};
pub use survey::{Counts, KernelMapping, Survey, check_span, survey};
