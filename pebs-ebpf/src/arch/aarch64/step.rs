//! Probed instructions that a program does in place of the kernel: none, see `step` of user space.

use aya_ebpf::programs::ProbeContext;
use pebs_common::config::Step;

/// Whether another program that ran for this hit has already done the instruction: none does.
#[inline(always)]
pub fn is_done(_ctx: &ProbeContext, _step: &Step) -> bool {
    false
}

/// Bytes by which a step raises the stack pointer.
#[inline(always)]
pub fn popped(_step: &Step) -> u64 {
    0
}

/// Leaves the instruction to the kernel.
#[inline(always)]
pub fn step(_ctx: &ProbeContext, _step: &Step) {}
