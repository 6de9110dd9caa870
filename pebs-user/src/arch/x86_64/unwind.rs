//! Registers by their DWARF numbers, as unwind tables name them.

use gimli::X86_64;

pub(crate) const STACK_POINTER: gimli::Register = X86_64::RSP;
pub(crate) const FRAME_POINTER: gimli::Register = X86_64::RBP;
pub(crate) const RETURN_ADDRESS: gimli::Register = X86_64::RA;
/// Bytes of a return address on the stack.
pub(crate) const RETURN_ADDRESS_BYTES: i64 = 8;
