//! Memory access of a sample: `PERF_SAMPLE_DATA_SRC` and `PERF_SAMPLE_WEIGHT`. Pure.
//!
//! The terms are those of `perf mem report` since Linux 6.16, which uses the level's number if there is one.
//! Source: include/uapi/linux/perf_event.h (`union perf_mem_data_src`, `union perf_sample_weight`).

use std::fmt;

/// An access to memory, as far as the CPU reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DataSource {
    /// Kind of access; `None` if the sample has no access.
    pub op: Option<MemoryOp>,
    /// Data source, or the level that missed.
    pub place: Option<Place>,
    /// Snoop result of other caches.
    pub snoop: Option<Snoop>,
    /// Result of the address translation.
    pub tlb: Option<Tlb>,
    /// Whether the instruction was locked.
    pub locked: Option<bool>,
    /// Cause that blocked the load.
    pub blocked: Option<Blocked>,
}

/// Kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MemoryOp {
    Load,
    Store,
    Prefetch,
    /// Code was fetched.
    Execute,
}

/// Data source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub level: Level,
    /// Distance from the core.
    pub distance: Distance,
    /// Whether it hit there; `None` if not reported.
    pub hit: Option<bool>,
}

/// A level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Level 0 cache.
    L0,
    /// Level 1 cache.
    L1,
    /// Level 2 cache.
    L2,
    /// Level 3 cache.
    L3,
    /// Level 4 cache.
    L4,
    /// Line fill buffer, AMD's miss address buffer: the line was on its way.
    FillBuffer,
    /// The same of level 2.
    L2MissBuffer,
    /// A cache at the memory side.
    MemorySideCache,
    /// A cache of unknown level.
    AnyCache,
    /// Memory.
    Ram,
    /// Persistent memory.
    Pmem,
    /// Memory behind CXL.
    Cxl,
    /// A device.
    Io,
    /// Memory that is not cached.
    Uncached,
    /// One of several; the CPU does not report which.
    Several,
}

/// Distance of the data source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distance {
    /// This core's, or not reported.
    #[default]
    Near,
    /// Remote, at an unknown distance.
    Remote,
    /// Another core of the node.
    Core,
    /// Another node of the socket.
    Node,
    /// Another socket of the board.
    Socket,
    /// Another board.
    Board,
}

/// Result of snooping other caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Snoop {
    None,
    /// Another cache had the line.
    Hit,
    /// No other cache had the line.
    Miss,
    /// No snoop, or no other cache had the line: the event does not distinguish them.
    NoneOrMiss,
    /// Another cache had modified the line.
    HitModified,
    /// Another cache forwarded the line.
    Forward,
    /// A peer supplied the line.
    Peer,
}

/// Result of an address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tlb {
    /// Level of the translation.
    pub level: TlbLevel,
    /// Whether it was found there.
    pub hit: bool,
}

/// A level of address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlbLevel {
    /// First level.
    L1,
    /// Second level.
    L2,
    /// L1 or L2 TLB.
    L1OrL2,
    /// The hardware walked the page tables.
    Walker,
    /// A page fault.
    Fault,
}

/// Reasons for which a load was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// Data of an earlier store could not be forwarded.
    pub data: bool,
    /// Addresses were in conflict.
    pub address: bool,
}

impl DataSource {
    /// Decodes the word of `PERF_SAMPLE_DATA_SRC`.
    #[doc(alias = "perf_mem_data_src")]
    #[must_use]
    pub(crate) fn decode(word: u64) -> Self {
        let field = |shift: u32, width: u32| (word >> shift) & ((1 << width) - 1);
        Self {
            op: op(field(0, 5)),
            place: place(&Fields {
                level: field(5, 14),
                number: field(33, 4),
                remote: field(37, 1) != 0,
                hops: field(43, 3),
            }),
            snoop: snoop(field(19, 5), field(38, 2)),
            tlb: tlb(field(26, 7)),
            locked: (field(24, 2) & 1 == 0).then_some(field(24, 2) & 2 != 0),
            blocked: blocked(field(40, 3)),
        }
    }
}

