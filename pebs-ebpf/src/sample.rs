//! Samples: one program per event, which differ only in the event's number.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use pebs_common::config::ItemSource;
use pebs_common::counter::Counter;
use pebs_common::record::{Head, Kind, Sample, SampleAccess, Task, TaskKind, sample_flag};

use crate::access;
use crate::arch::{self, Sampled};
use crate::emit::{TASKS, count, emit_beside_samples, emit_sample};
use crate::maps::{
    ACCESS_EVENTS, EVENT_INTERRUPTS_OFFSET, EXCLUDE_KERNEL, EXCLUDE_USER, ITEM_SOURCE,
    PERF_CLOCK_EVENTS, SAMPLE_TIME_OFFSET, SAMPLES_INTERRUPT, STACK_BYTES, STACK_FRAMES,
};
use crate::{irq, item, stack, task, user_stack};

/// `hw.interrupts` of an event that the kernel stops until the next tick, because it came too often. Set before the
/// program runs. Source: `MAX_INTERRUPTS`, kernel/events/core.c.
const MAX_INTERRUPTS: u64 = u64::MAX;

/// Real type of a perf_event program's context.
/// Source: `struct bpf_perf_event_data_kern`, include/linux/bpf_perf_event.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelContext {
    regs: *const u8,
    /// `struct perf_sample_data`.
    pub data: *const u8,
    event: *const u8,
}

/// The sample's own time on the perf clock.
#[inline(always)]
pub fn perf_time(ctx: &PerfEventContext) -> Option<u64> {
    // SAFETY: the helper checks the address.
    let kernel = unsafe { bpf_probe_read_kernel(ctx.as_ptr().cast::<KernelContext>()) }.ok()?;
    let time = kernel
        .data
        .wrapping_add(SAMPLE_TIME_OFFSET.load() as usize)
        .cast::<u64>();
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(time) }
        .ok()
        .filter(|&time| time != 0)
}

/// Whether this sample is the event's last before the kernel stops it until the next tick.
#[inline(always)]
fn is_throttled(ctx: &PerfEventContext) -> bool {
    // SAFETY: the helper checks the address.
    let Ok(kernel) = (unsafe { bpf_probe_read_kernel(ctx.as_ptr().cast::<KernelContext>()) })
    else {
        return false;
    };
    let interrupts = kernel
        .event
        .wrapping_add(EVENT_INTERRUPTS_OFFSET.load() as usize)
        .cast::<u64>();
    // SAFETY: the helper checks the address.
    let interrupts = unsafe { bpf_probe_read_kernel(interrupts) };
    interrupts == Ok(MAX_INTERRUPTS)
}

/// Reports that the counter stops, whichever thread runs: the counter may be the CPU's, and a traced thread may run
/// before the next tick. Emitted after the sample, which would otherwise seem to be the first one after the stop.
#[inline(always)]
fn throttle<const EVENT: u8>() {
    emit_beside_samples::<Task>(TASKS, |room| {
        let ids = task::current();
        // SAFETY: the helper takes no pointer.
        let time_ns = unsafe { bpf_ktime_get_ns() };
        room.write(Task {
            head: Head::of_task(TaskKind::Throttle, EVENT, ids.pid, ids.tid),
            time_ns,
            other: 0,
        });
    });
}

#[inline(always)]
fn event<const EVENT: u8>(ctx: &PerfEventContext) -> u32 {
    sample::<EVENT>(ctx);
    if is_throttled(ctx) {
        throttle::<EVENT>();
    }
    0
}

#[inline(always)]
fn sample<const EVENT: u8>(ctx: &PerfEventContext) {
    let ids = task::current();
    if !task::is_traced(ids) {
        count(Counter::SampleFiltered);
        return;
    }
    if SAMPLES_INTERRUPT.load() != 0 {
        irq::sampled();
    }
    // SAFETY: the registers are in the context.
    let sampled = unsafe { arch::sampled(&raw const (*ctx.ctx).regs) };
    let Sampled { ip, sp, kernel, .. } = sampled;
    let excluded = if kernel {
        EXCLUDE_KERNEL.load()
    } else {
        EXCLUDE_USER.load()
    };
    if excluded & (1 << EVENT) != 0 {
        count(Counter::SampleExcluded);
        return;
    }
    let mut flags = 0;
    if sampled.exact {
        flags |= sample_flag::EXACT_IP;
    }
    if kernel {
        flags |= sample_flag::KERNEL;
    }
    let mut own_time = 0;
    if PERF_CLOCK_EVENTS.load() & (1 << EVENT) != 0 {
        let Some(time) = perf_time(ctx) else {
            count(Counter::SampleNoTime);
            return;
        };
        own_time = time;
        flags |= sample_flag::PERF_CLOCK;
    }
    let sp = if ITEM_SOURCE.load() == ItemSource::None as u32 {
        if kernel { task::kernel_entry() } else { sp }
    } else {
        flags |= sample_flag::ITEM;
        item_id(ctx, kernel)
    };
    let taken = |kind| Sample {
        head: Head::new(kind, flags, EVENT, ids.pid, ids.tid),
        time_ns: if own_time != 0 {
            own_time
        } else {
            // SAFETY: the helper takes no pointer.
            unsafe { bpf_ktime_get_ns() }
        },
        ip,
        sp,
    };
    // Before 0 is ruled out by the verifier, which then leaves the rest out.
    if STACK_BYTES.load() != 0
        && STACK_FRAMES.load() == 0
        && let Some(stack) = user_stack::current()
    {
        return stack.emit(ctx, ip, kernel, || taken(Kind::SampleUser));
    }
    if STACK_FRAMES.load() != 0
        && let Some(walked) = stack::walk(ctx, ip, kernel)
    {
        return walked.emit(|| taken(Kind::SampleStack));
    }
    if ACCESS_EVENTS.load() & (1 << EVENT) == 0 {
        emit_sample::<Sample>(|room| {
            room.write(taken(Kind::Sample));
        });
    } else {
        let access = access::of(ctx);
        emit_sample::<SampleAccess>(|room| {
            room.write(SampleAccess {
                sample: taken(Kind::SampleAccess),
                addr: access.addr,
                weight: access.weight,
                data_src: access.data_src,
            });
        });
    }
}

/// The id of the item that the thread works on.
#[inline(always)]
fn item_id(ctx: &PerfEventContext, kernel: bool) -> u64 {
    if kernel {
        return item::id(None);
    }
    // SAFETY: the helper checks the address.
    let context = unsafe { bpf_probe_read_kernel(ctx.as_ptr().cast::<KernelContext>()) };
    item::id(context.ok().map(|context| context.regs))
}

macro_rules! sample_programs {
    ($($name:ident $event:literal)*) => {
        $(
            #[perf_event]
            pub fn $name(ctx: PerfEventContext) -> u32 {
                event::<$event>(&ctx)
            }
        )*
    };
}

sample_programs! {
    sample0 0
    sample1 1
    sample2 2
    sample3 3
    sample4 4
    sample5 5
    sample6 6
    sample7 7
}
