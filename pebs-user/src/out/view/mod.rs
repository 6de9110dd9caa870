//! Views a trace in a terminal: items in a list, one item beside the typical ones of its group.
//!
//! Shown is the report of the trace ([`data`]), read once before the terminal is taken over. Keys drive a
//! state machine ([`state`]), and the screen is a function of the two ([`draw`]): none of them does I/O. Only
//! [`screen`] uses the terminal. With `--live` a thread reads the trace again and again ([`follow`]); the
//! user's selection is kept.

pub(crate) mod bars;
pub(crate) mod data;
pub(crate) mod draw;
pub(crate) mod follow;
pub(crate) mod screen;
pub(crate) mod state;
#[cfg(test)]
mod tests;
