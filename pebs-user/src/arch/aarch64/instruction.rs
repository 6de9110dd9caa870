//! A decoded instruction.
//!
//! Decoded is what probes need: where control goes, which registers and which memory change. Text is yaxpeax-arm's.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1, "A64 instruction set encoding".

use pebs_common::condition::Condition;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::encoding::{Group, MemoryForm, bits, group, hint, memory_form, signed_bits};
use super::register::Register;
use super::registers_written::{SP, written};
use crate::arch::common::{DataAccess, Flow};

/// Bytes of the longest instruction.
pub(crate) const LONGEST: u64 = BYTES;

/// Bytes of each instruction.
const BYTES: u64 = 4;

/// `nop`.
const NOP: u32 = 0xd503_201f;

/// Registers that the frame of a function begins at.
const STACK: u32 = 31;
const FRAME: u32 = 29;

/// An instruction at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(super) word: u32,
    address: u64,
}

/// Disassembles code that lies at an address, up to the first bytes that are no instruction: their address, if there are
/// any.
pub(crate) fn decode(bytes: &[u8], address: u64) -> (Vec<Instruction>, Option<u64>) {
    let mut code = Vec::with_capacity(bytes.len() / BYTES as usize);
    let (words, rest) = bytes.as_chunks::<{ BYTES as usize }>();
    for (word, address) in words.iter().zip((address..).step_by(BYTES as usize)) {
        let instruction = Instruction {
            word: u32::from_le_bytes(*word),
            address,
        };
        if !instruction.is_allocated() || address % BYTES != 0 {
            return (code, Some(address));
        }
        code.push(instruction);
    }
    let end = address.wrapping_add((bytes.len() - rest.len()) as u64);
    (code, (!rest.is_empty()).then_some(end))
}

/// A checksum of the operations and registers of code at an address, without addresses, constants and fillers, and the
/// number of its instructions. The same in all versions of this program.
pub(crate) fn shape(bytes: &[u8], address: u64) -> (u32, usize) {
    let (code, _) = decode(bytes, address);
    let mut sum = crc32fast::Hasher::new();
    let mut count = 0;
    for instruction in code.iter().filter(|it| !it.is_filler()) {
        count += 1;
        sum.update(&(instruction.word & !constants(instruction.word)).to_le_bytes());
    }
    (sum.finalize(), count)
}

/// Bits of an instruction that are an address or a constant.
const fn constants(word: u32) -> u32 {
    const fn mask(from: u32, count: u32) -> u32 {
        ((1 << count) - 1) << from
    }
    match group(word) {
        Group::Immediate => match bits(word, 23, 3) {
            // `adr`, `adrp`.
            0b000 | 0b001 => mask(5, 19) | mask(29, 2),
            0b101 => mask(5, 16) | mask(21, 2),
            0b010 | 0b011 => mask(10, 13),
            _ => mask(10, 13) & !mask(22, 1),
        },
        Group::Branch => match bits(word, 25, 6) {
            0b00_1010 | 0b00_1011 => mask(0, 26),
            0b01_1011 => mask(5, 14) | mask(19, 5) | mask(31, 1),
            0b01_1010 => mask(5, 19),
            _ if word >> 24 == 0x54 => mask(5, 19),
            _ if word >> 24 == 0xd4 => mask(5, 16),
            _ => 0,
        },
        Group::Memory => match memory_form(word) {
            MemoryForm::Literal => mask(5, 19),
            MemoryForm::Pair { .. } => mask(15, 7),
            MemoryForm::Single { .. } if bits(word, 24, 1) == 1 => mask(10, 12),
            MemoryForm::Single { .. } if bits(word, 21, 1) == 0 => mask(12, 9),
            _ => 0,
        },
        _ => 0,
    }
}

impl Instruction {
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Address of the next instruction.
    pub(crate) const fn next(&self) -> u64 {
        self.address.wrapping_add(BYTES)
    }

    /// Whether it is an instruction at all. `udf` is one: it stops the program, and its zeros are padding.
    fn is_allocated(self) -> bool {
        self.is_undefined() || group(self.word) != Group::None
    }

