//! Names addresses of data: variables of binaries, else what is mapped there.
//!
//! Variables need only the mapping of their binary's code, so that they are named in ended processes, too. The rest is
//! read from the process while it runs, or in the recording.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::MAPS_AGAIN;
use super::space::{MAPPINGS_KEPT, SPACES_KEPT};
use crate::binary::process;
use crate::units::Pid;

/// Data at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// The variable.
    pub symbol: Option<Rc<str>>,
    /// File mapped there, `[heap]` or `[stack]`; `None`: memory without a name.
    pub object: Option<Rc<str>>,
    /// Offset from the variable's begin, without one from the mapping's.
    pub offset: u64,
}

/// A variable in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub range: Range<u64>,
    pub name: Rc<str>,
}

/// The variable that covers an address; of several the one that begins last. `variables` is sorted by address.
pub(super) fn covering(variables: &[Variable], address: u64) -> Option<&Variable> {
    /// Variables before the address among which it is looked for: variables hardly ever lie within others.
    const NESTED_MAX: usize = 4;
    let before = &variables[..variables.partition_point(|it| it.range.start <= address)];
    let mut near = before.iter().rev().take(NESTED_MAX);
    near.find(|it| it.range.contains(&address))
}

/// Memory that is mapped.
#[derive(Clone, Debug)]
struct Mapped {
    range: Range<u64>,
    /// Begin of its mapping: before that of `range` if a later one covers the first part.
    begin: u64,
    name: Option<Rc<str>>,
}

/// Mappings of processes, by address and disjoint: as they were read last, or as a recording has them.
#[derive(Debug, Default)]
pub(super) struct DataMaps {
    by_pid: FxHashMap<Pid, (Instant, Vec<Mapped>)>,
}

impl DataMaps {
    /// Returns the mapping of a running process at an address; its mappings are read again if the address is not in
    /// them.
    pub(super) fn read(&mut self, pid: Pid, address: u64) -> Option<DataPlace> {
        let known = self.by_pid.get(&pid);
        let found = self.recorded(pid, address);
        if found.is_some() || known.is_some_and(|(read, _)| read.elapsed() < MAPS_AGAIN) {
            return found;
        }
        let maps = process::mappings(pid).unwrap_or_default().into_iter();
        let maps = maps.map(|it| Mapped {
            range: it.start..it.end,
            begin: it.start,
            name: Some(it.path).filter(|path| !path.is_empty()).map(Rc::from),
        });
        let maps = maps.collect();
        self.make_room();
        self.by_pid.insert(pid, (Instant::now(), maps));
        self.recorded(pid, address)
    }

    /// Returns the mapping of a process at an address, as far as it is known.
    pub(super) fn recorded(&self, pid: Pid, address: u64) -> Option<DataPlace> {
        let (_, maps) = self.by_pid.get(&pid)?;
        let behind = maps.partition_point(|it| it.range.start <= address);
        let mapped = &maps[behind.checked_sub(1)?];
        mapped.range.contains(&address).then(|| DataPlace {
            symbol: None,
            object: mapped.name.clone(),
            offset: address - mapped.begin,
        })
    }

    /// Adds a mapping of a recording, which covers earlier ones.
    pub(super) fn add(&mut self, pid: Pid, range: Range<u64>, name: Option<Rc<str>>) {
        if range.is_empty() {
            return;
        }
        self.make_room();
        let (_, maps) = self
            .by_pid
            .entry(pid)
            .or_insert_with(|| (Instant::now(), Vec::new()));
        if maps.len() >= MAPPINGS_KEPT {
            maps.clear();
        }
        let first = maps.partition_point(|it| it.range.end <= range.start);
        let last = maps.partition_point(|it| it.range.start < range.end);
        let cut = |it: &Mapped, range: Range<u64>| Mapped {
            range,
            ..it.clone()
        };
        let covered = &maps[first..last.max(first)];
        let before = covered
            .first()
            .map(|it| cut(it, it.range.start..range.start));
        let after = covered.last().map(|it| cut(it, range.end..it.range.end));
        let own = Mapped {
            begin: range.start,
            range,
            name,
        };
        let pieces = [before, Some(own), after].into_iter().flatten();
        let pieces: Vec<_> = pieces.filter(|it| !it.range.is_empty()).collect();
        maps.splice(first..last.max(first), pieces);
    }

    pub(super) fn forget(&mut self, pid: Pid) {
        self.by_pid.remove(&pid);
    }

    fn make_room(&mut self) {
        if self.by_pid.len() >= SPACES_KEPT {
            self.by_pid.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The innermost variable of an address is found, and none between two.
    #[test]
    fn variables() {
        let variable = |start, end, name: &str| Variable {
            range: start..end,
            name: name.into(),
        };
        let all = [
            variable(10, 30, "outer"),
            variable(12, 14, "inner"),
            variable(40, 48, "last"),
        ];
        let names =
            [9, 10, 12, 14, 29, 30, 40, 48].map(|at| covering(&all, at).map(|it| &*it.name));
        let outer = Some("outer");
        assert_eq!(
            names,
            [
                None,
                outer,
                Some("inner"),
                outer,
                outer,
                None,
                Some("last"),
                None
            ]
        );
    }

    /// This process's heap and stack have their names, other memory none.
    #[test]
    fn own_mappings() {
        let here = 0_u64;
        let mut maps = DataMaps::default();
        let me = Pid(std::process::id());
        let text = maps
            .read(me, own_mappings as *const () as usize as u64)
            .unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(text.object.as_deref(), exe.to_str());
        assert!(maps.read(me, (&raw const here) as usize as u64).is_some());
        assert_eq!(maps.read(me, 8), None);
        assert_eq!(maps.read(Pid(u32::MAX), 8), None);
    }

    /// A later mapping covers earlier ones, whose rest keeps its offsets.
    #[test]
    fn recorded_mappings() {
        let mut maps = DataMaps::default();
        for (range, name) in [
            (100..200, "[heap]"),
            (300..400, "file"),
            (150..160, "inner"),
        ] {
            maps.add(Pid(1), range, Some(name.into()));
        }
        maps.add(Pid(1), 390..410, None);
        maps.add(Pid(1), 5..5, None);
        let at = |address| {
            let place = maps.recorded(Pid(1), address)?;
            Some((place.object.as_deref().map(str::to_owned), place.offset))
        };
        let named = |name: &str, offset| Some((Some(name.to_owned()), offset));
        assert_eq!(at(100), named("[heap]", 0));
        assert_eq!(at(155), named("inner", 5));
        assert_eq!(at(170), named("[heap]", 70));
        assert_eq!(at(389), named("file", 89));
        assert_eq!(at(395), Some((None, 5)));
        assert_eq!([at(99), at(250), at(410)], [None, None, None]);
        assert_eq!(maps.recorded(Pid(2), 100), None);
    }
}
