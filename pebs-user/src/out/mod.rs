//! Renderers: what was compared, for people and programs.
//!
//! Invariant: a renderer reads [`crate::compare`], [`crate::present`] and the trace, and imports no other renderer.

pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod html;
pub(crate) mod info;
pub mod mine;
pub(crate) mod report;
pub(crate) mod view;