    const fn is_undefined(&self) -> bool {
        self.word >> 16 == 0
    }

    /// Target of a branch whose distance in instructions is in some bits.
    const fn target(&self, from: u32, count: u32) -> u64 {
        let distance = signed_bits(self.word, from, count) * BYTES as i64;
        self.address.wrapping_add_signed(distance)
    }

    pub(crate) fn flow(&self) -> Flow {
        if self.is_undefined() {
            return Flow::Trap;
        }
        if group(self.word) != Group::Branch {
            return Flow::Next;
        }
        let word = self.word;
        match bits(word, 25, 6) {
            0b00_1010 | 0b00_1011 if word >> 31 == 0 => return Flow::Jump(self.target(0, 26)),
            0b00_1010 | 0b00_1011 => return Flow::Call,
            // `cbz` and `cbnz`; `tbz` and `tbnz`; comparing branches.
            0b01_1010 => return Flow::Branch(self.target(5, 19)),
            0b01_1011 => return Flow::Branch(self.target(5, 14)),
            0b11_1010 => return Flow::Branch(self.target(5, 9)),
            _ => {}
        }
        match word >> 24 {
            // With these conditions it is always taken.
            0x54 if bits(word, 1, 3) == 0b111 => Flow::Jump(self.target(5, 19)),
            0x54 => Flow::Branch(self.target(5, 19)),
            // `retaasppc`.
            0x55 => Flow::Return,
            0xd4 => match (bits(word, 21, 3), bits(word, 0, 2)) {
                (0b000, _) => Flow::SystemCall,
                // `tcancel`.
                (0b011, _) => Flow::Transaction,
                _ => Flow::Trap,
            },
            0xd5 if is_transaction(word) => Flow::Transaction,
            0xd6 | 0xd7 => match bits(word, 21, 3) {
                0b000 => Flow::IndirectJump,
                0b001 => Flow::IndirectCall,
                0b010 => Flow::Return,
                _ => Flow::Trap,
            },
            _ => Flow::Next,
        }
    }

    /// Addresses at which the program goes on: the next instruction, and the target of a direct jump or call.
    pub(crate) fn goes_on(&self) -> [u64; 2] {
        let to = self.jump_target().or_else(|| self.call_target());
        [self.next(), to.unwrap_or_else(|| self.next())]
    }

    /// Target of a direct jump, conditional or not.
    pub(crate) fn jump_target(&self) -> Option<u64> {
        match self.flow() {
            Flow::Jump(to) | Flow::Branch(to) => Some(to),
            _ => None,
        }
    }

    /// Target of a direct call.
    pub(crate) fn call_target(&self) -> Option<u64> {
        (self.flow() == Flow::Call).then(|| self.target(0, 26))
    }

    /// Condition of a conditional branch on the processor's flags.
    pub(crate) fn condition(&self) -> Option<Condition> {
        let is_conditional = self.word >> 24 == 0x54 && matches!(self.flow(), Flow::Branch(_));
        let number = bits(self.word, 0, 4) as u8;
        is_conditional
            .then(|| Condition::of_opcode(number))
            .flatten()
    }

    /// Text as in debuggers.
    pub(crate) fn text(&self) -> String {
        let bytes = self.word.to_le_bytes();
        let decoded = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
        let Ok(decoded) = decoded else {
            return format!(".inst {:#010x}", self.word);
        };
        let text = decoded.to_string();
        let target = self.jump_target().or_else(|| self.call_target());
        // It has distances there.
        match (target, text.rfind(['$', ' '])) {
            (Some(target), Some(at)) => format!("{} {target:#x}", text[..at].trim_end()),
            _ => text,
        }
    }

    /// Whether it only returns.
    pub(crate) fn is_plain_return(&self) -> bool {
        self.flow() == Flow::Return
    }

    pub(crate) const fn is_nop(&self) -> bool {
        self.word == NOP
    }

    /// Whether it is padding that compilers and linkers put between code.
    pub(crate) fn is_filler(&self) -> bool {
        self.is_nop() || self.is_undefined() || self.is_breakpoint()
    }

