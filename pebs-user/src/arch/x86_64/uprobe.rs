//! Execution of a probed instruction by the kernel: emulated, single-stepped, or refused.
//!
//! Some instructions would harm the target if they were probed, whatever the tool does then, so they never are:
//!
//! * Linux 6.18 replaces a probed five-byte nop by a call into a page of its own. A process that is forked gets the
//!   call without the page, and dies; and the call pushes eight bytes onto what a leaf function keeps below its stack
//!   pointer. Later kernels do so with ten-byte nops.
//! * A single step is not what the instruction does alone if the instruction reads or writes the flags as a whole (they
//!   hold the trap flag then), enters the kernel, begins a transaction, or repeats itself (the probe is hit at each
//!   repetition).
//!
//! Source: arch/x86/kernel/uprobes.c (`uprobe_init_insn`, `branch_setup_xol_ops`, `push_setup_xol_ops`,
//! `can_optimize`), Linux 6.1 to 6.18.

use super::step::step;
use crate::arch::common::{EntryClass, version};

/// The instruction that the kernel puts in place of a probed one, and debuggers at a breakpoint: `int3`.
pub(crate) const BREAKPOINT: [u8; 1] = [0xcc];

/// Whether these bytes of code are a breakpoint, of the kernel or of a debugger.
pub(crate) fn is_breakpoint(code: [u8; BREAKPOINT.len()]) -> bool {
    code == BREAKPOINT
}

/// Instructions that are emulated, and those that later kernels emulate as well, for people.
pub(crate) const EMULATED: &str = "branches, calls and pushes";
pub(crate) const LATER: &str = "; 0.5 us on nearly all from Linux 6.19 on";

/// Whether kernels replace some nops.
pub(crate) const REPLACES_NOPS: bool = true;

/// Why nops that are five bytes long are not probed.
pub(crate) const REPLACED: &str = "the kernel may replace this nop by a call, which kills forked processes and overwrites \
    what leaf functions keep below their stack pointer";

/// Features of the running kernel that not all kernels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Emulates nops longer than one byte (6.18).
    pub long_nops: bool,
    /// Uretprobes return through a system call unknown to seccomp filters (6.11 to 6.13).
    ///
    /// The program ends with any such filter. Source: the kernel's commits ff474a78cef5 (the call) and cf6cb56ef244
    /// (filters let it pass).
    pub filtered_returns: bool,
    /// Programs may do an instruction in place of a single step (6.19).
    pub steps: bool,
}

impl Kernel {
    /// The running kernel, where `steps` was found out.
    #[must_use]
    pub(crate) fn running(steps: bool) -> Self {
        let name = rustix::system::uname();
        Self {
            steps,
            ..Self::from_release(&name.release().to_string_lossy())
        }
    }

    /// The kernel of that release (`6.18.5-cloud`).
    #[must_use]
    pub(crate) fn from_release(release: &str) -> Self {
        let version = version(release);
        Self {
            long_nops: version >= (6, 18),
            filtered_returns: ((6, 11)..(6, 14)).contains(&version),
            steps: version >= (6, 19),
        }
    }

