//! Work with known events, in assembly: no compiler adds or removes an instruction.
//!
//! Source: Listings 1 to 3 of the paper, as in its artifact (`accuracy-bench`, `bias-bench`, `mult-events`).
#![expect(
    unsafe_code,
    reason = "calls functions written in assembly, to know their instructions"
)]

use std::ffi::c_void;

use rustix::mm;

use crate::arch::work::CALLS_USE_STACK;
use crate::rng::SplitMix64;

/// Elements of the chased array: each in a line of its own, 128 bytes apart, more than the first level cache holds.
const ELEMENTS: usize = 1_000;
/// 32-bit words from one element to the next.
const STRIDE: usize = 32;

unsafe extern "C" {
    fn pebs_validate_chase20(table: *const u32, outer: u32, inner: u32);
    fn pebs_validate_chase20_load();
    fn pebs_validate_chase100(table: *const u32, outer: u32, inner: u32);
    fn pebs_validate_chase100_load();
    fn pebs_validate_bias(rounds: u64, word: *const u32);
    fn pebs_validate_bias_1();
    fn pebs_validate_bias_2();
    fn pebs_validate_bias_3();
    fn pebs_validate_bias_4();
    fn pebs_validate_bias_end();
    fn pebs_validate_touch(base: *mut u8, page: usize, rounds: usize);
    fn pebs_validate_touch_1();
    fn pebs_validate_touch_2();
    fn pebs_validate_touch_3();
    fn pebs_validate_touch_4();
    fn pebs_validate_touch_end();
    fn pebs_validate_walk(first: *const usize, steps: u64);
    fn pebs_validate_many(rounds: u64, word: *mut u32);
    fn pebs_validate_many_call();
    fn pebs_validate_many_lock();
    fn pebs_validate_many_load();
    fn pebs_validate_many_branch();
    fn pebs_validate_many_return();
}

type Function = unsafe extern "C" fn();

fn at(function: Function) -> u64 {
    function as usize as u64
}

/// Share of instructions that are loads which miss the first level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ratio {
    /// One in 20.
    In20,
    /// One in 100.
    In100,
}

impl Ratio {
    /// Instructions of a step.
    pub(crate) const fn instructions(self) -> u64 {
        match self {
            Self::In20 => 20,
            Self::In100 => 100,
        }
    }
}

/// The array of pointer chasing, one cycle over all elements in random order.
pub(crate) struct Chase {
    table: Vec<u32>,
    ratio: Ratio,
}

impl Chase {
    /// A chase of this ratio.
    pub(crate) fn new(ratio: Ratio) -> Self {
        let mut order: Vec<u32> = (0..ELEMENTS as u32).collect();
        let mut rng = SplitMix64::new(1);
        // Sattolo's shuffle gives one cycle.
        for n in (1..ELEMENTS).rev() {
            order.swap(n, rng.below(n as u32) as usize);
        }
        let mut table = vec![0; ELEMENTS * STRIDE];
        for (element, next) in order.into_iter().enumerate() {
            table[element * STRIDE] = next;
        }
        Self { table, ratio }
    }

    /// Ratio of instructions to loads.
    pub(crate) const fn ratio(&self) -> Ratio {
        self.ratio
    }

    /// Address of the load.
    pub(crate) fn load(&self) -> u64 {
        at(match self.ratio {
            Ratio::In20 => pebs_validate_chase20_load,
            Ratio::In100 => pebs_validate_chase100_load,
        })
    }

    /// Does this many loads, rounded up to whole rounds of [`Chase::ROUND`].
    pub(crate) fn run(&self, loads: u64) -> ChaseTruth {
        let rounds = loads.div_ceil(u64::from(Self::ROUND)).max(1);
        let outer = rounds.min(u64::from(u32::MAX)) as u32;
        let function: unsafe extern "C" fn(*const u32, u32, u32) = match self.ratio {
            Ratio::In20 => pebs_validate_chase20,
            Ratio::In100 => pebs_validate_chase100,
        };
        let per = self.ratio.instructions();
        // SAFETY: the function reads elements only: each holds the number of another one.
        unsafe { function(self.table.as_ptr(), outer, Self::ROUND) };
        let (outer, inner) = (u64::from(outer), u64::from(Self::ROUND));
        ChaseTruth {
            loads: outer * inner,
            // Four of each round, and push, pop and ret.
            instructions: outer * (inner * per + 4) + 3,
        }
    }

    /// Loads of a round.
    pub(crate) const ROUND: u32 = 100;
}

