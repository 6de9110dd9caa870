//! Everything that depends on the processor's architecture, behind one interface: registers, instructions, calling
//! conventions, and how the kernel executes a probed instruction.
//!
//! Another architecture is added as a folder beside [`x86_64`] with the same items. The folder is chosen here, and nowhere
//! else. That of aarch64 is compiled on other machines as well, for its tests.

mod common;

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(
    not(target_arch = "aarch64"),
    expect(dead_code, reason = "only tested on this machine")
)]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as ours;
#[cfg(target_arch = "x86_64")]
use x86_64 as ours;

pub use common::EntryClass;
pub(crate) use common::{DataAccess, Flow, IndirectJump};
pub(crate) use ours::cache::will_write;
pub(crate) use ours::instruction::{Instruction, LONGEST, access_at, access_before, decode, shape};
pub(crate) use ours::kernel_entry::kernel_entry;
pub use ours::register::Register;
pub(crate) use ours::step::step;
pub(crate) use ours::uprobe::{
    BREAKPOINT, EMULATED, Kernel, LATER, REPLACED, REPLACES_NOPS, is_breakpoint,
};
pub(crate) use ours::{calls, idioms, machine, operand, unwind, work};
