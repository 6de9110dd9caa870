//! Numbers call stacks by their functions.
//!
//! A stack of addresses is resolved once, at the first sample written with it, and again only after mappings have
//! changed or if its code is compiled at run time. Stacks of the same functions share a number, independent of
//! addresses and processes.

use super::Symbolizer;
use crate::store::schema::StackRow;
use crate::stream::sample::KernelEntry;
use crate::stream::stacks::{Chain, Chains, Lists, StackKey};
use crate::units::{FunctionId, Pid, StackId};

/// The cached result for a stack of addresses.
#[derive(Clone, Copy, Debug)]
struct CachedStack {
    stack: StackId,
    origin: StackOrigin,
    /// [`Symbolizer::changes`] at that time.
    changes: u64,
}

/// Kind of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackOrigin {
    /// A sample: its innermost function is the sample's, which in the kernel depends on how that was entered. At a mark all
    /// frames in the kernel are pebs-trace's own function; at a breakpoint of another tool none is.
    Sample(Option<KernelEntry>),
    /// A wait: it begins with the function that called the scheduler.
    Wait,
}

/// Numbers call stacks by their functions, from 0 without gaps.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// By [`StackKey::index`]. Nearly all stacks of the same addresses have one origin.
    known: Vec<Option<CachedStack>>,
    /// Functions of each stack, the innermost first, followed by [`CUT`] or [`WHOLE`].
    lists: Lists<u32>,
    /// The current stack.
    functions: Vec<u32>,
    /// Number of stacks whose rows were taken.
    taken: u32,
}

/// Last word of a stack whose outer frames are unknown.
const CUT: u32 = 1;

/// Last word of a complete stack.
const WHOLE: u32 = 0;

impl Stacks {
    /// The number of a stack; `None` if there is none.
    pub(crate) fn stack(
        &mut self,
        (key, origin): (StackKey, StackOrigin),
        chains: &Chains,
        symbolizer: &mut Symbolizer,
    ) -> Option<StackId> {
        let index = key.index()?;
        let changes = symbolizer.changes();
        match self.known.get(index).copied().flatten() {
            Some(known) if known.changes == changes && known.origin == origin => Some(known.stack),
            _ => self.look_up(origin, key, chains, symbolizer),
        }
    }

    /// The number of a stack from before an exec: `program` is the pid under which the process's earlier program is
    /// kept.
    ///
    /// Cost: resolved at each call, without a cache.
    pub(crate) fn of_program(
        &mut self,
        key: StackKey,
        origin: StackOrigin,
        program: Pid,
        chains: &Chains,
        symbolizer: &mut Symbolizer,
    ) -> Option<StackId> {
        let (_, chain) = chains.get(key)?;
        Some(self.follow(origin, (program, chain), symbolizer))
    }

    fn look_up(
        &mut self,
        origin: StackOrigin,
        key: StackKey,
        chains: &Chains,
        symbolizer: &mut Symbolizer,
    ) -> Option<StackId> {
        let (index, (pid, chain)) = (key.index()?, chains.get(key)?);
        let stack = self.follow(origin, (pid, chain), symbolizer);
        if !symbolizer.has_jitted(pid) {
            if self.known.len() <= index {
                self.known.resize(index + 1, None);
            }
            self.known[index] = Some(CachedStack {
                stack,
                origin,
                // Read again: the look-up may have read mappings.
                changes: symbolizer.changes(),
            });
        }
        Some(stack)
    }

    fn follow(
        &mut self,
        origin: StackOrigin,
        (pid, chain): (Pid, Chain<'_>),
        symbolizer: &mut Symbolizer,
    ) -> StackId {
        self.functions.clear();
        let mut followed = 0;
        for ip in chain.addresses() {
            match origin {
                StackOrigin::Sample(Some(KernelEntry::Breakpoint)) if ip.is_kernel() => {
                    self.functions.push(symbolizer.function_of_other_tool(ip).0);
                }
                _ => symbolizer.frames(pid, ip, |function| self.functions.push(function.0)),
            }
            followed += 1;
        }
        let end = chain.frames.get(followed);
        let is_cut = chain.is_cut || end.is_some_and(|at| *at != 0);
        let in_kernel = chain.kernel.min(self.functions.len());
        match origin {
            StackOrigin::Sample(None) => {}
            StackOrigin::Sample(Some(KernelEntry::Mark)) => {
                let own = symbolizer.own_function().0;
                self.functions.splice(..in_kernel, [own]);
            }
            StackOrigin::Sample(Some(entry)) => {
                let innermost = self.functions.first_mut().filter(|_| in_kernel > 0);
                if let Some(function) = innermost {
                    *function = symbolizer.entered_by(FunctionId(*function), entry).0;
                }
            }
            StackOrigin::Wait => {
                let in_kernel = &self.functions[..in_kernel];
                let scheduling = |id: &u32| symbolizer.is_scheduling(FunctionId(*id));
                let last = in_kernel.iter().rposition(scheduling);
                self.functions.drain(..last.map_or(0, |last| last + 1));
            }
        }
        self.functions.push(if is_cut { CUT } else { WHOLE });
        StackId(self.lists.number(&self.functions).0)
    }

    /// Passes on the rows of stacks numbered since the last call, each once.
    pub(crate) fn take_new(&mut self, mut take: impl FnMut(&StackRow)) {
        let mut row = StackRow::default();
        while (self.taken as usize) < self.lists.len() {
            row.stack_id = StackId(self.taken);
            row.frames.clear();
            if let [functions @ .., end] = self.lists.get(self.taken) {
                row.frames.extend_from_slice(functions);
                row.truncated = *end == CUT;
            }
            take(&row);
            self.taken += 1;
        }
    }
}
