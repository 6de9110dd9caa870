//! The general registers: their names and their places in the kernel's `struct pt_regs`.

/// A 64-bit general register of AArch64: x0 to x30, the stack pointer, or the program counter, in this order, which is
/// that of `struct pt_regs` and of perf.
///
/// Source: arch/arm64/include/uapi/asm/ptrace.h, arch/arm64/include/uapi/asm/perf_regs.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u8);

/// Names in their order.
const NAMES: [&str; 33] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc",
];

/// Other names, and their registers.
const ALIASES: [(&str, Register); 2] = [("fp", Register(29)), ("lr", Register(30))];

impl Register {
    /// Register of a function's result.
    pub const RESULT: Self = Self(0);
    /// The stack pointer.
    pub const STACK: Self = Self(31);
    /// The frame pointer, if a function keeps one.
    pub const FRAME: Self = Self(29);
    /// Integer and pointer arguments 1 to 8. Source: AAPCS64, 6.8.
    pub const ARGUMENTS: [Self; 8] = Self::first();
    /// Integer and pointer arguments 1 to 16 of Go 1.18 and later.
    /// Source: go/src/cmd/compile/abi-internal.md.
    pub const GO_ARGUMENTS: [Self; 16] = Self::first();
    /// Registers that have the return address at a function's entry.
    pub const RETURN_ADDRESS: [Self; 1] = [Self(30)];
    /// Whether the address of memory for a large result is the first argument: it is in x8.
    pub const RESULT_ADDRESS_IS_FIRST: bool = false;

    const fn first<const COUNT: usize>() -> [Self; COUNT] {
        let mut registers = [Self(0); COUNT];
        let mut at = 0;
        while at < COUNT {
            registers[at] = Self(at as u8);
            at += 1;
        }
        registers
    }

    /// The register of that name, without `%`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some((_, register)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            return Some(*register);
        }
        let at = NAMES.iter().position(|it| *it == name)?;
        u8::try_from(at).ok().map(Self)
    }

    /// The general register that a DWARF operation `DW_OP_regN` names.
    /// Source: DWARF for the Arm 64-bit Architecture, 4.1.
    #[must_use]
    pub fn from_dwarf_op(op: u8) -> Option<Self> {
        let number = op.checked_sub(gimli::DW_OP_reg0.0)?;
        (number <= Self::STACK.0).then_some(Self(number))
    }

    /// Name without `%`.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// Byte offset in the kernel's `struct pt_regs`.
    #[must_use]
    pub fn offset(self) -> u16 {
        u16::from(self.0) * 8
    }

    /// Number in `perf_event_attr.sample_regs_intr`.
    #[must_use]
    pub fn perf_number(self) -> u32 {
        u32::from(self.0)
    }

    /// Its bit in a set of registers of instructions, where number 31 is the stack pointer; none for the program counter.
    pub(super) fn bit(self) -> u32 {
        1_u32.checked_shl(u32::from(self.0)).unwrap_or(0)
    }

    /// All names with `%`, for hints.
    #[must_use]
    pub fn names() -> String {
        NAMES.map(|name| format!("%{name}")).join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places in the kernel's and perf's order, and numbers of DWARF.
    #[test]
    fn places() {
        let of = |name| Register::from_name(name).expect("known");
        let places = |it: Register| (it.offset(), it.perf_number());
        assert_eq!(places(of("x28")), (224, 28));
        assert_eq!(places(of("lr")), (240, 30));
        assert_eq!(places(Register::STACK), (248, 31));
        assert_eq!(places(of("pc")), (256, 32));
        assert_eq!(Register::from_dwarf_op(0x50), Some(of("x0")));
        assert_eq!(Register::from_dwarf_op(0x50 + 31), Some(of("sp")));
        assert_eq!(Register::from_name("x31"), None);
        assert_eq!((of("sp").bit(), of("pc").bit()), (1 << 31, 0));
        assert_eq!(Register::ARGUMENTS.map(Register::name)[7], "x7");
        assert_eq!(Register::GO_ARGUMENTS.map(Register::name)[15], "x15");
    }
}
