//! Call stacks of samples by frame pointers.
//!
//! The frames are stored in their record: so no table in the kernel can be full, no two stacks can be confused, and
//! a lost stack is lost with its record. User space stores each distinct stack once.
//!
//! Bounded: the kernel follows at most [`MAX_FRAMES`] frame pointers, in user space without ever waiting for a
//! page.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::{BtfTracePointContext, PerfEventContext};
use pebs_common::record::{MAX_FRAMES, STACK_CLASSES, Sample, SampleStack, StackDepth};

use crate::emit::emit_sample;
use crate::maps::{KERNEL_CODE, STACK_FRAMES};

/// Bytes of a frame.
const WORD: u64 = 8;

/// Number of innermost kernel frames that contain the breakpoint handler, if a thread waits within a mark.
const MARK_FRAMES: usize = 16;

/// Maximum bytes of the frames of one mode.
const MODE_BYTES: u64 = MAX_FRAMES as u64 * WORD;

/// A stack being built, with enough room for the largest size class.
type Frames = [u64; 256];

/// Buffer of a CPU's stacks: sample programs on one CPU never interrupt each other.
#[btf_map]
static FRAMES: PerCpuArray<Frames, 1> = PerCpuArray::new();

/// A record with a stack in a ring.
#[repr(C)]
struct Room<H, const SIZE: usize> {
    header: H,
    frames: [u64; SIZE],
}

/// The current stack.
pub struct Walked {
    frames: *const u64,
    depth: StackDepth,
}

/// Follows the frame pointers of a sample taken at `ip`, in kernel mode or not.
#[inline(always)]
pub fn walk(ctx: &PerfEventContext, ip: u64, kernel: bool) -> Option<Walked> {
    let frames = FRAMES.get_ptr_mut(0)?.cast::<u64>();
    let ctx = ctx.as_ptr();
    let in_kernel = if kernel {
        innermost(frames, ip, mode(ctx, frames, 0))
    } else {
        0
    };
    let behind = frames.cast::<u8>().wrapping_add(in_kernel as usize);
    let mut in_user = mode(ctx, behind.cast(), u64::from(BPF_F_USER_STACK));
    if !kernel {
        in_user = innermost(frames, ip, in_user);
    }
    Some(Walked::new(frames, in_kernel, in_user))
}

/// Whether the running thread waits within the kernel's breakpoint handler.
#[inline(always)]
pub fn is_in_mark(ctx: &BtfTracePointContext) -> bool {
    let Some([begin, end]) = KERNEL_CODE.get(0).map(|code| code.notify) else {
        return false;
    };
    let mut frames = [0u64; MARK_FRAMES];
    let bytes = size_of::<[u64; MARK_FRAMES]>() as u32;
    // SAFETY: the helper writes no more than the size.
    let written = unsafe { bpf_get_stack(ctx.as_ptr(), frames.as_mut_ptr().cast(), bytes, 0) };
    written > 0 && frames.iter().any(|it| (begin..end).contains(it))
}

/// Writes the frames of one mode to `frames`; returns their bytes, 0 if there are none.
#[inline(always)]
fn mode(ctx: *mut c_void, frames: *mut u64, flags: u64) -> u64 {
    // SAFETY: the helper writes no more than the size, for which there is room.
    let bytes = unsafe { bpf_get_stack(ctx, frames.cast(), MODE_BYTES as u32, flags) };
    if bytes <= 0 || bytes > MODE_BYTES as i64 {
        return 0;
    }
    bytes as u64
}

/// Sets the innermost frame to the sample's ip: the kernel may have walked the stack from the interrupt, some
/// instructions later.
#[inline(always)]
fn innermost(frames: *mut u64, ip: u64, bytes: u64) -> u64 {
    // SAFETY: the first word of the map's value.
    unsafe { frames.write(ip) };
    if bytes == 0 { WORD } else { bytes }
}

impl Walked {
    /// Bytes of frames in the kernel, and after them in user space.
    #[inline(always)]
    fn new(frames: *const u64, in_kernel: u64, in_user: u64) -> Self {
        let most = u64::from(STACK_FRAMES.load()) * WORD;
        Self {
            frames,
            depth: StackDepth::new(
                in_kernel / WORD,
                in_user / WORD,
                in_kernel >= most || in_user >= most,
            ),
        }
    }

    /// Puts a sample with the stack into the ring of samples.
    #[inline(always)]
    pub fn emit(&self, sample: impl Fn() -> Sample) {
        let header = |room: *mut SampleStack| {
            let header = SampleStack {
                sample: sample(),
                depth: self.depth,
            };
            // SAFETY: the room was reserved.
            unsafe { room.write(header) };
        };
        match self.class() {
            0 => emit_sample(self.filling::<_, { STACK_CLASSES[0] }>(header)),
            1 => emit_sample(self.filling::<_, { STACK_CLASSES[1] }>(header)),
            2 => emit_sample(self.filling::<_, { STACK_CLASSES[2] }>(header)),
            _ => emit_sample(self.filling::<_, { STACK_CLASSES[3] }>(header)),
        }
    }

    /// The smallest of the [`STACK_CLASSES`] that holds the stack.
    #[inline(always)]
    fn class(&self) -> usize {
        let frames = self.depth.kernel() + self.depth.user();
        let larger = |class: &&usize| frames > **class;
        STACK_CLASSES[..3].iter().take_while(larger).count()
    }

    /// Fills the room of a record.
    #[inline(always)]
    fn filling<H, const SIZE: usize>(
        &self,
        header: impl Fn(*mut H),
    ) -> impl FnOnce(&mut MaybeUninit<Room<H, SIZE>>) {
        move |room| {
            let room = room.as_mut_ptr();
            // SAFETY: the room was reserved; the map's value is as long as the largest class and more.
            unsafe {
                header(&raw mut (*room).header);
                let frames = (&raw mut (*room).frames).cast();
                bpf_probe_read_kernel(frames, (SIZE as u64 * WORD) as u32, self.frames.cast());
            }
        }
    }
}
