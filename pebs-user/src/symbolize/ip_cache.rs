//! A small cache in front of all look-ups.

use crate::units::{FunctionId, Ip, Pid};

/// Entries, a power of two. 16 bytes each: 256 KiB, within the L2 cache of a core.
const ENTRIES: usize = 1 << 14;

/// The pid under which kernel addresses are kept: they are the same in every process.
const KERNEL: Pid = Pid(u32::MAX - 1);

/// Whose address it is: the process's, or the kernel's.
#[inline(always)]
const fn owner(pid: Pid, ip: Ip) -> Pid {
    if ip.is_kernel() { KERNEL } else { pid }
}

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

    /// The function of an address in a process, if it is remembered, and in which slot: the address's own until
    /// another takes it.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, pid: Pid, ip: Ip) -> Option<(FunctionId, Slot)> {
        let owner = owner(pid, ip);
        let pair = pair(owner, ip.0);
        let second = usize::from(self.pairs[pair][1].ip == ip.0);
        let entry = &self.pairs[pair][second];
        let found = (entry.ip == ip.0) & (entry.pid == owner);
        found.then_some((entry.function, Slot((2 * pair + second) as u16)))
    }

    /// The same of many, up to the first that is not remembered: says how many.
    #[inline]
    pub fn get_all(
        &self,
        pid: Pid,
        ips: &[Ip],
        (functions, slots): (&mut [FunctionId], &mut [Slot]),
    ) -> usize {
        let to = functions.iter_mut().zip(slots);
        for (index, (ip, (function, slot))) in ips.iter().zip(to).enumerate() {
            let Some(found) = self.get(pid, *ip) else {
                return index;
            };
            (*function, *slot) = found;
        }
        ips.len()
    }

    /// Remembers, unless a recording says that the pid is one that has a meaning of its own here.
    pub fn put(&mut self, pid: Pid, ip: Ip, function: FunctionId) {
        if pid.0 >= KERNEL.0 && !ip.is_kernel() {
            return;
        }
        let pid = owner(pid, ip);
        let [first, second] = &mut self.pairs[pair(pid, ip.0)];
        *first = *second;
        *second = Entry {
            ip: ip.0,
            pid,
            function,
        };
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

    const USER: u64 = 0x1000;
    const KERNEL_SPACE: u64 = 0xffff_8000_0000_0000;

    fn found(cache: &IpCache, pid: u32, ip: u64) -> Option<FunctionId> {
        cache.get(Pid(pid), Ip(ip)).map(|(function, _)| function)
    }

    /// An answer is for its process and address alone, and goes when its process is forgotten; the kernel's are for
    /// all processes.
    #[test]
    fn remembers_exactly() {
        let mut cache = IpCache::new();
        let function = FunctionId(5);
        cache.put(Pid(1), Ip(USER), function);
        cache.put(Pid(1), Ip(KERNEL_SPACE), function);
        for pid in [1, 2, KERNEL.0, u32::MAX] {
            assert_eq!(found(&cache, pid, USER).is_some(), pid == 1);
            assert_eq!(found(&cache, pid, KERNEL_SPACE), Some(function));
            for other in [USER + 1, 0, u64::MAX] {
                assert_eq!(found(&cache, pid, other), None);
            }
        }
        for pid in [KERNEL.0, u32::MAX] {
            cache.put(Pid(pid), Ip(USER), function);
            assert_eq!(found(&cache, pid, USER), None);
        }
        cache.forget(Pid(1));
        assert_eq!(found(&cache, 1, USER), None);
        assert_eq!(found(&cache, 1, KERNEL_SPACE), Some(function));
    }

    /// Of many, those up to the first that is not remembered are found as one by one.
    #[test]
    fn many_at_once() {
        let mut cache = IpCache::new();
        let ips: Vec<Ip> = [3, 1, USER, KERNEL_SPACE, 1, 7, 3].map(Ip).into();
        for known in 0..ips.len() {
            let mut names = (vec![FunctionId(9); 7], vec![Slot(9); 7]);
            let to = (names.0.as_mut_slice(), names.1.as_mut_slice());
            let count = cache.get_all(Pid(1), &ips, to);
            let all = ips.iter().zip(names.0.into_iter().zip(names.1));
            let (now, later) = (all.clone().take(count), all.skip(count));
            for (ip, name) in now {
                assert_eq!(cache.get(Pid(1), *ip), Some(name));
            }
            assert!(
                later
                    .map(|(_, name)| name)
                    .eq(vec![(FunctionId(9), Slot(9)); 7 - count])
            );
            assert_eq!(ips.get(count).and_then(|ip| cache.get(Pid(1), *ip)), None);
            cache.put(Pid(1), ips[known], FunctionId(known as u32));
        }
    }

    /// Addresses that are remembered have slots of their own.
    #[test]
    fn slots_are_their_own() {
        let mut cache = IpCache::new();
        (0..30_000).for_each(|ip| cache.put(Pid(1), Ip(ip), FunctionId(ip as u32)));
        let found: Vec<_> = (0..30_000)
            .filter_map(|ip| cache.get(Pid(1), Ip(ip)))
            .collect();
        let slots: HashSet<u16> = found.iter().map(|(_, slot)| slot.0).collect();
        assert!(found.len() > ENTRIES / 2, "{}", found.len());
        assert_eq!(slots.len(), found.len());
        assert!(slots.iter().all(|slot| usize::from(*slot) < Slot::COUNT));
    }
}
