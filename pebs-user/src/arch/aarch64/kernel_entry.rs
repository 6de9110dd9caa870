//! Code that the kernel is entered by from user mode.

/// The entry that a symbol of the kernel names: none, as one function handles all exceptions of user mode.
///
/// System calls are known by the number that the kernel keeps of them. Source: arch/arm64/kernel/entry-common.c
/// (`el0t_64_sync_handler`).
pub(crate) const fn kernel_entry(_symbol: &str) -> u64 {
    0
}
