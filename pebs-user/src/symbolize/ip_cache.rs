//! A small cache in front of all other look-ups.

use rustc_hash::FxHashMap;

use crate::units::{FunctionId, Ip, Pid, Slot, spread};

/// Entries of the table. 16 bytes each: 1 MiB, of which only cache lines with addresses in use are touched.
const PLACES: usize = 1 << 16;

/// Maximum number of cached addresses. The table is at most half full, so that the first probed entry mostly
/// matches.
const ADDRESSES: usize = Slot::COUNT;

const _: () = assert!(ADDRESSES == PLACES / 2 && PLACES == 1 << u16::BITS);

/// An address and its process in one number: user space addresses have the owner's number in the upper 16 bits,
/// kernel addresses, the same in all processes, have all of them set. 0 is unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u64);

/// Bits of an address. Larger ones (user space with five levels of page tables) are not cached.
const ADDRESS_BITS: u32 = 48;

impl Key {
    /// Key of no address.
    const NONE: Self = Self(0);

    #[inline(always)]
    const fn new(owner: Owner, ip: Ip) -> Option<Self> {
        match ip.0 >> ADDRESS_BITS {
            0 => Some(Self(ip.0 | owner.0)),
            KERNEL => Some(Self(ip.0)),
            _ => None,
        }
    }

    /// The first entry to probe.
    #[inline(always)]
    const fn place(self) -> u16 {
        spread(self.0)
    }
}

/// The upper bits of the kernel's addresses.
const KERNEL: u64 = 0xffff;

/// A process's number, shifted above the address bits. A process that is forgotten and seen again gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    /// A process without cached addresses.
    const UNKNOWN: Self = Self::new(KERNEL - 1);
    /// Maximum number of owners, numbered from 1.
    const COUNT: u64 = KERNEL - 2;

    const fn new(number: u64) -> Self {
        Self(number << ADDRESS_BITS)
    }
}

/// A key, and behind it the function and its slot. Numbers, so that a table of free ones is memory that nobody has touched.
#[derive(Clone, Copy, Debug)]
struct Entry([u64; 2]);

impl Entry {
    /// As it is in a free place.
    const FREE: [u64; 2] = [Key::NONE.0, 0];

    const fn new(key: Key, function: FunctionId, slot: Slot) -> Self {
        Self([key.0, (slot.0 as u64) << 32 | function.0 as u64])
    }

    #[inline(always)]
    const fn key(self) -> Key {
        Key(self.0[0])
    }

    #[inline(always)]
    const fn function(self) -> FunctionId {
        FunctionId(self.0[1] as u32)
    }

    #[inline(always)]
    const fn slot(self) -> Slot {
        Slot((self.0[1] >> 32) as u16)
    }
}

/// Cache of the functions of addresses by process.
///
/// A table with open addressing: an address is at its hashed entry or the next free one. When the table is full,
/// all addresses are dropped. Cost: mostly one cache line per look-up.
pub(super) struct IpCache {
    places: Box<[[u64; 2]; PLACES]>,
    /// Number of cached addresses, including those of forgotten processes.
    len: usize,
    owners: FxHashMap<Pid, Owner>,
    /// Number of owners so far, including forgotten ones.
    owners_met: u64,
    /// The process of the last look-up.
    last: (Pid, Owner),
}

impl IpCache {
    /// Empty.
    #[must_use]
    pub(super) fn new() -> Self {
        let places = vec![Entry::FREE; PLACES].into_boxed_slice();
        let Ok(places) = places.try_into() else {
            unreachable!("there are as many");
        };
        Self {
            places,
            len: 0,
            owners: FxHashMap::default(),
            owners_met: 0,
            last: (Pid(0), Owner::UNKNOWN),
        }
    }

