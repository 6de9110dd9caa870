//! Records which thread wakes a traced thread, and which preempts it.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use pebs_common::record::{Encounter, Head, Kind, encounter_flag};

use crate::arch::{self, THREAD_SIZE};
use crate::emit::{TASKS, emit};
use crate::maps::{ENCOUNTERS, TASK_COMM_OFFSET, TASK_MM_OFFSET, TASK_STACK_OFFSET, WAITS};
use crate::task::{self, Ids};

/// `sched_waking(task p)`: runs where the waking is done, by a thread or in an interrupt.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    let Some(woken) = task::ids_of(ctx.arg::<*const u8>(0)) else {
        return 0;
    };
    if task::is_traced(woken) {
        // SAFETY: the helper takes no pointer; it returns a kernel pointer.
        let current = unsafe { bpf_get_current_task_btf() } as *const u8;
        let by = (!in_interrupt(&ctx, current)).then_some(current);
        put(Kind::Wake, woken, by);
    }
    0
}

/// The [`pebs_common::config::Waits`] that are recorded now.
#[inline(always)]
pub fn recorded() -> u32 {
    if ENCOUNTERS.load() == 0 {
        return 0;
    }
    WAITS.get(0).copied().unwrap_or(0)
}

/// Another thread preempts a traced one.
#[inline(always)]
pub fn displace(ids: Ids, next: *const u8) {
    put(Kind::Displace, ids, Some(next));
}

/// Whether the wake-up comes from an interrupt, or (rarely) a fault, not from a thread.
///
/// Interrupts of the kernel have a stack of their own, and the context is on the stack. Interrupts of user code use
/// the thread's stack; then its registers show that it made no system call.
#[inline(always)]
fn in_interrupt(ctx: &BtfTracePointContext, current: *const u8) -> bool {
    let stack = current
        .wrapping_add(TASK_STACK_OFFSET.load() as usize)
        .cast::<u64>();
    let here = ctx.as_ptr() as u64;
    // The verifier sees a pointer: a value read back from the stack is a number.
    // SAFETY: the helper checks the addresses.
    unsafe {
        let Ok(here) = bpf_probe_read_kernel(&raw const here) else {
            return false;
        };
        let on_other = |stack: u64| here.wrapping_sub(stack) >= THREAD_SIZE;
        bpf_probe_read_kernel(stack).is_ok_and(on_other) || made_no_call(current)
    }
}

/// Whether a thread of a program is in the kernel, but not by a system call.
#[inline(always)]
fn made_no_call(current: *const u8) -> bool {
    let mm = current
        .wrapping_add(TASK_MM_OFFSET.load() as usize)
        .cast::<u64>();
    // SAFETY: both helpers return kernel pointers, which the read helper checks, as it does the other address.
    unsafe {
        if !bpf_probe_read_kernel(mm).is_ok_and(|mm| mm != 0) {
            return false;
        }
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        arch::made_no_call(regs)
    }
}

#[inline(always)]
fn put(kind: Kind, ids: Ids, other: Option<*const u8>) {
    let (mut flags, mut both, mut comm) = (encounter_flag::INTERRUPT, 0, [0; 2]);
    if let Some(task) = other
        && let Some(ids) = task::ids_of(task)
    {
        flags = 0;
        both = u64::from(ids.pid) | u64::from(ids.tid) << 32;
        let name = task.wrapping_add(TASK_COMM_OFFSET.load() as usize);
        // SAFETY: the helper checks the address.
        comm = unsafe { bpf_probe_read_kernel(name.cast::<[u64; 2]>()) }.unwrap_or_default();
    }
    emit::<Encounter>(TASKS, |room| {
        // SAFETY: the helper takes no pointer.
        let time_ns = unsafe { bpf_ktime_get_ns() };
        room.write(Encounter {
            head: Head::new(kind, flags, 0, ids.pid, ids.tid),
            time_ns,
            other: both,
            comm,
        });
    });
}
