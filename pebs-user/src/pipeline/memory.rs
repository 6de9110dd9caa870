//! Holds the memory accesses of samples, from decoding to their table.
//!
//! Samples travel without them, so that those of other events cost nothing. An access waits here, by thread, time,
//! event and ip, until its sample is written or left out.

use std::fmt::Display;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::arch::machine;
use crate::pmu::memory::{Blocked, Place, Snoop, Tlb};
use crate::pmu::watch::Watch;
use crate::store::schema::MemoryRow;
use crate::stream::access::Access;
use crate::stream::sample::BareSample;
use crate::symbolize::{InstructionAccess, Symbolizer};
use crate::units::{EventId, FunctionId, Ip, Pid, Tid, TraceNs};

type Key = (Tid, TraceNs, EventId, Ip);

fn key(tid: Tid, sample: &BareSample) -> Key {
    (tid, sample.time, sample.kind.event(), sample.ip)
}

/// Accesses of samples that are not yet written.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    /// The first access of each key.
    held: FxHashMap<Key, Access>,
    /// Further accesses of the same key, in order.
    more: Vec<(Key, Access)>,
    /// Maximum number of accesses: a sample dropped on its way leaves its access here.
    most: usize,
    /// Accesses refused because `most` were held.
    pub left_out: u64,
    names: Names,
}

impl Accesses {
    pub(super) fn new(max_samples: usize) -> Self {
        Self {
            most: max_samples,
            ..Self::default()
        }
    }

    /// Whether no access is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps a sample's access until the sample is written.
    pub(super) fn hold(&mut self, tid: Tid, sample: &BareSample, access: Access) {
        if self.held.len() + self.more.len() >= self.most {
            self.left_out += 1;
            return;
        }
        let key = key(tid, sample);
        if let Some(first) = self.held.insert(key, access) {
            // Records of the same instant are returned in their order.
            self.held.insert(key, first);
            self.more.push((key, access));
        }
    }

    /// Removes and returns a sample's access.
    pub(super) fn take(&mut self, tid: Tid, sample: &BareSample) -> Option<Access> {
        let key = key(tid, sample);
        let access = self.held.remove(&key)?;
        if !self.more.is_empty()
            && let Some(next) = self.more.iter().position(|(other, _)| *other == key)
        {
            let (_, next) = self.more.remove(next);
            self.held.insert(key, next);
        }
        Some(access)
    }

    /// The row of an access, without its visit. `events`: the period in the sample, if it has one.
    pub(super) fn row<'a>(
        &'a mut self,
        tid: Tid,
        sample: &BareSample,
        function_id: FunctionId,
        access: &Access,
    ) -> MemoryRow<'a> {
        let Names {
            places,
            snoops,
            tlbs,
            blocks,
        } = &mut self.names;
        MemoryRow {
            time_ns: sample.time,
            visit_id: None,
            function_id,
            tid,
            event: sample.kind.event(),
            events: access.period,
            op: access.op,
            level: access.place.map(|it| name(places, it)),
            snoop: access.snoop.map(|it| name(snoops, it)),
            tlb: access.tlb.map(|it| name(tlbs, it)),
            locked: access.locked,
            blocked: access.blocked.map(|it| name(blocks, it)),
            latency_cycles: access.latency,
            op_cycles: access.op_latency,
            retire_cycles: access.retire_latency,
            tlb_cycles: access.tlb_latency,
            page_bytes: access.page_size,
            taken: access.taken,
            mispredicted: access.mispredicted,
            addr: access.addr,
            phys_addr: access.phys_addr,
            data_src: access.data_src,
            pid: None,
            bytes: None,
            data_symbol: None,
            data_object: None,
            data_offset: None,
        }
    }
}

/// An access to data at an address, with what its instruction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accessed {
    /// Operation; `None`: not known.
    pub op: Option<&'static str>,
    pub addr: u64,
    /// Bytes from `addr` on; `None`: not known.
    pub bytes: Option<u32>,
}

/// The access of a sample at `addr`, completed by its instruction as far as that is known.
pub(super) fn accessed(
    addr: u64,
    watch: Option<Watch>,
    sample: &BareSample,
    access: &Access,
    pid: Pid,
    symbolizer: &mut Symbolizer,
) -> Accessed {
    let is_user = !sample.ip.is_kernel();
    match watch {
        Some(watch) => {
            let found =
                is_user.then(|| symbolizer.data_access(pid, sample.ip, machine::WATCHES_BEHIND));
            watched(addr, watch, found.flatten())
        }
        None => {
            let is_known = is_user && sample.kind.is_exact();
            let found = is_known.then(|| symbolizer.data_access(pid, sample.ip, false));
            sampled(addr, access.op, found.flatten())
        }
    }
}

/// An access that a data breakpoint stopped at. `found`: the instruction that it stopped, or that before.
///
/// An instruction that can't have accessed what is watched is not the one: the program came from elsewhere, by a call or a
/// jump through what is watched.
fn watched(addr: u64, watch: Watch, found: Option<InstructionAccess>) -> Accessed {
    let end = addr.wrapping_add(watch.bytes.into());
    let is_it = |it: &InstructionAccess| {
        let stops = watch.loads || it.op != "load";
        let overlaps = it.address.is_none_or(|start| {
            start < end && start.saturating_add(it.bytes.unwrap_or(1).into()) > addr
        });
        stops && overlaps
    };
    match found.filter(is_it) {
        Some(it) => {
            let bytes = match (it.address, it.bytes) {
                (Some(_), bytes) => bytes,
                // A smaller access may be to any part of what is watched, a larger one begin before. Accesses are aligned.
                (None, bytes) => bytes.filter(|bytes| *bytes == watch.bytes),
            };
            Accessed {
                op: Some(it.op),
                addr: it.address.unwrap_or(addr),
                bytes,
            }
        }
        None => Accessed {
            op: (!watch.loads).then_some("store"),
            addr,
            bytes: None,
        },
    }
}