    /// The cached function of an address in a process, and its slot; `None` if it is not cached.
    #[inline]
    #[must_use]
    pub(super) fn get(&mut self, pid: Pid, ip: Ip) -> Option<(FunctionId, Slot)> {
        let key = Key::new(self.owner(pid), ip)?;
        let entry = self.entry(self.place_of(key));
        (entry.key() == key).then(|| (entry.function(), entry.slot()))
    }

    /// Looks up many addresses, and returns the number found before the first that does not match its first entry.
    /// That one may be cached or not.
    #[inline(never)]
    pub(super) fn get_all(
        &mut self,
        pid: Pid,
        ips: &[Ip],
        (functions, slots): (&mut [FunctionId], &mut [Slot]),
    ) -> usize {
        let (owner, places) = (self.owner(pid), &*self.places);
        let to = functions.iter_mut().zip(slots);
        for (index, (ip, (function, slot))) in ips.iter().zip(to).enumerate() {
            let Some(key) = Key::new(owner, *ip) else {
                return index;
            };
            let entry = Entry(places[usize::from(key.place())]);
            if entry.key() != key {
                return index;
            }
            (*function, *slot) = (entry.function(), entry.slot());
        }
        ips.len()
    }

    /// Remembers.
    pub(super) fn put(&mut self, pid: Pid, ip: Ip, function: FunctionId) {
        if self.len >= ADDRESSES || self.owners_met >= Owner::COUNT {
            self.clear();
        }
        let Some(key) = Key::new(self.own(pid), ip) else {
            return;
        };
        let at = self.place_of(key);
        let entry = self.entry(at);
        let mut slot = entry.slot();
        if entry.key() == Key::NONE {
            slot = Slot(self.len as u16);
            self.len += 1;
        }
        self.places[usize::from(at)] = Entry::new(key, function, slot).0;
    }

    /// Forgets all of a process.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.owners.remove(&pid);
        self.last = (pid, Owner::UNKNOWN);
    }

    /// Forgets all. Cost: about 30 us.
    #[cold]
    fn clear(&mut self) {
        self.places.fill(Entry::FREE);
        self.owners.clear();
        (self.len, self.owners_met) = (0, 0);
        self.last.1 = Owner::UNKNOWN;
    }

    #[inline(always)]
    fn owner(&mut self, pid: Pid) -> Owner {
        if self.last.0 != pid {
            self.turn_to(pid);
        }
        self.last.1
    }

    #[inline(never)]
    fn turn_to(&mut self, pid: Pid) {
        let owner = self.owners.get(&pid);
        self.last = (pid, owner.copied().unwrap_or(Owner::UNKNOWN));
    }

    /// The owner number of a process; assigns one if it has none.
    fn own(&mut self, pid: Pid) -> Owner {
        let next = Owner::new(self.owners_met + 1);
        let owner = *self.owners.entry(pid).or_insert(next);
        self.owners_met += u64::from(owner == next);
        self.last = (pid, owner);
        owner
    }

    #[inline(always)]
    fn entry(&self, at: u16) -> Entry {
        Entry(self.places[usize::from(at)])
    }

    /// The entry with a key, or the free one for it.
    #[inline]
    fn place_of(&self, key: Key) -> u16 {
        let mut at = key.place();
        // Half of the places are free.
        loop {
            let found = self.entry(at).key();
            if found == key || found == Key::NONE {
                return at;
            }
            at = at.wrapping_add(1);
        }
    }
}

impl Default for IpCache {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const USER: u64 = 0x1000;
    const KERNEL_SPACE: u64 = 0xffff_8000_0000_0000;

    fn found(cache: &mut IpCache, pid: u32, ip: u64) -> Option<FunctionId> {
        cache.get(Pid(pid), Ip(ip)).map(|(function, _)| function)
    }

