//! Time of items off the CPU, as a share, the slow ones apart.
//!
//! Sums by length, in buckets of a fifth of the length: what the slowest hundredth waited is known at any time, at the cost
//! of three additions an item.

use super::sketch::{BUCKETS, SLOWEST, bucket};

/// Buckets of [`bucket`] in one of ours: four per factor of two.
const WIDTH: usize = 8;

/// Slowest items from which on they stand for the slow ones.
const ENOUGH: u64 = 10;

/// Sums over items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    pub items: u64,
    /// Their time, ns.
    pub ns: u64,
    /// The part of it off the CPU.
    pub off_ns: u64,
    /// Number of times that they were off the CPU.
    pub waits: u64,
}

impl Waited {
    /// Share of the time off the CPU; `None` if there is no time.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.ns > 0).then(|| self.off_ns as f64 / self.ns as f64)
    }

    fn add(&mut self, more: &Self) {
        self.items += more.items;
        self.ns += more.ns;
        self.off_ns += more.off_ns;
        self.waits += more.waits;
    }
}

/// Sums over all items of a probe and over the slowest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitedBy {
    pub all: Waited,
    /// The slowest hundredth, or somewhat more; `None`: too few so far.
    pub slow: Option<Waited>,
}

/// The items of a probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    by_length: Vec<Waited>,
}

impl Waiting {
    /// Adds an item of this length.
    pub(crate) fn add(&mut self, ns: u64, off_ns: u64, waits: u64) {
        if self.by_length.is_empty() {
            self.by_length
                .resize(BUCKETS.div_ceil(WIDTH), Waited::default());
        }
        let one = Waited {
            items: 1,
            ns,
            off_ns: off_ns.min(ns),
            waits,
        };
        self.by_length[bucket(ns) / WIDTH].add(&one);
    }

    /// The sums so far.
    pub(crate) fn sums(&self) -> WaitedBy {
        let mut all = Waited::default();
        self.by_length.iter().for_each(|it| all.add(it));
        let wanted = all.items as f64 * SLOWEST;
        let mut slow = Waited::default();
        for bucket in self.by_length.iter().rev() {
            if slow.items as f64 >= wanted {
                break;
            }
            slow.add(bucket);
        }
        WaitedBy {
            all,
            slow: Some(slow).filter(|_| wanted >= ENOUGH as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow items that wait are separated from all, once there are enough of them.
    #[test]
    fn slow_ones_wait() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.sums(), WaitedBy::default());
        assert_eq!(waiting.sums().all.share(), None);
        for n in 0..2_000_u64 {
            match n % 100 {
                0 => waiting.add(5_000_000, 4_000_000, 2),
                _ => waiting.add(100_000, 0, 0),
            }
            if n == 500 {
                assert_eq!(waiting.sums().slow, None);
            }
        }
        let WaitedBy { all, slow } = waiting.sums();
        let slow = slow.unwrap();
        assert_eq!((slow.items, slow.waits), (20, 40));
        assert_eq!(slow.share(), Some(0.8));
        assert_eq!((all.items, all.off_ns), (2_000, 80_000_000));
        assert!(all.share().unwrap() < 0.3);
    }
}
