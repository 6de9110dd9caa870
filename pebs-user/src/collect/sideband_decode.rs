//! Records about processes: from bytes to events. Pure.
//!
//! All events are opened with `sample_id_all` and `PERF_SAMPLE_TID | TIME | CPU`, so that 24 bytes end every record:
//! pid u32, tid u32, time u64, cpu u32, zero u32. Source: perf_event_open(2); include/uapi/linux/perf_event.h.

use perf_event_open_sys::bindings as sys;

use super::perf_ring::RawRecord;
use crate::symbolize::mapping::{Backing, BuildId, FileFacts, FileIdentity, Mapping};
use crate::units::{Cpu, KtimeNs, Pid, Tid};

/// Bytes at the end of every record.
const TRAILER: usize = 24;

/// `PROT_EXEC`.
const PROT_EXEC: u32 = 4;

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidebandEvent {
    /// When.
    pub time: KtimeNs,
    /// The CPU it happened on.
    pub cpu: Cpu,
    /// What.
    pub what: SidebandKind,
}

/// Kinds of [`SidebandEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidebandKind {
    /// Code was mapped, or a mapping was made executable. Unmapping is not told.
    Mapped {
        /// Process.
        pid: Pid,
        /// Thread that did it.
        tid: Tid,
        /// The mapping.
        mapping: Mapping,
    },
    /// A thread has a new name.
    Comm {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Because it runs another program: its mappings are gone, and its new ones come next.
        exec: bool,
        /// The name, up to 15 bytes.
        name: Box<str>,
    },
    /// A process or thread was made.
    Fork {
        /// New process; the parent's for a thread.
        pid: Pid,
        /// New thread.
        tid: Tid,
        /// Parent process.
        parent: Pid,
        /// Parent thread.
        parent_tid: Tid,
    },
    /// A thread has ended.
    Exit {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The ring was full: events on that CPU are missing before this one.
    Lost {
        /// How many.
        records: u64,
    },
}

/// Decodes one record; `None` for kinds that are of no use here, data mappings, and records cut short.
///
/// Cost: one allocation for names and paths.
#[must_use]
pub fn decode(record: RawRecord<'_>) -> Option<SidebandEvent> {
    let split = record.body.len().checked_sub(TRAILER)?;
    let (body, trailer) = record.body.split_at(split);
    let mut body = Bytes(body);
    let what = match record.kind {
        sys::PERF_RECORD_MMAP => mmap(&mut body, record.misc)?,
        sys::PERF_RECORD_MMAP2 => mmap2(&mut body, record.misc)?,
        sys::PERF_RECORD_COMM => comm(&mut body, record.misc)?,
        sys::PERF_RECORD_FORK => fork(&mut body)?,
        sys::PERF_RECORD_EXIT => exit(&mut body)?,
        sys::PERF_RECORD_LOST => lost(&mut body)?,
        _ => return None,
    };
    let mut trailer = Bytes(trailer);
    let _pid_and_tid = trailer.u64()?;
    Some(SidebandEvent {
        time: KtimeNs(trailer.u64()?),
        cpu: Cpu(u16::try_from(trailer.u32()?).ok()?),
        what,
    })
}

/// u32 pid, tid; u64 addr, len, pgoff; char name[]. Of kernels that have no MMAP2.
fn mmap(body: &mut Bytes<'_>, misc: u16) -> Option<SidebandKind> {
    if u32::from(misc) & sys::PERF_RECORD_MISC_MMAP_DATA != 0 {
        return None;
    }
    let place = Place::read(body)?;
    place.mapped(body.text(), FileFacts::default())
}

/// As MMAP; before the name: u32 major, minor, u64 inode, generation, or u8 length, u8, u16, u8 build_id[20];
/// then u32 prot, flags.
fn mmap2(body: &mut Bytes<'_>, misc: u16) -> Option<SidebandKind> {
    let place = Place::read(body)?;
    let mut which = Bytes(body.take(24)?);
    let facts = if u32::from(misc) & sys::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        let len = usize::from(*which.take(4)?.first()?);
        FileFacts {
            identity: None,
            build_id: which.0.get(..len).and_then(BuildId::new),
        }
    } else {
        let (major, minor) = (which.u32()?, which.u32()?);
        let inode = which.u64()?;
        let identity = FileIdentity {
            major,
            minor,
            inode,
        };
        FileFacts {
            identity: Some(identity),
            build_id: None,
        }
    };
    let (protection, _flags) = (body.u32()?, body.u32()?);
    if protection & PROT_EXEC == 0 {
        return None;
    }
    place.mapped(body.text(), facts)
}

/// What MMAP and MMAP2 begin with.
struct Place {
    pid: Pid,
    tid: Tid,
    start: u64,
    len: u64,
    offset: u64,
}

impl Place {
    fn read(body: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            pid: Pid(body.u32()?),
            tid: Tid(body.u32()?),
            start: body.u64()?,
            len: body.u64()?,
            offset: body.u64()?,
        })
    }

    fn mapped(self, name: &[u8], facts: FileFacts) -> Option<SidebandKind> {
        let Self {
            pid,
            tid,
            start,
            len,
            offset,
        } = self;
        let end = start.checked_add(len)?;
        (len > 0).then(|| SidebandKind::Mapped {
            pid,
            tid,
            mapping: Mapping {
                start,
                end,
                offset,
                backing: Backing::from_kernel_name(name, || facts),
            },
        })
    }
}

/// u32 pid, tid; char name[].
fn comm(body: &mut Bytes<'_>, misc: u16) -> Option<SidebandKind> {
    Some(SidebandKind::Comm {
        pid: Pid(body.u32()?),
        tid: Tid(body.u32()?),
        exec: u32::from(misc) & sys::PERF_RECORD_MISC_COMM_EXEC != 0,
        name: String::from_utf8_lossy(body.text()).into(),
    })
}

