//! AArch64.

pub mod step;

use core::mem::offset_of;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};

use pebs_common::record::MAX_SYSTEM_CALLS;

use super::{Entered, Sampled};

/// Places of the stack pointer and of the instruction pointer among the registers, by words.
pub const SP: usize = offset_of!(pt_regs, sp) / WORD;
pub const IP: usize = offset_of!(pt_regs, pc) / WORD;

/// Values that a mark keeps of the registers. With all of them its program would need more stack than the kernel
/// allows; they are read where the kernel has them.
pub type Registers = [u64; 2];

/// Places in a mark's registers.
pub mod kept {
    pub const SP: usize = 0;
    /// Start of the mark's program.
    pub const BEGIN: usize = 1;
    /// The stack pointer before the instruction: the same, as no step changes it.
    pub const SP_BEFORE: usize = SP;
}

/// Offset of the register of Go's current goroutine among the registers: x28.
pub const GOROUTINE: usize = 28 * WORD;

/// The register at an offset among the registers of the running thread, which is at a mark; `None` if there is none.
#[inline(always)]
pub fn register(_registers: &Registers, offset: usize) -> Option<u64> {
    if offset >= size_of::<pt_regs>() {
        return None;
    }
    // SAFETY: both helpers return kernel pointers, which the read helper checks.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u8;
        bpf_probe_read_kernel(regs.wrapping_add(offset).cast::<u64>()).ok()
    }
}

/// Keeps what a mark needs. `regs`: in the program's context.
#[inline(always)]
pub unsafe fn keep(regs: *const pt_regs) -> Registers {
    // SAFETY: the verifier checks the context read.
    [unsafe { (*regs).sp }, 0]
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// System calls that only code of the kernel's own in user space may make: there are none.
pub const MARK_CALLS: [u64; 0] = [];

/// `mprotect` and `pkey_mprotect`, whose first arguments are address and length.
/// Source: include/uapi/asm-generic/unistd.h.
pub const MPROTECT: [u64; 2] = [226, 288];

/// Bytes of an instruction, and one: behind it the thread stands until the kernel has set it back.
pub const LONGEST_INSTRUCTION: u64 = 5;

/// Size of a thread's kernel stack with pages of 4 KiB. Source: `THREAD_SIZE`, arch/arm64/include/asm/memory.h.
pub const THREAD_SIZE: u64 = 16 << 10;

/// Bits of the processor's state: its mode, 0 in user mode; and that it runs 32-bit code.
/// Source: `PSR_MODE_MASK`, `PSR_MODE32_BIT`, arch/arm64/include/uapi/asm/ptrace.h.
const MODE: u64 = 0xf;
const MODE_32: u64 = 0x10;

/// Offset of the system call's number (`syscallno`, 32 bits with a sign; negative: none) in the kernel's `struct pt_regs`:
/// behind the registers of user space and `orig_x0`. Source: arch/arm64/include/asm/ptrace.h.
const NUMBER: usize = size_of::<pt_regs>() + WORD;

/// The state at a sample. `regs`: in the program's context.
#[inline(always)]
pub unsafe fn sampled(regs: *const pt_regs) -> Sampled {
    // SAFETY: the verifier knows the context and checks these reads.
    let (ip, sp, state) = unsafe { ((*regs).pc, (*regs).sp, (*regs).pstate) };
    Sampled {
        ip,
        sp,
        exact: false,
        kernel: state & MODE != 0,
    }
}

/// The instruction pointer in the program's context.
#[inline(always)]
pub unsafe fn ip(regs: *const pt_regs) -> u64 {
    // SAFETY: the verifier checks the context read.
    unsafe { (*regs).pc }
}

/// The flags on which branches depend, in the program's context.
#[inline(always)]
pub unsafe fn flags(regs: *const pt_regs) -> u64 {
    // SAFETY: the verifier checks the context read.
    unsafe { (*regs).pstate }
}

#[inline(always)]
unsafe fn number(regs: *const pt_regs) -> i32 {
    let at = regs.cast::<u8>().wrapping_add(NUMBER).cast::<i32>();
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(at) }.unwrap_or(-1)
}

/// Returns how the thread with these registers of user mode entered the kernel.
#[inline(always)]
pub unsafe fn entered(regs: *const pt_regs) -> Entered {
    // SAFETY: the read helper checks the addresses.
    unsafe {
        let number = number(regs);
        let state = bpf_probe_read_kernel(&raw const (*regs).pstate);
        if number < 0 || number as u64 >= MAX_SYSTEM_CALLS {
            Entered::Otherwise
        } else if state.is_ok_and(|it| it & MODE_32 == 0) {
            Entered::SystemCall(number as u64)
        } else {
            Entered::OtherCall
        }
    }
}

/// The place in the kernel's entry code from which its handler was called: one for all exceptions, so that it says nothing.
#[inline(always)]
pub unsafe fn entry_code(_regs: *const pt_regs) -> Option<u64> {
    None
}

/// Whether the thread entered the kernel, but not by a system call.
#[inline(always)]
pub unsafe fn made_no_call(regs: *const pt_regs) -> bool {
    // SAFETY: passed on.
    unsafe { number(regs) < 0 }
}

/// Number and arguments of the system call that the thread is in.
#[inline(always)]
pub unsafe fn call(regs: *const pt_regs) -> Option<(u64, [u64; 3])> {
    // SAFETY: the read helper checks the addresses.
    unsafe {
        let arguments = bpf_probe_read_kernel(regs.cast::<[u64; 3]>()).ok()?;
        Some((number(regs) as u64, arguments))
    }
}

/// The place of a breakpoint that was executed right before: the thread is at it anyway.
#[inline(always)]
pub unsafe fn breakpoint_before(_registers: *const u64) -> Option<u64> {
    None
}
