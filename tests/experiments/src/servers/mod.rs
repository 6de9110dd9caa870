//! Debian's own servers, recorded: that they answer and end as without the tool, and what the tool says of them.

pub(crate) mod clients;
mod clock;
mod further;
pub mod prefork;
pub mod presets;
pub(crate) mod running;
pub mod stock;
pub mod suggest;
