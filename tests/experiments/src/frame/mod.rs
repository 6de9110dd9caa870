//! The parts that experiments share, from the bottom up:
//!
//! | modules | what they are |
//! |---|---|
//! | [`shell`], [`installed`], [`machine`], [`random`] | commands; what is installed; the machine and its processes; numbers from a seed |
//! | [`statistics`], [`rounds`] | medians and their intervals; runs in turn |
//! | [`recorder`], [`trace`], [`workload`], [`lab`] | the tool as it records; its traces; programs with a log of truth; a folder for all of that |
//! | [`realtime`] | workloads before all other programs |
//! | [`perf`] | the other recorder |
//! | [`table`], `pictures`, [`page`], [`seeds`], [`verdict`] | what comes out: tables, pictures, sections of a page, a log to go on with, goals |
//! | [`redis`], [`resp`] | a server for more than one experiment, and its client |

pub mod installed;
pub mod lab;
pub mod machine;
pub mod page;
pub mod perf;
pub(crate) mod pictures;
pub mod random;
pub mod realtime;
pub mod recorder;
pub mod redis;
pub mod resp;
pub mod rounds;
pub mod seeds;
pub mod shell;
pub mod statistics;
pub mod table;
pub mod trace;
pub mod verdict;
pub mod workload;