    /// Cost class of the instruction `bytes`.
    ///
    /// # Errors
    /// Why it can't be probed: the kernel refuses it, or would execute it incorrectly.
    pub(crate) fn class(self, bytes: &[u8]) -> Result<EntryClass, &'static str> {
        let class = self.class_alone(bytes)?;
        Ok(match class {
            EntryClass::SingleStep if self.steps && step(bytes).is_some() => EntryClass::InProgram,
            class => class,
        })
    }

    /// The same if no program does the instruction.
    fn class_alone(self, bytes: &[u8]) -> Result<EntryClass, &'static str> {
        let instruction = Parts::split(bytes).ok_or("it is no instruction")?;
        if instruction
            .prefixes
            .iter()
            .any(|p| REFUSED_PREFIXES.contains(p))
        {
            return Err("the kernel refuses instructions with a segment or lock prefix");
        }
        if is_replaced(bytes, &instruction) {
            return Err(REPLACED);
        }
        if instruction.vector {
            return vector(instruction.opcode);
        }
        if instruction.escape {
            return self.two_byte(bytes, &instruction);
        }
        one_byte(bytes, &instruction)
    }

    fn two_byte(self, bytes: &[u8], parts: &Parts<'_>) -> Result<EntryClass, &'static str> {
        match parts.opcode {
            // syscall, sysret, sysenter, sysexit.
            0x05 | 0x07 | 0x34 | 0x35 => Err(ENTERS_KERNEL),
            0x80..=0x8f if parts.prefixes.contains(&0x66) => {
                Err("the kernel refuses branches with an operand size prefix")
            }
            0x80..=0x8f => Ok(EntryClass::Emulated),
            0x1f if self.long_nops && is_long_nop(bytes) => Ok(EntryClass::Emulated),
            _ => Ok(EntryClass::SingleStep),
        }
    }
}

/// Class of instructions with a one-byte opcode.
fn one_byte(bytes: &[u8], parts: &Parts<'_>) -> Result<EntryClass, &'static str> {
    let opcode = parts.opcode;
    let word = parts.prefixes.contains(&0x66);
    match opcode {
        // With REX.B this is `xchg %r8,%rax`, which the kernel treats as a nop.
        0x90 if parts.rex.is_some_and(|rex| rex & 1 == 1) => {
            Err("the kernel takes this exchange for a nop")
        }
        0x90 => Ok(EntryClass::Emulated),
        0xe8 | 0xe9 | 0xeb | 0x70..=0x7f if word => {
            Err("the kernel refuses branches with an operand size prefix")
        }
        0xe8 | 0xe9 | 0xeb | 0x70..=0x7f => Ok(EntryClass::Emulated),
        0x50..=0x57 if bytes.len() == 1 || (bytes.len() == 2 && parts.rex == Some(0x41)) => {
            Ok(EntryClass::Emulated)
        }
        0x8e => Err("the kernel refuses loads of segment registers"),
        0x9c | 0x9d => Err("a single step would change the flags that it saves or restores"),
        0xa4..=0xa7 | 0xaa..=0xaf if parts.prefixes.iter().any(|it| [0xf2, 0xf3].contains(it)) => {
            Err("the probe would be hit at each repetition")
        }
        // xabort, xbegin.
        0xc6 | 0xc7 if parts.rest.first() == Some(&0xf8) => {
            Err("a single step ends the transaction that it begins")
        }
        0xcd => Err(ENTERS_KERNEL),
        _ if refused_opcode(opcode) => Err("the kernel refuses this instruction"),
        _ => Ok(EntryClass::SingleStep),
    }
}

const ENTERS_KERNEL: &str = "a system call can't be single-stepped";

/// Whether a kernel might take the instruction for a nop and replace it by a call: five bytes long, and without effect.
fn is_replaced(bytes: &[u8], parts: &Parts<'_>) -> bool {
    let rex = parts.rex.unwrap_or(0);
    // A register's number from its low bits, and the bit of the REX prefix that extends it.
    let number = |low: u8, bit: u8| low & 7 | (rex >> bit & 1) << 3;
    let is_nop = match (parts.escape, parts.opcode, parts.rest) {
        (true, 0x1f, _) | (false, 0x90, _) => true,
        // `lea 0(%r),%r`, with the base in a SIB byte that has no index.
        (false, 0x8d, [modrm, sib, rest @ ..]) => {
            let has_base = modrm & 7 == 4 && number(sib >> 3, 1) == 4;
            has_base && number(modrm >> 3, 2) == number(*sib, 0) && rest.iter().all(|it| *it == 0)
        }
        // A move of a register to itself, with prefixes.
        (false, 0x87 | 0x89 | 0x8b, [modrm]) => {
            *modrm >= 0xc0 && number(modrm >> 3, 2) == number(*modrm, 0)
        }
        _ => false,
    };
    is_nop && !parts.vector && (bytes.len() == 5 || bytes.len() == 10)
}

/// `es`, `cs`, `ss`, `ds` (also `notrack`) and `lock`.
const REFUSED_PREFIXES: [u8; 5] = [0x26, 0x2e, 0x36, 0x3e, 0xf0];

/// One-byte opcodes that the kernel does not step in 64-bit programs: invalid ones, port I/O, software interrupts,
/// far jumps, `hlt`, `cli`, `sti`.
fn refused_opcode(opcode: u8) -> bool {
    matches!(
        opcode,
        0x06 | 0x07
            | 0x0e
            | 0x16
            | 0x17
            | 0x1e
            | 0x1f
            | 0x27
            | 0x2f
            | 0x37
            | 0x3f
            | 0x60..=0x62
            | 0x6c..=0x6f
            | 0x82
            | 0x9a
            | 0xcc..=0xcf
            | 0xd4..=0xd6
            | 0xe4..=0xe7
            | 0xea
            | 0xec..=0xef
            | 0xf1
            | 0xf4
            | 0xfa
            | 0xfb
    )
}

/// Class of vector instructions. The kernel checks their opcode as if it were a one-byte one, so those that look
/// like a branch, a push or a nop would be emulated as such.
fn vector(opcode: u8) -> Result<EntryClass, &'static str> {
    match opcode {
        0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb => {
            Err("the kernel could take this vector instruction for a branch")
        }
        _ if refused_opcode(opcode) => Err("the kernel refuses this instruction"),
        _ => Ok(EntryClass::SingleStep),
    }
}

