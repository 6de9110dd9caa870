//! The unwind rules of one binary, each kept once.

use std::fs::File;

use rustc_hash::FxHashMap;

use crate::binary::elf_image;
use crate::binary::frames::Frames;
use crate::binary::pclntab::{GoFrame, GoStacks};
use crate::binary::unwind::{FrameRule, NoCaller, Registers, StackCopy, step};

/// Maximum number of addresses whose rules are kept, 12 bytes each; at the limit all are dropped.
const ADDRESSES_KEPT: usize = 1 << 20;

/// Bytes of code at the entry of a program, which have no caller whether a table says so or not.
const ENTRY: u64 = 64;

/// Tables, and the rules read from them so far.
#[derive(Debug)]
pub(super) struct UnwindRules {
    tables: Frames,
    /// Frames of Go functions, for which a stripped program has no other table.
    go: Option<GoStacks>,
    /// Address of the program's first instruction; 0: none.
    entry: u64,
    rules: Vec<FrameRule>,
    by_rule: FxHashMap<FrameRule, u32>,
    /// Index of an address's rule; `u32::MAX`: none.
    by_address: FxHashMap<u64, u32>,
}

impl UnwindRules {
    /// Cost: about 100 ns per function of the file.
    pub(super) fn read(file: &File) -> Self {
        let (tables, go, entry) = elf_image::read_unwind_tables(file);
        Self {
            tables,
            go,
            entry,
            rules: Vec::new(),
            by_rule: FxHashMap::default(),
            by_address: FxHashMap::default(),
        }
    }

    /// See [`super::module::Module::unwind`].
    pub(super) fn step(
        &mut self,
        address: u64,
        registers: &mut Registers,
        stack: &StackCopy<'_>,
    ) -> Result<bool, Option<NoCaller>> {
        let index = match self.by_address.get(&address) {
            Some(index) => *index,
            None => self.find(address),
        };
        let Some(rule) = self.rules.get(index as usize) else {
            let is_entry = self.entry > 0 && (self.entry..self.entry + ENTRY).contains(&address);
            return Err(is_entry.then_some(NoCaller::Outermost));
        };
        step(&self.tables, rule, registers, stack).map_err(Some)?;
        Ok(rule.is_signal())
    }

    #[cold]
    fn find(&mut self, address: u64) -> u32 {
        if self.by_address.len() >= ADDRESSES_KEPT {
            self.by_address.clear();
            self.by_rule.clear();
            self.rules.clear();
        }
        let of_go = self.go.as_ref().and_then(|go| go.frame_at(address));
        let rule = match of_go {
            Some(GoFrame::Outermost) => Some(FrameRule::outermost()),
            Some(GoFrame::OtherStack) => None,
            Some(GoFrame::Depth(bytes)) => {
                let general = self.tables.rule_at(address);
                general.or_else(|| Some(FrameRule::of_depth(bytes)))
            }
            None => self.tables.rule_at(address),
        };
        let index = match rule {
            None => u32::MAX,
            Some(rule) => match self.by_rule.get(&rule) {
                Some(index) => *index,
                None => {
                    let index = self.rules.len() as u32;
                    self.rules.push(rule.clone());
                    self.by_rule.insert(rule, index);
                    index
                }
            },
        };
        self.by_address.insert(address, index);
        index
    }
}
