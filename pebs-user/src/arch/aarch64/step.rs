//! Instructions that the mark program does in place of the kernel.

use pebs_common::config::Step;

/// Returns the step by which the program does the instruction; `None` if it does not: here never. `ret`, the usual end
/// of a visit, is emulated by every kernel.
pub(crate) const fn step(_bytes: &[u8]) -> Option<Step> {
    None
}
