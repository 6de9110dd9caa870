//! Process records: from the perf subsystem's format to [`SidebandEvent`]. Pure.
//!
//! Events are opened with `sample_id_all` and `PERF_SAMPLE_TID | TIME | CPU`, so every record ends with 24 bytes: pid
//! u32, tid u32, time u64, cpu u32, zero u32. Source: perf_event_open(2); include/uapi/linux/perf_event.h.

use perf_event_open_sys::bindings as sys;

use crate::binary::mapping::{Backing, BuildId, FileFacts, FileIdentity, Mapping};
use crate::perf::layout::Layout;
use crate::perf::record::RawRecord;
use crate::perf::record::{self, MappedAs, Mmap, RecordKind};
use crate::stream::text::escape;
use crate::units::{Cpu, KtimeNs, Pid, Tid};

/// Pid of kernel mappings in perf's records.
const KERNEL: u32 = u32::MAX;

const PROT_EXEC: u32 = 4;

/// An event in the life of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidebandEvent {
    pub time: KtimeNs,
    /// The CPU it happened on.
    pub cpu: Cpu,
    pub what: SidebandKind,
}

/// Kinds of [`SidebandEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidebandKind {
    /// Code was mapped, or a mapping was made executable. Unmapping is not reported.
    Mapped {
        pid: Pid,
        /// Thread that did it.
        tid: Tid,
        mapping: Mapping,
    },
    /// A thread was renamed.
    Comm {
        pid: Pid,
        tid: Tid,
        /// Because of an exec: the old mappings are gone, and the new ones come next.
        exec: bool,
        /// Name, up to 15 bytes.
        name: Box<str>,
    },
    /// A process has replaced its program, while its open visits go on. Made by imports, where marks come from a
    /// table and not from the program.
    Replaced {
        pid: Pid,
        /// An unused pid under which the earlier addresses are kept.
        earlier: Pid,
    },
    /// A process or thread was created.
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
    Exit { pid: Pid, tid: Tid },
    /// The ring was full: events on that CPU are missing before this one.
    Lost {
        /// Number of events.
        records: u64,
    },
}

/// Layout of the trailer of the records of these events.
const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU) as u64,
    read_format: 0,
    branch_sample_type: 0,
    regs_user: 0,
    regs_intr: 0,
    sample_id_all: true,
};

/// Decodes one record; `None` for unused kinds, data mappings, and records cut short.
///
/// Cost: one allocation for names and paths.
#[must_use]
pub fn decode(record: RawRecord<'_>) -> Option<SidebandEvent> {
    let decoded = record::decode(&LAYOUT, record).ok()?;
    Some(SidebandEvent {
        time: KtimeNs(decoded.id.time?),
        cpu: Cpu(u16::try_from(decoded.id.cpu?).ok()?),
        what: SidebandKind::of(&decoded.kind, record.misc)?,
    })
}

impl SidebandKind {
    /// Converts a perf record; `None` for other records, and mappings of data or of the kernel.
    #[must_use]
    pub fn of(kind: &RecordKind<'_>, misc: u16) -> Option<Self> {
        Some(match *kind {
            RecordKind::Mmap(mmap) => mapped(&mmap, misc)?,
            RecordKind::Comm {
                pid,
                tid,
                exec,
                name,
            } => Self::Comm {
                pid: Pid(pid),
                tid: Tid(tid),
                exec,
                name: escape(name, false).into(),
            },
            RecordKind::Fork(task) => Self::Fork {
                pid: Pid(task.pid),
                tid: Tid(task.tid),
                parent: Pid(task.parent),
                parent_tid: Tid(task.parent_tid),
            },
            RecordKind::Exit(task) => Self::Exit {
                pid: Pid(task.pid),
                tid: Tid(task.tid),
            },
            RecordKind::Lost { records } => Self::Lost { records },
            _ => return None,
        })
    }
}

fn mapped(mmap: &Mmap<'_>, misc: u16) -> Option<SidebandKind> {
    let is_code = match mmap.protection {
        Some(protection) => protection & PROT_EXEC != 0,
        None => u32::from(misc) & sys::PERF_RECORD_MISC_MMAP_DATA == 0,
    };
    let end = mmap.start.checked_add(mmap.len)?;
    if !is_code || mmap.len == 0 || mmap.pid == KERNEL {
        return None;
    }
    let facts = match mmap.file {
        MappedAs::Unknown => FileFacts::default(),
        MappedAs::Inode {
            major,
            minor,
            inode,
        } => FileFacts {
            identity: Some(FileIdentity {
                major,
                minor,
                inode,
            }),
            build_id: None,
        },
        MappedAs::BuildId(id) => FileFacts {
            identity: None,
            build_id: BuildId::new(id),
        },
    };
    Some(SidebandKind::Mapped {
        pid: Pid(mmap.pid),
        tid: Tid(mmap.tid),
        mapping: Mapping {
            start: mmap.start,
            end,
            offset: mmap.offset,
            backing: Backing::from_kernel_name(mmap.name, || facts),
        },
    })
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
        /// Any bytes of any kind decode without a panic, and cut records never give more than is there.
        #[test]
        fn any_bytes(kind in 0u32..24, misc: u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let event = decode(RawRecord { kind, misc, body: &body });
            prop_assert!(event.is_none() || body.len() >= LAYOUT.trailer());
            if let Some(SidebandEvent { what: SidebandKind::Mapped { mapping, .. }, .. }) = event {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
