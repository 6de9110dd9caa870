//! The traced processes, and fields of the kernel's task structures.

use aya_ebpf::bindings::{BPF_ANY, pt_regs};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use pebs_common::config::{EntryCode, OwnBreakpoints, Scope};
use pebs_common::counter::Counter;
use pebs_common::record::entry;

use crate::arch::{self, Entered, IP, MARK_CALLS};
use crate::emit::count;
use crate::maps::{
    CGROUP, KERNEL_CODE, ONLY_THREADS, SCOPE, SIGNAL_LIVE_OFFSET, TASK_EXIT_CODE_OFFSET,
    TASK_PID_OFFSET, TASK_SIGNAL_OFFSET, TASK_STATE_OFFSET, TASK_UTASK_OFFSET, THREADS, TRACED,
    UTASK_ACTIVE_OFFSET, UTASK_SLOT_OFFSET, UTASK_VADDR_OFFSET,
};

/// A thread and its process.
#[derive(Clone, Copy)]
pub struct Ids {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// The thread that runs.
#[inline(always)]
pub fn current() -> Ids {
    let both = bpf_get_current_pid_tgid();
    Ids {
        pid: (both >> 32) as u32,
        tid: both as u32,
    }
}

/// The thread of a `struct task_struct`.
#[inline(always)]
pub fn ids_of(task: *const u8) -> Option<Ids> {
    // `pid` and `tgid` are adjacent 32-bit numbers; user space checked that before load.
    let address = task
        .wrapping_add(TASK_PID_OFFSET.load() as usize)
        .cast::<u64>();
    // SAFETY: the helper checks the address.
    let both = unsafe { bpf_probe_read_kernel(address) }.ok()?;
    Some(Ids {
        pid: (both >> 32) as u32,
        tid: both as u32,
    })
}

/// Returns how the running thread entered the kernel, as in [`Sample::sp`](pebs_common::record::Sample::sp). Calls of
/// 32-bit code, which have other numbers, count as unknown.
#[inline(always)]
pub fn kernel_entry() -> u64 {
    // SAFETY: both helpers return kernel pointers, which are checked when they are read.
    let (regs, entered) = unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        (regs, arch::entered(regs))
    };
    match entered {
        Entered::Otherwise => entry_by(regs),
        Entered::OtherCall => 0,
        Entered::SystemCall(number) if MARK_CALLS.contains(&number) => mark_if(
            KERNEL_CODE
                .get(0)
                .is_none_or(|code| code.marks.returns != 0),
        ),
        Entered::SystemCall(number) => number + 1,
    }
}

/// By which code the kernel was entered, other than by a system call: one of [`entry`], or 0. `regs`: those of user mode.
#[inline(always)]
fn entry_by(regs: *const pt_regs) -> u64 {
    // SAFETY: it is checked when it is read.
    let caller = unsafe { arch::entry_code(regs) };
    let (Some(caller), Some(code)) = (caller, KERNEL_CODE.get(0)) else {
        return 0;
    };
    for EntryCode { range, entry } in &code.entries {
        if caller >= range[0] && caller < range[1] {
            return match *entry {
                entry::BREAKPOINT => mark_if(is_own_breakpoint(regs, &code.marks)),
                entry::DEBUG => mark_if(is_own_step(&code.marks)),
                other => other,
            };
        }
    }
    0
}

/// The entry by a breakpoint that is our own, or not.
#[inline(always)]
const fn mark_if(is_own: bool) -> u64 {
    if is_own {
        entry::MARK
    } else {
        entry::BREAKPOINT
    }
}

/// Whether a breakpoint at which the kernel was entered may be one of a mark.
#[inline(always)]
fn is_own_breakpoint(regs: *const pt_regs, marks: &OwnBreakpoints) -> bool {
    // SAFETY: the helper checks the address.
    let Ok(ip) = (unsafe { bpf_probe_read_kernel(regs.cast::<u64>().wrapping_add(IP)) }) else {
        return true;
    };
    match Stepped::read() {
        // The kernel prepares a single step: the instruction pointer is in a page of its own.
        Some(it) if it.is_active || it.slot == ip => marks.places.has(it.place),
        _ => marks.stands.has(ip),
    }
}

/// Whether a debug exception by which the kernel was entered may be the single step of a mark.
#[inline(always)]
fn is_own_step(marks: &OwnBreakpoints) -> bool {
    marks.hardware != 0
        || TASK_UTASK_OFFSET.load() == 0
        || Stepped::read().is_some_and(|it| marks.places.has(it.place))
}

