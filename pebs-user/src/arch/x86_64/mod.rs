//! x86-64 with the System V ABI.

pub(crate) mod cache;
pub(crate) mod calls;
pub(crate) mod idioms;
pub(crate) mod instruction;
pub(crate) mod kernel_entry;
pub(crate) mod machine;
pub(crate) mod operand;
pub(crate) mod register;
pub(crate) mod step;
pub(crate) mod unwind;
pub(crate) mod uprobe;
pub(crate) mod work;
