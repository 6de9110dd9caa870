//! Finds copies of probed code that are about to be executed: each breakpoint in them would kill the process.
//!
//! This program only reports a copy, and stops the process before it can execute it; user space restores the code
//! and continues the process. Kernels that are locked down refuse writing to it from here.

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::btf_maps::{Array, RingBuf};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_loop, bpf_send_signal, bpf_task_pt_regs,
};
use aya_ebpf::macros::{btf_map, btf_tracepoint};
use aya_ebpf::programs::BtfTracePointContext;
use pebs_common::config::{COPIED_RING, COPY_WINDOW, Copied, CopyPlace, MAX_COPY_PLACES, Scope};

use crate::arch::{self, MPROTECT};
use crate::maps::SCOPE;
use crate::task;

/// Patterns of probed places in copies.
#[btf_map]
static COPY_PLACES: Array<CopyPlace, { MAX_COPY_PLACES as usize }> = Array::new();

/// Copies that were found.
#[btf_map]
static COPIES: RingBuf<Copied, COPIED_RING> = RingBuf::new();

/// Source: include/uapi/asm-generic/mman-common.h.
const PROT_EXEC: u64 = 4;

/// The same number on all architectures that are traced. Source: include/uapi/asm-generic/signal.h.
const SIGSTOP: u32 = 19;

/// Size of a page.
const PAGE: u64 = 4096;

/// Maximum looks at places in pages for one mapping: 64 MiB at [`MAX_COPY_PLACES`]. A look takes about 75 ns.
const MOST_LOOKS: u64 = 1 << 20;

/// State of the loop over places in pages.
struct Search {
    /// The first page.
    start: u64,
    /// Places in each.
    places: u64,
    /// A page that is not mapped in; 0: none found.
    missing: u64,
    /// A page with a copy; 0: none found yet.
    found: u64,
}

/// `mmap_lock_start_locking(..)`: in a process that is about to change its mappings, before it does.
#[btf_tracepoint(function = "mmap_lock_start_locking")]
pub fn becomes_executable(_ctx: BtfTracePointContext) -> i32 {
    let Some((start, end)) = range() else {
        return 0;
    };
    let ids = task::current();
    // Else every process that has the file mapped has the breakpoints, before its first mark too.
    if SCOPE.load() == Scope::Table as u32 && !task::is_traced(ids) {
        return 0;
    }
    let Some(first) = COPY_PLACES.get(0) else {
        return 0;
    };
    if first.places == 0 {
        return 0;
    }
    let places = u64::from(first.places);
    let looks = ((end - start) / PAGE).min(MOST_LOOKS) * places;
    let looks = looks.min(MOST_LOOKS) as u32;
    let mut search = Search {
        start,
        places,
        missing: 0,
        found: 0,
    };
    // SAFETY: the callback has the type that the helper calls, and the search outlives it.
    unsafe {
        bpf_loop(
            looks,
            look as *const () as *mut _,
            (&raw mut search).cast(),
            0,
        )
    };
    if search.found != 0 {
        let copied = Copied {
            pid: ids.pid,
            pad: 0,
            start: search.found,
            end,
        };
        // Stop the process only if user space gets the record, as only user space continues it.
        if COPIES.output(copied, 0).is_ok() {
            // SAFETY: the helper takes no pointer.
            unsafe { bpf_send_signal(SIGSTOP) };
        }
    }
    0
}

/// Range of memory that the running thread is making executable; `None` if it is not.
#[inline(always)]
fn range() -> Option<(u64, u64)> {
    // SAFETY: the helpers take no pointer except the running thread's structure, and return a kernel pointer, which the
    // read helper checks.
    let (number, [address, length, protection]) = unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        arch::call(regs)?
    };
    if !MPROTECT.contains(&number) || protection & PROT_EXEC == 0 {
        return None;
    }
    let start = address & !(PAGE - 1);
    let end = address.wrapping_add(length).wrapping_add(PAGE - 1) & !(PAGE - 1);
    (start < end).then_some((start, end))
}

/// Looks at one place in a page; 1 ends the loop.
///
/// A single loop: the verifier follows 700 instructions, but 31,000 with a loop over places nested in one over
/// pages.
extern "C" fn look(index: u32, search: *mut c_void) -> i64 {
    // SAFETY: the helper passes on the search that it was given.
    let search = unsafe { &mut *search.cast::<Search>() };
    let index = u64::from(index);
    let (Some(pages), Some(which)) = (
        index.checked_div(search.places),
        index.checked_rem(search.places),
    ) else {
        return 1;
    };
    let page = search.start.wrapping_add(pages.wrapping_mul(PAGE));
    if page == search.missing {
        return 0;
    }
    let Some(place) = COPY_PLACES.get(which as u32) else {
        return 1;
    };
    let at = page.wrapping_add(u64::from(place.offset)) as *const [u64; COPY_WINDOW / 8];
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(at) } {
        Ok(there) if is_in(place, there) => {
            search.found = page;
            1
        }
        Ok(_) => 0,
        Err(_) => {
            search.missing = page;
            0
        }
    }
}

#[inline(always)]
fn is_in(place: &CopyPlace, there: [u64; 2]) -> bool {
    let CopyPlace { expected, mask, .. } = place;
    mask[0] | mask[1] != 0 && there[0] & mask[0] == expected[0] && there[1] & mask[1] == expected[1]
}
