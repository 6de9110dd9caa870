//! From a SPEC to the instructions to probe.

mod arity;
mod body;
pub mod breakpoint;
mod called;
pub mod cgroup;
pub mod debugfile;
pub mod demangle;
mod dwarf;
pub mod elf;
pub mod ends;
pub mod entry;
pub mod error;
mod exits;
pub mod expr;
pub mod frames;
pub mod go;
mod inlined;
pub mod item;
pub mod kernel;
mod layout;
mod line;
pub mod locate;
pub mod lookup;
mod notes;
pub mod parameters;
mod path;
pub mod pclntab;
mod place;
pub mod process;
pub mod program;
pub mod register;
mod resolve;
mod scan;
pub mod set;
pub mod spec;
pub mod survey;
mod symbols;
mod units;
pub mod unwind;
pub mod usdt;
mod variable;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod testing;

pub use error::ResolveError;
pub use frames::eh_frame_functions;
pub use resolve::{ResolveOptions, resolve, resolve_with};
pub use unwind::ReturnMode;
