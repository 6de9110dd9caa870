//! Experiments that measure pebs-trace: each is a task of `cargo xtask`, which calls it with its options.
//!
//! | experiment | what it asks |
//! |---|---|
//! | [`accuracy`] | how far estimates are off known truth, and how often their intervals hold it |
//! | [`overhead`] | whether predictions of what sampling costs are right, and whether the size of rings matters |
//! | [`papers`] | the papers' figures on this machine, beside the published ones: a page with a section for each |
//! | [`mod@bench`] | what marks, samples, imports and queries cost, beside other tools |
//! | [`servers`] | whether what is said of Debian's servers is what their clients and a clock inside of them see |
//! | [`mysteries`] | how often the hidden cause of a generated server is named |
//! | [`counterminer`] | errors of counts that shared their counters, and of their ranking |
//! | [`stacks`] | whether call stacks of stock programs are whole and as perf's, and what they cost |
//! | [`fleet`] | whether agents, a lake, `explain --by` and Spark name the host and the version that are slow, and at what cost |
//! | [`soak`] | whether a long recording at the highest rate loses nothing without account, and its memory stays flat |
//!
//! Invariant: what two experiments do is in [`frame`], which knows none of them; an experiment says what it runs, what it
//! compares and what has to hold. `pebs-user` is not imported: the tool is run as a user would, and `cargo xtask setup`
//! has to compile before the tool can.

pub mod frame;

pub mod accuracy;
pub mod bench;
pub mod counterminer;
pub mod fleet;
pub mod mysteries;
pub mod overhead;
pub mod papers;
pub mod servers;
pub mod soak;
pub mod stacks;
