//! From a SPEC to the instructions to probe.

mod arity;
mod body;
pub mod breakpoint;
pub mod cgroup;
pub mod ends;
pub mod entry;
pub mod error;
mod exits;
pub mod expr;
pub mod item;
pub mod kernel;
mod layout;
mod line;
mod notes;
mod path;
mod place;
pub mod program;
mod resolve;
mod scan;
pub mod set;
pub mod spec;
pub mod survey;
pub mod unwind;
pub mod usdt;
mod variable;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use error::ResolveError;
pub use resolve::{ResolveOptions, resolve, resolve_with};
pub use unwind::ReturnMode;
