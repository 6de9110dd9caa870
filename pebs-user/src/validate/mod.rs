//! Precise sampling judged against known truth on this machine: `pebs-trace validate`.
//!
//! Each experiment runs work written in assembly, so that the true number and place of its events are known, samples it
//! as recordings do, and reports the difference from the truth. `work` is the work, `take` takes the samples, `offers`
//! finds this machine's events for a piece of work, `report` is the result; each experiment has a file of its own.
//! `compare` compares reports with each other and with published figures, `text` and `page` show them.
//!
//! Source: Sasongko, Chabbi, Kelly, Unat: Precise Event Sampling on AMD Versus Intel: Quantitative and Qualitative
//! Comparison, IEEE TPDS 34(5), 2023. The experiments are theirs, section IV; their code is in ParCoreLab/pes-artifact.

pub(crate) mod accuracy;
pub(crate) mod bias;
pub(crate) mod compare;
pub(crate) mod many;
pub(crate) mod memory;
pub(crate) mod modes;
pub(crate) mod offers;
pub(crate) mod overhead;
pub(crate) mod page;
pub(crate) mod report;
pub(crate) mod sensitivity;
pub(crate) mod stamps;
pub(crate) mod statistics;
pub(crate) mod take;
pub(crate) mod text;
pub(crate) mod work;
