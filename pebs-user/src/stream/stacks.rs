//! Call stacks seen so far, each kept once under a number that fits in a sample.
//!
//! Knows addresses only. Memory is bounded: when it is full, new stacks get no number and are counted.

use std::hash::{Hash, Hasher as _};

use rustc_hash::{FxHashMap, FxHasher};

use crate::units::{Ip, Pid};

/// Number of a [`Chain`] in [`Chains`], from 1; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackKey(u32);

impl StackKey {
    /// The sample has no stack.
    pub const NONE: Self = Self(0);

    /// Largest number: as many as fit in a [`SampleKind`](crate::stream::sample::SampleKind).
    const COUNT: usize = (1 << 29) - 1;

    const fn new(index: u32) -> Self {
        Self(index + 1)
    }

    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// Index from 0; `None` for no stack.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

/// A call stack: frames in the kernel, then frames in user space, each innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain<'a> {
    /// Number of frames in the kernel.
    pub kernel: usize,
    /// Whether outer frames are missing.
    pub is_cut: bool,
    /// Addresses. The first of each mode is the current ip, the others are return addresses.
    pub frames: &'a [u64],
}

impl Chain<'_> {
    /// Iterates over an address within each frame's instruction: in the call, not behind it.
    ///
    /// Ends at a user-space caller at 0, as the outermost may be, or in the kernel: there the program kept
    /// something other than a frame pointer in its register.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Ip> {
        let is_first = |place| place == 0 || place == self.kernel;
        let frames = self.frames.iter().copied().enumerate();
        let is_frame = move |place, at| place <= self.kernel || !Ip(at).is_kernel() && at != 0;
        let frames = frames.take_while(move |(place, at)| is_frame(*place, *at));
        frames.map(move |(place, at)| {
            Ip(if is_first(place) {
                at
            } else {
                at.wrapping_sub(1)
            })
        })
    }
}

/// Lists of values, each kept once, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct Lists<T> {
    items: Vec<T>,
    lists: Vec<List>,
    /// Newest list of each hash.
    by_hash: FxHashMap<u64, u32>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    start: usize,
    length: u32,
    /// An older list of the same hash.
    older: Option<u32>,
}

/// Bytes of a list besides its items, about.
const LIST_BYTES: usize = size_of::<List>() + 16;

impl<T: Copy + Eq + Hash> Lists<T> {
    /// Returns a list; empty if there is none of that number.
    #[must_use]
    pub(crate) fn get(&self, number: u32) -> &[T] {
        let list = self.lists.get(number as usize).copied();
        list.map_or(&[], |list| {
            &self.items[list.start..list.start + list.length as usize]
        })
    }

    /// Number of lists.
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.lists.len()
    }

    /// Memory used, bytes, about.
    #[must_use]
    pub(crate) const fn bytes(&self) -> usize {
        self.items.len() * size_of::<T>() + self.lists.len() * LIST_BYTES
    }

    /// Returns the number of a known list; `Err`: the hash of an unknown one.
    fn find(&self, list: &[T]) -> Result<u32, u64> {
        let mut hasher = FxHasher::default();
        list.hash(&mut hasher);
        let hash = hasher.finish();
        let mut next = self.by_hash.get(&hash).copied();
        while let Some(number) = next {
            if self.get(number) == list {
                return Ok(number);
            }
            next = self.lists[number as usize].older;
        }
        Err(hash)
    }

    /// Returns the number of a list, and whether it is new. Cost: hashing and comparing it; no allocation unless it
    /// is new.
    pub(crate) fn number(&mut self, list: &[T]) -> (u32, bool) {
        match self.find(list) {
            Ok(number) => (number, false),
            Err(hash) => (self.keep(hash, list), true),
        }
    }

    fn keep(&mut self, hash: u64, list: &[T]) -> u32 {
        // There can't be more than u32::MAX: each takes over 40 bytes.
        let number = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        let older = self.by_hash.insert(hash, number);
        self.lists.push(List {
            start: self.items.len(),
            length: u32::try_from(list.len()).unwrap_or(u32::MAX),
            older,
        });
        self.items.extend_from_slice(list);
        number
    }
}

/// Shift of the number of kernel frames in a stack's first word; the pid is below.
const KERNEL_SHIFT: u32 = 32;

/// Bit of a stack's first word: outer frames are missing.
const CUT: u64 = 1 << 63;

/// The call stacks seen so far, by process.
#[derive(Debug)]
pub(crate) struct Chains {
    /// Each begins with a word of pid, number of kernel frames and [`CUT`].
    lists: Lists<u64>,
    /// Buffer for the current stack.
    words: Vec<u64>,
    most_bytes: usize,
    refused: u64,
}

