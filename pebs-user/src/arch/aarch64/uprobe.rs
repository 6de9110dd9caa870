//! Execution of a probed instruction by the kernel: emulated, single-stepped, or refused.
//!
//! Most of what depends on the program counter is emulated ("simulated" in the kernel's words), which is cheap: branches,
//! `ret`, `adr`. Others are copied to a page of their own and stepped there. Some are never probed:
//!
//! * loads by a distance from the instruction: kernels before 6.12 read the memory as if it were the kernel's own;
//! * exclusive loads and stores: the step between them loses the reservation, so that the program's loop never ends;
//! * what the kernel refuses: system calls, `msr`, hints other than `nop`, `bti` and those that sign, returns and branches
//!   that authenticate.
//!
//! A breakpoint is exempt from the check of where indirect branches land, and the page of copied instructions is not
//! guarded, so a probe at `bti` or `paciasp` is right; it is avoided all the same where there is another place.
//!
//! Source: arch/arm64/kernel/probes/decode-insn.c, simulate-insn.c and uprobes.c, arch/arm64/include/asm/insn.h, Linux
//! 5.15 to 6.18.

use super::encoding::{Group, MemoryForm, bits, group, hint, memory_form};
use super::instruction::{Instruction, decode};
use crate::arch::common::{EntryClass, Flow, version};

/// The instruction that the kernel puts in place of a probed one: `brk #5`.
///
/// Source: `BRK64_OPCODE_UPROBES`, arch/arm64/include/asm/debug-monitors.h.
pub(crate) const BREAKPOINT: [u8; 4] = 0xd420_00a0_u32.to_le_bytes();

/// Whether these bytes of code are a breakpoint, of the kernel or of a debugger: `brk` with any number.
pub(crate) fn is_breakpoint(code: [u8; BREAKPOINT.len()]) -> bool {
    u32::from_le_bytes(code) & 0xffe0_001f == 0xd420_0000
}

/// Instructions that are emulated, and those that later kernels emulate as well, for people.
pub(crate) const EMULATED: &str = "branches, calls and returns";
pub(crate) const LATER: &str = "";

/// Whether kernels replace some nops.
pub(crate) const REPLACES_NOPS: bool = false;

/// Why some nops are not probed on other machines; none is replaced on this one.
pub(crate) const REPLACED: &str = "the kernel may replace this nop";

/// Features of the running kernel that not all kernels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Emulates `nop` (6.13).
    nops: bool,
    /// Uretprobes return through a system call unknown to seccomp filters: not on this machine.
    pub filtered_returns: bool,
}

impl Kernel {
    /// The running kernel.
    #[must_use]
    pub(crate) fn running(_steps: bool) -> Self {
        Self::from_release(&rustix::system::uname().release().to_string_lossy())
    }

    /// The kernel of that release (`6.18.5-cloud`).
    #[must_use]
    pub(crate) fn from_release(release: &str) -> Self {
        Self {
            nops: version(release) >= (6, 13),
            filtered_returns: false,
        }
    }

    /// Cost class of the instruction `bytes`.
    ///
    /// # Errors
    /// Why it can't be probed: the kernel refuses it, or would execute it incorrectly.
    pub(crate) fn class(self, bytes: &[u8]) -> Result<EntryClass, &'static str> {
        let (code, _) = decode(bytes, 0);
        let [instruction] = code[..] else {
            return Err("it is no instruction");
        };
        match group(instruction.word) {
            Group::Branch => self.branch(instruction),
            Group::Memory => memory(instruction.word),
            // `adr` and `adrp`.
            Group::Immediate if bits(instruction.word, 24, 5) == 0b10000 => {
                Ok(EntryClass::Emulated)
            }
            Group::None => Err("it stops the program"),
            _ => Ok(EntryClass::SingleStep),
        }
    }

    fn branch(self, instruction: Instruction) -> Result<EntryClass, &'static str> {
        let word = instruction.word;
        let emulated = Ok(EntryClass::Emulated);
        match instruction.flow() {
            // With hints about consistency, or comparing: unknown to the kernel, which would step them.
            Flow::Branch(_) | Flow::Jump(_) if word >> 24 == 0x54 && bits(word, 4, 1) == 1 => {
                Err(UNKNOWN)
            }
            Flow::Branch(_) if bits(word, 25, 6) == 0b11_1010 => Err(UNKNOWN),
            Flow::Branch(_) | Flow::Jump(_) | Flow::Call => emulated,
            Flow::IndirectJump | Flow::IndirectCall | Flow::Return
                if word & 0xff9f_fc1f == 0xd61f_0000 =>
            {
                emulated
            }
            Flow::IndirectJump | Flow::IndirectCall | Flow::Return => {
                Err("the kernel refuses branches that authenticate their target")
            }
            Flow::SystemCall => Err("the kernel refuses system calls"),
            Flow::Trap => Err("it stops the program"),
            Flow::Transaction => Err("a single step ends the transaction that it begins"),
            Flow::Next => self.system(word),
        }
    }

    fn system(self, word: u32) -> Result<EntryClass, &'static str> {
        match hint(word) {
            Some(0) if self.nops => return Ok(EntryClass::Emulated),
            // `nop`, `xpaclri`, signing, `bti`.
            Some(0 | 7 | 8 | 10 | 24..=27 | 32 | 34 | 36 | 38) => {
                return Ok(EntryClass::SingleStep);
            }
            // `autiasp` and its like.
            Some(12 | 14 | 28..=31) => return Err("not all kernels step an authentication"),
            Some(_) => return Err("the kernel refuses this hint"),
            None => {}
        }
        // Moves from and to system registers, and what else has the system's encoding.
        match bits(word, 20, 2) {
            0b11 if word >> 22 == 0b11_0101_0100 => Ok(EntryClass::SingleStep),
            0b01 if word >> 22 == 0b11_0101_0100 => {
                Err("the kernel refuses writes of system registers")
            }
            // Barriers. Other than them, `msr` of a constant is here.
            _ if word & 0xffff_f000 == 0xd503_3000 => Ok(EntryClass::SingleStep),
            _ => Err("it acts on caches or on the system"),
        }
    }
}

const UNKNOWN: &str = "the kernel does not know this branch";

fn memory(word: u32) -> Result<EntryClass, &'static str> {
    match memory_form(word) {
        MemoryForm::Literal => {
            Err("some kernels read this constant in the code as if it were their own memory")
        }
        // Ordered ones have bit 23, but so has compare-and-swap.
        MemoryForm::Exclusive if bits(word, 23, 1) == 0 => {
            Err("a single step would end its exclusive access")
        }
        // The program counter may stay within it.
        MemoryForm::Other if word & 0x3b20_0c00 == 0x1900_0400 => {
            Err("the probe would be hit at each repetition")
        }
        _ => Ok(EntryClass::SingleStep),
    }
}
