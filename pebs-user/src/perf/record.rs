//! Decodes records of the perf subsystem, borrowing their bytes. Pure.
//!
//! Used for `perf.data` files and for the rings of events opened here.

use perf_event_open_sys::bindings as sys;

use super::bytes::Bytes;
use super::layout::{Layout, SampleId};
use super::sample::{Malformed, Sample};

/// One record, as in a ring or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// Bytes behind the header.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Splits the first record off `bytes`; `None` if it is cut or its size is impossible.
    ///
    /// Source: `struct perf_event_header`, include/uapi/linux/perf_event.h.
    #[inline(always)]
    #[must_use]
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        const HEADER: usize = 8;
        let header = bytes.first_chunk::<HEADER>()?;
        let [a, b, c, d, e, f, g, h] = *header;
        let size = usize::from(u16::from_ne_bytes([g, h]));
        let body = bytes.get(HEADER..size)?;
        let record = Self {
            kind: u32::from_ne_bytes([a, b, c, d]),
            misc: u16::from_ne_bytes([e, f]),
            body,
        };
        Some((record, &bytes[size..]))
    }

    /// Whether the header has a `PERF_RECORD_MISC_*` bit.
    #[inline]
    #[must_use]
    pub const fn has(&self, bit: u32) -> bool {
        self.misc as u32 & bit != 0
    }

    /// Flags of a sample: whether its ip is exact, and whether it was taken in kernel mode.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> (bool, bool) {
        let exact = self.has(sys::PERF_RECORD_MISC_EXACT_IP);
        (exact, matches!(self.mode(), Mode::Kernel))
    }

    /// Mode of the CPU.
    #[inline]
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.misc as u32 & sys::PERF_RECORD_MISC_CPUMODE_MASK {
            sys::PERF_RECORD_MISC_KERNEL => Mode::Kernel,
            sys::PERF_RECORD_MISC_USER => Mode::User,
            sys::PERF_RECORD_MISC_HYPERVISOR => Mode::Hypervisor,
            sys::PERF_RECORD_MISC_GUEST_KERNEL | sys::PERF_RECORD_MISC_GUEST_USER => Mode::Guest,
            _ => Mode::Unknown,
        }
    }
}

/// Mode of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not recorded.
    Unknown,
    Kernel,
    User,
    Hypervisor,
    /// A guest, in either mode: addresses are the guest's.
    Guest,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// Time, place and event. Of a sample, from its own fields.
    pub id: SampleId,
    pub kind: RecordKind<'a>,
}

impl Record<'_> {
    /// Time on the recording's clock, ns; `None` if not recorded: synthesized records have time 0.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        let own = match self.kind {
            RecordKind::Fork(task) | RecordKind::Exit(task) => Some(task.time),
            _ => None,
        };
        self.id.time.or(own).filter(|time| *time > 0)
    }
}

/// Kinds of [`Record`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordKind<'a> {
    Sample(Sample<'a>),
    /// LOST: the ring was full.
    Lost {
        /// Records lost since the last such record in this ring.
        records: u64,
    },
    /// LOST_SAMPLES: the hardware's buffer was full.
    LostSamples {
        /// Number of samples lost.
        records: u64,
    },
    /// THROTTLE, UNTHROTTLE.
    Throttle {
        /// Whether the event is stopped now, or restarted.
        stopped: bool,
        /// Time on the perf clock, ns, even if the event's other times are on another clock.
        time: u64,
        /// Id of the event.
        id: u64,
        /// Id of the opened event.
        stream_id: u64,
    },
    /// MMAP, MMAP2.
    Mmap(Mmap<'a>),
    Comm {
        pid: u32,
        tid: u32,
        /// Whether it is because of an exec.
        exec: bool,
        /// Name, up to 15 bytes.
        name: &'a [u8],
    },
    Fork(Task),
    Exit(Task),
    /// SWITCH, SWITCH_CPU_WIDE: the record's thread leaves or takes its CPU.
    Switch {
        /// Whether it leaves the CPU.
        out: bool,
        /// Whether it was preempted.
        preempted: bool,
        /// Process and thread that it takes over from or hands over to; only of SWITCH_CPU_WIDE.
        other: Option<(u32, u32)>,
    },
    /// Any other kind, undecoded.
    Other {
        /// `PERF_RECORD_*`.
        kind: u32,
        body: &'a [u8],
    },
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Process; `u32::MAX` for the kernel's own mappings.
    pub pid: u32,
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Identity of the file.
    pub file: MappedAs<'a>,
    /// `PROT_*`; `None` for MMAP, whose header only distinguishes code from data.
    pub protection: Option<u32>,
    /// Path, or the kernel's name for a mapping without a file.
    pub name: &'a [u8],
}

/// Identity of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedAs<'a> {
    Unknown,
    /// Device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        inode: u64,
    },
    BuildId(&'a [u8]),
}

