//! A small cache in front of all look-ups.

use crate::units::{FunctionId, Ip, Pid};

/// Entries, a power of two. 16 bytes each: 256 KiB, within the L2 cache of a core.
const ENTRIES: usize = 1 << 14;

/// The pid under which kernel addresses are kept: they are the same in every process.
pub const KERNEL: Pid = Pid(u32::MAX - 1);

/// Where the answer for an address was remembered. Others may have had the slot before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(pub u16);

impl Slot {
    /// There are so many.
    pub const COUNT: usize = ENTRIES;

    /// A slot for an address of which no answer is remembered: mostly another one for another address.
    #[must_use]
    pub fn any(ip: Ip) -> Self {
        Self(2 * pair(KERNEL, ip.0) as u16)
    }
}

#[derive(Clone, Copy)]
struct Entry {
    ip: u64,
    pid: Pid,
    function: FunctionId,
}

/// Nobody asks for a kernel address of a process.
const EMPTY: Entry = Entry {
    ip: u64::MAX,
    pid: Pid(u32::MAX),
    function: FunctionId(0),
};

/// Remembers which function an address of a process is in.
///
/// Two places for each address, side by side: a new answer takes the second, and what was there the
/// first. Cost: 1 cache line a look-up.
pub struct IpCache {
    pairs: Box<[[Entry; 2]; PAIRS]>,
}

const PAIRS: usize = ENTRIES / 2;

impl IpCache {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pairs: Box::new([[EMPTY; 2]; PAIRS]),
        }
    }

    /// The function, if it is remembered, and in which slot: the address's own until another takes it.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, pid: Pid, ip: u64) -> Option<(FunctionId, Slot)> {
        let pair = pair(pid, ip);
        let second = usize::from(self.pairs[pair][1].ip == ip);
        let entry = &self.pairs[pair][second];
        let found = (entry.ip == ip) & (entry.pid == pid);
        found.then_some((entry.function, Slot((2 * pair + second) as u16)))
    }

    /// Remembers.
    pub fn put(&mut self, pid: Pid, ip: u64, function: FunctionId) {
        let [first, second] = &mut self.pairs[pair(pid, ip)];
        *first = *second;
        *second = Entry { ip, pid, function };
    }

    /// Forgets all of a process. Cost: a walk over the cache, about 3 us.
    pub fn forget(&mut self, pid: Pid) {
        for entry in self.pairs.as_flattened_mut() {
            if entry.pid == pid {
                *entry = EMPTY;
            }
        }
    }
}

impl Default for IpCache {
    fn default() -> Self {
        Self::new()
    }
}

/// The two places. Fibonacci hashing: the golden ratio spreads neighbouring addresses; its top bits are the best mixed.
#[inline(always)]
const fn pair(pid: Pid, ip: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (ip ^ ((pid.0 as u64) << 40)).wrapping_mul(GOLDEN);
    (mixed >> (u64::BITS - PAIRS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// An answer is for its process and address alone, and goes when its process is forgotten.
    #[test]
    fn remembers_exactly() {
        let mut cache = IpCache::new();
        cache.put(Pid(1), 0x1000, FunctionId(5));
        let found = cache.get(Pid(1), 0x1000).map(|(function, _)| function);
        assert_eq!(found, Some(FunctionId(5)));
        assert_eq!(cache.get(Pid(2), 0x1000), None);
        assert_eq!(cache.get(Pid(1), 0x1001), None);
        assert_eq!(cache.get(KERNEL, u64::MAX), None);
        assert_eq!(cache.get(Pid(u32::MAX), 0), None);
        cache.forget(Pid(1));
        assert_eq!(cache.get(Pid(1), 0x1000), None);
    }

    /// Addresses that are remembered have slots of their own.
    #[test]
    fn slots_are_their_own() {
        let mut cache = IpCache::new();
        (0..30_000).for_each(|ip| cache.put(Pid(1), ip, FunctionId(ip as u32)));
        let found: Vec<_> = (0..30_000).filter_map(|ip| cache.get(Pid(1), ip)).collect();
        let slots: HashSet<u16> = found.iter().map(|(_, slot)| slot.0).collect();
        assert!(found.len() > ENTRIES / 2, "{}", found.len());
        assert_eq!(slots.len(), found.len());
        assert!(slots.iter().all(|slot| usize::from(*slot) < Slot::COUNT));
    }
}
