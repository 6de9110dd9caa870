//! Properties and costs of instructions, in terms that all architectures share.

use serde::{Deserialize, Serialize};

/// Flow of control after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next instruction.
    Next,
    /// To an address.
    Jump(u64),
    /// To an address or to the next instruction.
    Branch(u64),
    /// To an address in a register or in memory.
    IndirectJump,
    /// To a function, and back.
    Call,
    /// To a function that a register or memory names, and back.
    IndirectCall,
    /// Out of the function.
    Return,
    /// Into the kernel, and back.
    SystemCall,
    /// Begin or end of a transaction, which may go back to an abort handler.
    Transaction,
    /// Nowhere: the instruction stops the program.
    Trap,
}

impl Flow {
    /// Whether control may continue with the next instruction.
    pub(crate) const fn falls_through(self) -> bool {
        !matches!(
            self,
            Self::Jump(_) | Self::IndirectJump | Self::Return | Self::Trap
        )
    }
}

/// Access of an instruction to data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataAccess {
    /// `load`, `store` or `load+store`, as in `memory`.
    pub op: &'static str,
    /// Its size; 0: not known.
    pub bytes: u32,
    /// Its address, if no register decides it.
    pub address: Option<u64>,
}

/// Kind of an indirect jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndirectJump {
    /// A `switch`: it stays in the function.
    Switch,
    /// A call through a pointer in place of a return.
    TailCall,
    /// Either, depending on the content of the table of addresses there.
    #[cfg_attr(
        target_arch = "aarch64",
        expect(dead_code, reason = "no jump there reads its target from memory")
    )]
    Table(u64),
    /// Either.
    Unclear,
}

/// Cost class of a probed instruction, by the way in which the kernel executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryClass {
    /// Emulated by the kernel (on x86-64 `push`, `nop`, a jump or call; on aarch64 branches, `ret`, `adrp`): about 0.5 us.
    /// Traces of earlier versions may have `nop5`, a class of its own then.
    #[serde(alias = "nop5")]
    Emulated,
    /// Done by the mark program in place of the kernel (Linux 6.19): about as much.
    InProgram,
    /// Single-stepped out of line: about 3.8 us in a VM.
    SingleStep,
}

impl EntryClass {
    /// Cost relative to other classes.
    pub(crate) const fn relative_cost(self) -> u64 {
        match self {
            Self::Emulated => 50,
            Self::InProgram => 60,
            Self::SingleStep => 380,
        }
    }
}

/// First two numbers of a kernel's release (`6.18.5-cloud`); 0 for what is not a number.
pub(crate) fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse::<u32>().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}

/// Parses a decimal or hexadecimal number with its sign; empty text is 0.
pub(crate) fn signed(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None if text.is_empty() => return Some(0),
        None => (1, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    // A second sign is none of a number's.
    let is_plain = digits.starts_with(|c: char| c.is_ascii_digit());
    value
        .ok()
        .filter(|_| is_plain)
        .map(|value: i64| sign * value)
}
