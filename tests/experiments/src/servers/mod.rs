//! Debian's own servers, recorded: they answer and end as without the tool, and the causes that it names are theirs.

pub(crate) mod clients;
mod clock;
mod further;
pub mod prefork;
pub mod presets;
pub(crate) mod running;
pub mod stock;
pub mod suggest;
