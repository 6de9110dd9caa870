//! Estimates made as visits close. Pure: no I/O, no clock.
//!
//! [`visit`] divides a visit's time among its functions, [`net`] learns the own time in visits, [`positions`]
//! checks that samples don't beat with them, [`baseline`] selects the visits that are worth their raw samples, and
//! [`slow_by`] is a rule for slow items as it is typed. [`cold`] estimates what single marks take.

pub mod baseline;
pub(crate) mod cold;
pub mod marks;
pub(crate) mod net;
pub mod positions;
pub mod sketch;
pub mod slow_by;
pub(crate) mod visit;
pub(crate) mod waiting;

pub use visit::{
    Estimator, EventTime, Events, FunctionEstimate, Pause, Series, SeriesBuf, TimedSample,
    VisitTimeline,
};
