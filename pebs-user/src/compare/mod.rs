//! From the tables of a trace to answers, as plain data: the only place that decides who is slow and why.
//!
//! A trace is read in streams, and what is compared is held by item: classes (slow, typical), estimates pooled over a
//! class, causes of the difference, kinds of slow items, stages, batches, counts. [`report`], [`explain`], [`diff`] and
//! [`mine`] answer a question each; the other modules are what they share, and [`select`] and [`load`] choose visits
//! for export.
//!
//! Invariant: nothing here is text for people. An error, a reason, a remark or the type of a cause is an enum, and `present` has its
//! words. Nothing is formatted, no terminal is known, and no module imports `present` or `out`.
//!
//! These types are what JSON prints, too: they derive `Serialize`, keys are field names, times are ns, unknown values
//! are null. Where JSON has a sentence, `present` implements `Serialize` for the enum, so that people and programs read
//! the same words and there is no second model.
//!
//! Modules import those above them in `COMPARE` of `xtask/src/modules.rs` only.

pub(crate) mod arguments;
pub(crate) mod batches;
pub(crate) mod called_from;
pub(crate) mod chance;
pub(crate) mod classes;
pub(crate) mod condensed;
pub(crate) mod counted;
pub(crate) mod counts;
pub(crate) mod diff;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod fleet;
pub(crate) mod frequencies;
pub(crate) mod further;
pub(crate) mod info;
pub(crate) mod interrupts_and_faults;
pub(crate) mod lengths;
pub(crate) mod load;
pub(crate) mod losses;
pub mod mine;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod remarks;
pub mod report;
pub(crate) mod rows;
pub(crate) mod select;
#[cfg(test)]
mod simulation;
pub(crate) mod slots;
pub(crate) mod stages;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod wait_reason;
pub(crate) mod waits;
