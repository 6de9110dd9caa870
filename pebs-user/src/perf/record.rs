//! Records of the perf subsystem: from bytes to fields, lent. Pure.
//!
//! The same for a `perf.data` file and for the ring of an event that is open here.

use perf_event_open_sys::bindings as sys;

use super::bytes::Bytes;
use super::layout::{Layout, SampleId};
use super::sample::{Malformed, Sample};

/// One record as it stands in a ring or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The record that bytes begin with, and what follows it; `None` if it is cut, or no record can begin so.
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

    /// Of a sample: whether its ip is exact, and whether it was taken in kernel mode.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> (bool, bool) {
        let exact = self.has(sys::PERF_RECORD_MISC_EXACT_IP);
        (exact, matches!(self.mode(), Mode::Kernel))
    }

    /// In which mode the CPU was.
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
    /// The kernel did not say.
    Unknown,
    Kernel,
    User,
    Hypervisor,
    /// A guest, in either mode: addresses are the guest's.
    Guest,
}

/// A record's fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    /// When, where, of which event. Of a sample, from its own fields.
    pub id: SampleId,
    pub what: What<'a>,
}

impl Record<'_> {
    /// When, in ns on the recording's clock; `None` if it does not say, as what perf makes up has time 0.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        let own = match self.what {
            What::Fork(task) | What::Exit(task) => Some(task.time),
            _ => None,
        };
        self.id.time.or(own).filter(|time| *time > 0)
    }
}

/// Kinds of [`Record`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    Sample(Sample<'a>),
    /// LOST: the ring was full.
    Lost {
        /// Records lost since the one before in this ring.
        records: u64,
    },
    /// LOST_SAMPLES: the hardware's buffer was full.
    LostSamples {
        /// Samples lost.
        records: u64,
    },
    /// THROTTLE, UNTHROTTLE.
    Throttle {
        /// Whether the event is stopped now; else it goes on.
        stopped: bool,
        /// ns on the perf clock, whatever clock the event's other times are on.
        time: u64,
        /// The event's number.
        id: u64,
        /// The number of the event that was opened.
        stream_id: u64,
    },
    /// MMAP, MMAP2.
    Mmap(Mmap<'a>),
    Comm {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// It runs another program now.
        exec: bool,
        /// The name, up to 15 bytes.
        name: &'a [u8],
    },
    Fork(Task),
    Exit(Task),
    /// SWITCH, SWITCH_CPU_WIDE: the record's thread leaves or takes its CPU.
    Switch {
        /// It leaves.
        out: bool,
        /// It leaves though it could go on.
        preempted: bool,
        /// Process and thread on the other side; only of SWITCH_CPU_WIDE.
        other: Option<(u32, u32)>,
    },
    /// Any other kind, in bytes.
    Other {
        /// `PERF_RECORD_*`.
        kind: u32,
        body: &'a [u8],
    },
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Process; `u32::MAX`: the kernel's own.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// What the kernel says about the file.
    pub file: MappedAs<'a>,
    /// `PROT_*`; `None` of an MMAP, which says executable or not by its header.
    pub protection: Option<u32>,
    /// Path, or the kernel's name for what is no file.
    pub name: &'a [u8],
}

/// Which file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedAs<'a> {
    /// Unknown.
    Unknown,
    /// By device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        inode: u64,
    },
    BuildId(&'a [u8]),
}

/// Birth or death of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Parent process; for a thread its own.
    pub parent: u32,
    /// Thread.
    pub tid: u32,
    /// Thread that made it.
    pub parent_tid: u32,
    /// ns.
    pub time: u64,
}

/// Reads a record. No allocation.
///
/// # Errors
/// If a record of a known kind is too short, or a sample's fields do not end where it ends.
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
        let what = What::Sample(sample);
        return Ok(Record { id, what });
    }
    let (body, id) = SampleId::split(layout, raw.body).ok_or(Malformed::Short)?;
    let what = what(raw, body).ok_or(Malformed::Short)?;
    Ok(Record { id, what })
}

fn what<'a>(raw: RawRecord<'a>, body: &'a [u8]) -> Option<What<'a>> {
    let mut bytes = Bytes(body);
    Some(match raw.kind {
        sys::PERF_RECORD_LOST => {
            let _id = bytes.u64()?;
            What::Lost {
                records: bytes.u64()?,
            }
        }
        sys::PERF_RECORD_LOST_SAMPLES => What::LostSamples {
            records: bytes.u64()?,
        },
        sys::PERF_RECORD_THROTTLE | sys::PERF_RECORD_UNTHROTTLE => What::Throttle {
            stopped: raw.kind == sys::PERF_RECORD_THROTTLE,
            time: bytes.u64()?,
            id: bytes.u64()?,
            stream_id: bytes.u64()?,
        },
        sys::PERF_RECORD_MMAP | sys::PERF_RECORD_MMAP2 => What::Mmap(mmap(raw, &mut bytes)?),
        sys::PERF_RECORD_COMM => {
            let (pid, tid) = bytes.pair()?;
            What::Comm {
                pid,
                tid,
                exec: raw.has(sys::PERF_RECORD_MISC_COMM_EXEC),
                name: bytes.text(),
            }
        }
        sys::PERF_RECORD_FORK => What::Fork(task(&mut bytes)?),
        sys::PERF_RECORD_EXIT => What::Exit(task(&mut bytes)?),
        sys::PERF_RECORD_SWITCH | sys::PERF_RECORD_SWITCH_CPU_WIDE => {
            let other = if raw.kind == sys::PERF_RECORD_SWITCH_CPU_WIDE {
                Some(bytes.pair()?)
            } else {
                None
            };
            What::Switch {
                out: raw.has(sys::PERF_RECORD_MISC_SWITCH_OUT),
                preempted: raw.has(sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT),
                other,
            }
        }
        kind => What::Other { kind, body },
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

    fn read(kind: u32, misc: u32, body: &[u8]) -> Result<What<'_>, Malformed> {
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
        Ok(decoded.what)
    }

    /// Losses, throttling and switches; those that are cut are errors; unknown kinds stay as they are.
    #[test]
    fn kinds() {
        let two = body(&[5, 77]);
        assert_eq!(
            read(sys::PERF_RECORD_LOST, 0, &two),
            Ok(What::Lost { records: 77 })
        );
        let one = body(&[78]);
        let lost = What::LostSamples { records: 78 };
        assert_eq!(read(sys::PERF_RECORD_LOST_SAMPLES, 0, &one), Ok(lost));
        assert_eq!(read(sys::PERF_RECORD_LOST, 0, &one), Err(Malformed::Short));
        let three = body(&[98, 5, 6]);
        for (kind, stopped) in [
            (sys::PERF_RECORD_THROTTLE, true),
            (sys::PERF_RECORD_UNTHROTTLE, false),
        ] {
            let (time, id, stream_id) = (98, 5, 6);
            let throttle = What::Throttle {
                stopped,
                time,
                id,
                stream_id,
            };
            assert_eq!(read(kind, 0, &three), Ok(throttle));
        }
        let none = body(&[]);
        let preempted = sys::PERF_RECORD_MISC_SWITCH_OUT | sys::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        let out = What::Switch {
            out: true,
            preempted: true,
            other: None,
        };
        assert_eq!(read(sys::PERF_RECORD_SWITCH, preempted, &none), Ok(out));
        let other = body(&[20 | 21 << 32]);
        let wide = What::Switch {
            out: false,
            preempted: false,
            other: Some((20, 21)),
        };
        assert_eq!(read(sys::PERF_RECORD_SWITCH_CPU_WIDE, 0, &other), Ok(wide));
        let unknown = What::Other {
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
