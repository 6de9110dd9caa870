//! Call stacks of samples, by frame pointers.
//!
//! The frames go into the sample's own record: so no table in the kernel can be full, no two stacks can be taken for
//! one another, and what is lost is lost with its sample. User space keeps each stack once.
//!
//! Bounded: the kernel follows [`MAX_FRAMES`] frame pointers at most, in user space without ever waiting for a page.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::PerfEventContext;
use pebs_common::record::{MAX_FRAMES, STACK_CLASSES, Sample, SampleStack, StackDepth};

use crate::emit::emit_sample;
use crate::maps::STACK_FRAMES;

/// Bytes of a frame.
const WORD: u64 = 8;

/// Bytes of the frames of one mode, at most.
const MODE_BYTES: u64 = MAX_FRAMES as u64 * WORD;

/// A stack in the making, with room behind it: no size class reaches beyond.
type Frames = [u64; 256];

/// Where a CPU's stacks are put together: sample programs on one CPU never interrupt one another.
#[btf_map]
static FRAMES: PerCpuArray<Frames, 1> = PerCpuArray::new();

/// A sample in a ring.
#[repr(C)]
struct Room<const SIZE: usize> {
    header: SampleStack,
    frames: [u64; SIZE],
}

/// The stack of the sample at hand.
pub struct Walked {
    frames: *const u64,
    depth: StackDepth,
}

/// Follows the frame pointers of a sample taken at `ip`, in kernel mode or not.
#[inline(always)]
pub fn walk(ctx: &PerfEventContext, ip: u64, kernel: bool) -> Option<Walked> {
    let frames = FRAMES.get_ptr_mut(0)?.cast::<u64>();
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
    let most = u64::from(STACK_FRAMES.load()) * WORD;
    Some(Walked {
        frames,
        depth: StackDepth::new(
            in_kernel / WORD,
            in_user / WORD,
            in_kernel >= most || in_user >= most,
        ),
    })
}

/// Bytes of the frames of one mode, which are put at `frames`; 0 if there are none.
#[inline(always)]
fn mode(ctx: &PerfEventContext, frames: *mut u64, flags: u64) -> u64 {
    // SAFETY: the helper writes no more than the size, for which there is room.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), frames.cast(), MODE_BYTES as u32, flags) };
    if bytes <= 0 || bytes > MODE_BYTES as i64 {
        return 0;
    }
    bytes as u64
}

/// Has the stack begin where the sample was taken: the kernel may have walked it from where the interrupt came,
/// some instructions later.
#[inline(always)]
fn innermost(frames: *mut u64, ip: u64, bytes: u64) -> u64 {
    // SAFETY: the first word of the map's value.
    unsafe { frames.write(ip) };
    if bytes == 0 { WORD } else { bytes }
}

impl Walked {
    /// Puts the sample into the ring, with the smallest room that holds its stack.
    #[inline(always)]
    pub fn emit(&self, sample: impl Fn() -> Sample) {
        let frames = self.depth.kernel() + self.depth.user();
        if frames <= STACK_CLASSES[0] {
            self.put::<{ STACK_CLASSES[0] }>(sample);
        } else if frames <= STACK_CLASSES[1] {
            self.put::<{ STACK_CLASSES[1] }>(sample);
        } else if frames <= STACK_CLASSES[2] {
            self.put::<{ STACK_CLASSES[2] }>(sample);
        } else {
            self.put::<{ STACK_CLASSES[3] }>(sample);
        }
    }

    #[inline(always)]
    fn put<const SIZE: usize>(&self, sample: impl Fn() -> Sample) {
        emit_sample::<Room<SIZE>>(|room: &mut MaybeUninit<Room<SIZE>>| {
            let header = SampleStack {
                sample: sample(),
                depth: self.depth,
            };
            let room = room.as_mut_ptr();
            // SAFETY: the room was reserved; the map's value is as long as the largest class and more.
            unsafe {
                (&raw mut (*room).header).write(header);
                let frames = (&raw mut (*room).frames).cast();
                bpf_probe_read_kernel(frames, (SIZE as u64 * WORD) as u32, self.frames.cast());
            }
        });
    }
}
