//! Probed instructions that a program does in place of the kernel.
//!
//! The kernel leaves the instruction alone if a program moved the target on, which costs nothing; otherwise it
//! single-steps a copy, which costs an exception, in a virtual machine an exit. Whatever is in doubt is left to it: other
//! code than 64-bit code, a debugger that steps through the program, memory that can't be read at once.
//!
//! Source: `handle_swbp`, kernel/events/uprobes.c, Linux 6.19.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};
use aya_ebpf::programs::ProbeContext;
use pebs_common::config::{NO_WORD, PAGE, Step, step_kind};

use super::USER_CS;
use crate::maps::TASK_FEATURES_OFFSET;

/// Flags after a result of zero: carry, auxiliary carry, sign and overflow are clear, parity and zero are set.
const ZERO_CLEARS: u64 = 1 | 1 << 4 | 1 << 7 | 1 << 11;
/// See [`ZERO_CLEARS`].
const ZERO_SETS: u64 = 1 << 2 | 1 << 6;

/// A debugger steps through the program. Source: `X86_EFLAGS_TF`.
const TRAP: u64 = 1 << 8;

/// The instruction that the kernel puts in place of a probed one: `int3`.
const BREAKPOINT: u8 = 0xcc;

/// End of the addresses that a program may have. Source: `TASK_SIZE_MAX`, arch/x86/include/asm/page_64_types.h.
const USER_END: u64 = (1 << 47) - 4096;

/// Bytes of a word.
const WORD: u64 = 8;

/// Whether another program that ran for this hit has already done the instruction.
///
/// The kernel does not tell: what `bpf_get_func_ip` returns is the address after the other program. An address behind
/// the instruction has another place in its page; one that was returned to has that place by chance only, and no
/// breakpoint then.
#[inline(always)]
pub fn is_done(ctx: &ProbeContext, step: &Step) -> bool {
    // SAFETY: the verifier checks the read.
    let ip = unsafe { (*ctx.regs).rip };
    if ip % PAGE != step.place {
        return true;
    }
    // SAFETY: the helper checks the address.
    step.kind == step_kind::RETURN
        && unsafe { bpf_probe_read_user(ip as *const u8) } != Ok(BREAKPOINT)
}

/// Bytes by which a step raises the stack pointer.
#[inline(always)]
pub fn popped(step: &Step) -> u64 {
    match step.kind {
        step_kind::RETURN => WORD,
        _ => 0,
    }
}

/// Does the instruction, if there is no doubt.
#[inline(always)]
pub fn step(ctx: &ProbeContext, step: &Step) {
    let regs = ctx.regs;
    // SAFETY: the verifier checks the reads of the context.
    let (ip, sp, cs, flags) = unsafe { ((*regs).rip, (*regs).rsp, (*regs).cs, (*regs).eflags) };
    if cs != USER_CS || flags & TRAP != 0 {
        return;
    }
    let next = ip.wrapping_add(u64::from(step.length));
    match step.kind {
        step_kind::RETURN => {
            // SAFETY: the helper checks the address.
            let Ok(to) = (unsafe { bpf_probe_read_user(sp as *const u64) }) else {
                return;
            };
            if to >= USER_END || has_shadow_stack() {
                return;
            }
            // SAFETY: the verifier checks the writes.
            unsafe {
                (*regs).rip = to;
                (*regs).rsp = sp.wrapping_add(WORD);
            }
        }
        step_kind::NEXT => {
            // SAFETY: the verifier checks the write.
            unsafe { (*regs).rip = next };
        }
        step_kind::ASSIGN | step_kind::ASSIGN_32 | step_kind::ZERO => {
            let Some(from) = word(ctx, step.from) else {
                return;
            };
            let value = from.wrapping_add(i64::from(step.add).cast_unsigned());
            let value = match step.kind {
                step_kind::ASSIGN_32 => u64::from(value as u32),
                _ => value,
            };
            if !assign(regs, step.to, value) {
                return;
            }
            // SAFETY: the verifier checks the writes.
            unsafe {
                if step.kind == step_kind::ZERO {
                    (*regs).eflags = flags & !ZERO_CLEARS | ZERO_SETS;
                }
                (*regs).rip = next;
            }
        }
        _ => {}
    }
}

/// A general register by its place in `pt_regs`; 0 if the value does not come from one.
#[inline(always)]
fn word(ctx: &ProbeContext, word: u8) -> Option<u64> {
    if word == NO_WORD {
        return Some(0);
    }
    let regs = ctx.regs;
    // SAFETY: the verifier checks the reads; it allows no index that it does not know.
    unsafe {
        Some(match word {
            0 => (*regs).r15,
            1 => (*regs).r14,
            2 => (*regs).r13,
            3 => (*regs).r12,
            4 => (*regs).rbp,
            5 => (*regs).rbx,
            6 => (*regs).r11,
            7 => (*regs).r10,
            8 => (*regs).r9,
            9 => (*regs).r8,
            10 => (*regs).rax,
            11 => (*regs).rcx,
            12 => (*regs).rdx,
            13 => (*regs).rsi,
            14 => (*regs).rdi,
            19 => (*regs).rsp,
            _ => return None,
        })
    }
}

/// Changes a general register, except the stack pointer; returns whether there is such a register.
#[inline(always)]
fn assign(regs: *mut pt_regs, word: u8, value: u64) -> bool {
    // SAFETY: the verifier checks the writes.
    unsafe {
        match word {
            0 => (*regs).r15 = value,
            1 => (*regs).r14 = value,
            2 => (*regs).r13 = value,
            3 => (*regs).r12 = value,
            4 => (*regs).rbp = value,
            5 => (*regs).rbx = value,
            6 => (*regs).r11 = value,
            7 => (*regs).r10 = value,
            8 => (*regs).r9 = value,
            9 => (*regs).r8 = value,
            10 => (*regs).rax = value,
            11 => (*regs).rcx = value,
            12 => (*regs).rdx = value,
            13 => (*regs).rsi = value,
            14 => (*regs).rdi = value,
            _ => return false,
        }
    }
    true
}

/// Whether the running thread has a stack of its own for return addresses, which only the processor may change.
#[inline(always)]
fn has_shadow_stack() -> bool {
    /// Source: `ARCH_SHSTK_SHSTK`, arch/x86/include/uapi/asm/prctl.h.
    const SHADOW_STACK: u64 = 1;
    let offset = TASK_FEATURES_OFFSET.load();
    if offset == u64::MAX {
        return false;
    }
    // SAFETY: the helper returns a kernel pointer, which the read helper checks.
    let features = unsafe {
        let task = bpf_get_current_task_btf().cast::<u8>();
        bpf_probe_read_kernel(task.wrapping_add(offset as usize).cast::<u64>())
    };
    features.map_or(true, |it| it & SHADOW_STACK != 0)
}
