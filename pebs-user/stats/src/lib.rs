//! Statistics for comparisons. Nothing here knows what a trace is.
//!
//! [`summary`] has means, quantiles and distributions, [`blocks`] and [`resample`] the bootstrap over items, [`gap`] finds
//! what sets slow items apart, [`batches`] what each kind of item costs.
//!
//! Pure: no I/O, no clocks, and random numbers from a given seed ([`rng`]). It is a crate of its own so that simulations of
//! tests run it optimised.

pub mod batches;
pub mod blocks;
pub mod gap;
pub mod resample;
pub mod rng;
pub mod summary;
