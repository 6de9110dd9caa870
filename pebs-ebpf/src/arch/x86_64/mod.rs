//! x86-64.

pub mod step;

use core::arch::asm;
use core::mem::offset_of;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pebs_common::record::MAX_SYSTEM_CALLS;

use super::{Entered, Sampled};

/// Code segment of 64-bit code in user space. Source: `__USER_CS`, arch/x86/include/asm/segment.h.
const USER_CS: u64 = 0x33;

/// Places of the stack pointer and of the instruction pointer among the registers, by words.
pub const SP: usize = offset_of!(pt_regs, rsp) / WORD;
pub const IP: usize = offset_of!(pt_regs, rip) / WORD;
const ORIG_AX: usize = offset_of!(pt_regs, orig_rax) / WORD;

/// The registers that a mark reads: all.
pub type Registers = [u64; size_of::<pt_regs>() / WORD];

/// Places in a mark's registers.
pub mod kept {
    use super::{ORIG_AX, WORD, offset_of, pt_regs};

    pub const SP: usize = super::SP;
    /// Words that are no registers of a program, where others are kept: when the mark's program began, and the stack
    /// pointer before the instruction.
    pub const BEGIN: usize = ORIG_AX;
    pub const SP_BEFORE: usize = offset_of!(pt_regs, ss) / WORD;
}

/// Offset of the register of Go's current goroutine among the registers: r14.
pub const GOROUTINE: usize = offset_of!(pt_regs, r14);

/// The register at an offset among the registers; `None` if there is none.
#[inline(always)]
pub fn register(registers: &Registers, offset: usize) -> Option<u64> {
    let mut index = offset / WORD;
    // Otherwise the offset is compared and the index used: the verifier does not relate them.
    // SAFETY: sets a register to itself.
    unsafe { asm!("{0} = {0}", inout(reg) index) };
    registers.get(index).copied()
}

/// Copies the registers that a mark reads. `regs`: in the program's context.
#[inline(always)]
pub unsafe fn keep(regs: *const pt_regs) -> Registers {
    // SAFETY: the verifier checks the context read.
    unsafe { regs.cast::<Registers>().read() }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Numbers of `uretprobe` and `uprobe`: system calls that only code of the kernel's own in user space may make.
/// Source: arch/x86/entry/syscalls/syscall_64.tbl.
pub const MARK_CALLS: [u64; 2] = [335, 336];

/// `mprotect` and `pkey_mprotect`, whose first arguments are address and length.
/// Source: arch/x86/entry/syscalls/syscall_64.tbl.
pub const MPROTECT: [u64; 2] = [10, 329];

/// Bytes of the longest instruction, and one: behind it the thread stands until the kernel has set it back.
pub const LONGEST_INSTRUCTION: u64 = 16;

/// Size of a thread's kernel stack. Source: `THREAD_SIZE`, arch/x86/include/asm/page_64_types.h.
pub const THREAD_SIZE: u64 = 16 << 10;

/// `PERF_EFLAGS_EXACT`: the ip is exact. Source: arch/x86/include/asm/perf_event.h.
const EFLAGS_EXACT: u64 = 1 << 3;

/// A breakpoint instruction.
const BREAKPOINT: u8 = 0xcc;

/// Value of the system call number in the thread's registers if it entered the kernel in another way.
/// Source: arch/x86/entry/entry_64.S (`idtentry`).
const NO_CALL: u64 = u64::MAX;

/// The state at a sample. `regs`: in the program's context.
#[inline(always)]
pub unsafe fn sampled(regs: *const pt_regs) -> Sampled {
    // SAFETY: the verifier knows the context and checks these reads.
    let (ip, sp, eflags, cs) = unsafe { ((*regs).rip, (*regs).rsp, (*regs).eflags, (*regs).cs) };
    Sampled {
        ip,
        sp,
        exact: eflags & EFLAGS_EXACT != 0,
        kernel: cs & 3 == 0,
    }
}

/// The instruction pointer in the program's context.
#[inline(always)]
pub unsafe fn ip(regs: *const pt_regs) -> u64 {
    // SAFETY: the verifier checks the context read.
    unsafe { (*regs).rip }
}

/// The flags on which branches depend, in the program's context.
#[inline(always)]
pub unsafe fn flags(regs: *const pt_regs) -> u64 {
    // SAFETY: the verifier checks the context read.
    unsafe { (*regs).eflags }
}

/// Returns how the thread with these registers of user mode entered the kernel.
#[inline(always)]
pub unsafe fn entered(regs: *const pt_regs) -> Entered {
    // SAFETY: the read helper checks the addresses.
    unsafe {
        // Exceptions and interrupts have -1 there, before their handlers are called.
        let number = bpf_probe_read_kernel(&raw const (*regs).orig_rax).unwrap_or(u64::MAX);
        if number >= MAX_SYSTEM_CALLS {
            Entered::Otherwise
        } else if bpf_probe_read_kernel(&raw const (*regs).cs) != Ok(USER_CS) {
            Entered::OtherCall
        } else {
            Entered::SystemCall(number)
        }
    }
}

/// The place in the kernel's entry code from which its handler was called, other than for a system call.
#[inline(always)]
pub unsafe fn entry_code(regs: *const pt_regs) -> Option<u64> {
    // The entry code calls its handler with the registers on top of the stack: the return address is below them. It is
    // not touched by interrupts in the kernel, which come further down or on a stack of their own.
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(regs.cast::<u64>().wrapping_sub(1)) }.ok()
}

/// Whether the thread entered the kernel, but not by a system call.
#[inline(always)]
pub unsafe fn made_no_call(regs: *const pt_regs) -> bool {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(&raw const (*regs).orig_rax) == Ok(NO_CALL) }
}

/// Number and arguments of the system call that the thread is in.
#[inline(always)]
pub unsafe fn call(regs: *const pt_regs) -> Option<(u64, [u64; 3])> {
    // SAFETY: the read helper checks the address.
    let regs = unsafe { bpf_probe_read_kernel(regs) }.ok()?;
    Some((regs.orig_rax, [regs.rdi, regs.rsi, regs.rdx]))
}

/// The place of a breakpoint that was executed right before, if the kernel has not yet set the thread back to it.
/// `registers`: a copy of those of user mode.
#[inline(always)]
pub unsafe fn breakpoint_before(registers: *const u64) -> Option<u64> {
    // SAFETY: so many words were copied.
    let (ip, number) = unsafe { (registers.add(IP).read(), registers.add(ORIG_AX).read()) };
    if number != NO_CALL {
        return None;
    }
    let mut code = [0u8; 2];
    let before = ip - 1;
    // SAFETY: there is room for so many bytes; the helper checks the address.
    let read = unsafe { bpf_probe_read_user(code.as_mut_ptr().cast(), 2, before as *const _) };
    (read == 0 && code[0] == BREAKPOINT && code[1] != BREAKPOINT).then_some(before)
}
