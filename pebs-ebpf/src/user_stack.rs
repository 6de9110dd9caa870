//! Copies of user stacks, with the registers: user space unwinds them by the binaries' tables.
//!
//! As much is copied as is in use, if the top of the stack is known: the main thread's is where the kernel put the
//! arguments, and C libraries keep a thread's own data at the top of its stack.
//!
//! Bounded: at most [`STACK_BYTES`] bytes, without ever waiting for a page.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_get_stack, bpf_probe_read_kernel as read_kernel,
    bpf_probe_read_user, bpf_task_pt_regs,
};
use aya_ebpf::programs::{BtfTracePointContext, PerfEventContext};
use pebs_common::record::{
    COPY_CLASSES, KERNEL_FRAMES, REGISTER_WORDS, Sample, Switch, UserShape, UserState,
};

use crate::arch::{self, IP, LONGEST_INSTRUCTION, SP};
use crate::emit::{TASKS, emit, emit_sample};
use crate::maps::{MM_START_STACK_OFFSET, STACK_BYTES, TASK_FSBASE_OFFSET, TASK_MM_OFFSET};
use crate::task;

/// A stack of which more is in use is not a stack: its top is elsewhere.
const LARGEST_STACK: u64 = 64 << 20;

/// Tries to copy a stack, each half as much as the one before.
const TRIES: usize = 6;

/// Bytes of a word.
const WORD: u64 = 8;

/// A [`SampleUser`](pebs_common::record::SampleUser) or [`SwitchUser`](pebs_common::record::SwitchUser) in a ring.
#[repr(C)]
struct Room<H, const FRAMES: usize, const BYTES: usize> {
    header: H,
    user: UserState,
    kernel: [u64; FRAMES],
    stack: [u8; BYTES],
}

/// The running thread's user stack.
#[derive(Clone, Copy)]
pub struct UserStack {
    /// Registers when the thread left user mode.
    registers: *const pt_regs,
    sp: u64,
    /// Bytes to copy.
    wanted: u32,
}

/// The running thread's user stack; `None` if it has none.
#[inline(always)]
pub fn current() -> Option<UserStack> {
    // SAFETY: both helpers return kernel pointers, which the read helper checks.
    let (registers, sp) = unsafe {
        let registers = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        let sp = bpf_probe_read_kernel(registers.cast::<u64>().wrapping_add(SP)).ok()?;
        (registers, sp)
    };
    if sp == 0 {
        return None;
    }
    let most = STACK_BYTES.load();
    let used = in_use(sp);
    let wanted = if used < u64::from(most) {
        used as u32
    } else {
        most
    };
    Some(UserStack {
        registers,
        sp,
        wanted,
    })
}

/// Bytes above the stack pointer that are in use; `u64::MAX`: unknown.
#[inline(always)]
fn in_use(sp: u64) -> u64 {
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() }
        .cast_const()
        .cast::<u8>();
    let word = |base: *const u8, offset: u64| {
        let address = base.wrapping_add(offset as usize).cast::<u64>();
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel(address) }.unwrap_or(0)
    };
    let mm = word(task, TASK_MM_OFFSET.load()) as *const u8;
    let tops = [
        word(mm, MM_START_STACK_OFFSET.load()),
        word(task, TASK_FSBASE_OFFSET.load()),
    ];
    let mut least = u64::MAX;
    for top in tops {
        let used = top.wrapping_sub(sp);
        if used < LARGEST_STACK && used < least {
            least = used;
        }
    }
    least
}

impl UserStack {
    /// Puts a sample with the stack into the ring of samples.
    #[inline(always)]
    pub fn emit(
        &self,
        ctx: &PerfEventContext,
        ip: u64,
        kernel: bool,
        sample: impl Fn() -> Sample + Copy,
    ) {
        let ctx = ctx.as_ptr();
        let wanted = self.wanted as usize;
        macro_rules! put {
            ($frames:expr, $class:literal) => {
                emit_sample::<Room<_, $frames, { COPY_CLASSES[$class] }>>(self.filling(
                    ctx,
                    Some(ip),
                    sample,
                ))
            };
        }
        macro_rules! by_class {
            ($frames:expr) => {
                match wanted {
                    _ if wanted <= COPY_CLASSES[0] => put!($frames, 0),
                    _ if wanted <= COPY_CLASSES[1] => put!($frames, 1),
                    _ if wanted <= COPY_CLASSES[2] => put!($frames, 2),
                    _ if wanted <= COPY_CLASSES[3] => put!($frames, 3),
                    _ if wanted <= COPY_CLASSES[4] => put!($frames, 4),
                    _ => put!($frames, 5),
                }
            };
        }
        if kernel {
            by_class!(KERNEL_FRAMES)
        } else {
            by_class!(0)
        }
    }

