//! AArch64 with the procedure call standard of Linux (AAPCS64). Code of 32 bits (AArch32) is not traced.

pub(crate) mod cache;
pub(crate) mod calls;
mod encoding;
pub(crate) mod idioms;
pub(crate) mod instruction;
pub(crate) mod kernel_entry;
pub(crate) mod machine;
pub(crate) mod operand;
pub(crate) mod register;
mod registers_written;
pub(crate) mod step;
#[cfg(test)]
mod tests;
pub(crate) mod unwind;
pub(crate) mod uprobe;
#[cfg(target_arch = "aarch64")]
pub(crate) mod work;