/// The last place at which the running thread was single-stepped for a uprobe.
struct Stepped {
    place: u64,
    /// Address of the copy of its instruction.
    slot: u64,
    /// Whether the step has not ended.
    is_active: bool,
}

impl Stepped {
    #[inline(always)]
    fn read() -> Option<Self> {
        let offset = TASK_UTASK_OFFSET.load();
        if offset == 0 {
            return None;
        }
        let word = |base: *const u8, offset: u64| {
            let address = base.wrapping_add(offset as usize).cast::<u64>();
            // SAFETY: the helper checks the address.
            unsafe { bpf_probe_read_kernel(address) }.ok()
        };
        // SAFETY: the helper takes no pointer.
        let task = unsafe { bpf_get_current_task_btf() }.cast_const();
        let steps = word(task.cast(), offset)?;
        if steps == 0 {
            return None;
        }
        let steps = steps as *const u8;
        Some(Self {
            place: word(steps, UTASK_VADDR_OFFSET.load())?,
            slot: word(steps, UTASK_SLOT_OFFSET.load())?,
            is_active: word(steps, UTASK_ACTIVE_OFFSET.load())? != 0,
        })
    }
}

/// The place in the program of an address in the copy of the instruction that the running thread single-steps; `None` if
/// it is not there. `longest`: bytes of the longest instruction.
#[inline(always)]
pub fn place_of_step(ip: u64, longest: u64) -> Option<u64> {
    let step = Stepped::read().filter(|step| step.is_active)?;
    let into = ip.wrapping_sub(step.slot);
    (into < longest).then(|| step.place.wrapping_add(into))
}

/// The `TASK_*` state bits of a thread; 0, which means running, if they can't be read.
#[inline(always)]
pub fn state_of(task: *const u8) -> u32 {
    let state = task
        .wrapping_add(TASK_STATE_OFFSET.load() as usize)
        .cast::<u32>();
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(state) }.unwrap_or(0)
}

/// Whether the task's process has no live thread left.
#[inline(always)]
pub fn is_last_thread(task: *const u8) -> bool {
    let signal = task
        .wrapping_add(TASK_SIGNAL_OFFSET.load() as usize)
        .cast::<*const u8>();
    // SAFETY: the helper checks the address.
    let Ok(signal) = (unsafe { bpf_probe_read_kernel(signal) }) else {
        return false;
    };
    let live = signal
        .wrapping_add(SIGNAL_LIVE_OFFSET.load() as usize)
        .cast::<u32>();
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(live) }.is_ok_and(|live| live == 0)
}

/// The signal that ends the task; 0 if none does, or if that is unknown.
#[inline(always)]
pub fn fatal_signal(task: *const u8) -> u8 {
    let code = task
        .wrapping_add(TASK_EXIT_CODE_OFFSET.load() as usize)
        .cast::<u32>();
    // SAFETY: the helper checks the address.
    let code = unsafe { bpf_probe_read_kernel(code) }.unwrap_or(0);
    // As in wait(2): the signal, and whether core was dumped.
    (code & 0x7f) as u8
}

/// Whether a thread is traced.
#[inline(always)]
pub fn is_traced(ids: Ids) -> bool {
    // SAFETY: only the value's existence is tested.
    if ONLY_THREADS.load() != 0 && unsafe { THREADS.get(ids.tid) }.is_none() {
        return false;
    }
    // SAFETY: as above.
    unsafe { TRACED.get(ids.pid) }.is_some()
}

/// Whether the running thread, which made a mark, is traced. Where processes are found by their marks, its process
/// is from now on.
#[inline(always)]
pub fn is_traced_at_mark(ids: Ids) -> bool {
    if is_traced(ids) {
        return true;
    }
    let is_wanted = match SCOPE.load() {
        scope if scope == Scope::Everyone as u32 => true,
        // In the cgroup itself, or in one below it.
        scope if scope == Scope::Cgroup as u32 => CGROUP.current_task_under_cgroup(0) == Ok(true),
        _ => false,
    };
    is_wanted && trace(ids.pid)
}

/// Adds a process to the traced ones; returns whether there was room.
#[inline(always)]
pub fn trace(pid: u32) -> bool {
    let added = TRACED.insert(pid, 1u32, u64::from(BPF_ANY)).is_ok();
    if !added {
        count(Counter::ProcessTableFull);
    }
    added
}

/// Removes a process from the traced ones.
#[inline(always)]
pub fn forget(pid: u32) {
    let _ = TRACED.remove(pid);
}
