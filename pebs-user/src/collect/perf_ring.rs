//! The ring into which the kernel writes the records of one perf event.
#![expect(unsafe_code, reason = "memory shared with the kernel")]

use crate::failure::Hint;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags};

pub(crate) use crate::perf::record::RawRecord;

/// Bytes of `struct perf_event_header`: u32 type, u16 misc, u16 size.
const HEADER: usize = 8;

/// A ring could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PerfRingError {
    /// The kernel's rings have 2^n pages.
    #[error("cannot map a perf ring of {pages} pages: not a power of two")]
    NotPowerOfTwo {
        /// Requested pages.
        pages: usize,
    },
    /// The kernel refused.
    #[error("cannot map a perf ring of {pages} pages")]
    Map {
        /// Requested pages.
        pages: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An impossible record: the rest of the ring's content was discarded.
    #[error("perf ring holds a record of {size} bytes where {left} are left")]
    BadRecord {
        /// Size in its header.
        size: usize,
        /// Bytes that the ring held from there on.
        left: u64,
    },
}

impl Hint for PerfRingError {
    fn hint(&self) -> Option<String> {
        let Self::Map { source, .. } = self else {
            return None;
        };
        let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").ok()?;
        matches!(source.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)).then(|| {
            format!(
                "kernel.perf_event_mlock_kb is {}; use root, 'ulimit -l unlimited' or a smaller ring",
                limit.trim()
            )
        })
    }
}

/// The mapped ring of a perf event.
///
/// Not overwriting: while the ring is full the kernel drops records and reports their number in `PERF_RECORD_LOST`.
pub(crate) struct PerfRing {
    base: NonNull<u8>,
    page: usize,
    /// Bytes of data, a power of two.
    size: usize,
    /// Buffer for a record that wraps at the end of the ring; at most 64 KiB, the largest record.
    scratch: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone, and it is not tied to a thread.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps the ring of an event, with `data_pages` pages (a power of two) and one for positions.
    ///
    /// The mapping stays valid after the event is closed.
    ///
    /// # Errors
    /// Not a power of two, or the kernel refused: EPERM above the limit of locked memory, EINVAL if the event has a
    /// ring of another size or can't have one (inherited events of a thread on any CPU).
    /// Source: perf_event_open(2), "MMAP layout".
    pub(crate) fn map(fd: BorrowedFd<'_>, data_pages: usize) -> Result<Self, PerfRingError> {
        if !data_pages.is_power_of_two() {
            return Err(PerfRingError::NotPowerOfTwo { pages: data_pages });
        }
        let page = rustix::param::page_size();
        let size = data_pages * page;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is there.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size + page, protection, flags, fd, 0)
        };
        let pages = data_pages;
        let base = base.map_err(|errno| PerfRingError::Map {
            pages,
            source: errno.into(),
        })?;
        let base = NonNull::new(base.cast()).ok_or_else(|| PerfRingError::Map {
            pages,
            source: io::Error::other("mapped at address 0"),
        })?;
        Ok(Self {
            base,
            page,
            size,
            scratch: Vec::new(),
        })
    }

    /// Size of the data area, bytes.
    #[must_use]
    pub(crate) const fn capacity(&self) -> usize {
        self.size
    }

    /// Bytes of records that wait to be drained.
    #[must_use]
    pub(crate) fn waiting(&self) -> u64 {
        let head = self.position(Position::Head).load(Ordering::Acquire);
        let tail = self.position(Position::Tail).load(Ordering::Relaxed);
        head.wrapping_sub(tail)
    }

    /// Passes every record that exists at the call to `f`, oldest first, and gives its room back to the kernel.
    ///
    /// Room is given back after each quarter of the ring, so that a long drain does not make the kernel drop
    /// records; also if `f` panics. Returns the number of records. Cost: some ns per record, without `f`; no
    /// allocation.
    ///
    /// # Errors
    /// An impossible record. All waiting records are discarded then.
    pub(crate) fn drain(&mut self, mut f: impl FnMut(RawRecord<'_>)) -> Result<u64, PerfRingError> {
        // Acquire: the records up to data_head are written before it is. Pairs with the barrier (B) in
        // perf_output_put_handle(), kernel/events/ring_buffer.c, as its comment asks of readers ("(C)").
        let head = self.position(Position::Head).load(Ordering::Acquire);
        let tail = self.position(Position::Tail).load(Ordering::Relaxed);
        let mut cursor = Cursor {
            ring: self,
            at: tail,
            given_back: tail,
        };
        let mut records = 0;
        while cursor.at != head {
            f(cursor.next(head)?);
            cursor.give_back_some();
            records += 1;
        }
        Ok(records)
    }

    fn position(&self, which: Position) -> &AtomicU64 {
        let page = self.base.cast::<perf_event_mmap_page>().as_ptr();
        // SAFETY: the first page of the mapping is a perf_event_mmap_page, which lives as long as `self`, is aligned
        // to a page, and whose two positions both sides access as whole words only.
        unsafe {
            let word = match which {
                Position::Head => &raw mut (*page).data_head,
                Position::Tail => &raw mut (*page).data_tail,
            };
            AtomicU64::from_ptr(word)
        }
    }

    /// The bytes at a position, up to `len`, or fewer at the end of the ring.
    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let offset = (at % self.size as u64) as usize;
        let len = len.min(self.size - offset);
        // SAFETY: within the data pages of the mapping. The caller asks for bytes between tail and head only,
        // which the kernel does not write to until we move the tail: and that needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.page + offset), len) }
    }
}

#[derive(Clone, Copy)]
enum Position {
    Head,
    Tail,
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing lent from it outlives `self`.
        // A failure would leave the mapping behind, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size + self.page) };
    }
}

