//! Renderers: what was compared, for people and programs; a folder for each.
//!
//! Invariant: a renderer reads [`crate::compare`], [`crate::present`] and the trace, and decides nothing. It imports no
//! other renderer: data that two need are in `compare`, words in `present`; where one shows what another made (the
//! report in a page of HTML), [`crate::cmd`] hands it on.

pub(crate) mod diff;
pub mod explain;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod html;
pub(crate) mod info;
pub mod mine;
pub(crate) mod report;
#[cfg(test)]
mod testing;
pub(crate) mod view;
