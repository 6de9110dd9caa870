//! What pebs-trace is measured by: each experiment is a task of `cargo xtask`, which parses its options and calls it.
//!
//! Invariant: what two experiments do is in [`frame`], which knows none of them; an experiment says what it runs, what it
//! compares and what has to hold. `pebs-user` is not imported: the tool is run as a user would, and `cargo xtask setup`
//! has to compile before the tool can.

pub mod frame;

pub mod accuracy;
pub mod bench;
pub mod counterminer;
pub mod mysteries;
pub mod overhead;
pub mod papers;
pub mod servers;
pub mod soak;