/// Iterates over the records; dropping it gives the passed ones back to the kernel.
struct Cursor<'ring> {
    ring: &'ring mut PerfRing,
    at: u64,
    given_back: u64,
}

impl Cursor<'_> {
    fn next(&mut self, head: u64) -> Result<RawRecord<'_>, PerfRingError> {
        let left = head.wrapping_sub(self.at);
        // Records and the ring are multiples of 8 bytes: a header never wraps.
        let header = self.ring.bytes(self.at, HEADER);
        let (kind, misc, size) = match *header {
            [a, b, c, d, e, f, g, h] => (
                u32::from_ne_bytes([a, b, c, d]),
                u16::from_ne_bytes([e, f]),
                usize::from(u16::from_ne_bytes([g, h])),
            ),
            _ => (0, 0, 0),
        };
        if size < HEADER || size as u64 > left || size > self.ring.size {
            self.at = head;
            return Err(PerfRingError::BadRecord { size, left });
        }
        let start = self.at.wrapping_add(HEADER as u64);
        self.at = self.at.wrapping_add(size as u64);
        let len = size - HEADER;
        if self.ring.bytes(start, len).len() < len {
            self.put_together(start, len);
            let body = &self.ring.scratch;
            return Ok(RawRecord { kind, misc, body });
        }
        let body = self.ring.bytes(start, len);
        Ok(RawRecord { kind, misc, body })
    }

    fn put_together(&mut self, start: u64, len: usize) {
        let mut scratch = std::mem::take(&mut self.ring.scratch);
        scratch.clear();
        let first = self.ring.bytes(start, len);
        scratch.extend_from_slice(first);
        let rest = len - first.len();
        let start = start.wrapping_add(first.len() as u64);
        scratch.extend_from_slice(self.ring.bytes(start, rest));
        self.ring.scratch = scratch;
    }

    fn give_back_some(&mut self) {
        if self.at.wrapping_sub(self.given_back) >= self.ring.size as u64 / 4 {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        // Release: our reads of the records come before the kernel may write over them. Pairs with the control
        // dependency (A) in __perf_output_begin(), kernel/events/ring_buffer.c ("(D)").
        let tail = self.ring.position(Position::Tail);
        tail.store(self.at, Ordering::Release);
        self.given_back = self.at;
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// A ring over plain shared memory, written by the test in place of the kernel.
    fn ring(pages: usize) -> PerfRing {
        let page = rustix::param::page_size();
        let file = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, ((pages + 1) * page) as u64).unwrap();
        PerfRing::map(file.as_fd(), pages).unwrap()
    }

    impl PerfRing {
        fn write(&self, kind: u32, body: &[u8]) {
            let size = u16::try_from(HEADER + body.len()).unwrap();
            let mut record = kind.to_ne_bytes().to_vec();
            record.extend(7u16.to_ne_bytes());
            record.extend(size.to_ne_bytes());
            record.extend(body);
            self.write_raw(&record);
        }

        fn write_raw(&self, record: &[u8]) {
            let head = self.position(Position::Head).load(Ordering::Relaxed);
            for (at, byte) in (head..).zip(record) {
                let offset = (at % self.size as u64) as usize;
                // SAFETY: within the data pages; the test has no reference into them.
                unsafe { *self.base.as_ptr().add(self.page + offset) = *byte };
            }
            let head = head + record.len() as u64;
            self.position(Position::Head).store(head, Ordering::Release);
        }
    }

    /// Every record is complete and in order through many turns of the ring, including those that wrap at its end.
    #[test]
    fn wraps() {
        let mut ring = ring(1);
        let (mut written, mut seen) = (0u32, 0u32);
        for round in 0..2000u32 {
            let len = 8 + (round as usize * 40) % 1000 / 8 * 8;
            while ring.waiting() as usize + HEADER + len <= ring.capacity() {
                ring.write(written, &vec![written as u8; len]);
                written += 1;
            }
            let records = ring.drain(|record| {
                assert_eq!((record.kind, record.misc), (seen, 7));
                assert_eq!(record.body.len(), len);
                assert!(record.body.iter().all(|byte| *byte == seen as u8));
                seen += 1;
            });
            assert!(records.unwrap() > 0);
            assert_eq!(ring.waiting(), 0);
        }
        assert_eq!(written, seen);
    }

    /// An impossible size is an error, and the ring continues after it.
    #[test]
    fn bad_record() {
        let mut ring = ring(1);
        ring.write(1, &[0; 8]);
        ring.write_raw(&[0; 16]);
        let mut seen = 0;
        let result = ring.drain(|_| seen += 1);
        assert!(matches!(
            result,
            Err(PerfRingError::BadRecord { size: 0, left: 16 })
        ));
        ring.write(2, &[0; 8]);
        ring.drain(|record| seen += record.kind).unwrap();
        assert_eq!(seen, 3);
    }

    /// Records passed before a panic are given back.
    #[test]
    fn panic_gives_back() {
        let mut ring = ring(1);
        ring.write(1, &[0; 8]);
        ring.write(2, &[0; 8]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ring.drain(|_| panic!("on the first"))
        }));
        assert!(panicked.is_err());
        let mut kinds = Vec::new();
        ring.drain(|record| kinds.push(record.kind)).unwrap();
        assert_eq!(kinds, [2]);
    }

    /// Sizes of which the kernel has no rings are refused without asking it.
    #[test]
    fn power_of_two() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let refused = PerfRing::map(file.as_fd(), 3).err().unwrap();
        assert!(matches!(refused, PerfRingError::NotPowerOfTwo { pages: 3 }));
        assert_eq!(refused.hint(), None);
    }
}