    pub(crate) const fn is_breakpoint(&self) -> bool {
        self.word & 0xffe0_001f == 0xd420_0000
    }

    /// Whether it has no effect at a function's entry.
    pub(crate) const fn is_landing(&self) -> bool {
        self.is_nop() || matches!(hint(self.word), Some(32 | 34 | 36 | 38))
    }

    /// Whether it is there for indirect branches to land on, so that a probe should be elsewhere: `bti`, `paciasp`, `pacibsp`.
    pub(crate) const fn is_branch_target(&self) -> bool {
        matches!(hint(self.word), Some(25 | 27 | 32 | 34 | 36 | 38))
    }

    /// Whether it saves registers in the function's frame, of which `depth` bytes are below the stack pointer at the entry:
    /// a store by the stack pointer that reaches no higher than that.
    pub(crate) fn saves_registers(&self, depth: i64) -> bool {
        let is_store = group(self.word) == Group::Memory
            && self.kind_of_access() == "store"
            && bits(self.word, 5, 5) == STACK;
        let is_below = |distance| distance + i64::from(self.size()) <= depth;
        is_store && self.distance().is_some_and(is_below)
    }

    /// Whether it may fault in a program that is right: it accesses memory that is neither on the stack nor at a fixed
    /// address.
    pub(crate) fn may_fault(&self) -> bool {
        match group(self.word) {
            Group::Scalable => true,
            Group::Memory => match memory_form(self.word) {
                MemoryForm::Literal => false,
                _ => self.distance().is_none() || !matches!(bits(self.word, 5, 5), STACK | FRAME),
            },
            _ => false,
        }
    }

    pub(crate) fn writes_memory(&self) -> bool {
        match group(self.word) {
            Group::Scalable => true,
            Group::Memory => self.kind_of_access() != "load",
            // Zeroing of cache lines, and other operations on caches.
            Group::Branch => self.word & 0xfff8_0000 == 0xd508_0000,
            _ => false,
        }
    }