/// An access that the hardware sampled, with its instruction.
fn sampled(addr: u64, op: Option<&'static str>, found: Option<InstructionAccess>) -> Accessed {
    // Of an instruction that loads and stores the hardware may have sampled either.
    let agrees = |it: &InstructionAccess| {
        let is_op = op.is_none_or(|op| it.op == op || it.op == "load+store");
        is_op && it.address.is_none_or(|own| own == addr)
    };
    let found = found.filter(agrees);
    Accessed {
        op: op.or(found.map(|it| it.op)),
        addr,
        bytes: found.and_then(|it| it.bytes),
    }
}

/// Cache of formatted names.
#[derive(Debug, Default)]
struct Names {
    places: FxHashMap<Place, String>,
    snoops: FxHashMap<Snoop, String>,
    tlbs: FxHashMap<Tlb, String>,
    blocks: FxHashMap<Blocked, String>,
}

fn name<T: Eq + Hash + Copy + Display>(known: &mut FxHashMap<T, String>, value: T) -> &str {
    known.entry(value).or_insert_with(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::sample::SampleKind;
    use crate::units::Cpu;

    fn sample(time: i64) -> BareSample {
        BareSample {
            time: TraceNs(time),
            ip: Ip(0x1000),
            kind: SampleKind::new(Cpu(0), EventId(0), (true, false)),
        }
    }

    fn access(addr: u64) -> Access {
        Access {
            addr: Some(addr),
            ..Access::default()
        }
    }

    /// Each sample gets its own access once, also if several are of the same instant.
    #[test]
    fn each_its_own() {
        let mut accesses = Accesses::new(10);
        for (time, addr) in [(5, 1), (6, 2), (6, 3), (6, 4)] {
            accesses.hold(Tid(1), &sample(time), access(addr));
        }
        let mut take = |tid, time| {
            let taken = accesses.take(Tid(tid), &sample(time));
            taken.and_then(|access| access.addr)
        };
        assert_eq!(
            [6, 6, 5, 6, 6].map(|t| take(1, t)),
            [Some(2), Some(3), Some(1), Some(4), None]
        );
        assert_eq!(take(2, 5), None);
        assert!(accesses.is_empty());
    }

    /// A watched access has the operation and size of the instruction before, unless that can't be the one; of a smaller
    /// or larger access the bytes are not known.
    #[test]
    fn watchpoints() {
        let watch = |loads| Watch { bytes: 8, loads };
        let instruction = |op, bytes, address| {
            Some(InstructionAccess {
                op,
                bytes: Some(bytes),
                address,
            })
        };
        let result = |op, addr, bytes| Accessed { op, addr, bytes };
        let at = |loads, found| watched(0x1000, watch(loads), found);
        assert_eq!(
            at(true, instruction("load+store", 8, None)),
            result(Some("load+store"), 0x1000, Some(8))
        );
        assert_eq!(
            at(true, instruction("load", 4, None)),
            result(Some("load"), 0x1000, None)
        );
        assert_eq!(
            at(true, instruction("load", 4, Some(0x1004))),
            result(Some("load"), 0x1004, Some(4))
        );
        assert_eq!(
            at(true, instruction("load", 16, None)),
            result(Some("load"), 0x1000, None)
        );
        let other = instruction("store", 4, Some(0x1008));
        assert_eq!(at(true, other), result(None, 0x1000, None));
        assert_eq!(at(false, other), result(Some("store"), 0x1000, None));
        let load = instruction("load", 8, None);
        assert_eq!(at(false, load), result(Some("store"), 0x1000, None));
        assert_eq!(at(true, None), result(None, 0x1000, None));
    }

    /// A sampled access has the size of its instruction if that does what the hardware says.
    #[test]
    fn sampled_sizes() {
        let instruction = |op, address| {
            Some(InstructionAccess {
                op,
                bytes: Some(4),
                address,
            })
        };
        let bytes = |op, found| sampled(0x1000, op, found).bytes;
        assert_eq!(bytes(Some("load"), instruction("load", None)), Some(4));
        assert_eq!(
            bytes(Some("load"), instruction("load+store", None)),
            Some(4)
        );
        assert_eq!(bytes(Some("store"), instruction("load", None)), None);
        assert_eq!(bytes(Some("load"), instruction("load", Some(0x2000))), None);
        let unknown = sampled(0x1000, None, instruction("store", Some(0x1000)));
        assert_eq!((unknown.op, unknown.bytes), (Some("store"), Some(4)));
    }

    /// Accesses of samples that never come are bounded; those refused are counted.
    #[test]
    fn bounded() {
        let mut accesses = Accesses::new(2);
        (0..5).for_each(|n| accesses.hold(Tid(1), &sample(n), access(1)));
        assert_eq!(accesses.left_out, 3);
        assert!(accesses.take(Tid(1), &sample(1)).is_some());
        assert!(accesses.take(Tid(1), &sample(4)).is_none());
    }
}
