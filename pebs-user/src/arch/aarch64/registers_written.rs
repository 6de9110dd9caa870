//! General registers that an instruction changes.
//!
//! Where an encoding is rare or newer than this table, more registers count than it changes: a probe then stays in front of
//! it. Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1, "A64 instruction set encoding".

use super::encoding::{Group, MemoryForm, bits, group, hint, memory_form};

/// A set of registers: bit n is xn, bit 31 the stack pointer.
pub(super) type Set = u32;

/// The stack pointer.
pub(super) const SP: Set = 1 << 31;
/// The link register.
const LINK: Set = 1 << 30;
/// Not known.
const ALL: Set = u32::MAX;

/// Registers that the instruction may change.
pub(super) fn written(word: u32) -> Set {
    match group(word) {
        Group::None => 0,
        Group::Scalable => ALL,
        Group::Immediate => immediate(word),
        Group::Branch => branch(word),
        Group::Memory => memory(word),
        Group::Register => register(word),
        Group::Vector => vector(word),
    }
}

/// A register of five bits; number 31 is the zero register.
const fn general(word: u32, from: u32) -> Set {
    match bits(word, from, 5) {
        31 => 0,
        number => 1 << number,
    }
}

/// The same, where number 31 is the stack pointer.
const fn or_stack(word: u32, from: u32) -> Set {
    1 << bits(word, from, 5)
}

fn immediate(word: u32) -> Set {
    let sets_flags = bits(word, 29, 1) == 1;
    match bits(word, 23, 3) {
        // Additions and subtractions, those of memory tags too.
        0b010 if !sets_flags => or_stack(word, 0),
        0b011 if bits(word, 22, 1) == 0 => or_stack(word, 0),
        // Logical operations other than `ands`.
        0b100 if bits(word, 29, 2) != 0b11 => or_stack(word, 0),
        // `autiasppc`, beside `extr`.
        0b111 if bits(word, 29, 2) == 0b11 => LINK,
        _ => general(word, 0),
    }
}

fn branch(word: u32) -> Set {
    // `bl`, and those of `blr`.
    if word >> 26 == 0b100101 || word >> 25 == 0b110_1011 && bits(word, 21, 2) == 1 {
        return LINK;
    }
    // `mrrs` reads into a pair of registers.
    if word >> 21 == 0b110_1010_1011 {
        return general(word, 0) | general(word, 0) << 1 & !SP;
    }
    if word >> 22 != 0b11_0101_0100 {
        return 0;
    }
    match hint(word) {
        // Signing and authentication: of x17, else of the link register.
        Some(8 | 10 | 12 | 14) => 1 << 17,
        Some(7 | 24..=31) => LINK,
        // `chkfeat`.
        Some(40) => 1 << 16,
        Some(_) => 0,
        // `mrs`, `sysl` and others read into a register.
        None if bits(word, 21, 1) == 1 => general(word, 0),
        None => 0,
    }
}

fn register(word: u32) -> Set {
    let sets_flags = bits(word, 29, 1) == 1;
    // Additions and subtractions of an extended register.
    if bits(word, 24, 5) == 0b01011 && bits(word, 21, 1) == 1 && !sets_flags {
        return or_stack(word, 0);
    }
    // `irg`.
    if word & 0xffe0_fc00 == 0x9ac0_1000 {
        return or_stack(word, 0);
    }
    // `ccmp` and `ccmn` have flags in that place.
    match bits(word, 21, 8) {
        0b1101_0010 => 0,
        _ => general(word, 0),
    }
}

fn vector(word: u32) -> Set {
    // Conversions to integers, of scalars; `fmov` among them.
    let converts = word & 0x5f20_fc00 == 0x1e20_0000 || word & 0x5f20_0000 == 0x1e00_0000;
    // `smov` and `umov`.
    let moves = word & 0xbfe0_8400 == 0x0e00_0400 && matches!(bits(word, 11, 4), 5 | 7);
    match converts || moves {
        true => general(word, 0),
        false => 0,
    }
}

fn memory(word: u32) -> Set {
    let (target, second, base) = (general(word, 0), general(word, 10), or_stack(word, 5));
    let status = general(word, 16);
    let is_vector = bits(word, 26, 1) == 1;
    let data = |set: Set| if is_vector { 0 } else { set };
    match memory_form(word) {
        // `stxr` has a status, `casp` pairs.
        MemoryForm::Exclusive => target | second | status | (status | target) << 1 & !SP,
        MemoryForm::Literal if bits(word, 30, 2) == 0b11 => 0,
        MemoryForm::Literal => data(target),
        MemoryForm::Pair { writes_back } => {
            let loads = bits(word, 22, 1) == 1;
            let loaded = if loads { data(target | second) } else { 0 };
            loaded | if writes_back { base } else { 0 }
        }
        MemoryForm::Single { writes_back } => {
            let opcode = bits(word, 22, 2);
            let is_prefetch = !is_vector && bits(word, 30, 2) == 0b11 && opcode == 0b10;
            let loaded = match opcode {
                0 => 0,
                _ if is_prefetch => 0,
                _ => data(target),
            };
            loaded | if writes_back { base } else { 0 }
        }
        MemoryForm::Authenticated { writes_back } => target | if writes_back { base } else { 0 },
        MemoryForm::Atomic => {
            // 64-byte loads and stores use eight registers.
            let is_large = bits(word, 30, 2) == 0b11 && bits(word, 15, 1) == 1;
            if is_large && !matches!(bits(word, 12, 3), 0 | 0b100) {
                return ALL;
            }
            data(target)
        }
        MemoryForm::Structures { writes_back } => match writes_back {
            true => base,
            false => 0,
        },
        // Copies of memory change all three; ordered pairs may write back.
        MemoryForm::Other => target | second | status | base,
    }
}
