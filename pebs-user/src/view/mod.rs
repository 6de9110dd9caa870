//! Looking at a trace in a terminal: items in a list, one item beside what is typical of its group.
//!
//! What is shown is the report of the trace ([`data`]), read once before the terminal is taken over. What
//! keys do is a state machine ([`state`]), and what is on the screen follows from the two ([`draw`]): none of
//! them does I/O. [`screen`] alone knows that there is a terminal. With `--live` a thread reads the trace anew
//! ([`follow`]); what the user looks at stays selected.

pub(crate) mod bars;
pub(crate) mod data;
pub(crate) mod draw;
pub(crate) mod follow;
pub(crate) mod screen;
pub(crate) mod state;
#[cfg(test)]
mod tests;
