//! A small cache in front of all look-ups.

use crate::units::{FunctionId, Pid};

/// Entries, a power of two. 16 bytes each: 256 KiB, within the L2 cache of a core.
const ENTRIES: usize = 1 << 14;

/// The pid under which kernel addresses are kept: they are the same in every process.
pub const KERNEL: Pid = Pid(u32::MAX - 1);

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
    entries: Box<[Entry]>,
}

impl IpCache {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: vec![EMPTY; ENTRIES].into_boxed_slice(),
        }
    }

    /// The function, if it is remembered.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, pid: Pid, ip: u64) -> Option<FunctionId> {
        let slot = slot(pid, ip);
        let [first, second] = [&self.entries[slot], &self.entries[slot + 1]];
        let entry = if second.ip == ip { second } else { first };
        (entry.ip == ip && entry.pid == pid).then_some(entry.function)
    }

    /// Remembers.
    pub fn put(&mut self, pid: Pid, ip: u64, function: FunctionId) {
        let slot = slot(pid, ip);
        self.entries[slot] = self.entries[slot + 1];
        self.entries[slot + 1] = Entry { ip, pid, function };
    }

    /// Forgets all of a process. Cost: a walk over the cache, about 3 us.
    pub fn forget(&mut self, pid: Pid) {
        for entry in &mut self.entries {
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

/// The first of the two places. Fibonacci hashing: the golden ratio spreads neighbouring addresses; its top bits are the best mixed.
#[inline(always)]
fn slot(pid: Pid, ip: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (ip ^ (u64::from(pid.0) << 40)).wrapping_mul(GOLDEN);
    (mixed >> (64 - ENTRIES.trailing_zeros())) as usize & !1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer is for its process and address alone, and goes when its process is forgotten.
    #[test]
    fn remembers_exactly() {
        let mut cache = IpCache::new();
        cache.put(Pid(1), 0x1000, FunctionId(5));
        assert_eq!(cache.get(Pid(1), 0x1000), Some(FunctionId(5)));
        assert_eq!(cache.get(Pid(2), 0x1000), None);
        assert_eq!(cache.get(Pid(1), 0x1001), None);
        assert_eq!(cache.get(KERNEL, u64::MAX), None);
        assert_eq!(cache.get(Pid(u32::MAX), 0), None);
        cache.forget(Pid(1));
        assert_eq!(cache.get(Pid(1), 0x1000), None);
    }
}
