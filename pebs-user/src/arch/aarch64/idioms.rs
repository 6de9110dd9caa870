//! Recognizes compiled `switch` statements and calls through pointers.

use super::encoding::{Group, MemoryForm, bits, group, hint, memory_form};
use super::instruction::Instruction;
use super::registers_written::written;
use crate::arch::common::{Flow, IndirectJump};

/// Offset of `stackguard0` in `runtime.g`: behind the bounds of the stack.
/// Source: src/runtime/runtime2.go of Go.
const GO_STACK_GUARD: u32 = 0x10;

/// Go's register of the current goroutine.
const GO_GOROUTINE: u32 = 28;

/// Number of instructions before an indirect jump that are searched for the load from its table.
const TABLE_WINDOW: usize = 12;

/// Bytes of a page, of which `adrp` gives the first.
const PAGE: u64 = 4096;

/// Distinguishes a `switch` from a call through a pointer, at `code[index]`: a table if an entry was added to an address
/// shortly before, a tail call if the register was loaded from memory or moved.
pub(crate) fn indirect_jump(code: &[Instruction], index: usize, _bytes: &[u8]) -> IndirectJump {
    let mut wanted = bits(code[index].word, 5, 5);
    let start = index.saturating_sub(TABLE_WINDOW);
    for before in code[start..index].iter().rev() {
        if !matches!(before.flow(), Flow::Next | Flow::Branch(_)) {
            break;
        }
        if written(before.word) >> wanted & 1 == 0 {
            continue;
        }
        if let Some(from) = moved(before.word) {
            wanted = from;
            continue;
        }
        return match group(before.word) {
            // `add`, also of an extended or shifted register.
            Group::Register if bits(before.word, 24, 7) == 0b000_1011 => IndirectJump::Switch,
            Group::Memory => match memory_form(before.word) {
                MemoryForm::Single { .. }
                    if bits(before.word, 21, 1) == 1 && is_indexed(before) =>
                {
                    IndirectJump::Unclear
                }
                _ => IndirectJump::TailCall,
            },
            _ => IndirectJump::Unclear,
        };
    }
    // Loaded further away, or on several paths: a switch needs a table somewhere.
    let may_be_table = |it: &Instruction| {
        let adds = group(it.word) == Group::Register && bits(it.word, 24, 7) == 0b000_1011;
        written(it.word) >> wanted & 1 == 1 && (adds || is_indexed(it))
    };
    match code.iter().any(may_be_table) {
        true => IndirectJump::Unclear,
        false => IndirectJump::TailCall,
    }
}

/// The register that `mov` copies.
fn moved(word: u32) -> Option<u32> {
    // `orr` with the zero register, not shifted.
    let is_move = word & 0xffe0_ffe0 == 0xaa00_03e0;
    is_move.then(|| bits(word, 16, 5))
}

/// Whether a load or store has a register as its distance.
fn is_indexed(instruction: &Instruction) -> bool {
    let word = instruction.word;
    let is_single = matches!(memory_form(word), MemoryForm::Single { writes_back: false });
    let by_register = bits(word, 24, 1) == 0 && bits(word, 21, 1) == 1 && bits(word, 10, 2) == 0b10;
    group(word) == Group::Memory && is_single && by_register
}

/// Nearby addresses that code takes, including those of jump tables: by `adr`, or by `adrp` and a distance.
pub(crate) fn addresses_taken(code: &[Instruction]) -> impl Iterator<Item = u64> + '_ {
    code.iter().enumerate().filter_map(|(index, it)| {
        let word = it.word;
        if group(word) != Group::Immediate || bits(word, 24, 5) != 0b10000 {
            return None;
        }
        let high = (bits(word, 5, 19) << 13).cast_signed() >> 11;
        let distance = i64::from(high) | i64::from(bits(word, 29, 2));
        if word >> 31 == 0 {
            return Some(it.address().wrapping_add_signed(distance));
        }
        let page = (it.address() & !(PAGE - 1)).wrapping_add_signed(distance * PAGE as i64);
        let target = bits(word, 0, 5);
        // `add` of a constant to the same register, without shift.
        let adds = |it: &&Instruction| {
            it.word & 0xffc0_0000 == 0x9100_0000 && bits(it.word, 5, 5) == target
        };
        let near = code[index + 1..].iter().take(TABLE_WINDOW);
        let added = near.clone().find(adds)?;
        Some(page.wrapping_add(u64::from(bits(added.word, 10, 12))))
    })
}

/// Whether an indirect jump goes through a register: each does.
pub(crate) const fn is_through_register(_jump: &Instruction) -> bool {
    true
}

/// Address of a table of absolute addresses that a jump uses: none does so directly.
pub(crate) const fn absolute_table(_jump: &Instruction) -> Option<u64> {
    None
}

/// Whether an entry of four bytes of a table was loaded shortly before, and added to the table's own address. Tables of
/// shorter entries, which are distances from another place, are not read.
pub(crate) fn loads_entry(before: &[Instruction]) -> bool {
    let mut near = before.iter().rev().take(TABLE_WINDOW);
    // `ldrsw`, by a register.
    near.any(|it| it.word & 0xffe0_0c00 == 0xb8a0_0800)
}

/// Whether an instruction compares the stack protector's value: it is not distinguished from other comparisons.
pub(crate) const fn checks_stack(_instruction: &Instruction) -> bool {
    false
}

/// Whether an instruction loads the limit of the stack of Go's current goroutine, which x28 points to.
pub(crate) fn checks_goroutine_stack(instruction: &Instruction) -> bool {
    let word = instruction.word;
    // `ldr xN, [x28, #16]`.
    word & 0xffc0_0000 == 0xf940_0000
        && bits(word, 5, 5) == GO_GOROUTINE
        && bits(word, 10, 12) * 8 == GO_STACK_GUARD
}

/// Whether code begins with the call that reports a smashed stack, after padding.
pub(crate) fn begins_with_call(code: &[Instruction]) -> bool {
    let first = code.iter().take(3).find(|it| !it.is_nop());
    first.is_some_and(|it| it.flow() == Flow::Call)
}

/// Moves and arithmetic of a few cycles each.
pub(crate) fn is_simple(instruction: &Instruction) -> bool {
    let word = instruction.word;
    match group(word) {
        Group::Immediate => true,
        // Without divisions and checksums.
        Group::Register => bits(word, 21, 8) != 0b1101_0110,
        // Moves between registers of both kinds.
        Group::Vector => word & 0x7f20_fc00 == 0x1e20_0000 || word & 0xffbf_fc00 == 0x1e20_4000,
        Group::Memory => matches!(
            memory_form(word),
            MemoryForm::Pair { .. } | MemoryForm::Single { .. } | MemoryForm::Literal
        ),
        // Signing and authentication, and `nop`.
        Group::Branch => matches!(hint(word), Some(0 | 7..=39)),
        Group::None | Group::Scalable => false,
    }
}
