//! What an event's attr says about the bytes of its records.

use perf_event_open_sys::bindings as sys;

use super::bytes::Bytes;

/// Which fields the records of an event have.
///
/// Source: `struct perf_event_attr`, include/uapi/linux/perf_event.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `PERF_SAMPLE_*`.
    pub sample_type: u64,
    /// `PERF_FORMAT_*`.
    pub read_format: u64,
    /// `PERF_SAMPLE_BRANCH_*`.
    pub branch_sample_type: u64,
    /// Registers in REGS_USER, a bit each.
    pub regs_user: u64,
    /// Registers in REGS_INTR, a bit each.
    pub regs_intr: u64,
    /// Records that are no samples end with a [`SampleId`].
    pub sample_id_all: bool,
}

/// Fields of which a [`SampleId`] is made.
const ID_FIELDS: u64 = (sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_IDENTIFIER) as u64;

/// Fields of a sample that come before its ID.
const BEFORE_ID: u64 =
    (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_ADDR)
        as u64;

/// Fields of a [`SampleId`] that come after its ID, from the record's end.
const BEHIND_ID: u64 = (sys::PERF_SAMPLE_STREAM_ID | sys::PERF_SAMPLE_CPU) as u64;

impl Layout {
    /// Of an attr that this process opens an event with.
    #[must_use]
    pub fn of(attr: &sys::perf_event_attr) -> Self {
        Self {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_sample_type: attr.branch_sample_type,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            sample_id_all: attr.sample_id_all() != 0,
        }
    }

    /// Whether samples have the counts of all events of their group.
    #[must_use]
    pub const fn reads_group(&self) -> bool {
        self.has(sys::PERF_SAMPLE_READ) && self.read_format & sys::PERF_FORMAT_GROUP as u64 != 0
    }

    /// Whether samples have a field.
    #[inline]
    #[must_use]
    pub const fn has(&self, field: u32) -> bool {
        self.sample_type & field as u64 != 0
    }

    /// Whether records of both lie alike.
    #[must_use]
    pub const fn agrees(&self, other: &Self) -> bool {
        self.sample_type == other.sample_type && self.sample_id_all == other.sample_id_all
    }

    /// Bytes at the end of a record that is no sample.
    #[must_use]
    pub const fn trailer(&self) -> usize {
        if self.sample_id_all {
            (self.sample_type & ID_FIELDS).count_ones() as usize * 8
        } else {
            0
        }
    }

    /// Byte at which a sample has the id of its event; `None` if it says none.
    #[must_use]
    pub const fn id_in_sample(&self) -> Option<usize> {
        if self.has(sys::PERF_SAMPLE_IDENTIFIER) {
            Some(0)
        } else if self.has(sys::PERF_SAMPLE_ID) {
            Some((self.sample_type & BEFORE_ID).count_ones() as usize * 8)
        } else {
            None
        }
    }

    /// The id of the event that a record is of, without reading the rest; `None` if it says none.
    #[must_use]
    pub fn id_of(&self, kind: u32, body: &[u8]) -> Option<u64> {
        let at = if kind == sys::PERF_RECORD_SAMPLE {
            self.id_in_sample()?
        } else if !self.sample_id_all {
            return None;
        } else if self.has(sys::PERF_SAMPLE_IDENTIFIER) {
            body.len().checked_sub(8)?
        } else if self.has(sys::PERF_SAMPLE_ID) {
            let behind = (self.sample_type & BEHIND_ID).count_ones() as usize * 8;
            body.len().checked_sub(behind + 8)?
        } else {
            return None;
        };
        Bytes(body.get(at..)?).u64()
    }
}

/// When, where and of which event a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process and thread.
    pub pid_tid: Option<(u32, u32)>,
    /// ns on the recording's clock.
    pub time: Option<u64>,
    /// The event's number.
    pub id: Option<u64>,
    /// The number of the event that was opened, which inherited ones have not in common.
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Reads what ends a record that is no sample; `None` if it is too short for it. Gives the bytes before, too.
    #[must_use]
    pub fn split<'a>(layout: &Layout, body: &'a [u8]) -> Option<(&'a [u8], Self)> {
        let (body, trailer) = body.split_at(body.len().checked_sub(layout.trailer())?);
        if trailer.is_empty() {
            return Some((body, Self::default()));
        }
        let mut bytes = Bytes(trailer);
        let mut read = Self::default();
        if layout.has(sys::PERF_SAMPLE_TID) {
            read.pid_tid = Some(bytes.pair()?);
        }
        if layout.has(sys::PERF_SAMPLE_TIME) {
            read.time = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_ID) {
            read.id = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_STREAM_ID) {
            read.stream_id = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_CPU) {
            read.cpu = Some(bytes.pair()?.0);
        }
        if layout.has(sys::PERF_SAMPLE_IDENTIFIER) {
            read.id = Some(bytes.u64()?);
        }
        Some((body, read))
    }
}
