//! Recommends the size of a ring: large enough not to overflow, but not too large for the caches.
//!
//! The eBPF programs write cyclically through a ring, so with a ring larger than the caches each line written
//! evicts a line of the target's data, with a small one hardly any. Whether that matters depends on the rate: a
//! line written costs the target at most one miss ([`pollution`]). Clocks stay far below a visible rate; PEBS at a
//! reset value of some thousand does not.
//!
//! Source: Akiyama and Hirofuchi 2017, sections 4.3, 4.6 and 5.

use serde::Serialize;

/// Longest time between two reads of a ring by the draining thread, ns.
const DRAIN_NS: f64 = 8e6;

/// Factor by which that may be longer on a busy machine, until the thread gets a CPU.
const MARGIN: f64 = 16.0;

/// Fraction of a ring that samples may fill.
const SAMPLE_SHARE: f64 = 0.75;

/// Smallest and largest ring that is recommended, bytes.
const SIZES: (u64, u64) = (64 << 10, 64 << 20);

/// Divisor of the cache size that gives the largest ring.
const SENSITIVE_PART: u64 = 4;
const OBLIVIOUS_PART: u64 = 1;

/// Cost of a miss, ns: 56 to 88 on the machines of the paper.
const MISS_NS: f64 = 80.0;

/// Bytes of a cache line.
const LINE: f64 = 64.0;

/// LLC misses per ns on the CPU above which a target may be sensitive: they take 5 % of its time.
const MANY_MISSES: f64 = 0.05 / MISS_NS;

/// Fraction of the target's time below which misses caused by a ring do not limit its size.
const NEGLIGIBLE: f64 = 0.005;

/// The caches of a CPU, bytes; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Caches {
    /// L2 of the CPU.
    pub l2: Option<u64>,
    /// Share of the last-level cache: its size divided by the number of CPUs that share it.
    pub llc_share: Option<u64>,
}

/// Whether the target runs slower with less cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sensitivity {
    /// Decide by its cache misses, if the CPU counts them
    #[default]
    Auto,
    /// Yes: keep the ring small
    Sensitive,
    /// No
    Oblivious,
}

impl Sensitivity {
    /// Sensitivity from cache misses counted without sampling. A streaming target also has many misses, although it
    /// would lose nothing: misses do not distinguish the two.
    #[must_use]
    pub fn of_misses(misses: f64, cpu_ns: f64) -> Self {
        if misses > MANY_MISSES * cpu_ns {
            Self::Sensitive
        } else {
            Self::Oblivious
        }
    }
}

/// A recommended size, and its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Advice {
    /// Bytes of each CPU's ring, a power of two.
    pub bytes: u64,
    /// Size needed for the rate of records alone.
    pub wanted: u64,
    /// Maximum size for the caches; null if they are unknown, or if the rate is too low to matter.
    pub cache_limit: Option<u64>,
    /// See [`pollution`].
    pub pollution: f64,
    /// Longest delay of the draining thread before samples are refused, ns; null without records.
    pub stands_still_ns: Option<f64>,
}

/// Upper bound of the fraction of a target's time taken by misses due to a ring of any size: one miss for each line
/// written, at `rate` bytes per second.
///
/// *Worked number*: 2.5 MB/s are 39,000 lines, 80 ns each: 0.3 %.
#[must_use]
pub(crate) fn pollution(rate: f64) -> f64 {
    rate / LINE * MISS_NS / 1e9
}

/// Recommends a ring for a rate of records on the busiest CPU, bytes per second.
///
/// *Worked number*: 62,500 samples/s of 40 bytes are 2.5 MB/s, which is 320 kB in 16 times 8 ms, three quarters of
/// 427 kB: 512 KiB. PEBS records of 200 bytes at 200,000 a second are 40 MB/s, which could take 5 % of the time: beside
/// an L2 of 1 MiB a sensitive target gets 256 KiB, which hold 4.9 ms.
#[must_use]
pub(crate) fn advise(rate: f64, caches: Caches, sensitivity: Sensitivity) -> Advice {
    let wanted = rate / 1e9 * DRAIN_NS * MARGIN / SAMPLE_SHARE;
    let wanted = (wanted as u64).clamp(SIZES.0, SIZES.1).next_power_of_two();
    let pollution = pollution(rate);
    let cache_limit = match sensitivity {
        _ if pollution < NEGLIGIBLE => None,
        Sensitivity::Sensitive | Sensitivity::Auto => caches.l2.map(|l2| l2 / SENSITIVE_PART),
        Sensitivity::Oblivious => caches.llc_share.map(|share| share / OBLIVIOUS_PART),
    };
    let cache_limit = cache_limit.map(|limit| floor_power_of_two(limit).max(SIZES.0));
    let bytes = cache_limit.map_or(wanted, |limit| wanted.min(limit));
    Advice {
        bytes,
        wanted,
        cache_limit,
        pollution,
        stands_still_ns: (rate > 0.0).then(|| bytes as f64 * SAMPLE_SHARE / rate * 1e9),
    }
}

fn floor_power_of_two(value: u64) -> u64 {
    value.checked_ilog2().map_or(0, |bits| 1 << bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: Caches = Caches {
        l2: Some(1 << 20),
        llc_share: Some(16 << 20),
    };

    /// The worked number, and a rate that needs a larger ring than the caches allow.
    #[test]
    fn sizes() {
        let of = |rate, sensitivity| advise(rate, CACHES, sensitivity);
        let clock = of(2.5e6, Sensitivity::Sensitive);
        assert_eq!((clock.bytes, clock.cache_limit), (512 << 10, None));
        assert!((clock.pollution - 0.003_125).abs() < 1e-9, "{clock:?}");
        let sensitive = of(40e6, Sensitivity::Sensitive);
        assert_eq!((sensitive.bytes, sensitive.wanted), (256 << 10, 8 << 20));
        let holds = sensitive.stands_still_ns.unwrap();
        assert!((holds - 4.915e6).abs() < 1e4, "{sensitive:?}");
        assert_eq!(of(40e6, Sensitivity::Oblivious).bytes, 8 << 20);
        assert_eq!(of(0.0, Sensitivity::Auto).bytes, 64 << 10);
        assert_eq!(of(0.0, Sensitivity::Auto).stands_still_ns, None);
        assert_eq!(of(1e12, Sensitivity::Oblivious).bytes, 16 << 20);
        let unknown = advise(1e12, Caches::default(), Sensitivity::Sensitive);
        assert_eq!((unknown.bytes, unknown.cache_limit), (64 << 20, None));
    }

    /// One miss per thousand ns takes 8 % of the time.
    #[test]
    fn misses() {
        assert_eq!(Sensitivity::of_misses(1e6, 1e9), Sensitivity::Sensitive);
        assert_eq!(Sensitivity::of_misses(1e5, 1e9), Sensitivity::Oblivious);
    }
}