/// True counts of a chase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChaseTruth {
    /// Loads that missed, in the instruction at [`Chase::load`].
    pub loads: u64,
    /// Instructions.
    pub instructions: u64,
}

/// A loop with four instructions that each make the same number of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    /// Addresses of the four.
    pub sites: [u64; 4],
    /// Its first address, and the one after its last.
    pub range: (u64, u64),
}

impl Loop {
    /// A loop of loads.
    pub(crate) fn loads() -> Self {
        let sites: [Function; 4] = [
            pebs_validate_bias_1,
            pebs_validate_bias_2,
            pebs_validate_bias_3,
            pebs_validate_bias_4,
        ];
        Self {
            sites: sites.map(at),
            range: (at(pebs_validate_bias_1), at(pebs_validate_bias_end)),
        }
    }

    /// A loop of stores to new pages.
    pub(crate) fn touches() -> Self {
        let sites: [Function; 4] = [
            pebs_validate_touch_1,
            pebs_validate_touch_2,
            pebs_validate_touch_3,
            pebs_validate_touch_4,
        ];
        Self {
            sites: sites.map(at),
            range: (at(pebs_validate_touch_1), at(pebs_validate_touch_end)),
        }
    }
}

/// Loads a word four times a round.
pub(crate) fn load_four(rounds: u64) {
    let word = 0u32;
    // SAFETY: the function reads the word.
    unsafe { pebs_validate_bias(rounds.max(1), &raw const word) };
}

/// Fresh pages that have not been touched yet.
pub(crate) struct Pages {
    base: *mut c_void,
    count: usize,
    page: usize,
}

impl Pages {
    /// This many, rounded up to a multiple of four.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn new(count: u64) -> rustix::io::Result<Self> {
        let count = (count as usize).next_multiple_of(4).max(4);
        let page = rustix::param::page_size();
        let protection = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        let bytes = count * page;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                protection,
                mm::MapFlags::PRIVATE,
            )
        }?;
        // SAFETY: the mapping is ours; a kernel without huge pages refuses, and needs no such advice.
        let _ = unsafe { mm::madvise(base, bytes, mm::Advice::LinuxNoHugepage) };
        Ok(Self { base, count, page })
    }

    /// Number of pages, which is that of the faults of [`Pages::touch`].
    pub(crate) const fn count(&self) -> u64 {
        self.count as u64
    }

    /// Address of a page.
    pub(crate) fn address(&self, number: usize) -> u64 {
        self.base as u64 + (number * self.page) as u64
    }

    /// Whether an address is in one of the pages.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.address(0)..self.address(self.count)).contains(&address)
    }

    /// Stores to each page once, from the four instructions of [`Loop::touches`] in turn.
    pub(crate) fn touch(&self) {
        // SAFETY: the mapping is ours and may be written; it has `count` pages.
        unsafe { pebs_validate_touch(self.base.cast(), self.page, self.count / 4) };
    }

    /// Has the kernel fill all pages by one system call: the faults are in the kernel.
    ///
    /// # Errors
    /// `/dev/zero` can't be read.
    pub(crate) fn fill(&self) -> std::io::Result<()> {
        use std::io::Read as _;
        let mut zero = std::fs::File::open("/dev/zero")?;
        for number in 0..self.count {
            // SAFETY: the page is ours, may be written, and nothing else points to it.
            let page = unsafe {
                std::slice::from_raw_parts_mut(self.address(number) as *mut u8, self.page)
            };
            zero.read_exact(page)?;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more.
        let _ = unsafe { mm::munmap(self.base, self.count * self.page) };
    }
}

/// Memory that is walked from pointer to pointer in random order: each load waits for the one before.
pub(crate) struct Walk {
    words: Vec<usize>,
}

impl Walk {
    /// Memory of this many bytes, with a pointer every `stride` bytes.
    pub(crate) fn new(bytes: usize, stride: usize) -> Self {
        let apart = stride.max(8) / 8;
        let count = (bytes / 8 / apart).max(2);
        let mut order: Vec<usize> = (0..count).collect();
        let mut rng = SplitMix64::new(2);
        for n in (1..count).rev() {
            // Sattolo's shuffle gives one cycle.
            order.swap(n, rng.below(n as u32) as usize);
        }
        let mut words = vec![0; count * apart];
        let base = words.as_ptr() as usize;
        for (n, next) in order.into_iter().enumerate() {
            words[n * apart] = base + next * apart * 8;
        }
        Self { words }
    }