impl Chains {
    /// Returns an empty set that holds at most `most_bytes` of stacks.
    #[must_use]
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            lists: Lists::default(),
            words: Vec::new(),
            most_bytes,
            refused: 0,
        }
    }

    /// Returns the number of a process's stack; [`StackKey::NONE`] if it is new and there is no room for it.
    ///
    /// Cost: about 1 ns a frame for a known one.
    pub(crate) fn key(
        &mut self,
        pid: Pid,
        (kernel, is_cut): (usize, bool),
        frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        let cut = if is_cut { CUT } else { 0 };
        let first = u64::from(pid.0) | (kernel as u64) << KERNEL_SHIFT | cut;
        self.words.clear();
        self.words.push(first);
        self.words.extend(frames);
        match self.lists.find(&self.words) {
            Ok(number) => StackKey::new(number),
            Err(hash) => {
                let is_full = self.lists.len() >= StackKey::COUNT;
                let bytes = self.lists.bytes() + self.words.len() * size_of::<u64>() + LIST_BYTES;
                if is_full || bytes > self.most_bytes {
                    self.refused += 1;
                    return StackKey::NONE;
                }
                StackKey::new(self.lists.keep(hash, &self.words))
            }
        }
    }

    /// Returns a stack and its process.
    #[must_use]
    pub(crate) fn get(&self, key: StackKey) -> Option<(Pid, Chain<'_>)> {
        let index = u32::try_from(key.index()?).ok()?;
        let (first, frames) = self.lists.get(index).split_first()?;
        let chain = Chain {
            kernel: (first >> KERNEL_SHIFT) as usize & 0xffff,
            is_cut: first & CUT != 0,
            frames,
        };
        Some((Pid(*first as u32), chain))
    }

    /// Number of samples whose stack found no room.
    #[must_use]
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(chains: &mut Chains, pid: u32, kernel: usize, frames: &[u64]) -> StackKey {
        chains.key(Pid(pid), (kernel, false), frames.iter().copied())
    }

    /// A stack keeps its number; the same frames of another process, or divided otherwise, have another number.
    #[test]
    fn kept_once() {
        let mut chains = Chains::new(1 << 20);
        let first = key(&mut chains, 1, 0, &[10, 20, 30]);
        assert_eq!(key(&mut chains, 1, 0, &[10, 20, 30]), first);
        let others = [
            key(&mut chains, 2, 0, &[10, 20, 30]),
            key(&mut chains, 1, 1, &[10, 20, 30]),
            key(&mut chains, 1, 0, &[10, 20]),
            chains.key(Pid(1), (0, true), [10, 20, 30].into_iter()),
        ];
        assert!(others.iter().all(|other| *other != first));
        let (pid, chain) = chains.get(others[1]).unwrap();
        assert_eq!((pid, chain.kernel, chain.is_cut), (Pid(1), 1, false));
        assert_eq!(chain.frames, [10, 20, 30]);
        assert!(chains.get(others[3]).unwrap().1.is_cut);
        assert_eq!(chains.get(StackKey::NONE), None);
    }

    /// The innermost frame of each mode is the current ip; callers are looked up before their return address.
    #[test]
    fn addresses() {
        let chain = Chain {
            kernel: 2,
            is_cut: false,
            frames: &[100, 200, 300, 400],
        };
        let addresses: Vec<u64> = chain.addresses().map(|ip| ip.0).collect();
        assert_eq!(addresses, [100, 199, 300, 399]);
        let in_kernel = 1 << 63;
        let strange = Chain {
            frames: &[in_kernel, in_kernel, 300, in_kernel, 500],
            ..chain
        };
        assert_eq!(strange.addresses().count(), 3);
    }

    /// If there is no room, new stacks are counted and have no number; known ones keep theirs.
    #[test]
    fn full() {
        let mut chains = Chains::new(2 * (LIST_BYTES + 3 * 8));
        let first = key(&mut chains, 1, 0, &[1, 2]);
        let second = key(&mut chains, 1, 0, &[3, 4]);
        assert_eq!(key(&mut chains, 1, 0, &[5, 6]), StackKey::NONE);
        assert_eq!(key(&mut chains, 1, 0, &[5, 6]), StackKey::NONE);
        assert_eq!(chains.refused(), 2);
        assert_eq!(key(&mut chains, 1, 0, &[1, 2]), first);
        assert_eq!(key(&mut chains, 1, 0, &[3, 4]), second);
    }

    proptest::proptest! {
        /// Any lists come back, each under one number, even with equal hashes.
        #[test]
        fn any_lists(lists: Vec<Vec<u64>>) {
            let mut kept = Lists::default();
            let numbers: Vec<u32> = lists.iter().map(|list| kept.number(list).0).collect();
            for (list, number) in lists.iter().zip(&numbers) {
                proptest::prop_assert_eq!(kept.get(*number), list.as_slice());
                proptest::prop_assert_eq!(kept.number(list), (*number, false));
            }
        }
    }
}
