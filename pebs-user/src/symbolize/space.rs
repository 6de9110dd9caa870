//! The executable mappings of each process, kept up to date from events.
//!
//! Pure: no I/O. Mappings from before the first event are passed to [`Spaces::replace`].
//!
//! ```text
//! fork(p -> c)   c shares p's mappings until either changes
//! exec(p)        none left; the events that follow bring the new ones
//! exit(p)        kept: samples of p may still be on their way
//! retire(p)      gone
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::binary::mapping::Mapping;
use crate::units::Pid;

/// Maximum number of ended processes kept; beyond it the one that ended first is dropped.
pub(crate) const EXITED_KEPT: usize = 4096;

/// Maximum executable mappings kept per process. The kernel does not report unmapping, so a process that maps and
/// unmaps code at ever new addresses would fill memory: at the limit its mappings are dropped, and the next look-up
/// reads them again.
pub(crate) const MAPPINGS_KEPT: usize = 1 << 16;

/// Maximum number of processes; further ones are ignored.
pub(crate) const SPACES_KEPT: usize = 1 << 16;

/// Number of a module, given by the symbolizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ModuleId(pub u32);

/// A mapping, and its module once known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub mapping: Mapping,
    /// The module; `None` if not looked up yet.
    pub module: Option<ModuleId>,
}

/// Whether a change may invalidate earlier results for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Change {
    /// Earlier results are valid: addresses were added, or nothing changed.
    Added,
    /// Addresses with results now have another meaning.
    Replaced,
}

#[derive(Clone, Debug, Default)]
struct Space {
    /// Sorted by start, disjoint. Shared with a parent or child until either changes.
    mapped: Arc<Vec<Mapped>>,
    exited: bool,
}

/// The address spaces of all processes seen.
///
/// Invariant: the mappings of a process are disjoint and sorted.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    spaces: FxHashMap<Pid, Space>,
    /// Ended processes, in order of their end; may contain pids that were retired or reused.
    exited: VecDeque<Pid>,
}

impl Spaces {
    /// Empty.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Whether the process is known.
    #[must_use]
    pub(crate) fn contains(&self, pid: Pid) -> bool {
        self.spaces.contains_key(&pid)
    }

    /// Whether the process is known to have ended.
    #[must_use]
    pub(crate) fn has_exited(&self, pid: Pid) -> bool {
        self.spaces.get(&pid).is_some_and(|space| space.exited)
    }

    /// The mapping at an address. Cost: a hash look-up and O(log mappings).
    #[must_use]
    pub(crate) fn find(&self, pid: Pid, address: u64) -> Option<&Mapped> {
        let mapped = &self.spaces.get(&pid)?.mapped;
        position(mapped, address).map(|index| &mapped[index])
    }

    /// The mappings of a process, by address.
    #[must_use]
    pub(crate) fn mappings(&self, pid: Pid) -> &[Mapped] {
        self.spaces
            .get(&pid)
            .map_or(&[], |space| space.mapped.as_slice())
    }

    /// Sets the module of the mapping at an address.
    pub(crate) fn set_module(&mut self, pid: Pid, address: u64, module: ModuleId) {
        let Some(space) = self.spaces.get_mut(&pid) else {
            return;
        };
        if let Some(index) = position(&space.mapped, address) {
            Arc::make_mut(&mut space.mapped)[index].module = Some(module);
        }
    }

    /// A mapping was created, or an existing one made executable.
    pub(crate) fn on_mapping(&mut self, pid: Pid, mapping: Mapping) -> Change {
        let Some(space) = self.entry(pid) else {
            return Change::Added;
        };
        if space.mapped.len() >= MAPPINGS_KEPT {
            space.mapped = Arc::default();
            return Change::Replaced;
        }
        if let Some(index) = position(&space.mapped, mapping.start)
            && space.mapped[index].mapping == mapping
        {
            return Change::Added;
        }
        insert(Arc::make_mut(&mut space.mapped), mapping)
    }

    /// All mappings of a process, as read from it; modules already found stay with mappings that did not change.
    pub(crate) fn replace(&mut self, pid: Pid, mappings: Vec<Mapping>) -> Change {
        let Some(space) = self.entry(pid) else {
            return Change::Added;
        };
        let mut fresh: Vec<Mapped> = Vec::with_capacity(mappings.len());
        for mapping in mappings.into_iter().take(MAPPINGS_KEPT) {
            let _ = insert(&mut fresh, mapping);
        }
        for new in &mut fresh {
            if let Some(index) = position(&space.mapped, new.mapping.start)
                && same_content(&space.mapped[index].mapping, &new.mapping)
            {
                new.module = space.mapped[index].module;
            }
        }
        let kept = space.mapped.iter().all(|old| {
            position(&fresh, old.mapping.start).is_some_and(|index| fresh[index] == *old)
        });
        space.mapped = Arc::new(fresh);
        if kept {
            Change::Added
        } else {
            Change::Replaced
        }
    }

