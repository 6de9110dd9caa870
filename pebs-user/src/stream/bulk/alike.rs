//! Samples that follow one another in a ring and differ in place and time alone: nearly all of them.
//!
//! Where samples have only fields of one word each, every field has its place, and a run of samples of the same
//! thread and mode is read without looking at the layout again.

use perf_event_open_sys::bindings as sys;

use crate::perf::layout::Layout;
use crate::perf::record::RawRecord;

/// Fields of one word that say nothing of what was accessed.
const WORDS: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD) as u64;

/// Where samples of one size have what is wanted, in words from the begin of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Words of a record, its header included.
    words: usize,
    ip: usize,
    tid: usize,
    time: usize,
}

/// Samples alike, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// The first one's.
    pub first: RawRecord<'a>,
    /// Process and thread.
    pub pid_tid: (u32, u32),
    /// Bytes of all of them.
    pub bytes: &'a [u8],
    places: Places,
}

impl Places {
    /// Of samples that say no more than where and when; `None` of others.
    pub(super) fn of(layout: &Layout) -> Option<Self> {
        let asked = layout.sample_type;
        let wanted = [
            sys::PERF_SAMPLE_IP,
            sys::PERF_SAMPLE_TID,
            sys::PERF_SAMPLE_TIME,
        ];
        if asked & !WORDS != 0 || !wanted.iter().all(|field| layout.has(*field)) {
            return None;
        }
        // The header, then IDENTIFIER, IP, TID, TIME, and the others.
        let ip = 1 + usize::from(layout.has(sys::PERF_SAMPLE_IDENTIFIER));
        Some(Self {
            words: 1 + asked.count_ones() as usize,
            ip,
            tid: ip + 1,
            time: ip + 2,
        })
    }

    /// The samples that `bytes` begin with; `None` if they begin with something else.
    #[inline(always)]
    pub(super) fn run<'a>(&self, bytes: &'a [u8]) -> Option<Run<'a>> {
        let (first, _) = super::split(bytes)?;
        if first.kind != sys::PERF_RECORD_SAMPLE || first.body.len() != (self.words - 1) * 8 {
            return None;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let (header, thread) = (words[0], words[self.tid]);
        let alike = |record: &&[[u8; 8]]| record[0] == header && record[self.tid] == thread;
        let count = words.chunks_exact(self.words).take_while(alike).count();
        let [a, b, c, d, e, f, g, h] = thread;
        Some(Run {
            first,
            pid_tid: (
                u32::from_ne_bytes([a, b, c, d]),
                u32::from_ne_bytes([e, f, g, h]),
            ),
            bytes: &bytes[..count * self.words * 8],
            places: *self,
        })
    }
}

impl Run<'_> {
    /// Address and time of each.
    #[inline(always)]
    pub(super) fn samples(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let Places {
            words, ip, time, ..
        } = self.places;
        let (all, _) = self.bytes.as_chunks::<8>();
        let word = |bytes: [u8; 8]| u64::from_ne_bytes(bytes);
        all.chunks_exact(words)
            .map(move |record| (word(record[ip]), word(record[time])))
    }
}
