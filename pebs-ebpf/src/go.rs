//! Goroutines: Go code has the current one in a register.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pebs_common::record::go_frame;

use crate::arch::{self, GOROUTINE, Registers};

/// The frame of the current goroutine at `sp`; 0 if its register has no goroutine that runs on this stack.
#[inline(always)]
pub fn frame(registers: &Registers, goid_offset: u64, sp: u64) -> u64 {
    let Some(goroutine) = arch::register(registers, GOROUTINE) else {
        return 0;
    };
    // `runtime.g` begins with the bounds of its stack.
    let mut stack = [0_u64; 2];
    let mut goid = 0_u64;
    // SAFETY: the helper checks the user address and writes 16 bytes into `stack`.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut stack).cast(), 16, goroutine as *const _) } != 0;
    let [low, high] = stack;
    if failed || sp < low || sp >= high {
        return 0;
    }
    let address = goroutine.wrapping_add(goid_offset);
    // SAFETY: the helper checks the user address and writes 8 bytes into `goid`.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut goid).cast(), 8, address as *const _) } != 0;
    if failed { 0 } else { go_frame(goid, high, sp) }
}
