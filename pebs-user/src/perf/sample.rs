//! `PERF_RECORD_SAMPLE`: all fields of `sample_type`.
//!
//! Source: `perf_output_sample()`, kernel/events/core.c, for the order, and for the content of empty fields.

use perf_event_open_sys::bindings as sys;

use super::bytes::Bytes;
use super::layout::Layout;

/// One sample. A field is `None` if it is not in the event's sample_type.
///
/// Times are ns on the recording's clock, unconverted. Rare fields are read on demand ([`Sample::rest`]): all of
/// them together are half a kilobyte, too much to move for every sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// IP: instruction pointer.
    pub ip: Option<u64>,
    pub pid_tid: Option<(u32, u32)>,
    pub time: Option<u64>,
    /// ADDR: the data address, or another value defined by the event.
    pub addr: Option<u64>,
    /// IDENTIFIER, else ID: the event's id.
    pub id: Option<u64>,
    pub stream_id: Option<u64>,
    pub cpu: Option<u32>,
    /// PERIOD: events since the previous sample.
    pub period: Option<u64>,
    layout: Layout,
    /// The remaining fields.
    bytes: &'a [u8],
}

/// Rare fields of a sample; long ones are borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RareFields<'a> {
    /// READ: counts.
    pub read: Option<Read<'a>>,
    /// CALLCHAIN: addresses, innermost first, separated by `PERF_CONTEXT_*` marks.
    pub callchain: Option<Words<'a>>,
    /// RAW: a tracepoint's fields, or an IBS event's registers; includes the kernel's padding.
    pub raw: Option<&'a [u8]>,
    /// BRANCH_STACK.
    pub branches: Option<Branches<'a>>,
    pub regs_user: Option<Regs<'a>>,
    pub stack_user: Option<UserStack<'a>>,
    /// WEIGHT, or WEIGHT_STRUCT.
    pub weight: Option<Weight>,
    /// DATA_SRC: `union perf_mem_data_src`.
    pub data_src: Option<u64>,
    pub transaction: Option<u64>,
    pub regs_intr: Option<Regs<'a>>,
    pub phys_addr: Option<u64>,
    pub cgroup: Option<u64>,
    /// DATA_PAGE_SIZE, bytes.
    pub data_page_size: Option<u64>,
    /// CODE_PAGE_SIZE, bytes.
    pub code_page_size: Option<u64>,
    pub aux: Option<&'a [u8]>,
}

/// Mismatch between a sample and its event's attr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends before or within a field.
    Short,
    /// Number of bytes left behind the last field.
    LeftOver(usize),
}

/// 64-bit words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len() / 8
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.len() < 8
    }

    /// Iterates over the words.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let (words, _) = self.0.as_chunks::<8>();
        words.iter().map(|word| u64::from_ne_bytes(*word))
    }
}

/// Counts of the event, or of all events of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read<'a> {
    /// Time that the event was enabled, ns.
    pub enabled: Option<u64>,
    /// Time that it was counting, ns.
    pub running: Option<u64>,
    /// Value, id and lost records of each event, as far as `read_format` asks for them.
    pub values: Words<'a>,
}

/// The last branches taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches<'a> {
    /// Index of the newest in the hardware's stack.
    pub hw_index: Option<u64>,
    /// Three words per branch: from, to, flags.
    pub entries: Words<'a>,
    /// Counts of other events between branches, one word each.
    pub counters: Option<Words<'a>>,
}

/// Register values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs<'a> {
    /// `PERF_SAMPLE_REGS_ABI_*`; 0: no registers.
    pub abi: u64,
    /// One value per bit of the attr's mask, lowest first.
    pub values: Words<'a>,
}

/// The top of the user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// Buffer of the size in the attr.
    pub bytes: &'a [u8],
    /// Number of bytes of it that are valid.
    pub filled: u64,
}

/// Cost of the sampled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One number.
    Whole(u64),
    /// Source: `union perf_sample_weight`.
    Parts {
        /// Low 32 bits: mostly the latency of the access.
        var1: u32,
        /// Next 16 bits: mostly the latency of the instruction.
        var2: u16,
        /// Last 16 bits.
        var3: u16,
    },
}

/// Fields of [`Sample`] itself.
const FIRST: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD) as u64;