/// Creation or end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub pid: u32,
    /// Parent process; for a thread its own.
    pub parent: u32,
    pub tid: u32,
    /// Thread that created it.
    pub parent_tid: u32,
    /// Time on the recording's clock, ns.
    pub time: u64,
}

/// Decodes a record. No allocation.
///
/// # Errors
/// If a record of a known kind is too short, or a sample's length does not match its fields.
pub fn decode<'a>(layout: &Layout, raw: RawRecord<'a>) -> Result<Record<'a>, Malformed> {
    if raw.kind == sys::PERF_RECORD_SAMPLE {
        let sample = Sample::decode(layout, raw.body)?;
        let id = SampleId {
            pid_tid: sample.pid_tid,
            time: sample.time,
            id: sample.id,
            stream_id: sample.stream_id,
            cpu: sample.cpu,
        };
        let kind = RecordKind::Sample(sample);
        return Ok(Record { id, kind });
    }
    let (body, id) = SampleId::split(layout, raw.body).ok_or(Malformed::Short)?;
    let kind = kind(raw, body).ok_or(Malformed::Short)?;
    Ok(Record { id, kind })
}

fn kind<'a>(raw: RawRecord<'a>, body: &'a [u8]) -> Option<RecordKind<'a>> {
    let mut bytes = Bytes(body);
    Some(match raw.kind {
        sys::PERF_RECORD_LOST => {
            let _id = bytes.u64()?;
            RecordKind::Lost {
                records: bytes.u64()?,
            }
        }
        sys::PERF_RECORD_LOST_SAMPLES => RecordKind::LostSamples {
            records: bytes.u64()?,
        },
        sys::PERF_RECORD_THROTTLE | sys::PERF_RECORD_UNTHROTTLE => RecordKind::Throttle {
            stopped: raw.kind == sys::PERF_RECORD_THROTTLE,
            time: bytes.u64()?,
            id: bytes.u64()?,
            stream_id: bytes.u64()?,
        },
        sys::PERF_RECORD_MMAP | sys::PERF_RECORD_MMAP2 => RecordKind::Mmap(mmap(raw, &mut bytes)?),
        sys::PERF_RECORD_COMM => {
            let (pid, tid) = bytes.pair()?;
            RecordKind::Comm {
                pid,
                tid,
                exec: raw.has(sys::PERF_RECORD_MISC_COMM_EXEC),
                name: bytes.text(),
            }
        }
        sys::PERF_RECORD_FORK => RecordKind::Fork(task(&mut bytes)?),
        sys::PERF_RECORD_EXIT => RecordKind::Exit(task(&mut bytes)?),
        sys::PERF_RECORD_SWITCH | sys::PERF_RECORD_SWITCH_CPU_WIDE => {
            let other = if raw.kind == sys::PERF_RECORD_SWITCH_CPU_WIDE {
                Some(bytes.pair()?)
            } else {
                None
            };
            RecordKind::Switch {
                out: raw.has(sys::PERF_RECORD_MISC_SWITCH_OUT),
                preempted: raw.has(sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT),
                other,
            }
        }
        kind => RecordKind::Other { kind, body },
    })
}

/// u32 pid, tid; u64 addr, len, pgoff; of MMAP2 then u32 major, minor, u64 inode, generation, or u8 length, u8, u16,
/// `u8 build_id[20]`, and u32 prot, flags; `char name[]`.
fn mmap<'a>(raw: RawRecord<'a>, bytes: &mut Bytes<'a>) -> Option<Mmap<'a>> {
    let (pid, tid) = bytes.pair()?;
    let (start, len, offset) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
    let (mut file, mut protection) = (MappedAs::Unknown, None);
    if raw.kind == sys::PERF_RECORD_MMAP2 {
        let mut which = Bytes(bytes.take(24)?);
        file = if raw.has(sys::PERF_RECORD_MISC_MMAP_BUILD_ID) {
            let len = which.u8()?;
            which.take(3)?;
            MappedAs::BuildId(which.take(usize::from(len)).unwrap_or_default())
        } else {
            MappedAs::Inode {
                major: which.u32()?,
                minor: which.u32()?,
                inode: which.u64()?,
            }
        };
        protection = Some(bytes.pair()?.0);
    }
    Some(Mmap {
        pid,
        tid,
        start,
        len,
        offset,
        file,
        protection,
        name: bytes.text(),
    })
}