    /// Puts a switch with the stack into the main ring.
    #[inline(always)]
    pub fn emit_switch(&self, ctx: &BtfTracePointContext, switch: impl Fn() -> Switch + Copy) {
        let ctx = ctx.as_ptr();
        let wanted = self.wanted as usize;
        macro_rules! put {
            ($class:literal) => {
                emit::<Room<_, KERNEL_FRAMES, { COPY_CLASSES[$class] }>>(
                    TASKS,
                    self.filling(ctx, None, switch),
                )
            };
        }
        match wanted {
            _ if wanted <= COPY_CLASSES[0] => put!(0),
            _ if wanted <= COPY_CLASSES[1] => put!(1),
            _ if wanted <= COPY_CLASSES[2] => put!(2),
            _ if wanted <= COPY_CLASSES[3] => put!(3),
            _ if wanted <= COPY_CLASSES[4] => put!(4),
            _ => put!(5),
        }
    }

    /// Fills the room of a record. `ip`: of a sample, which is its innermost frame.
    #[inline(always)]
    fn filling<H, const FRAMES: usize, const BYTES: usize>(
        &self,
        ctx: *mut c_void,
        ip: Option<u64>,
        header: impl Fn() -> H,
    ) -> impl FnOnce(&mut MaybeUninit<Room<H, FRAMES, BYTES>>) {
        move |room| {
            let room = room.as_mut_ptr();
            // SAFETY: the room was reserved; the helpers write no more than their sizes.
            unsafe {
                let frames = match FRAMES {
                    0 => 0,
                    _ => kernel_frames::<FRAMES>((&raw mut (*room).kernel).cast(), ctx, ip),
                };
                let copied = self.copy::<BYTES>((&raw mut (*room).stack).cast());
                let is_cut = FRAMES > 0 && frames >= FRAMES as u64;
                let shape = UserShape::new((FRAMES, frames, is_cut), copied);
                (&raw mut (*room).user.shape).write(shape);
                self.read_registers((&raw mut (*room).user.registers).cast());
                (&raw mut (*room).header).write(header());
            }
        }
    }

    /// Copies the stack to `room`; returns its bytes.
    #[inline(always)]
    unsafe fn copy<const BYTES: usize>(&self, room: *mut c_void) -> u32 {
        let mut size = self.wanted;
        for _ in 0..TRIES {
            if size > BYTES as u32 {
                size = BYTES as u32;
            }
            // SAFETY: the room has so many bytes; the helper checks the address, and does not wait for a page.
            if unsafe { bpf_probe_read_user(room, size, self.sp as *const c_void) } == 0 {
                return size;
            }
            size /= 2;
        }
        0
    }

    /// Writes the registers. Of an instruction that is single-stepped out of line, those at its own place; at a breakpoint
    /// those before it.
    #[inline(always)]
    unsafe fn read_registers(&self, to: *mut u64) {
        let bytes = size_of::<[u64; REGISTER_WORDS]>() as u32;
        // SAFETY: there is room for so many bytes; the helper checks the address.
        unsafe {
            read_kernel(to.cast(), bytes, self.registers.cast());
            let ip = to.add(IP);
            let breakpoint = arch::breakpoint_before(to);
            let place = breakpoint.or_else(|| task::place_of_step(ip.read(), LONGEST_INSTRUCTION));
            if let Some(place) = place {
                ip.write(place);
            }
        }
    }
}

/// Writes the frames in the kernel; returns their number.
#[inline(always)]
unsafe fn kernel_frames<const FRAMES: usize>(
    frames: *mut u64,
    ctx: *mut c_void,
    ip: Option<u64>,
) -> u64 {
    let size = FRAMES as u64 * WORD;
    // SAFETY: there is room for so many bytes.
    let bytes = unsafe { bpf_get_stack(ctx, frames.cast(), size as u32, 0) };
    let found = if bytes <= 0 || bytes as u64 > size {
        0
    } else {
        bytes as u64 / WORD
    };
    let Some(ip) = ip else { return found };
    // The kernel may have walked the stack from the interrupt, some instructions later.
    // SAFETY: the first word of the room.
    unsafe { frames.write(ip) };
    if found == 0 { 1 } else { found }
}