/// Rare fields, which come last.
const TAIL: u64 = (sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_WEIGHT_STRUCT
    | sys::PERF_SAMPLE_DATA_SRC
    | sys::PERF_SAMPLE_TRANSACTION
    | sys::PERF_SAMPLE_REGS_INTR
    | sys::PERF_SAMPLE_PHYS_ADDR
    | sys::PERF_SAMPLE_CGROUP
    | sys::PERF_SAMPLE_DATA_PAGE_SIZE
    | sys::PERF_SAMPLE_CODE_PAGE_SIZE
    | sys::PERF_SAMPLE_AUX) as u64;

impl<'a> Sample<'a> {
    /// Decodes a sample's body. No allocation.
    ///
    /// # Errors
    /// If the length does not match the fields.
    #[inline]
    pub fn decode(layout: &Layout, body: &'a [u8]) -> Result<Self, Malformed> {
        let sample = Self::first(layout, body).ok_or(Malformed::Short)?;
        if layout.sample_type & !FIRST != 0 {
            RareFields::default().fill(layout, sample.bytes)?;
        } else if !sample.bytes.is_empty() {
            return Err(Malformed::LeftOver(sample.bytes.len()));
        }
        Ok(sample)
    }

    /// Returns the other fields. Cost: reads all of them.
    #[must_use]
    pub fn rest(&self) -> RareFields<'a> {
        if self.bytes.is_empty() {
            return RareFields::default();
        }
        let mut rest = RareFields::default();
        // This was checked by `decode`.
        let _ = rest.fill(&self.layout, self.bytes);
        rest
    }

    #[inline]
    fn first(layout: &Layout, body: &'a [u8]) -> Option<Self> {
        let has = |field| layout.has(field);
        let mut bytes = Bytes(body);
        let mut word = |field| {
            if has(field) {
                bytes.u64().map(Some)
            } else {
                Some(None)
            }
        };
        let identifier = word(sys::PERF_SAMPLE_IDENTIFIER)?;
        let ip = word(sys::PERF_SAMPLE_IP)?;
        let pid_tid = word(sys::PERF_SAMPLE_TID)?;
        let time = word(sys::PERF_SAMPLE_TIME)?;
        let addr = word(sys::PERF_SAMPLE_ADDR)?;
        let id = word(sys::PERF_SAMPLE_ID)?;
        let stream_id = word(sys::PERF_SAMPLE_STREAM_ID)?;
        let cpu = word(sys::PERF_SAMPLE_CPU)?;
        let period = word(sys::PERF_SAMPLE_PERIOD)?;
        Some(Self {
            ip,
            pid_tid: pid_tid.map(halves),
            time,
            addr,
            id: identifier.or(id),
            stream_id,
            cpu: cpu.map(|word| halves(word).0),
            period,
            layout: *layout,
            bytes: bytes.0,
        })
    }
}

/// Splits a word into two u32, in this machine's byte order.
#[inline]
const fn halves(word: u64) -> (u32, u32) {
    let (low, high) = (word as u32, (word >> 32) as u32);
    if cfg!(target_endian = "little") {
        (low, high)
    } else {
        (high, low)
    }
}

impl<'a> RareFields<'a> {
    /// Reads all fields behind those of [`Sample`].
    #[inline]
    fn fill(&mut self, layout: &Layout, body: &'a [u8]) -> Result<(), Malformed> {
        let filled = self.fill_with(layout, body, true);
        // Without branches the kernel may omit the index, too.
        let has_index = layout.has(sys::PERF_SAMPLE_BRANCH_STACK)
            && layout.branch_sample_type & u64::from(sys::PERF_SAMPLE_BRANCH_HW_INDEX) != 0;
        if filled.is_err() && has_index {
            *self = Self::default();
            return self.fill_with(layout, body, false).or(filled);
        }
        filled
    }

    #[inline]
    fn fill_with(
        &mut self,
        layout: &Layout,
        body: &'a [u8],
        index_always: bool,
    ) -> Result<(), Malformed> {
        let mut bytes = Bytes(body);
        self.middle(layout, &mut bytes, index_always)
            .and_then(|()| {
                if layout.sample_type & TAIL == 0 {
                    return Some(());
                }
                self.tail(layout, &mut bytes)
            })
            .ok_or(Malformed::Short)?;
        match bytes.len() {
            0 => Ok(()),
            left => Err(Malformed::LeftOver(left)),
        }
    }

