//! Layout of an event's records, from its attr.

use perf_event_open_sys::bindings as sys;

use super::bytes::Bytes;

/// Fields of the records of an event.
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
    /// Bit mask of the registers in REGS_USER.
    pub regs_user: u64,
    /// Bit mask of the registers in REGS_INTR.
    pub regs_intr: u64,
    /// Whether records other than samples end with a [`SampleId`].
    pub sample_id_all: bool,
}

/// Fields that make up a [`SampleId`].
const ID_FIELDS: u64 = (sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_IDENTIFIER) as u64;

/// Fields of a sample before its ID.
const BEFORE_ID: u64 =
    (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_ADDR)
        as u64;

/// Fields of a [`SampleId`] after its ID, counted from the record's end.
const BEHIND_ID: u64 = (sys::PERF_SAMPLE_STREAM_ID | sys::PERF_SAMPLE_CPU) as u64;

impl Layout {
    /// Layout of an event that this process opens.
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

    /// Whether both have the same sample fields.
    #[must_use]
    pub const fn agrees(&self, other: &Self) -> bool {
        self.sample_type == other.sample_type && self.sample_id_all == other.sample_id_all
    }

    /// Number of bytes at the end of a record other than a sample.
    #[must_use]
    pub const fn trailer(&self) -> usize {
        if self.sample_id_all {
            (self.sample_type & ID_FIELDS).count_ones() as usize * 8
        } else {
            0
        }
    }

    /// Offset of the event id in a sample, bytes; `None` if it has none.
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

    /// Event id of a record, without reading the rest; `None` if it has none.
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

/// Time, place and event of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    pub pid_tid: Option<(u32, u32)>,
    /// Time on the recording's clock, ns.
    pub time: Option<u64>,
    /// Id of the event.
    pub id: Option<u64>,
    /// Id of the opened event; inherited events have the same `id` but their own `stream_id`.
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Splits the trailer off a record other than a sample; returns the bytes before it, too. `None` if it is too
    /// short.
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
