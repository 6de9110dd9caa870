//! From a `perf.data` to the pipeline: which records are samples, marks and switches, in which order, and what was lost.
//!
//! ```text
//! Survey:   what there is: counts, times, threads, ranges without full data
//! Roles:    which event is for what; where items begin and end
//! Feed:     records -> inbox, round by round -> the pipeline of live recordings
//! Reading:  all of them at once, each record decoded once; else a survey of the whole file comes first
//! ```
//!
//! Invariant: every sample in the file is a sample, a mark or a switch of the trace, or booked.
//!
//! The frontier is perf's own: it writes what it found in all rings, then `FINISHED_ROUND`. A ring that was read early in
//! a round may hold records older than some that were read late in it; but none that is older than the newest of the
//! round before. Source: `ordered_events__flush()`, tools/perf/util/ordered-events.c.

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