/// u32 pid, ppid, tid, ptid; u64 time.
fn fork(body: &mut Bytes<'_>) -> Option<SidebandKind> {
    let (pid, parent) = (Pid(body.u32()?), Pid(body.u32()?));
    let (tid, parent_tid) = (Tid(body.u32()?), Tid(body.u32()?));
    Some(SidebandKind::Fork {
        pid,
        tid,
        parent,
        parent_tid,
    })
}

/// As FORK.
fn exit(body: &mut Bytes<'_>) -> Option<SidebandKind> {
    let (pid, _parent) = (Pid(body.u32()?), body.u32()?);
    let tid = Tid(body.u32()?);
    Some(SidebandKind::Exit { pid, tid })
}

/// u64 id, lost.
fn lost(body: &mut Bytes<'_>) -> Option<SidebandKind> {
    let _id = body.u64()?;
    Some(SidebandKind::Lost {
        records: body.u64()?,
    })
}

/// Bytes not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Up to the first zero byte.
    fn text(&self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        &self.0[..end.unwrap_or(self.0.len())]
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Builds a record's body: words, then bytes, then the trailer of time 99 on cpu 3.
    fn body(words: &[u64], rest: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend(rest);
        for word in [pair(1, 1), 99, pair(3, 0)] {
            body.extend(word.to_ne_bytes());
        }
        body
    }

    /// Two u32 in the order of memory.
    fn pair(first: u32, second: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    fn what(kind: u32, misc: u32, body: &[u8]) -> Option<SidebandKind> {
        let misc = misc as u16;
        let event = decode(RawRecord { kind, misc, body })?;
        assert_eq!((event.time, event.cpu), (KtimeNs(99), Cpu(3)));
        Some(event.what)
    }

    /// An executable mapping with device and inode, and the same with a build id.
    #[test]
    fn mappings() {
        let head = [pair(10, 11), 0x1000, 0x200, 0x3000];
        let (exec, data) = (pair(5, 2), pair(3, 2));
        let with_inode = [&head[..], &[pair(8, 1), 42, 0, exec]].concat();
        let name = b"/bin/x\0\0";
        let Some(SidebandKind::Mapped { pid, tid, mapping }) =
            what(sys::PERF_RECORD_MMAP2, 0, &body(&with_inode, name))
        else {
            panic!("a mapping");
        };
        assert_eq!((pid, tid), (Pid(10), Tid(11)));
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x1000, 0x1200, 0x3000)
        );
        let Backing::File(file) = mapping.backing else {
            panic!("a file");
        };
        assert_eq!(&*file.path, Path::new("/bin/x"));
        assert_eq!(file.identity.unwrap().inode, 42);

        let id = [pair(20, u32::MAX), u64::MAX, u64::MAX, exec];
        let with_id = [&head[..], &id].concat();
        let misc = sys::PERF_RECORD_MISC_MMAP_BUILD_ID;
        let Some(SidebandKind::Mapped { mapping, .. }) =
            what(sys::PERF_RECORD_MMAP2, misc, &body(&with_id, name))
        else {
            panic!("a mapping");
        };
        let Backing::File(file) = mapping.backing else {
            panic!("a file");
        };
        assert_eq!(file.identity, None);
        assert_eq!(file.build_id, BuildId::new(&[0xff; 20]));

        let not_code = [&head[..], &[0, 0, 0, data]].concat();
        assert_eq!(
            what(sys::PERF_RECORD_MMAP2, 0, &body(&not_code, name)),
            None
        );
        let Some(SidebandKind::Mapped { .. }) = what(sys::PERF_RECORD_MMAP, 0, &body(&head, name))
        else {
            panic!("a mapping");
        };
        let wraps = [pair(10, 11), u64::MAX, 0x200, 0];
        assert_eq!(what(sys::PERF_RECORD_MMAP, 0, &body(&wraps, name)), None);
    }

    /// Names, births, deaths and losses.
    #[test]
    fn lives() {
        let comm = body(&[pair(10, 11)], b"worker\0\0");
        let exec = sys::PERF_RECORD_MISC_COMM_EXEC;
        assert_eq!(
            what(sys::PERF_RECORD_COMM, exec, &comm),
            Some(SidebandKind::Comm {
                pid: Pid(10),
                tid: Tid(11),
                exec: true,
                name: "worker".into()
            })
        );
        let task = body(&[pair(20, 10), pair(21, 11), 5], b"");
        assert_eq!(
            what(sys::PERF_RECORD_FORK, 0, &task),
            Some(SidebandKind::Fork {
                pid: Pid(20),
                tid: Tid(21),
                parent: Pid(10),
                parent_tid: Tid(11)
            })
        );
        assert_eq!(
            what(sys::PERF_RECORD_EXIT, 0, &task),
            Some(SidebandKind::Exit {
                pid: Pid(20),
                tid: Tid(21)
            })
        );
        let lost = body(&[1, 77], b"");
        assert_eq!(
            what(sys::PERF_RECORD_LOST, 0, &lost),
            Some(SidebandKind::Lost { records: 77 })
        );
    }

    proptest! {
        /// Any bytes of any kind decode without a panic, and cut records to nothing that is not there.
        #[test]
        fn any_bytes(kind in 0u32..24, misc: u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let event = decode(RawRecord { kind, misc, body: &body });
            prop_assert!(event.is_none() || body.len() >= TRAILER);
            if let Some(SidebandEvent { what: SidebandKind::Mapped { mapping, .. }, .. }) = event {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
