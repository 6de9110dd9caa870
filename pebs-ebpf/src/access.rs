//! Memory access of a sample.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::programs::PerfEventContext;

use crate::maps::{
    SAMPLE_ADDR_OFFSET, SAMPLE_DATA_SRC_OFFSET, SAMPLE_FLAGS_OFFSET, SAMPLE_WEIGHT_OFFSET,
};
use crate::sample::KernelContext;

/// Bits of `sample_flags`. Source: `enum perf_event_sample_format`, include/uapi/linux/perf_event.h.
const ADDR: u64 = 1 << 3;
/// WEIGHT, or WEIGHT_STRUCT.
const WEIGHT: u64 = 1 << 14 | 1 << 24;
/// See [`ADDR`].
const DATA_SRC: u64 = 1 << 15;

/// Members of `struct perf_sample_data`; 0 if not set.
#[derive(Clone, Copy, Default)]
pub struct Access {
    pub addr: u64,
    pub weight: u64,
    pub data_src: u64,
}

/// Memory access of the current sample.
#[inline(always)]
pub fn of(ctx: &PerfEventContext) -> Access {
    // SAFETY: the helper checks the address.
    let Ok(kernel) = (unsafe { bpf_probe_read_kernel(ctx.as_ptr().cast::<KernelContext>()) })
    else {
        return Access::default();
    };
    let member = |offset: u64| {
        let place = kernel.data.wrapping_add(offset as usize).cast::<u64>();
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel(place) }.unwrap_or(0)
    };
    let flags = match SAMPLE_FLAGS_OFFSET.load() {
        u64::MAX => u64::MAX,
        offset => member(offset),
    };
    let held = |bits: u64, offset: u64| if flags & bits == 0 { 0 } else { member(offset) };
    Access {
        addr: held(ADDR, SAMPLE_ADDR_OFFSET.load()),
        weight: held(WEIGHT, SAMPLE_WEIGHT_OFFSET.load()),
        data_src: held(DATA_SRC, SAMPLE_DATA_SRC_OFFSET.load()),
    }
}