fn op(bits: u64) -> Option<MemoryOp> {
    let ops = [
        MemoryOp::Load,
        MemoryOp::Store,
        MemoryOp::Prefetch,
        MemoryOp::Execute,
    ];
    if bits & 1 != 0 {
        return None;
    }
    let found = ops.iter().zip(1..).find(|&(_, bit)| bits & (1 << bit) != 0);
    found.map(|(op, _)| *op)
}

/// The fields about the place.
struct Fields {
    level: u64,
    number: u64,
    remote: bool,
    hops: u64,
}

/// The data source: from the level's number and the fields beside it, else from the older bits.
fn place(fields: &Fields) -> Option<Place> {
    const HIT: u64 = 2;
    const MISS: u64 = 4;
    let hit = match fields.level & (HIT | MISS) {
        HIT => Some(true),
        MISS => Some(false),
        _ => None,
    };
    let distance = match (fields.hops, fields.remote) {
        (1, _) => Distance::Core,
        (2, _) => Distance::Node,
        (3, _) => Distance::Socket,
        (4, _) => Distance::Board,
        (_, true) => Distance::Remote,
        _ => Distance::Near,
    };
    let numbered = match fields.number {
        1 => Some(Level::L1),
        2 => Some(Level::L2),
        3 => Some(Level::L3),
        4 => Some(Level::L4),
        5 => Some(Level::L2MissBuffer),
        6 => Some(Level::MemorySideCache),
        7 => Some(Level::L0),
        8 => Some(Level::Uncached),
        9 => Some(Level::Cxl),
        10 => Some(Level::Io),
        11 => Some(Level::AnyCache),
        12 => Some(Level::FillBuffer),
        13 => Some(Level::Ram),
        14 => Some(Level::Pmem),
        _ => None,
    };
    if let Some(level) = numbered {
        return Some(Place {
            level,
            distance,
            hit,
        });
    }
    let (level, distance) = older(fields.level >> 3, distance)?;
    Some(Place {
        level,
        distance,
        hit,
    })
}

/// The bits from L1 on of the older field.
fn older(bits: u64, distance: Distance) -> Option<(Level, Distance)> {
    const BITS: [(Level, bool); 11] = [
        (Level::L1, false),
        (Level::FillBuffer, false),
        (Level::L2, false),
        (Level::L3, false),
        (Level::Ram, false),
        (Level::Ram, true),
        (Level::Ram, true),
        (Level::AnyCache, true),
        (Level::AnyCache, true),
        (Level::Io, false),
        (Level::Uncached, false),
    ];
    if bits == 0 {
        return None;
    }
    if !bits.is_power_of_two() {
        return Some((Level::Several, distance));
    }
    let &(level, remote) = BITS.get(bits.trailing_zeros() as usize)?;
    let distance = if remote { Distance::Remote } else { distance };
    Some((level, distance))
}

/// Snoop result; the extended bits are more specific than the older ones.
fn snoop(bits: u64, extended: u64) -> Option<Snoop> {
    match (extended, bits) {
        (1, _) => Some(Snoop::Forward),
        (2, _) => Some(Snoop::Peer),
        (_, bits) if bits & 1 != 0 => None,
        (_, bits) if bits & 16 != 0 => Some(Snoop::HitModified),
        (_, bits) if bits & 10 == 10 => Some(Snoop::NoneOrMiss),
        (_, bits) if bits & 8 != 0 => Some(Snoop::Miss),
        (_, bits) if bits & 4 != 0 => Some(Snoop::Hit),
        (_, bits) if bits & 2 != 0 => Some(Snoop::None),
        _ => None,
    }
}

fn tlb(bits: u64) -> Option<Tlb> {
    let level = match (bits >> 3) & 0xf {
        1 => TlbLevel::L1,
        2 => TlbLevel::L2,
        3 => TlbLevel::L1OrL2,
        4 => TlbLevel::Walker,
        8 => TlbLevel::Fault,
        _ => return None,
    };
    let hit = match bits & 6 {
        2 => true,
        4 => false,
        _ => return None,
    };
    (bits & 1 == 0).then_some(Tlb { level, hit })
}

