//! What experiments share: commands, the tool as it records, its traces, statistics, pictures.

pub mod exported;
pub mod installed;
#[path = "../../../../pebs-user/src/cost/plot.rs"]
pub mod plot;
pub mod random;
pub mod recorder;
pub mod redis;
pub mod resp;
pub mod shell;
pub mod spread;
