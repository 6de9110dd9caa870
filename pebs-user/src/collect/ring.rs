//! Reader of one eBPF ring buffer: positions and framing, independent of the records' content.
//!
//! aya's reader returns one record at a time and can't distinguish an empty ring from one whose next record is
//! still being written; the frontier needs that.
#![expect(unsafe_code, reason = "the ring is memory shared with the kernel")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The record is still being written. Source: `BPF_RINGBUF_BUSY_BIT`, include/uapi/linux/bpf.h.
const BUSY: u32 = 1 << 31;
/// The record was given up. Source: `BPF_RINGBUF_DISCARD_BIT`.
const DISCARDED: u32 = 1 << 30;
/// Source: `BPF_RINGBUF_HDR_SZ`.
const HEADER: usize = 8;

/// A ring, mapped.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    consumer: NonNull<AtomicUsize>,
    /// The producer's page; the data follows it. The kernel offers it twice in a row, which would count twice as memory.
    producer: NonNull<AtomicUsize>,
    size: usize,
    page: usize,
}

// SAFETY: there is one reader, and all access to shared memory is through atomics or between
// positions that the kernel does not write.
unsafe impl Send for Ring {}

/// State of a ring after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadExtent {
    /// Everything that was reserved when the reader looked.
    Everything,
    /// Everything before a record that is still being written.
    UpToBusy,
}

impl Ring {
    /// Maps a ring of `size` bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn map(fd: OwnedFd, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        // SAFETY: new mappings at addresses of the kernel's choice, with the layout that
        // kernel/bpf/ringbuf.c documents: consumer page, producer page, data twice, of which the second is left out.
        let consumer = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(
                std::ptr::null_mut(),
                page,
                protection,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }?;
        // SAFETY: as above.
        let producer = unsafe {
            let length = page + size;
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                fd.as_fd(),
                page as u64,
            )
        };
        let unavailable = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let consumer: NonNull<AtomicUsize> =
            NonNull::new(consumer.cast()).ok_or_else(unavailable)?;
        let producer = match producer {
            Ok(address) => NonNull::new(address.cast()).ok_or_else(unavailable)?,
            Err(errno) => {
                // SAFETY: the mapping was made above and nothing refers to it.
                let _ = unsafe { munmap(consumer.as_ptr().cast(), page) };
                return Err(errno.into());
            }
        };
        Ok(Self {
            fd,
            consumer,
            producer,
            size,
            page,
        })
    }

    /// The map's descriptor.
    #[must_use]
    pub(crate) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes that it holds.
    pub(crate) const fn capacity(&self) -> usize {
        self.size
    }

    /// Bytes that wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        // SAFETY: as in `take`.
        let (consumer, producer) = unsafe { (self.consumer.as_ref(), self.producer.as_ref()) };
        let end = producer.load(Ordering::Relaxed);
        end.wrapping_sub(consumer.load(Ordering::Relaxed))
    }

    /// Appends all complete records to `out`, framed as in the ring, and frees their room.
    ///
    /// Cost: one copy and a check of each record's header; no system call.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) -> ReadExtent {
        // SAFETY: both pages are mapped and hold the position at their start; this is the only
        // consumer. The kernel releases the producer's position in `__bpf_ringbuf_reserve`
        // (kernel/bpf/ringbuf.c, smp_store_release of producer_pos), paired with Acquire.
        let (consumer, producer) = unsafe { (self.consumer.as_ref(), self.producer.as_ref()) };
        let start = consumer.load(Ordering::Relaxed);
        let end = producer.load(Ordering::Acquire);
        let mut at = start;
        let mut taken = ReadExtent::Everything;
        while at != end {
            let word = self.header(at);
            if word & BUSY != 0 {
                taken = ReadExtent::UpToBusy;
                break;
            }
            let length = (word & (DISCARDED - 1)) as usize;
            at = at.wrapping_add((HEADER + length).next_multiple_of(8));
        }
        self.copy(start, at, out);
        consumer.store(at, Ordering::Release);
        taken
    }

    /// Length and bits of the record at a position.
    fn header(&self, at: usize) -> u32 {
        // SAFETY: positions between consumer's and producer's start records, aligned to 8; the
        // kernel publishes the header in `bpf_ringbuf_commit` by xchg, paired with Acquire.
        let header = unsafe {
            self.producer
                .byte_add(self.page + at % self.size)
                .cast::<AtomicU32>()
                .as_ref()
        };
        header.load(Ordering::Acquire)
    }

    fn copy(&self, start: usize, end: usize, out: &mut Vec<u8>) {
        let length = end.wrapping_sub(start);
        assert!(
            length <= self.size,
            "the ring's positions are {length} bytes apart"
        );
        let begin = start % self.size;
        let before_wrap = length.min(self.size - begin);
        for (offset, length) in [(begin, before_wrap), (0, length - before_wrap)] {
            // SAFETY: the kernel does not write between the consumer's position and the records that were complete; both
            // parts lie within the data.
            let bytes = unsafe {
                let first = self.producer.byte_add(self.page + offset).cast::<u8>();
                std::slice::from_raw_parts(first.as_ptr(), length)
            };
            out.extend_from_slice(bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mappings are ours and no reference into them outlives self.
        unsafe {
            let _ = munmap(self.consumer.as_ptr().cast(), self.page);
            let _ = munmap(self.producer.as_ptr().cast(), self.page + self.size);
        }
    }
}
