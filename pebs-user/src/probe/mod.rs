//! Resolves a SPEC to the instructions to probe.

mod arity;
mod behind;
mod body;
pub(crate) mod breakpoint;
pub(crate) mod cgroup;
pub(crate) mod ends;
pub(crate) mod entry;
pub(crate) mod error;
mod exits;
mod goroutines;
pub(crate) mod item;
mod layout;
mod line;
mod notes;
mod path;
mod place;
pub(crate) mod program;
pub mod redact;
pub(crate) mod resolve;
pub mod set;
pub(crate) mod shape;
pub(crate) mod survey;
pub(crate) mod unwind;
pub(crate) mod usdt;
mod variable;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

pub use error::ResolveError;
pub use resolve::{ResolveOptions, resolve, resolve_with};
pub use unwind::ReturnMode;