fn blocked(bits: u64) -> Option<Blocked> {
    (bits != 0 && bits & 1 == 0).then_some(Blocked {
        data: bits & 2 != 0,
        address: bits & 4 != 0,
    })
}

/// Latencies of an access, core cycles; 0 in the sample becomes `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    /// The access itself: of a load from its dispatch on, on AMD of a miss of the first level.
    pub latency: Option<u32>,
    /// The whole instruction's; on AMD from tagging to retirement.
    pub instruction: Option<u16>,
    /// Between the retirement of the previous instruction and its own.
    pub retirement: Option<u16>,
}

impl Weight {
    /// Decodes the word of `PERF_SAMPLE_WEIGHT`: a single number.
    #[must_use]
    pub(crate) fn whole(word: u64) -> Self {
        let latency = u32::try_from(word).unwrap_or(u32::MAX);
        Self {
            latency: (latency != 0).then_some(latency),
            ..Self::default()
        }
    }

    /// Decodes the word of `PERF_SAMPLE_WEIGHT_STRUCT`: three numbers.
    #[must_use]
    pub(crate) fn parts(word: u64) -> Self {
        let half = |shift: u32| Some((word >> shift) as u16).filter(|&cycles| cycles != 0);
        Self {
            latency: Some(word as u32).filter(|&cycles| cycles != 0),
            instruction: half(32),
            retirement: half(48),
        }
    }
}

impl fmt::Display for MemoryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "LOAD",
            Self::Store => "STORE",
            Self::Prefetch => "PFETCH",
            Self::Execute => "EXEC",
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L4 => "L4",
            Self::FillBuffer => "LFB/MAB",
            Self::L2MissBuffer => "L2 MHB",
            Self::MemorySideCache => "Memory-side Cache",
            Self::AnyCache => "Any cache",
            Self::Ram => "RAM",
            Self::Pmem => "PMEM",
            Self::Cxl => "CXL",
            Self::Io => "I/O",
            Self::Uncached => "Uncached",
            Self::Several => "Several",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.distance {
            Distance::Near => "",
            Distance::Remote => "Remote ",
            Distance::Core => "Remote core, same node ",
            Distance::Node => "Remote node, same socket ",
            Distance::Socket => "Remote socket, same board ",
            Distance::Board => "Remote board ",
        })?;
        self.level.fmt(f)?;
        f.write_str(match self.hit {
            None => "",
            Some(true) => " hit",
            Some(false) => " miss",
        })
    }
}

impl fmt::Display for Snoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Hit => "Hit",
            Self::Miss => "Miss",
            Self::NoneOrMiss => "None or Miss",
            Self::HitModified => "HitM",
            Self::Forward => "Fwd",
            Self::Peer => "Peer",
        })
    }
}

