//! The instructions of one function.

use std::ops::Range;

use crate::arch::{self, Instruction};
use crate::binary::elf::Binary;

/// Maximum size of a function, bytes; larger ones are generated tables or damaged symbols.
const MAX_SIZE: u64 = 4 << 20;

/// A stretch of code, disassembled from its first byte to its last.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Its addresses.
    pub range: Range<u64>,
    /// Every instruction, in order.
    pub code: Vec<Instruction>,
    /// Why it could not be decoded to its end; the instructions up to there are correct.
    pub broken: Option<String>,
}

impl Body {
    /// Disassembles a stretch of a binary.
    #[must_use]
    pub(crate) fn read(binary: &Binary, range: Range<u64>) -> Self {
        let cut = range.start..range.end.min(range.start.saturating_add(MAX_SIZE));
        let bytes = binary.bytes(&cut);
        let mut broken = (bytes.len() as u64 != range.end - range.start)
            .then(|| "it is not wholly in the file".to_owned());
        let (code, wrong) = arch::decode(bytes, range.start);
        if let Some(wrong) = wrong {
            broken = Some(format!("there is no instruction at {wrong:#x}"));
        }
        let mut body = Self {
            range,
            code,
            broken,
        };
        body.check_targets();
        body
    }

    /// A jump into the middle of an instruction shows that the stretch holds data.
    fn check_targets(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let wrong = self
            .targets()
            .find(|(_, to)| self.range.contains(to) && self.index_of(*to).is_none());
        if let Some((from, to)) = wrong {
            self.broken = Some(format!(
                "the jump at {from:#x} goes to {to:#x}, into the middle of an instruction"
            ));
        }
    }

    /// Direct jumps, conditional or not: from and to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.code
            .iter()
            .filter_map(|i| i.jump_target().map(|to| (i.address(), to)))
    }

    /// Index of an address in `code`.
    #[must_use]
    pub(crate) fn index_of(&self, address: u64) -> Option<usize> {
        self.code
            .binary_search_by_key(&address, Instruction::address)
            .ok()
    }
}

#[must_use]
pub(super) fn bytes<'a>(binary: &'a Binary, instruction: &Instruction) -> &'a [u8] {
    binary.bytes(&(instruction.address()..instruction.next()))
}
