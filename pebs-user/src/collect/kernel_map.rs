//! Maps that aya has no call for: rings of a size chosen at run time, and counters that are read
//! from shared memory.
#![expect(
    unsafe_code,
    reason = "the bpf system call and mmap have no safe binding"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use pebs_common::counter::Counter;

use crate::stream::cycle::CounterRow;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_GET_NEXT_KEY: libc::c_int = 4;
const BPF_MAP_UPDATE_BATCH: libc::c_int = 26;
const BPF_MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;

/// `map_create` of `union bpf_attr` up to the flags. Source: include/uapi/linux/bpf.h.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The element commands of `union bpf_attr`.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The batch commands of `union bpf_attr`.
#[repr(C)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Runs a bpf command.
///
/// # Safety
/// `attr` has the layout that the command expects, and addresses in it are valid for it.
unsafe fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<libc::c_long> {
    let attr: *const T = attr;
    // SAFETY: the size is the attr's; the rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Creates a ring of `bytes`, a power of two and a multiple of the page size.
///
/// # Errors
/// The kernel's, `ENOMEM` or `EPERM` above all.
pub(crate) fn create_ring(bytes: u32) -> io::Result<OwnedFd> {
    create(&MapCreate {
        map_type: BPF_MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: bytes,
        map_flags: 0,
    })
}

/// Creates a map with room for `entries` perf events. Events are removed when the descriptor through which they
/// were added is closed.
///
/// # Errors
/// The kernel's, `ENOMEM` or `EPERM` above all.
pub(crate) fn create_perf_array(entries: u32) -> io::Result<OwnedFd> {
    create(&MapCreate {
        map_type: BPF_MAP_TYPE_PERF_EVENT_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        map_flags: 0,
    })
}

fn create(attr: &MapCreate) -> io::Result<OwnedFd> {
    // SAFETY: the attr is that of the command and holds no address.
    let fd = unsafe { bpf(BPF_MAP_CREATE, attr) }?;
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Types that can be put into a map byte for byte: no padding, no pointers.
///
/// # Safety
/// Every byte of the type is initialized.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: numbers have no padding.
unsafe impl Plain for u32 {}
// SAFETY: numbers have no padding.
unsafe impl Plain for i32 {}
// SAFETY: numbers have no padding.
unsafe impl Plain for [u64; 2] {}
// SAFETY: repr(C), its size is asserted to be the sum of its fields.
unsafe impl Plain for pebs_common::config::SiteConfig {}
// SAFETY: as above.
unsafe impl Plain for pebs_common::config::ItemConfig {}
// SAFETY: as above.
unsafe impl Plain for pebs_common::config::CopyPlace {}
// SAFETY: as above.
unsafe impl Plain for pebs_common::config::KernelCode {}
// SAFETY: as above.
unsafe impl Plain for pebs_common::config::Trigger {}

/// Sets the value under a 32-bit key.
///
/// # Errors
/// The kernel's.
pub(crate) fn set<V: Plain>(map: BorrowedFd<'_>, key: u32, value: &V) -> io::Result<()> {
    let attr = element(map, &key, value);
    // SAFETY: key and value live through the call; their sizes are the map's, which is of ours.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// Reads the value under a 32-bit key into `value`.
///
/// # Errors
/// The kernel's.
pub(crate) fn get<V: Plain>(map: BorrowedFd<'_>, key: u32, value: &mut V) -> io::Result<()> {
    let attr = MapElement {
        value: std::ptr::from_mut(value).addr() as u64,
        ..element(map, &key, value)
    };
    // SAFETY: key and value live through the call; their sizes are the map's, which is of ours, and any bytes are a value.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr) }.map(drop)
}

/// Puts a map into a map of maps.
///
/// # Errors
/// The kernel's.
pub(crate) fn set_map(outer: BorrowedFd<'_>, key: u32, inner: BorrowedFd<'_>) -> io::Result<()> {
    set(outer, key, &inner.as_raw_fd())
}

/// Puts maps into a map of maps, in one batch if the kernel can: it waits some 10 ms after each change of such a
/// map.
///
/// Source: `maybe_wait_bpf_programs`, kernel/bpf/syscall.c; batches of such maps came with Linux 5.16.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set_maps(outer: BorrowedFd<'_>, maps: &[(u32, BorrowedFd<'_>)]) -> io::Result<()> {
    let keys: Vec<u32> = maps.iter().map(|(key, _)| *key).collect();
    let values: Vec<i32> = maps.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
    let attr = MapBatch {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: keys.len() as u32,
        map_fd: outer.as_raw_fd().cast_unsigned(),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: both arrays have `count` elements of the map's sizes and live through the call.
    if unsafe { bpf(BPF_MAP_UPDATE_BATCH, &attr) }.is_ok() {
        return Ok(());
    }
    let mut each = maps.iter();
    each.try_for_each(|(key, inner)| set_map(outer, *key, *inner))
}

/// All 32-bit keys of a hash map, sorted. Keys that are added or removed meanwhile may be included or not.
///
/// # Errors
/// The kernel's error.
pub(crate) fn keys(map: BorrowedFd<'_>, at_most: u32) -> io::Result<Vec<u32>> {
    let mut keys = Vec::new();
    let mut last: Option<u32> = None;
    // A key removed meanwhile makes the kernel start over.
    for _ in 0..2 * at_most {
        let mut next = 0u32;
        let attr = MapElement {
            key: last
                .as_ref()
                .map_or(0, |key| std::ptr::from_ref(key) as u64),
            value: std::ptr::from_mut(&mut next) as u64,
            ..element(map, &0, &0u32)
        };
        // SAFETY: both addresses are valid through the call, the second for writing 4 bytes; no
        // key at all asks for the first.
        match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &attr) } {
            Ok(_) => keys.push(next),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) => return Err(error),
        }
        last = Some(next);
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

fn element<V>(map: BorrowedFd<'_>, key: &u32, value: &V) -> MapElement {
    MapElement {
        map_fd: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: 0,
    }
}

/// The kernel programs' counters, mapped.
#[derive(Debug)]
pub(crate) struct Counters {
    words: NonNull<AtomicU64>,
    bytes: usize,
    cpus: usize,
}

// SAFETY: the mapping is shared memory of atomics, readable from any thread.
unsafe impl Send for Counters {}

impl Counters {
    /// Maps the counter array for the first `cpus` CPUs.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn map(map: BorrowedFd<'_>, cpus: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = (cpus * size_of::<CounterRow>()).next_multiple_of(page);
        // SAFETY: a new read-only mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                map.as_fd(),
                0,
            )
        }?;
        let words = NonNull::new(address.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { words, bytes, cpus })
    }

    /// CPUs that have a row.
    #[must_use]
    pub(crate) const fn cpus(&self) -> usize {
        self.cpus
    }

    /// The counters of one CPU now. No system call.
    #[must_use]
    pub(crate) fn row(&self, cpu: usize) -> CounterRow {
        assert!(cpu < self.cpus, "cpu {cpu} has no counters");
        std::array::from_fn(|n| {
            // SAFETY: the word lies within the mapping: cpu < cpus, n < COUNT; mapped pages are
            // aligned.
            let word = unsafe { self.words.add(cpu * Counter::COUNT as usize + n).as_ref() };
            word.load(Ordering::Relaxed)
        })
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives self. Failure would leave
        // the mapping, which the process's end removes.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.bytes) };
    }
}