    /// Address of the load.
    pub(crate) fn load() -> u64 {
        pebs_validate_walk as unsafe extern "C" fn(_, _) as usize as u64
    }

    /// Address of the first pointer.
    #[cfg(test)]
    pub(crate) fn first(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// Whether an address is in the memory of the pointers.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let base = self.words.as_ptr() as u64;
        (base..base + self.words.len() as u64 * 8).contains(&address)
    }

    /// Follows this many pointers.
    pub(crate) fn run(&self, steps: u64) {
        // SAFETY: each pointer leads to another one in the same memory.
        unsafe { pebs_validate_walk(self.words.as_ptr(), steps.max(1)) };
    }
}

/// Accesses to the stack by a call, and by a return.
const STACK: u64 = CALLS_USE_STACK as u64;

/// Events of a round of the loop of many kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoundEvent {
    /// The load on its own, both locked instructions and the return.
    Loads,
    /// Both locked instructions and the call.
    Stores,
    /// The call, the return and two conditional ones.
    Branches,
    /// The call, the return and the last conditional one, but for the last round.
    Taken,
    /// Returns of the called function.
    Returns,
    /// Two.
    Locked,
}

impl RoundEvent {
    /// In the order of the paper: the number of events grows from one end.
    pub(crate) const ALL: [Self; 6] = [
        Self::Loads,
        Self::Stores,
        Self::Branches,
        Self::Taken,
        Self::Locked,
        Self::Returns,
    ];

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Loads => "loads",
            Self::Stores => "stores",
            Self::Branches => "branches",
            Self::Taken => "taken branches",
            Self::Returns => "returns",
            Self::Locked => "locked loads",
        }
    }

    /// Events in this many rounds, the last return of the loop itself included.
    pub(crate) const fn events(self, rounds: u64) -> u64 {
        match self {
            Self::Loads => (3 + STACK) * rounds + STACK,
            Self::Stores => (2 + STACK) * rounds,
            // The loop's own return; the last round leaves by the first conditional branch, before the second.
            Self::Branches => 4 * rounds,
            Self::Taken => 3 * rounds + 1,
            Self::Returns => rounds + 1,
            Self::Locked => 2 * rounds,
        }
    }

    /// An instruction that makes one such event a round, for a breakpoint, and its executions in this many rounds.
    pub(crate) fn site(self, rounds: u64) -> Option<(u64, u64)> {
        Some(match self {
            Self::Loads => (at(pebs_validate_many_load), rounds),
            Self::Returns => (at(pebs_validate_many_return), rounds),
            Self::Locked => (at(pebs_validate_many_lock), rounds),
            Self::Taken => (at(pebs_validate_many_branch), rounds.saturating_sub(1)),
            Self::Stores | Self::Branches => return None,
        })
    }
}

/// Runs the loop of many kinds.
pub(crate) fn many(rounds: u64) {
    let mut word = 0u32;
    // SAFETY: the function reads and writes the word.
    unsafe { pebs_validate_many(rounds.max(1), &raw mut word) };
    debug_assert!(at(pebs_validate_many_call) < at(pebs_validate_many_return));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chase visits every element before the first one again.
    #[test]
    fn one_cycle() {
        let chase = Chase::new(Ratio::In20);
        let mut at = 0;
        for step in 1..=ELEMENTS {
            at = chase.table[at * STRIDE] as usize;
            assert_eq!(at == 0, step == ELEMENTS, "{step}");
        }
    }

    /// The work runs and reports what it did.
    #[test]
    fn truth() {
        let truth = Chase::new(Ratio::In20).run(1_001);
        assert_eq!((truth.loads, truth.instructions), (1_100, 11 * 2_004 + 3));
        let truth = Chase::new(Ratio::In100).run(100);
        assert_eq!((truth.loads, truth.instructions), (100, 10_007));
        load_four(10);
        many(10);
        let pages = Pages::new(5).unwrap();
        assert_eq!(pages.count(), 8);
        pages.touch();
        Pages::new(4).unwrap().fill().unwrap();
    }

    /// The labelled instructions are in order, the first one at the begin of the loop and all within it.
    #[test]
    fn instructions_are_in_order() {
        let Loop { sites, range } = Loop::loads();
        assert!(sites.is_sorted() && sites[0] == range.0 && sites[3] < range.1);
        let Loop { sites, range } = Loop::touches();
        assert!(sites.is_sorted() && sites[0] == range.0 && sites[3] < range.1);
    }
}
