//! Encoding of instructions: their groups, and the forms of loads and stores.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4.1, "A64 instruction set encoding".

/// A group of encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Not allocated, or `udf`.
    None,
    /// SVE and SME.
    Scalable,
    /// Data processing with an immediate.
    Immediate,
    /// Branches, exceptions and the system.
    Branch,
    /// Loads and stores.
    Memory,
    /// Data processing with registers.
    Register,
    /// Floating point and vectors.
    Vector,
}

/// Form of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryForm {
    /// Exclusive or ordered, and compare-and-swap.
    Exclusive,
    /// At a distance from the instruction.
    Literal,
    /// Two registers.
    Pair { writes_back: bool },
    /// One register.
    Single { writes_back: bool },
    /// One register, by an address that is authenticated.
    Authenticated { writes_back: bool },
    /// Read and written in one.
    Atomic,
    /// Structures of vectors.
    Structures { writes_back: bool },
    /// Copies of memory, tags, ordered ones with an offset.
    Other,
}

/// `count` bits from bit `from` on.
pub(super) const fn bits(word: u32, from: u32, count: u32) -> u32 {
    word >> from & ((1 << count) - 1)
}

/// The same as a number with a sign.
pub(super) const fn signed_bits(word: u32, from: u32, count: u32) -> i64 {
    let unused = 32 - count;
    (bits(word, from, count) << unused).cast_signed() as i64 >> unused
}

pub(super) const fn group(word: u32) -> Group {
    match bits(word, 25, 4) {
        0b0000 if bits(word, 31, 1) == 1 => Group::Scalable,
        0b0010 => Group::Scalable,
        0b1000 | 0b1001 => Group::Immediate,
        0b1010 | 0b1011 => Group::Branch,
        0b0100 | 0b0110 | 0b1100 | 0b1110 => Group::Memory,
        0b0101 | 0b1101 => Group::Register,
        0b0111 | 0b1111 => Group::Vector,
        _ => Group::None,
    }
}

/// Number of a hint: instructions that older processors take for `nop`.
pub(super) const fn hint(word: u32) -> Option<u32> {
    match word & 0xffff_f01f {
        0xd503_201f => Some(bits(word, 5, 7)),
        _ => None,
    }
}

/// The form of a word of [`Group::Memory`].
pub(super) const fn memory_form(word: u32) -> MemoryForm {
    let indexed = bits(word, 10, 2);
    match (bits(word, 27, 3), bits(word, 24, 2)) {
        (0b001, 0b00) if bits(word, 26, 1) == 0 => MemoryForm::Exclusive,
        (0b001, _) if bits(word, 26, 1) == 1 => MemoryForm::Structures {
            writes_back: bits(word, 23, 1) == 1,
        },
        (0b011, 0b00) => MemoryForm::Literal,
        (0b101, 0b00 | 0b01) => MemoryForm::Pair {
            writes_back: bits(word, 23, 1) == 1,
        },
        (0b111, 0b01) => MemoryForm::Single { writes_back: false },
        (0b111, 0b00) if bits(word, 21, 1) == 0 => MemoryForm::Single {
            writes_back: indexed == 0b01 || indexed == 0b11,
        },
        (0b111, 0b00) if indexed == 0b00 => MemoryForm::Atomic,
        (0b111, 0b00) if indexed == 0b10 => MemoryForm::Single { writes_back: false },
        // `ldraa` and `ldrab`.
        (0b111, 0b00) => MemoryForm::Authenticated {
            writes_back: indexed == 0b11,
        },
        _ => MemoryForm::Other,
    }
}
