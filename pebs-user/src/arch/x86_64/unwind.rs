//! Registers by their DWARF numbers, as unwind tables name them.

use gimli::X86_64;

pub(crate) const STACK_POINTER: gimli::Register = X86_64::RSP;
pub(crate) const FRAME_POINTER: gimli::Register = X86_64::RBP;
pub(crate) const RETURN_ADDRESS: gimli::Register = X86_64::RA;
/// Bytes of a return address on the stack.
pub(crate) const RETURN_ADDRESS_BYTES: i64 = 8;

/// Vendor whose instructions unwind tables may have, beside those of all.
pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::Default;

/// The code at a return address: the address itself.
pub(crate) const fn code_of(return_address: u64) -> u64 {
    return_address
}

/// Returns the place of a return address of Go code, from its frame's end (CFA), with so many bytes of frame above the
/// stack pointer; `None`: in its register.
pub(crate) const fn go_return_address(_frame: i64) -> Option<i64> {
    Some(-RETURN_ADDRESS_BYTES)
}

/// Number of general registers, which have the first DWARF numbers.
pub(crate) const REGISTERS: usize = 16;

/// Registers that a function leaves as they were, besides the stack pointer: rbx, rbp, r12 to r15.
///
/// Source: System V psABI for AMD64, "Registers".
pub(crate) const CALLEE_SAVED: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// DWARF numbers of the registers of the kernel's `struct pt_regs`, in its order; `None`: none of them.
///
/// Source: arch/x86/include/asm/ptrace.h.
pub(crate) const OF_PT_REGS: [Option<u8>; 21] = [
    Some(15),
    Some(14),
    Some(13),
    Some(12),
    Some(6),
    Some(3),
    Some(11),
    Some(10),
    Some(9),
    Some(8),
    Some(0),
    Some(2),
    Some(1),
    Some(4),
    Some(5),
    None,
    None,
    None,
    None,
    Some(7),
    None,
];

/// Places of the instruction pointer and of the code segment there.
pub(crate) const IP_OF_PT_REGS: usize = 16;
const CS_OF_PT_REGS: usize = 17;

/// Code segment of 64-bit code in user space. Source: `__USER_CS`, arch/x86/include/asm/segment.h.
const USER_CS: u64 = 0x33;

/// Whether these registers are of 64-bit code in user space.
pub(crate) fn is_wide(pt_regs: &[u64; OF_PT_REGS.len()]) -> bool {
    pt_regs[CS_OF_PT_REGS] == USER_CS
}

/// DWARF numbers of perf's registers, by `enum perf_event_x86_regs`; `None`: none of them.
///
/// Source: arch/x86/include/uapi/asm/perf_regs.h: AX BX CX DX SI DI BP SP IP FLAGS CS SS DS ES FS GS R8..R15.
pub(crate) const OF_PERF: [Option<u8>; 24] = [
    Some(0),
    Some(3),
    Some(2),
    Some(1),
    Some(4),
    Some(5),
    Some(6),
    Some(7),
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    Some(8),
    Some(9),
    Some(10),
    Some(11),
    Some(12),
    Some(13),
    Some(14),
    Some(15),
];

/// Place of the instruction pointer there.
pub(crate) const IP_OF_PERF: usize = 8;