    #[inline]
    fn middle(&mut self, layout: &Layout, bytes: &mut Bytes<'a>, index_always: bool) -> Option<()> {
        if layout.has(sys::PERF_SAMPLE_READ) {
            self.read = Some(read_counts(layout.read_format, bytes)?);
        }
        if layout.has(sys::PERF_SAMPLE_CALLCHAIN) {
            let count = bytes.u64()?;
            self.callchain = Some(Words(bytes.take_array(count, 8)?));
        }
        if layout.has(sys::PERF_SAMPLE_RAW) {
            let len = bytes.u32()?;
            self.raw = Some(bytes.take(len as usize)?);
        }
        if layout.has(sys::PERF_SAMPLE_BRANCH_STACK) {
            self.branches = Some(branches(layout.branch_sample_type, bytes, index_always)?);
        }
        if layout.has(sys::PERF_SAMPLE_REGS_USER) {
            self.regs_user = Some(regs(layout.regs_user, bytes)?);
        }
        if layout.has(sys::PERF_SAMPLE_STACK_USER) {
            self.stack_user = Some(user_stack(bytes)?);
        }
        Some(())
    }

    fn tail(&mut self, layout: &Layout, bytes: &mut Bytes<'a>) -> Option<()> {
        if layout.has(sys::PERF_SAMPLE_WEIGHT_STRUCT) {
            let mut word = Bytes(bytes.take(8)?);
            self.weight = Some(Weight::Parts {
                var1: word.u32()?,
                var2: word.u16()?,
                var3: word.u16()?,
            });
        } else if layout.has(sys::PERF_SAMPLE_WEIGHT) {
            self.weight = Some(Weight::Whole(bytes.u64()?));
        }
        if layout.has(sys::PERF_SAMPLE_DATA_SRC) {
            self.data_src = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_TRANSACTION) {
            self.transaction = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_REGS_INTR) {
            self.regs_intr = Some(regs(layout.regs_intr, bytes)?);
        }
        if layout.has(sys::PERF_SAMPLE_PHYS_ADDR) {
            self.phys_addr = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_CGROUP) {
            self.cgroup = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_DATA_PAGE_SIZE) {
            self.data_page_size = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_CODE_PAGE_SIZE) {
            self.code_page_size = Some(bytes.u64()?);
        }
        if layout.has(sys::PERF_SAMPLE_AUX) {
            let len = bytes.u64()?;
            self.aux = Some(bytes.take_u64(len)?);
        }
        Some(())
    }
}

/// `struct read_format`.
fn read_counts<'a>(format: u64, bytes: &mut Bytes<'a>) -> Option<Read<'a>> {
    let has = |bit: u32| format & u64::from(bit) != 0;
    let is_group = has(sys::PERF_FORMAT_GROUP);
    let words = 1 + u64::from(has(sys::PERF_FORMAT_ID)) + u64::from(has(sys::PERF_FORMAT_LOST));
    let count = if is_group { bytes.u64()? } else { 1 };
    let mut read = Read::default();
    let mut values = *bytes;
    if !is_group {
        // The times are between the value and the rest.
        bytes.u64()?;
    }
    if has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED) {
        read.enabled = Some(bytes.u64()?);
    }
    if has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING) {
        read.running = Some(bytes.u64()?);
    }
    if is_group {
        read.values = Words(bytes.take_array(count.checked_mul(words)?, 8)?);
    } else {
        bytes.take_array(words - 1, 8)?;
        read.values = Words(values.take(8)?);
    }
    Some(read)
}

fn branches<'a>(kind: u64, bytes: &mut Bytes<'a>, index_always: bool) -> Option<Branches<'a>> {
    let has = |bit: u32| kind & u64::from(bit) != 0;
    let count = bytes.u64()?;
    let has_index = has(sys::PERF_SAMPLE_BRANCH_HW_INDEX) && (index_always || count > 0);
    let hw_index = if has_index { Some(bytes.u64()?) } else { None };
    let entries = Words(bytes.take_array(count, 24)?);
    let counters = if has(sys::PERF_SAMPLE_BRANCH_COUNTERS) {
        Some(Words(bytes.take_array(count, 8)?))
    } else {
        None
    };
    Some(Branches {
        hw_index,
        entries,
        counters,
    })
}

fn regs<'a>(mask: u64, bytes: &mut Bytes<'a>) -> Option<Regs<'a>> {
    let abi = bytes.u64()?;
    let count = if abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_NONE) {
        0
    } else {
        mask.count_ones()
    };
    let values = Words(bytes.take_array(count.into(), 8)?);
    Some(Regs { abi, values })
}

fn user_stack<'a>(bytes: &mut Bytes<'a>) -> Option<UserStack<'a>> {
    let len = bytes.u64()?;
    if len == 0 {
        return Some(UserStack::default());
    }
    Some(UserStack {
        bytes: bytes.take_u64(len)?,
        filled: bytes.u64()?,
    })
}

#[cfg(test)]
mod tests;