    /// A result is valid only for its process and address, and is dropped when the process is forgotten; results
    /// for kernel addresses are shared by all processes.
    #[test]
    fn remembers_exactly() {
        let mut cache = IpCache::new();
        let function = FunctionId(5);
        let mine = [USER, 0, (1 << ADDRESS_BITS) - 1];
        for ip in mine.into_iter().chain([KERNEL_SPACE]) {
            cache.put(Pid(1), Ip(ip), function);
        }
        // Addresses that collide with the owner's bits are not cached.
        let odd = [
            USER | 1 << ADDRESS_BITS,
            USER | 2 << ADDRESS_BITS,
            1 << 63 | USER,
        ];
        for (pid, ip) in [(1, odd[0]), (1, odd[1]), (2, odd[2])] {
            assert_eq!(found(&mut cache, pid, ip), None);
            cache.put(Pid(pid), Ip(ip), FunctionId(9));
            assert_eq!(found(&mut cache, pid, ip), None);
        }
        for pid in [1, 2, 0, u32::MAX] {
            for ip in mine {
                assert_eq!(found(&mut cache, pid, ip).is_some(), pid == 1);
            }
            assert_eq!(found(&mut cache, pid, KERNEL_SPACE), Some(function));
            for other in [USER + 1, 1, u64::MAX] {
                assert_eq!(found(&mut cache, pid, other), None);
            }
        }
        cache.put(Pid(1), Ip(USER), FunctionId(6));
        assert_eq!(found(&mut cache, 1, USER), Some(FunctionId(6)));
        cache.forget(Pid(1));
        for ip in mine {
            assert_eq!(found(&mut cache, 1, ip), None);
        }
        assert_eq!(found(&mut cache, 1, KERNEL_SPACE), Some(function));
        cache.put(Pid(1), Ip(USER), FunctionId(7));
        assert_eq!(found(&mut cache, 1, USER), Some(FunctionId(7)));
        assert_eq!(found(&mut cache, 1, 0), None);
    }

    /// A batch finds a prefix, with the same results as single look-ups; the next address is nearly always
    /// uncached.
    #[test]
    fn many_at_once() {
        let mut cache = IpCache::new();
        let ips: Vec<Ip> = [3, 1, USER, KERNEL_SPACE, 1, 1 << 60, 3].map(Ip).into();
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
            let next = ips.get(count);
            assert_eq!(next.and_then(|ip| cache.get(Pid(1), *ip)), None);
            cache.put(Pid(1), ips[known], FunctionId(known as u32));
        }
    }

    /// All addresses are found until the table is full, each in a distinct slot; then all are dropped.
    #[test]
    fn slots_are_their_own() {
        let mut cache = IpCache::new();
        let ip = |n: usize| Ip(n as u64 * n as u64);
        for n in 0..ADDRESSES {
            cache.put(Pid(1 + n as u32 % 3), ip(n), FunctionId(n as u32));
        }
        let mut slots = HashSet::new();
        for n in 0..ADDRESSES {
            let (function, slot) = cache.get(Pid(1 + n as u32 % 3), ip(n)).unwrap();
            assert_eq!(function, FunctionId(n as u32));
            assert!(usize::from(slot.0) < Slot::COUNT && slots.insert(slot.0));
        }
        cache.put(Pid(1), Ip(5), FunctionId(5));
        assert_eq!(cache.get(Pid(1), Ip(5)), Some((FunctionId(5), Slot(0))));
        assert_eq!(cache.get(Pid(1), ip(0)), None);
    }

    /// With any number of processes, none gets results of another.
    #[test]
    fn owners_without_end() {
        let mut cache = IpCache::new();
        cache.put(Pid(0), Ip(USER), FunctionId(0));
        for n in 1..150_000 {
            let pid = Pid(n % 70_000);
            assert_eq!(found(&mut cache, pid.0, USER + 1), None);
            cache.put(pid, Ip(USER + 1), FunctionId(n));
            assert_eq!(found(&mut cache, pid.0, USER + 1), Some(FunctionId(n)));
            assert!(found(&mut cache, 0, USER).is_none_or(|it| it == FunctionId(0)));
            if n % 2 == 0 || n >= 70_000 {
                cache.forget(pid);
            }
        }
    }
}
