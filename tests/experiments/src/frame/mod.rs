//! What experiments share: commands, the tool as it records, its traces, statistics, pictures.

pub mod installed;
pub mod page;
#[path = "../../../../pebs-user/src/cost/plot.rs"]
pub mod plot;
pub mod random;
pub mod recorder;
pub mod redis;
pub mod resp;
pub mod shell;
pub mod statistics;
pub mod trace;
