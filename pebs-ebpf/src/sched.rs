//! Records switches, creation and end of threads.

use aya_ebpf::bindings::{pt_regs, task_struct};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use pebs_common::config::{Scope, Waits};
use pebs_common::record::{Head, Interference, Kind, Switch, Task, TaskKind, entry, switch_flag};

use crate::arch::IP;
use crate::emit::{TASKS, emit};
use crate::maps::{SCOPE, STACK_BYTES};
use crate::task::{self, Ids};
use crate::{count, stack, user_stack, wake};

/// `sched_switch(bool preempt, task prev, task next, unsigned prev_state)`, since Linux 5.18.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    switched(&ctx, |ctx| ctx.arg::<u32>(3))
}

/// `sched_switch(bool preempt, task prev, task next)`, before: the state is read from the thread.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch_5_15(ctx: BtfTracePointContext) -> i32 {
    switched(&ctx, |ctx| task::state_of(ctx.arg::<*const u8>(1)))
}

#[inline(always)]
fn switched(ctx: &BtfTracePointContext, state: impl FnOnce(&BtfTracePointContext) -> u32) -> i32 {
    let previous = task::current();
    if task::is_traced(previous) {
        count::leaves(previous);
        let preempted = ctx.arg::<u64>(0) as u8 != 0;
        let state = u64::from(state(ctx));
        let mut flags = if preempted { switch_flag::PREEMPTED } else { 0 };
        let could_go_on = preempted || state & 0xff == 0;
        let may_be = !could_go_on && matches!(task::kernel_entry(), 0 | entry::MARK);
        let in_mark = may_be && stack::is_in_mark(ctx);
        if in_mark {
            flags |= switch_flag::IN_MARK;
        }
        let waits = wake::recorded();
        let has_stack = STACK_BYTES.load() != 0 && waits == Waits::WithStacks as u32;
        let with_stack = has_stack && !in_mark && !could_go_on;
        if let Some(stack) = with_stack.then(user_stack::current).flatten() {
            stack.emit_switch(ctx, || {
                record_of(Kind::SwitchUser, flags, previous, user_ip(), state)
            });
        } else {
            switch(Kind::SwitchOut, flags, previous, user_ip(), state);
        }
        if waits != Waits::Nothing as u32 && could_go_on {
            wake::displace(previous, ctx.arg::<*const u8>(2));
        }
    }
    if let Some(next) = task::ids_of(ctx.arg::<*const u8>(2))
        && task::is_traced(next)
    {
        switch(Kind::SwitchIn, 0, next, 0, 0);
        count::takes(ctx.arg::<*mut task_struct>(2));
    }
    0
}

#[inline(always)]
fn switch(kind: Kind, flags: u8, ids: Ids, ip: u64, state: u64) {
    emit::<Switch>(TASKS, |room| {
        room.write(record_of(kind, flags, ids, ip, state));
    });
}

/// The record of a switch now.
#[inline(always)]
fn record_of(kind: Kind, flags: u8, ids: Ids, ip: u64, state: u64) -> Switch {
    // SAFETY: the helper takes no pointer.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    Switch {
        head: Head::new(kind, flags, 0, ids.pid, ids.tid),
        time_ns,
        ip,
        state,
    }
}

/// User space address at which the running thread entered the kernel; 0 if unknown.
#[inline(always)]
fn user_ip() -> u64 {
    // SAFETY: both helpers return kernel pointers, which the read helper checks.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        bpf_probe_read_kernel(regs.cast::<u64>().wrapping_add(IP)).unwrap_or(0)
    }
}

/// `sched_process_fork(task parent, task child)`.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    let parent = task::current();
    if !task::is_traced(parent) {
        return 0;
    }
    let Some(child) = task::ids_of(ctx.arg::<*const u8>(1)) else {
        return 0;
    };
    if SCOPE.load() == Scope::Table as u32 && child.pid != parent.pid {
        task::trace(child.pid);
    }
    record(
        TaskKind::Fork,
        parent,
        u64::from(child.pid) | u64::from(child.tid) << 32,
    );
    debug!(&ctx, "{} forked {}", parent.tid, child.tid);
    0
}

/// `sched_process_exec(task p, pid_t old_pid, linux_binprm bprm)`.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    let ids = task::current();
    if !task::is_traced(ids) {
        return 0;
    }
    record(TaskKind::Exec, ids, u64::from(ctx.arg::<u32>(1)));
    if SCOPE.load() != Scope::Table as u32 {
        task::forget(ids.pid);
    }
    debug!(&ctx, "{} replaced its program", ids.pid);
    0
}

/// `sched_process_exit(task p)`.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    let ids = task::current();
    if !task::is_traced(ids) {
        return 0;
    }
    count::ends(ids);
    let ended = ctx.arg::<*const u8>(0);
    let last = task::is_last_thread(ended);
    let signal = task::fatal_signal(ended);
    put(TaskKind::Exit, signal, ids, u64::from(last));
    if last {
        task::forget(ids.pid);
        debug!(&ctx, "{} ended", ids.pid);
    }
    0
}

/// Puts a [`Task`] into the ring.
#[inline(always)]
fn record(what: TaskKind, ids: Ids, other: u64) {
    put(what, 0, ids, other);
}

/// Emits an interference of a thread that ends now, with its duration, ns.
#[inline(always)]
pub fn interference(which: Interference, ids: Ids, ns: u64) {
    put(TaskKind::Interference, which as u8, ids, ns);
}

#[inline(always)]
fn put(what: TaskKind, index: u8, ids: Ids, other: u64) {
    emit::<Task>(TASKS, |room| {
        // SAFETY: the helper takes no pointer.
        let time_ns = unsafe { bpf_ktime_get_ns() };
        room.write(Task {
            head: Head::of_task(what, index, ids.pid, ids.tid),
            time_ns,
            other,
        });
    });
}
