//! Mines counts of events: which of them explains how long something took?
//!
//! The method is that of Lv et al., "CounterMiner: Mining Big Performance Data from Hardware Counters" (MICRO 2018), made to say how sure it is.
//!
//! [`csv`] reads what others counted into a [`series`]; counts of another source need a name, a value a row and, where counters were
//! shared, the share of the row in which each was counted. [`clean::clean()`] mends what sharing tore, [`outcome::take()`] takes out what is
//! to be explained, [`rank::rank()`] ranks the other events, [`interact::interact()`] pairs of them.
//!
//! Everything but [`csv`] is pure: no I/O, no clocks, and random numbers by a seed that is given. [`multiplex`] and [`known`] make
//! series of which the truth is known.

pub mod clean;
pub mod csv;
pub mod dtw;
pub mod groups;
pub mod interact;
pub mod intervals;
pub mod known;
pub mod model;
pub mod multiplex;
pub mod outcome;
pub mod rank;
pub mod rng;
pub mod series;
pub mod shape;
pub mod stats;