    /// A process was created, with its parent's mappings. Threads (parent = child) change nothing.
    pub(crate) fn on_fork(&mut self, parent: Pid, child: Pid) -> Change {
        if parent == child {
            return Change::Added;
        }
        let inherited = self.spaces.get(&parent).map(|space| space.mapped.clone());
        let Some(mapped) = inherited else {
            // The pid may have belonged to another process.
            return self.forget(child);
        };
        match self.entry(child) {
            Some(space) => {
                space.mapped = mapped;
                Change::Replaced
            }
            None => Change::Added,
        }
    }

    /// The process has executed another program.
    pub(crate) fn on_exec(&mut self, pid: Pid) -> Change {
        match self.entry(pid) {
            Some(space) => {
                space.mapped = Arc::default();
                Change::Replaced
            }
            None => Change::Added,
        }
    }

    /// The process has ended. Its mappings are kept until [`Spaces::retire`], or until [`EXITED_KEPT`] others have
    /// ended after it.
    ///
    /// Returns a process that was dropped for it.
    pub(crate) fn on_exit(&mut self, pid: Pid) -> Option<Pid> {
        let space = self.spaces.get_mut(&pid)?;
        if !space.exited {
            space.exited = true;
            self.exited.push_back(pid);
        }
        if self.exited.len() <= EXITED_KEPT {
            return None;
        }
        let oldest = self.exited.pop_front()?;
        self.has_exited(oldest).then(|| {
            self.spaces.remove(&oldest);
            oldest
        })
    }

    /// The process that the next [`Spaces::on_exit`] drops, if it drops one.
    #[must_use]
    pub(crate) fn next_dropped(&self) -> Option<Pid> {
        let is_full = self.exited.len() >= EXITED_KEPT;
        self.exited.front().copied().filter(|_| is_full)
    }

    /// No more samples of the process will be looked up.
    pub(crate) fn retire(&mut self, pid: Pid) {
        if self.spaces.remove(&pid).is_some_and(|space| space.exited) {
            self.exited.retain(|exited| *exited != pid);
        }
    }

    fn forget(&mut self, pid: Pid) -> Change {
        match self.spaces.remove(&pid) {
            Some(_) => Change::Replaced,
            None => Change::Added,
        }
    }

    /// Returns the living process of that pid, added if it is new and there is room.
    fn entry(&mut self, pid: Pid) -> Option<&mut Space> {
        if self.spaces.len() >= SPACES_KEPT && !self.spaces.contains_key(&pid) {
            return None;
        }
        let space = self.spaces.entry(pid).or_default();
        space.exited = false;
        Some(space)
    }
}

/// Whether two mappings with the same start show the same bytes of the same file.
fn same_content(old: &Mapping, new: &Mapping) -> bool {
    old.start == new.start && old.offset == new.offset && old.backing == new.backing
}

/// Index of the mapping at an address.
fn position(mapped: &[Mapped], address: u64) -> Option<usize> {
    let behind = mapped.partition_point(|entry| entry.mapping.start <= address);
    let index = behind.checked_sub(1)?;
    mapped[index].mapping.contains(address).then_some(index)
}

/// Inserts a mapping, cutting away the parts of others that it covers.
fn insert(mapped: &mut Vec<Mapped>, mapping: Mapping) -> Change {
    let first = mapped.partition_point(|entry| entry.mapping.end <= mapping.start);
    let last = mapped.partition_point(|entry| entry.mapping.start < mapping.end);
    let mut pieces = Vec::with_capacity(3);
    if let Some(old) = mapped[first..last].first()
        && old.mapping.start < mapping.start
    {
        pieces.push(cut(old, old.mapping.start, mapping.start));
    }
    let (start, end) = (mapping.start, mapping.end);
    pieces.push(Mapped {
        mapping,
        module: None,
    });
    if let Some(old) = mapped[first..last].last()
        && end < old.mapping.end
    {
        pieces.push(cut(old, end, old.mapping.end));
    }
    debug_assert!(start < end);
    mapped.splice(first..last, pieces);
    if first == last {
        Change::Added
    } else {
        Change::Replaced
    }
}