    /// Returns `load`, `store` or both, of a load or store; prefetches are loads.
    const fn kind_of_access(&self) -> &'static str {
        let loads = bits(self.word, 22, 1) == 1;
        match memory_form(self.word) {
            // `cas` has bit 21, as have pairs.
            MemoryForm::Exclusive if bits(self.word, 21, 1) == 1 && bits(self.word, 23, 1) == 1 => {
                "load+store"
            }
            MemoryForm::Exclusive if bits(self.word, 21, 1) == 1 && bits(self.word, 31, 1) == 0 => {
                "load+store"
            }
            MemoryForm::Exclusive | MemoryForm::Pair { .. } | MemoryForm::Structures { .. }
                if loads =>
            {
                "load"
            }
            MemoryForm::Literal | MemoryForm::Authenticated { .. } => "load",
            MemoryForm::Single { .. } if bits(self.word, 22, 2) == 0 => "store",
            // A vector of 16 bytes.
            MemoryForm::Single { .. } if bits(self.word, 26, 1) == 1 && !loads => "store",
            MemoryForm::Single { .. } => "load",
            MemoryForm::Atomic | MemoryForm::Other => "load+store",
            _ => "store",
        }
    }

    /// Distance of the memory from its base register, bytes, where that is a constant and there is a base.
    const fn distance(&self) -> Option<i64> {
        let word = self.word;
        match memory_form(word) {
            MemoryForm::Pair { .. } if bits(word, 23, 2) == 0b01 => Some(0),
            MemoryForm::Pair { .. } => Some(signed_bits(word, 15, 7) * (self.size() / 2) as i64),
            MemoryForm::Single { .. } if bits(word, 24, 1) == 1 => {
                Some(bits(word, 10, 12) as i64 * self.size() as i64)
            }
            MemoryForm::Single { .. } if bits(word, 21, 1) == 1 => None,
            // Behind it the base moves.
            MemoryForm::Single { .. } if bits(word, 10, 2) == 0b01 => Some(0),
            MemoryForm::Single { .. } => Some(signed_bits(word, 12, 9)),
            MemoryForm::Exclusive => Some(0),
            _ => None,
        }
    }

    /// Bytes that a load or store accesses; 0: not known.
    const fn size(&self) -> u32 {
        let (word, scale) = (self.word, bits(self.word, 30, 2));
        let is_vector = bits(word, 26, 1) == 1;
        match memory_form(word) {
            MemoryForm::Exclusive => {
                let is_pair = bits(word, 21, 1) == 1 && bits(word, 23, 1) == 0;
                match is_pair {
                    true => 8 << (scale & 1),
                    false => 1 << scale,
                }
            }
            MemoryForm::Literal if is_vector => 4 << scale,
            MemoryForm::Literal if scale == 0b01 => 8,
            MemoryForm::Literal => 4,
            MemoryForm::Pair { .. } if is_vector => 8 << scale,
            MemoryForm::Pair { .. } if scale >> 1 == 0 => 8,
            MemoryForm::Pair { .. } => 16,
            MemoryForm::Single { .. } if is_vector && bits(word, 23, 1) == 1 => 16,
            MemoryForm::Single { .. } | MemoryForm::Atomic => 1 << scale,
            MemoryForm::Authenticated { .. } => 8,
            MemoryForm::Structures { .. } | MemoryForm::Other => 0,
        }
    }

    /// Whether it changes one of these registers. For the stack pointer see [`Self::stack_change`].
    pub(crate) fn changes(&self, registers: &[Register]) -> bool {
        let wanted = registers.iter().fold(0, |set, it| set | it.bit());
        written(self.word) & wanted & !SP != 0
    }

    /// Change of the stack pointer, bytes; `None` if it is not constant.
    pub(crate) fn stack_change(&self) -> Option<i64> {
        let word = self.word;
        if written(word) & SP == 0 {
            return Some(0);
        }
        match group(word) {
            // `add` and `sub` of a constant.
            Group::Immediate if bits(word, 23, 3) == 0b010 && bits(word, 5, 5) == STACK => {
                let value = i64::from(bits(word, 10, 12)) << (12 * bits(word, 22, 1));
                Some(if bits(word, 30, 1) == 1 {
                    -value
                } else {
                    value
                })
            }
            Group::Memory => match memory_form(word) {
                MemoryForm::Pair { .. } => {
                    Some(signed_bits(word, 15, 7) * i64::from(self.size() / 2))
                }
                MemoryForm::Single { .. } if bits(word, 21, 1) == 0 => {
                    Some(signed_bits(word, 12, 9))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns its access to data in memory; `None`: it has none.
    pub(crate) fn data_access(&self) -> Option<DataAccess> {
        let word = self.word;
        if group(word) != Group::Memory {
            return None;
        }
        let is_literal = memory_form(word) == MemoryForm::Literal;
        Some(DataAccess {
            op: self.kind_of_access(),
            bytes: self.size(),
            address: is_literal.then(|| self.target(5, 19)),
        })
    }

    /// Whether it completes in one step: a copy of memory may be resumed in the middle.
    pub(crate) const fn is_one_step(&self) -> bool {
        // `cpy` and `set`.
        self.word & 0x3b20_0c00 != 0x1900_0400
    }
}

/// `tstart` and `tcommit`.
const fn is_transaction(word: u32) -> bool {
    word & 0xffff_ffe0 == 0xd523_3060 || word == 0xd503_307f
}

/// Access of the instruction that begins at `at`.
pub(crate) fn access_at(bytes: &[u8], at: u64) -> Option<DataAccess> {
    let first = bytes.get(..BYTES as usize)?;
    decode(first, at).0.first()?.data_access()
}

/// Access of the instruction that ends at `end`, in code that begins at `start`; `None` if no instruction ends there.
pub(crate) fn access_before(bytes: &[u8], start: u64, end: u64) -> Option<DataAccess> {
    let before = end.checked_sub(BYTES)?.checked_sub(start)?;
    access_at(bytes.get(usize::try_from(before).ok()?..)?, end - BYTES)
}