/// The nops that compilers and the kernel agree on, 3 to 9 bytes long.
fn is_long_nop(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x0f, 0x1f, 0x00]
            | [0x0f, 0x1f, 0x40, 0]
            | [0x0f, 0x1f, 0x44, 0, 0]
            | [0x66, 0x0f, 0x1f, 0x44, 0, 0]
            | [0x0f, 0x1f, 0x80, 0, 0, 0, 0]
            | [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]
            | [0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]
    )
}

/// An instruction's bytes by their use.
struct Parts<'a> {
    prefixes: &'a [u8],
    rex: Option<u8>,
    /// VEX or EVEX encoded.
    vector: bool,
    /// Two-byte opcode: it follows 0f.
    escape: bool,
    opcode: u8,
    /// Bytes after the opcode.
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(bytes: &'a [u8]) -> Option<Self> {
        let legacy = [
            0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3,
        ];
        let count = bytes.iter().take_while(|b| legacy.contains(b)).count();
        let (prefixes, mut rest) = bytes.split_at(count);
        let mut rex = None;
        if let [first @ 0x40..=0x4f, tail @ ..] = rest {
            rex = Some(*first);
            rest = tail;
        }
        let (vector, escape, opcode, rest) = match rest {
            [0xc5, _, opcode, rest @ ..]
            | [0xc4, _, _, opcode, rest @ ..]
            | [0x62, _, _, _, opcode, rest @ ..] => (true, false, *opcode, rest),
            [0x0f, opcode, rest @ ..] => (false, true, *opcode, rest),
            [opcode, rest @ ..] => (false, false, *opcode, rest),
            [] => return None,
        };
        Some(Self {
            prefixes,
            rex,
            vector,
            escape,
            opcode,
            rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Kernel = Kernel {
        long_nops: true,
        filtered_returns: false,
        steps: false,
    };
    const OLD: Kernel = Kernel {
        long_nops: false,
        filtered_returns: false,
        steps: false,
    };

    /// The classes measured and read: cheap are nops, pushes and direct branches.
    #[test]
    fn classes() {
        let new = |bytes: &[u8]| NEW.class(bytes);
        assert_eq!(new(&[0x55]), Ok(EntryClass::Emulated), "push %rbp");
        assert_eq!(new(&[0x41, 0x57]), Ok(EntryClass::Emulated), "push %r15");
        assert_eq!(new(&[0x90]), Ok(EntryClass::Emulated), "nop");
        assert_eq!(new(&[0xe8, 1, 0, 0, 0]), Ok(EntryClass::Emulated), "call");
        assert_eq!(new(&[0x74, 5]), Ok(EntryClass::Emulated), "je");
        assert_eq!(
            new(&[0x0f, 0x84, 5, 0, 0, 0]),
            Ok(EntryClass::Emulated),
            "je"
        );
        let single = Ok(EntryClass::SingleStep);
        assert_eq!(new(&[0xf3, 0x0f, 0x1e, 0xfa]), single, "endbr64");
        assert_eq!(new(&[0x48, 0x89, 0xe5]), single, "mov");
        assert_eq!(new(&[0xc3]), single, "ret");
        assert_eq!(new(&[0xf3, 0xc3]), single, "rep ret");
        assert_eq!(new(&[0xff, 0xe0]), single, "jmp *%rax");
    }

    /// If programs may do it, they do instructions that would be single-stepped, as far as they can.
    #[test]
    fn in_program() {
        let kernel = Kernel { steps: true, ..NEW };
        assert_eq!(kernel.class(&[0xc3]), Ok(EntryClass::InProgram));
        assert_eq!(kernel.class(&[0x55]), Ok(EntryClass::Emulated));
        assert_eq!(kernel.class(&[0x5b]), Ok(EntryClass::SingleStep));
        assert_eq!(kernel.class(&[0x0f, 0x1f, 0x44, 0, 0]), Err(REPLACED));
    }

    /// Nops that a kernel replaces are refused in all their forms; others are cheap where they are emulated.
    #[test]
    fn nops() {
        for replaced in [
            &[0x0f, 0x1f, 0x44, 0, 0][..],
            &[0x66, 0x0f, 0x1f, 0x40, 0],
            &[0x66, 0x66, 0x66, 0x66, 0x90],
            &[0x48, 0x8d, 0x64, 0x24, 0],
            &[0x48, 0x8d, 0x74, 0x26, 0],
            &[0x4d, 0x8d, 0x64, 0x24, 0],
            &[0x66, 0x66, 0x48, 0x89, 0xff],
        ] {
            for kernel in [NEW, OLD] {
                assert_eq!(kernel.class(replaced), Err(REPLACED), "{replaced:x?}");
            }
        }
        assert!(
            NEW.class(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0])
                .is_err()
        );
        let nop4 = [0x0f, 0x1f, 0x40, 0];
        assert_eq!(NEW.class(&nop4), Ok(EntryClass::Emulated));
        assert_eq!(OLD.class(&nop4), Ok(EntryClass::SingleStep));
        for other in [
            [0x48, 0x8d, 0x7c, 0x24, 8],
            [0x48, 0x8d, 0x54, 0x05, 0],
            [0x48, 0x8d, 0x7c, 0x24, 0],
        ] {
            assert_eq!(NEW.class(&other), Ok(EntryClass::SingleStep), "{other:x?}");
        }
        assert!(Kernel::from_release("6.18.0-rc1").long_nops);
        assert!(!Kernel::from_release("6.1.0-18-amd64").long_nops);
        assert!(Kernel::from_release("10.2").long_nops);
    }

    /// Instructions that the kernel refuses or would execute incorrectly are never probed.
    #[test]
    fn refused() {
        assert_eq!(NEW.class(&[0x48, 0xab]), Ok(EntryClass::SingleStep), "stos");
        for bytes in [
            &[0x3e, 0xff, 0xe0][..],
            &[0xf0, 0x48, 0xff, 0x07],
            &[0xcc],
            &[0xf4],
            &[0x49, 0x90],
            &[0xc5, 0xfd, 0x7f, 0x07],
            &[0x66, 0xe8, 0, 0],
            &[0x9c],
            &[0x66, 0x9d],
            &[0x0f, 0x05],
            &[0xcd, 0x80],
            &[0xf3, 0x48, 0xab],
            &[0xc7, 0xf8, 0, 0, 0, 0],
            &[],
        ] {
            assert!(NEW.class(bytes).is_err(), "{bytes:x?}");
        }
    }
}
