//! Mines event counts: which events explain how long something took?
//!
//! The method is that of Lv et al., "CounterMiner: Mining Big Performance Data from Hardware Counters" (MICRO 2018),
//! extended by confidence intervals.
//!
//! [`csv`] reads counts of other tools into a [`series`]; another source has to give a name, a value for each row and,
//! where counters were shared, the share of the row in which each was counted. [`clean::clean()`] repairs the errors of
//! multiplexing, [`outcome::take()`] takes out the value to be explained, [`rank::rank()`] ranks the other events,
//! [`interact::interact()`] pairs of them. [`runs::rank_runs()`] does so for runs that counted different events.
//!
//! Everything but [`csv`] is pure: no I/O, no clocks, and random numbers from a given seed. [`multiplex`] and [`known`]
//! make series with known truth.

pub mod clean;
pub mod csv;
pub mod dtw;
pub mod groups;
pub mod interact;
pub mod intervals;
pub mod joint;
pub mod known;
pub mod model;
pub mod multiplex;
pub mod outcome;
pub mod rank;
pub mod runs;
pub mod series;
pub mod shape;
