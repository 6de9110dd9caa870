//! Call paths: the callers of the function in which a sample was taken, as far as they are within the item.
//!
//! A path is the functions of a call stack from the one that ran to the function that the item is a call of; the
//! callers of that are the same for all items. If that function is not on the stack (items between two places,
//! truncated stacks) the path is the whole stack.
//!
//! The time of a function in a visit is divided among paths in proportion to its samples in that visit. So the
//! paths of a function sum to it, in each visit and in every mean.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::rows::functions;
use crate::store::call_stacks::read_stacks;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{EventInfo, SiteInfo, VisitRule};
use crate::store::view::{Select as _, View as _, columns};

/// A call path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// The function that ran, then its callers, the nearest first.
    pub frames: Box<[u32]>,
    /// Outer frames are not known.
    pub truncated: bool,
    /// Whether there was a call stack.
    pub known: bool,
}

impl Path {
    /// The function that ran.
    pub(crate) fn function(&self) -> Option<u32> {
        self.frames.first().copied()
    }

    /// Callers, the nearest first.
    pub(crate) fn callers(&self) -> &[u32] {
        self.frames.get(1..).unwrap_or_default()
    }
}

/// Every call path of a trace, by number.
///
/// Memory: in proportion to the table of stacks.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_stack: FxHashMap<u32, u32>,
    numbers: FxHashMap<Path, u32>,
    all: Vec<Path>,
}

impl Paths {
    /// Reads them.
    pub(crate) fn read(trace: &Trace) -> Result<Self, ReadError> {
        let items = item_functions(trace)?;
        let mut paths = Self::default();
        read_stacks(trace, |stack, frames, truncated| {
            let item = frames.iter().rposition(|frame| items.contains(frame));
            let number = paths.number(Path {
                frames: item.map_or(frames, |item| &frames[..=item]).into(),
                truncated: truncated && item.is_none(),
                known: true,
            });
            paths.by_stack.insert(stack, number);
        })?;
        Ok(paths)
    }

    fn number(&mut self, path: Path) -> u32 {
        // Fewer than 2^32: each takes more than a byte of a file.
        let next = self.all.len() as u32;
        match self.numbers.entry(path) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.all.push(new.key().clone());
                *new.insert(next)
            }
        }
    }

    /// The path of a sample: of a function alone if it has no stack, or one that does not end in it.
    pub(crate) fn of(&mut self, stack: Option<u32>, function: u32) -> u32 {
        let known = stack.and_then(|stack| self.by_stack.get(&stack).copied());
        let ends_there = |number: &u32| self.get(*number).function() == Some(function);
        known.filter(ends_there).unwrap_or_else(|| {
            self.number(Path {
                frames: [function].into(),
                truncated: true,
                known: false,
            })
        })
    }

    /// The path at which a thread went to wait, starting with the functions of the kernel.
    pub(crate) fn of_wait(&self, stack: u32) -> Option<u32> {
        self.by_stack.get(&stack).copied()
    }

    /// All that were met.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Path> {
        self.all.iter()
    }

    pub(crate) fn get(&self, number: u32) -> &Path {
        &self.all[number as usize]
    }
}

columns! {
    struct Code of functions { function_id, module, offset, size, kernel, name }
}

/// The functions that items are calls of.
fn item_functions(trace: &Trace) -> Result<FxHashSet<u32>, ReadError> {
    let calls = trace.info.probes.iter();
    let calls = calls.filter(|probe| matches!(probe.rule, VisitRule::Call | VisitRule::GoCall));
    let begins = calls.flat_map(|probe| probe.sites.iter());
    let begins: Vec<_> = begins.filter(|site| site.role == "begin").collect();
    let mut found = FxHashSet::default();
    for batch in Code::scan(trace)? {
        let batch = batch?;
        let columns = Code::of(&batch)?;
        for row in 0..batch.num_rows() {
            let (module, first) = (columns.module.get(row), columns.offset.get(row));
            let (Some(module), Some(first), false) = (module, first, columns.kernel.get(row))
            else {
                continue;
            };
            let size = columns.size.get(row).unwrap_or(1).max(1);
            let code = first..first.saturating_add(size);
            let name = columns.name.get(row);
            // The module has the name under which the process runs it, which may be another name of the file.
            let is_there = |site: &SiteInfo| {
                let place = site
                    .place
                    .rsplit_once("+0x")
                    .map_or(&*site.place, |it| it.0);
                site.path == module || name == Some(place)
            };
            let mut begins = begins.iter();
            if begins.any(|site| code.contains(&site.file_offset) && is_there(site)) {
                found.insert(columns.function_id[row]);
            }
        }
    }
    Ok(found)
}

/// Events that a sample of a function in a visit stands for: equally many for all samples of the function there.
///
/// Memory: 24 bytes for each function in a visit whose samples differ from the run's reset value.
#[derive(Debug)]
pub(crate) struct Weights {
    usual: f64,
    others: FxHashMap<(u64, u32), f64>,
}

impl Weights {
    /// Reads the weights of one event.
    pub(crate) fn read(trace: &Trace, event: &EventInfo) -> Result<Self, ReadError> {
        // Without a reset value all samples have equal weight.
        let usual = match event.frequency {
            Some(_) => 1.0,
            None => event.reset as f64,
        };
        let mut others = FxHashMap::default();
        functions(trace, event, |seen| {
            let weight = seen.stands_for() / f64::from(seen.samples.max(1));
            // Computed from the same numbers, so equal to the last bit.
            if weight.total_cmp(&usual).is_ne() {
                others.insert((seen.visit, seen.function), weight);
            }
        })?;
        Ok(Self { usual, others })
    }

    /// Events that a sample stands for.
    pub(crate) fn of(&self, visit: u64, function: u32) -> f64 {
        let other = self.others.get(&(visit, function));
        other.copied().unwrap_or(self.usual)
    }
}
