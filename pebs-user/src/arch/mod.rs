//! Everything that depends on the processor's architecture, behind one interface: registers, instructions, calling
//! conventions, and how the kernel executes a probed instruction.
//!
//! Another architecture is added as a folder beside [`x86_64`] with the same items.

mod x86_64;

pub(crate) use x86_64::cache::will_write;
pub(crate) use x86_64::calls;
pub(crate) use x86_64::idioms::{self, IndirectJump};
pub(crate) use x86_64::instruction::{
    DataAccess, Flow, Instruction, LONGEST, access_at, access_before, decode, shape,
};
pub(crate) use x86_64::kernel_entry::kernel_entry;
pub use x86_64::register::Register;
pub(crate) use x86_64::step::step;
pub(crate) use x86_64::unwind;
pub use x86_64::uprobe::EntryClass;
pub(crate) use x86_64::uprobe::{Kernel, REPLACED};