/// u32 pid, ppid, tid, ptid; u64 time.
fn task(bytes: &mut Bytes<'_>) -> Option<Task> {
    let (pid, parent) = bytes.pair()?;
    let (tid, parent_tid) = bytes.pair()?;
    Some(Task {
        pid,
        parent,
        tid,
        parent_tid,
        time: bytes.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        sample_type: (sys::PERF_SAMPLE_TID
            | sys::PERF_SAMPLE_TIME
            | sys::PERF_SAMPLE_CPU
            | sys::PERF_SAMPLE_STREAM_ID
            | sys::PERF_SAMPLE_ID) as u64,
        read_format: 0,
        branch_sample_type: 0,
        regs_user: 0,
        regs_intr: 0,
        sample_id_all: true,
    };

    /// A body: words, then thread 11 of process 10, time 99, id 5, stream id 6, cpu 3.
    fn body(words: &[u64]) -> Vec<u8> {
        let end = [10 | 11 << 32, 99, 5, 6, 3];
        let words = words.iter().chain(&end);
        words.flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn read(kind: u32, misc: u32, body: &[u8]) -> Result<RecordKind<'_>, Malformed> {
        let misc = misc as u16;
        let decoded = decode(&LAYOUT, RawRecord { kind, misc, body })?;
        let id = SampleId {
            pid_tid: Some((10, 11)),
            time: Some(99),
            id: Some(5),
            stream_id: Some(6),
            cpu: Some(3),
        };
        assert_eq!(decoded.id, id);
        assert_eq!(LAYOUT.id_of(kind, body), Some(5));
        Ok(decoded.kind)
    }

    /// Losses, throttling and switches; truncated ones are errors; unknown kinds are kept undecoded.
    #[test]
    fn kinds() {
        let two = body(&[5, 77]);
        assert_eq!(
            read(sys::PERF_RECORD_LOST, 0, &two),
            Ok(RecordKind::Lost { records: 77 })
        );
        let one = body(&[78]);
        let lost = RecordKind::LostSamples { records: 78 };
        assert_eq!(read(sys::PERF_RECORD_LOST_SAMPLES, 0, &one), Ok(lost));
        assert_eq!(read(sys::PERF_RECORD_LOST, 0, &one), Err(Malformed::Short));
        let three = body(&[98, 5, 6]);
        for (kind, stopped) in [
            (sys::PERF_RECORD_THROTTLE, true),
            (sys::PERF_RECORD_UNTHROTTLE, false),
        ] {
            let (time, id, stream_id) = (98, 5, 6);
            let throttle = RecordKind::Throttle {
                stopped,
                time,
                id,
                stream_id,
            };
            assert_eq!(read(kind, 0, &three), Ok(throttle));
        }
        let none = body(&[]);
        let preempted = sys::PERF_RECORD_MISC_SWITCH_OUT | sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        let out = RecordKind::Switch {
            out: true,
            preempted: true,
            other: None,
        };
        assert_eq!(read(sys::PERF_RECORD_SWITCH, preempted, &none), Ok(out));
        let other = body(&[20 | 21 << 32]);
        let wide = RecordKind::Switch {
            out: false,
            preempted: false,
            other: Some((20, 21)),
        };
        assert_eq!(read(sys::PERF_RECORD_SWITCH_CPU_WIDE, 0, &other), Ok(wide));
        let unknown = RecordKind::Other {
            kind: 60,
            body: &78u64.to_ne_bytes(),
        };
        assert_eq!(read(60, 0, &one), Ok(unknown));
        assert_eq!(
            decode(
                &LAYOUT,
                RawRecord {
                    kind: 60,
                    misc: 0,
                    body: &[0; 39]
                }
            ),
            Err(Malformed::Short)
        );
    }
}