impl fmt::Display for Tlb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            TlbLevel::L1 => "L1",
            TlbLevel::L2 => "L2",
            TlbLevel::L1OrL2 => "L1 or L2",
            TlbLevel::Walker => "Walker",
            TlbLevel::Fault => "Fault",
        })?;
        f.write_str(if self.hit { " hit" } else { " miss" })
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.data, self.address) {
            (true, true) => "Data Addr",
            (true, false) => "Data",
            (false, true) => "Addr",
            (false, false) => "None",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `OP|LVL|SNP|TLB|LCK|BLK`, as perf prints them.
    fn printed(word: u64) -> String {
        fn or_na(part: Option<impl fmt::Display>) -> String {
            part.map_or("N/A".to_owned(), |part| part.to_string())
        }
        let source = DataSource::decode(word);
        [
            or_na(source.op),
            or_na(source.place),
            or_na(source.snoop),
            or_na(source.tlb),
            or_na(
                source
                    .locked
                    .map(|locked| if locked { "Yes" } else { "No" }),
            ),
            or_na(source.blocked),
        ]
        .join("|")
    }

    /// Words of real samples: Coffee Lake and Skylake-SP as perf prints them, Zen 4 (IBS) by the kernel's source.
    #[test]
    fn real_samples() {
        let cases = [
            (0x2_6810_0142, "LOAD|L1 hit|None|L1 or L2 hit|No|N/A"),
            (0x18_6810_0242, "LOAD|LFB/MAB hit|None|L1 or L2 hit|No|N/A"),
            (0x6_6810_0842, "LOAD|L3 hit|None|L1 or L2 hit|No|N/A"),
            (0x2_6a10_0142, "LOAD|L1 hit|None|L1 or L2 hit|Yes|N/A"),
            (0x1a_6820_1042, "LOAD|RAM hit|Hit|L1 or L2 hit|No|N/A"),
            (0x2_5210_0142, "LOAD|L1 hit|None|L2 miss|Yes|N/A"),
            (0x508_0144, "STORE|L1 hit|N/A|N/A|N/A|N/A"),
            (0x508_0184, "STORE|L1 miss|N/A|N/A|N/A|N/A"),
            (0x104_6810_0442, "LOAD|L2 hit|None|L1 or L2 hit|No|N/A"),
            (0x106_5010_0842, "LOAD|L3 hit|None|L2 miss|No|N/A"),
            (0x1e_0508_0021, "N/A|N/A|N/A|N/A|N/A|N/A"),
            (0x2_2908_0142, "LOAD|L1 hit|N/A|L1 hit|N/A|N/A"),
            (0x4_2908_0444, "STORE|L2 hit|N/A|L1 hit|N/A|N/A"),
            (0x1e_2908_0024, "STORE|N/A|N/A|L1 hit|N/A|N/A"),
        ];
        for (word, expect) in cases {
            assert_eq!(printed(word), expect, "{word:#x}");
        }
    }

    /// Remote places, by the new fields and by the old bits.
    #[test]
    fn far_places() {
        let remote = 1 << 37;
        let ram = 13 << 33;
        let hit = 2 << 5;
        let place = |word| {
            DataSource::decode(word)
                .place
                .map(|place| place.to_string())
        };
        assert_eq!(place(ram | hit).as_deref(), Some("RAM hit"));
        assert_eq!(place(ram | remote | hit).as_deref(), Some("Remote RAM hit"));
        let hops = |n: u64| n << 43;
        assert_eq!(
            place((11 << 33) | remote | hops(1) | hit).as_deref(),
            Some("Remote core, same node Any cache hit")
        );
        assert_eq!(
            place(ram | remote | hops(2) | hit).as_deref(),
            Some("Remote node, same socket RAM hit")
        );
        assert_eq!(place((0x100 << 5) | hit).as_deref(), Some("Remote RAM hit"));
        assert_eq!(place(((8 | 32) << 5) | hit).as_deref(), Some("Several hit"));
        assert_eq!(place(hit), None);
        let snoop = |word: u64| DataSource::decode(word).snoop;
        assert_eq!(snoop(16 << 19), Some(Snoop::HitModified));
        // As for Sandy Bridge's loads.
        assert_eq!(snoop(10 << 19), Some(Snoop::NoneOrMiss));
        assert_eq!(snoop((2 << 19) | (1 << 38)), Some(Snoop::Forward));
        assert_eq!(snoop(2 << 38), Some(Snoop::Peer));
        let blocked = DataSource::decode(6 << 40).blocked;
        assert_eq!(blocked.map(|b| b.to_string()).as_deref(), Some("Data Addr"));
    }

    /// Weights: one number, or three; 0 is `None`.
    #[test]
    fn weights() {
        assert_eq!(Weight::whole(0), Weight::default());
        assert_eq!(Weight::whole(64).latency, Some(64));
        let weight = Weight::parts((7 << 48) | (300 << 32) | 211);
        assert_eq!(
            (weight.latency, weight.instruction, weight.retirement),
            (Some(211), Some(300), Some(7))
        );
    }

    proptest! {
        /// No word panics, printed or not.
        #[test]
        fn any_word(word: u64) {
            prop_assert!(printed(word).split('|').count() == 6);
            let _ = (Weight::whole(word), Weight::parts(word));
        }
    }
}
