//! The instructions of one function.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter};

use crate::binary::elf::Binary;

/// Bytes of a function at most; larger ones are generated tables or damaged symbols.
const MAX_SIZE: u64 = 4 << 20;

/// A stretch of code, disassembled from its first byte to its last.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Its addresses.
    pub range: Range<u64>,
    /// Every instruction, in order.
    pub code: Vec<Instruction>,
    /// Why it could not be read to its end in good order; the instructions up to there are right.
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
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut code = Vec::with_capacity(bytes.len() / 4);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                broken = Some(format!(
                    "there is no instruction at {:#x}",
                    instruction.ip()
                ));
                break;
            }
            code.push(instruction);
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
            .filter_map(|i| jump_target(i).map(|to| (i.ip(), to)))
    }

    /// Where in `code` an address is.
    #[must_use]
    pub(crate) fn index_of(&self, address: u64) -> Option<usize> {
        self.code
            .binary_search_by_key(&address, Instruction::ip)
            .ok()
    }

    /// Whether the code below the stack pointer may hold live data somewhere in this function: a leaf that
    /// uses the red zone. There the kernel's call in place of a five-byte nop would overwrite it.
    #[must_use]
    pub(crate) fn uses_red_zone(&self) -> bool {
        below_stack_pointer(&self.code)
    }
}

/// Whether an instruction reads or writes below the stack pointer.
#[must_use]
pub(super) fn below_stack_pointer(code: &[Instruction]) -> bool {
    code.iter().any(|i| {
        i.memory_base() == iced_x86::Register::RSP
            && i.memory_displacement64().cast_signed() < 0
            && i.mnemonic() != iced_x86::Mnemonic::Lea
    })
}

/// Target of a direct jump that is not a call.
#[must_use]
pub(super) fn jump_target(instruction: &Instruction) -> Option<u64> {
    let direct = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    );
    direct.then(|| instruction.near_branch_target())
}

/// An instruction as text (Intel syntax, as debuggers show it).
#[must_use]
pub(super) fn text(instruction: &Instruction) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    text
}

#[must_use]
pub(super) fn bytes<'a>(binary: &'a Binary, instruction: &Instruction) -> &'a [u8] {
    binary.bytes(&(instruction.ip()..instruction.next_ip()))
}
