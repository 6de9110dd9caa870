//! Debian's own servers, recorded: that they answer and end as without the tool, and what the tool says of them.

mod clients;
mod clock;
pub mod prefork;
mod running;
pub mod stock;
