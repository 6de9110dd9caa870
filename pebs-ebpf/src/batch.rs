//! Marks at which a thread starts on several items at once: their ids are an array in the target.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use pebs_common::config::{ArgKind, ArgProgram, MAX_BATCH, SiteConfig};
use pebs_common::counter::Counter;
use pebs_common::record::batch::{CLASSES, COUNT, COUNT_VALID, IDS, IDS_VALID};

use crate::arg;
use crate::emit::{MARKS, count, emit};
use crate::maps::IDS_BEHIND;
use crate::mark::{Room, fill};
use crate::task;

/// How many items a batch has, and how many bytes their ids take, as far as they are read.
#[derive(Clone, Copy)]
struct Size {
    items: Option<u64>,
    bytes: u64,
}

/// Bytes of a pointer, and in the payload of an id behind one.
const WORD: u64 = 8;

/// Whether the array holds pointers to where the ids are.
#[inline(always)]
fn is_behind(program: &ArgProgram) -> bool {
    IDS_BEHIND.load() != 0 && program.kind == ArgKind::IdsBehind as u8
}

/// Makes a mark in the smallest room that has place for the ids.
#[inline(always)]
pub fn mark(ctx: &ProbeContext, site: &SiteConfig, ids: task::Ids) {
    let items = arg::value(ctx.as_ptr().cast(), &site.count);
    // Less than none is none.
    let read = items.filter(|items| *items as i64 > 0).unwrap_or(0);
    let each = if is_behind(&site.id) {
        WORD
    } else {
        u64::from(site.id.width)
    };
    let bytes = read.min(MAX_BATCH as u64) * each;
    let size = Size { items, bytes };
    if bytes <= (CLASSES[0] - IDS) as u64 {
        with_ids::<{ CLASSES[0] }>(ctx, site, ids, size);
    } else if bytes <= (CLASSES[1] - IDS) as u64 {
        with_ids::<{ CLASSES[1] }>(ctx, site, ids, size);
    } else {
        with_ids::<{ CLASSES[2] }>(ctx, site, ids, size);
    }
}

#[inline(always)]
fn with_ids<const SIZE: usize>(
    ctx: &ProbeContext,
    site: &SiteConfig,
    ids: task::Ids,
    Size { items, bytes }: Size,
) {
    emit::<Room<SIZE>>(MARKS, |room| {
        fill(ctx, site, ids, room, |payload| {
            let Some(items) = items else {
                count(Counter::ArgumentFault);
                return 0;
            };
            // SAFETY: the count's word is within the payload; its offset is a multiple of 8.
            unsafe { payload.wrapping_add(COUNT).cast::<u64>().write(items) };
            let address = arg::value(ctx.as_ptr().cast(), &site.id);
            let bytes = arg::at_most(bytes, (SIZE - IDS) as u64);
            let room = payload.wrapping_add(IDS);
            let read = address.is_some_and(|address| {
                if is_behind(&site.id) {
                    return behind::<SIZE>(room, address, bytes, &site.id);
                }
                // SAFETY: IDS + bytes <= SIZE, the payload's length; the helper checks the user address.
                unsafe { bpf_probe_read_user(room.cast(), bytes as u32, address as *const _) == 0 }
            });
            if !read {
                count(Counter::ArgumentFault);
                return u64::from(COUNT_VALID);
            }
            u64::from(COUNT_VALID | IDS_VALID)
        });
    });
}

/// Reads the ids behind an array of pointers of so many bytes; all of them, or none counts.
#[inline(always)]
fn behind<const SIZE: usize>(room: *mut u8, array: u64, bytes: u64, program: &ArgProgram) -> bool {
    let offset = program.capacity as i32 as i64 as u64;
    for index in 0..(SIZE - IDS) / WORD as usize {
        let at = index as u64 * WORD;
        if at >= bytes {
            break;
        }
        let id = arg::number(array.wrapping_add(at), WORD)
            .and_then(|pointer| arg::number(pointer.wrapping_add(offset), program.width.into()));
        let Some(id) = id else {
            return false;
        };
        let id = arg::widen(id, program.width, program.pad != 0);
        // SAFETY: at + 8 <= SIZE - IDS, what the payload has from `room` on; its offset is a multiple of 8.
        unsafe { room.wrapping_add(at as usize).cast::<u64>().write(id) };
    }
    true
}
