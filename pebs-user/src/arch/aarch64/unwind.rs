//! Registers by their DWARF numbers, as unwind tables name them.

use gimli::AArch64;

pub(crate) const STACK_POINTER: gimli::Register = AArch64::SP;
pub(crate) const FRAME_POINTER: gimli::Register = AArch64::X29;
/// The link register, which functions with a frame save.
pub(crate) const RETURN_ADDRESS: gimli::Register = AArch64::X30;
/// Bytes of a return address on the stack: calls put it into a register.
pub(crate) const RETURN_ADDRESS_BYTES: i64 = 0;

/// Vendor whose instructions unwind tables may have beside those of all: that the return address is signed from here
/// on.
pub(crate) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;

/// Number of general registers with the stack pointer, which have the first DWARF numbers.
pub(crate) const REGISTERS: usize = 32;

/// Registers that a function leaves as they were, besides the stack pointer: x19 to x29.
///
/// Source: AAPCS64, 6.1.1.
pub(crate) const CALLEE_SAVED: [u16; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];

/// DWARF numbers of the registers of the kernel's `struct pt_regs`, in its order, up to the processor's state; `None`:
/// none of them.
///
/// Source: arch/arm64/include/uapi/asm/ptrace.h (`struct user_pt_regs`).
pub(crate) const OF_PT_REGS: [Option<u8>; 34] = numbered();

/// Places of the instruction pointer and of the processor's state there.
pub(crate) const IP_OF_PT_REGS: usize = 32;
const STATE_OF_PT_REGS: usize = 33;

/// Code of 32 bits. Source: `PSR_MODE32_BIT`, arch/arm64/include/uapi/asm/ptrace.h.
const MODE_32: u64 = 0x10;

/// Whether these registers are of 64-bit code in user space.
pub(crate) const fn is_wide(pt_regs: &[u64; OF_PT_REGS.len()]) -> bool {
    pt_regs[STATE_OF_PT_REGS] & MODE_32 == 0
}

/// DWARF numbers of perf's registers, by `enum perf_event_arm_regs`; `None`: none of them.
///
/// Source: arch/arm64/include/uapi/asm/perf_regs.h.
pub(crate) const OF_PERF: [Option<u8>; 33] = numbered();

/// Place of the instruction pointer there.
pub(crate) const IP_OF_PERF: usize = 32;

/// x0 to x30 and the stack pointer, then others.
const fn numbered<const COUNT: usize>() -> [Option<u8>; COUNT] {
    let mut numbers = [None; COUNT];
    let mut at = 0;
    while at < REGISTERS {
        numbers[at] = Some(at as u8);
        at += 1;
    }
    numbers
}

/// Bits of addresses in user space, of which a signature (pointer authentication) takes none.
///
/// Programs get larger ones (52 bits) only if they ask for them by an address.
const ADDRESS_BITS: u32 = 48;

/// The code at a return address, which may be signed.
///
/// Source: `ptrauth_user_pac_mask`, arch/arm64/include/asm/pointer_auth.h: the upper bits, except bit 55.
pub(crate) const fn code_of(return_address: u64) -> u64 {
    const USER: u64 = 1 << 55;
    if return_address & USER != 0 {
        return return_address;
    }
    return_address & ((1 << ADDRESS_BITS) - 1)
}

/// Returns the place of a return address of Go code, from its frame's end (CFA), with so many bytes of frame above the
/// stack pointer; `None`: in its register.
///
/// Source: go/src/cmd/compile/abi-internal.md: it is at the bottom of the frame.
pub(crate) const fn go_return_address(frame: i64) -> Option<i64> {
    match frame {
        0 => None,
        frame => Some(-frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature is removed; addresses of the kernel are left alone.
    #[test]
    fn signed_return_addresses() {
        assert_eq!(code_of(0x0051_aaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
        assert_eq!(code_of(0xff51_aaaa_bbbb_cccc), 0x0000_aaaa_bbbb_cccc);
        assert_eq!(code_of(0xaaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
        assert_eq!(code_of(0xffff_8000_0801_0000), 0xffff_8000_0801_0000);
    }

    /// Numbers of the kernel's and perf's registers are those of DWARF.
    #[test]
    fn numbers() {
        assert_eq!(
            (OF_PT_REGS[0], OF_PT_REGS[31], OF_PT_REGS[32]),
            (Some(0), Some(31), None)
        );
        assert_eq!((OF_PERF[30], OF_PERF[IP_OF_PERF]), (Some(30), None));
        let mut registers = [0; 34];
        assert!(is_wide(&registers));
        registers[STATE_OF_PT_REGS] = 0x6000_0010;
        assert!(!is_wide(&registers));
    }
}
