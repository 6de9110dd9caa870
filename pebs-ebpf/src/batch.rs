//! Marks at which a thread starts on several items at once: their ids are an array in the target.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pebs_common::config::{ArgKind, ArgProgram, MAX_BATCH, SiteConfig, widen};
use pebs_common::counter::Counter;
use pebs_common::record::batch::{CLASSES, COUNT, COUNT_VALID, IDS, IDS_VALID};

use crate::arg;
use crate::emit::{MARKS, count, emit};
use crate::maps::IDS_BEHIND;
use crate::mark::{Room, Target, fill};

/// Number of items in a batch, and size of the ids that are read, bytes.
#[derive(Clone, Copy)]
struct Size {
    items: u64,
    /// Whether the number could be read.
    is_known: bool,
    bytes: u64,
}

/// Bytes of a pointer, and of an id behind a pointer in the payload.
const WORD: u64 = 8;

/// Whether the array holds pointers to where the ids are.
#[inline(always)]
fn is_behind(program: &ArgProgram) -> bool {
    IDS_BEHIND.load() != 0 && program.kind == ArgKind::IdsBehind as u8
}

/// Makes a mark in the smallest record with room for the ids.
#[inline(always)]
pub fn mark(target: &mut Target, site: &SiteConfig) {
    let (items, is_known) = arg::value_or_zero(&target.registers, &site.count);
    // A negative number counts as 0.
    let read = if items as i64 > 0 { items } else { 0 };
    let each = if is_behind(&site.id) {
        WORD
    } else {
        u64::from(site.id.width)
    };
    let bytes = read.min(MAX_BATCH as u64) * each;
    let size = Size {
        items,
        is_known,
        bytes,
    };
    if bytes <= (CLASSES[0] - IDS) as u64 {
        with_ids::<{ CLASSES[0] }>(target, site, size);
    } else if bytes <= (CLASSES[1] - IDS) as u64 {
        with_ids::<{ CLASSES[1] }>(target, site, size);
    } else {
        with_ids::<{ CLASSES[2] }>(target, site, size);
    }
}

#[inline(always)]
fn with_ids<const SIZE: usize>(target: &mut Target, site: &SiteConfig, size: Size) {
    emit::<Room<SIZE>>(MARKS, |room| {
        fill(target, site, room, |target, payload| {
            if !size.is_known {
                count(Counter::ArgumentFault);
                return 0;
            }
            // SAFETY: the count's word is within the payload; its offset is a multiple of 8.
            unsafe { payload.wrapping_add(COUNT).cast::<u64>().write(size.items) };
            let room = payload.wrapping_add(IDS);
            let read = target.apart(|target| {
                arg::value(&target.registers, &site.id).is_some_and(|address| {
                    let read = if SIZE == CLASSES[0] {
                        ids_small(address, size.bytes, &site.id, room.cast())
                    } else if SIZE == CLASSES[1] {
                        ids_middle(address, size.bytes, &site.id, room.cast())
                    } else {
                        ids_large(address, size.bytes, &site.id, room.cast())
                    };
                    read != 0
                })
            });
            if !read {
                count(Counter::ArgumentFault);
                return u64::from(COUNT_VALID);
            }
            u64::from(COUNT_VALID | IDS_VALID)
        });
    });
}

/// [`ids`] in a payload of the first size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ids_small(
    address: u64,
    bytes: u64,
    program: *const ArgProgram,
    room: *mut [u8; CLASSES[0] - IDS],
) -> u64 {
    u64::from(ids(address, bytes, program, room))
}

/// [`ids`] in a payload of the second size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ids_middle(
    address: u64,
    bytes: u64,
    program: *const ArgProgram,
    room: *mut [u8; CLASSES[1] - IDS],
) -> u64 {
    u64::from(ids(address, bytes, program, room))
}

/// [`ids`] in a payload of the third size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ids_large(
    address: u64,
    bytes: u64,
    program: *const ArgProgram,
    room: *mut [u8; CLASSES[2] - IDS],
) -> u64 {
    u64::from(ids(address, bytes, program, room))
}

/// Reads `bytes` bytes of ids at an address, or behind the pointers there; returns whether all could be read.
#[inline(always)]
fn ids<const ROOM: usize>(
    address: u64,
    bytes: u64,
    program: *const ArgProgram,
    room: *mut [u8; ROOM],
) -> bool {
    if program.is_null() || room.is_null() {
        // Never the case, but the verifier needs the check.
        return false;
    }
    // SAFETY: it is not null, and the verifier makes sure that callers hand over as many bytes as the type has.
    let program = unsafe { &*program };
    let room = room.cast::<u8>();
    let bytes = arg::at_most(bytes, ROOM as u64);
    if is_behind(program) {
        return behind::<ROOM>(room, address, bytes, program);
    }
    // SAFETY: the payload has at least `bytes` bytes; the helper checks the user address.
    unsafe { bpf_probe_read_user(room.cast(), bytes as u32, address as *const _) == 0 }
}

/// Reads the ids behind an array of pointers of `bytes` bytes; returns whether all could be read.
#[inline(always)]
fn behind<const ROOM: usize>(room: *mut u8, array: u64, bytes: u64, program: &ArgProgram) -> bool {
    for index in 0..ROOM / WORD as usize {
        let at = index as u64 * WORD;
        if at >= bytes {
            break;
        }
        let id = room.wrapping_add(at as usize).cast();
        if id_behind(array.wrapping_add(at), program, id) == 0 {
            return false;
        }
    }
    true
}

/// Reads the id behind the pointer at an address; returns 0 if it can't be read. Verified once, not for each of up
/// to 256 ids.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn id_behind(address: u64, program: *const ArgProgram, id: *mut u64) -> u64 {
    if program.is_null() || id.is_null() {
        // Never the case, but the verifier needs the check.
        return 0;
    }
    // SAFETY: they are not null, and the verifier makes sure that callers hand over as many bytes as the types have.
    let (program, id) = unsafe { (&*program, &mut *id) };
    let offset = program.capacity as i32 as i64 as u64;
    let read = arg::number(address, WORD)
        .and_then(|pointer| arg::number(pointer.wrapping_add(offset), program.width.into()));
    match read {
        Some(read) => *id = widen(read, program.width, program.is_signed != 0),
        None => return 0,
    }
    1
}