/// The part of a mapping between two of its addresses.
fn cut(old: &Mapped, start: u64, end: u64) -> Mapped {
    let mut piece = old.clone();
    piece.mapping.offset = old.mapping.file_offset(start);
    piece.mapping.start = start;
    piece.mapping.end = end;
    piece
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::binary::mapping::Backing;

    const P: Pid = Pid(10);
    const C: Pid = Pid(11);

    fn anonymous(start: u64, end: u64) -> Mapping {
        Mapping {
            start,
            end,
            offset: start,
            backing: Backing::Anonymous,
        }
    }

    /// A mapping over the middle of another leaves both ends, with correct offsets.
    #[test]
    fn overlap_cuts() {
        let mut spaces = Spaces::new();
        assert_eq!(spaces.on_mapping(P, anonymous(100, 200)), Change::Added);
        spaces.set_module(P, 150, ModuleId(7));
        assert_eq!(spaces.on_mapping(P, anonymous(120, 130)), Change::Replaced);
        let ranges: Vec<_> = spaces
            .mappings(P)
            .iter()
            .map(|entry| (entry.mapping.start, entry.mapping.end, entry.module))
            .collect();
        let seven = Some(ModuleId(7));
        assert_eq!(
            ranges,
            [(100, 120, seven), (120, 130, None), (130, 200, seven)]
        );
        assert_eq!(spaces.find(P, 140).unwrap().mapping.file_offset(140), 140);
    }

    /// A child has its parent's mappings, and its own changes do not affect the parent.
    #[test]
    fn fork_then_exec() {
        let mut spaces = Spaces::new();
        let _ = spaces.on_mapping(P, anonymous(100, 200));
        let _ = spaces.on_fork(P, C);
        assert!(spaces.find(C, 100).is_some());
        assert_eq!(spaces.on_exec(C), Change::Replaced);
        assert!(spaces.find(C, 100).is_none());
        assert!(spaces.find(P, 100).is_some());
        let _ = spaces.on_fork(P, P);
        assert!(spaces.find(P, 100).is_some());
    }

    /// A child with a reused pid does not keep the mappings of the pid's former process.
    #[test]
    fn pid_used_again() {
        let mut spaces = Spaces::new();
        let _ = spaces.on_mapping(C, anonymous(100, 200));
        spaces.on_exit(C);
        assert_eq!(spaces.on_fork(P, C), Change::Replaced);
        assert!(spaces.find(C, 100).is_none());
    }

    /// Ended processes can still be looked up; at the limit the one that ended first is dropped.
    #[test]
    fn exit_is_bounded() {
        let mut spaces = Spaces::new();
        for pid in 0..=u32::try_from(EXITED_KEPT).unwrap() {
            let _ = spaces.on_mapping(Pid(pid), anonymous(100, 200));
            let announced = spaces.next_dropped();
            let dropped = spaces.on_exit(Pid(pid));
            assert_eq!(dropped.is_some(), pid as usize == EXITED_KEPT);
            assert_eq!(dropped, announced);
        }
        assert!(spaces.find(Pid(0), 150).is_none());
        assert!(spaces.find(Pid(1), 150).is_some());
        spaces.retire(Pid(1));
        assert!(spaces.find(Pid(1), 150).is_none());
    }

    /// Reading the same mappings again is no change and keeps the modules.
    #[test]
    fn replace_keeps_modules() {
        let mut spaces = Spaces::new();
        let _ = spaces.replace(P, vec![anonymous(100, 200), anonymous(300, 400)]);
        spaces.set_module(P, 100, ModuleId(1));
        let again = vec![anonymous(100, 200), anonymous(300, 400)];
        assert_eq!(spaces.replace(P, again), Change::Added);
        assert_eq!(spaces.find(P, 100).unwrap().module, Some(ModuleId(1)));
        assert_eq!(
            spaces.replace(P, vec![anonymous(100, 200)]),
            Change::Replaced
        );
    }

    proptest! {
        /// The newest mapping of an address is found, however they overlap.
        #[test]
        fn newest_wins(ranges in prop::collection::vec((0u64..60, 1u64..30), 1..40)) {
            let mut spaces = Spaces::new();
            let mut truth = [None; 100];
            for (id, (start, len)) in ranges.iter().enumerate() {
                let mut mapping = anonymous(*start, start + len);
                mapping.offset = id as u64 * 1000 + start;
                let _ = spaces.on_mapping(P, mapping);
                truth[*start as usize..(start + len) as usize].fill(Some(id as u64));
            }
            for (address, id) in truth.iter().enumerate() {
                let address = address as u64;
                let found = spaces.find(P, address).map(|e| e.mapping.file_offset(address));
                prop_assert_eq!(found, id.map(|id| id * 1000 + address));
            }
            let mapped = spaces.mappings(P);
            prop_assert!(mapped.windows(2).all(|w| w[0].mapping.end <= w[1].mapping.start));
        }
    }
}
