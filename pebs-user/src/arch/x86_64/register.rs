//! The general registers: their names and their places in the kernel's `struct pt_regs`.

/// A 64-bit general register of x86-64, by its place in a table of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u8);

/// Name, offset in `struct pt_regs` (bytes) and the disassembler's name of each register.
/// Source: arch/x86/include/asm/ptrace.h.
const TABLE: [(&str, u16, iced_x86::Register); 17] = [
    ("rax", 80, iced_x86::Register::RAX),
    ("rbx", 40, iced_x86::Register::RBX),
    ("rcx", 88, iced_x86::Register::RCX),
    ("rdx", 96, iced_x86::Register::RDX),
    ("rsi", 104, iced_x86::Register::RSI),
    ("rdi", 112, iced_x86::Register::RDI),
    ("rbp", 32, iced_x86::Register::RBP),
    ("rsp", 152, iced_x86::Register::RSP),
    ("r8", 72, iced_x86::Register::R8),
    ("r9", 64, iced_x86::Register::R9),
    ("r10", 56, iced_x86::Register::R10),
    ("r11", 48, iced_x86::Register::R11),
    ("r12", 24, iced_x86::Register::R12),
    ("r13", 16, iced_x86::Register::R13),
    ("r14", 8, iced_x86::Register::R14),
    ("r15", 0, iced_x86::Register::R15),
    ("rip", 128, iced_x86::Register::RIP),
];

impl Register {
    /// Register of a function's result.
    pub const RESULT: Self = Self(0);
    /// The stack pointer.
    pub const STACK: Self = Self(7);
    /// The frame pointer, if a function keeps one.
    pub const FRAME: Self = Self(6);
    /// Integer and pointer arguments 1 to 6. Source: System V ABI for x86-64, 3.2.3.
    pub const ARGUMENTS: [Self; 6] = [Self(5), Self(4), Self(3), Self(2), Self(8), Self(9)];
    /// Integer and pointer arguments 1 to 9 of Go 1.17 and later.
    /// Source: go/src/cmd/compile/abi-internal.md.
    pub const GO_ARGUMENTS: [Self; 9] = [
        Self(0),
        Self(1),
        Self(2),
        Self(5),
        Self(4),
        Self(8),
        Self(9),
        Self(10),
        Self(11),
    ];

    /// Registers that have the return address at a function's entry: it is on the stack.
    pub const RETURN_ADDRESS: [Self; 0] = [];
    /// Whether the address of memory for a large result is the first argument.
    pub const RESULT_ADDRESS_IS_FIRST: bool = true;

    /// The register of that name, without `%`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let at = TABLE.iter().position(|row| row.0 == name)?;
        u8::try_from(at).ok().map(Self)
    }

    /// The general register that a DWARF operation `DW_OP_regN` names.
    /// Source: System V ABI for x86-64, figure 3.36 (DWARF register numbers).
    #[must_use]
    pub fn from_dwarf_op(op: u8) -> Option<Self> {
        const ORDER: [&str; 16] = [
            "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15",
        ];
        let number = op.checked_sub(gimli::DW_OP_reg0.0)?;
        ORDER
            .get(usize::from(number))
            .and_then(|name| Self::from_name(name))
    }

    /// Name without `%`.
    #[must_use]
    pub fn name(self) -> &'static str {
        TABLE[usize::from(self.0)].0
    }

    /// Byte offset in the kernel's `struct pt_regs`.
    #[must_use]
    pub fn offset(self) -> u16 {
        TABLE[usize::from(self.0)].1
    }

    /// Number in `perf_event_attr.sample_regs_intr`.
    ///
    /// Source: arch/x86/include/uapi/asm/perf_regs.h.
    #[must_use]
    pub fn perf_number(self) -> u32 {
        const FIRST: [&str; 9] = [
            "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip",
        ];
        let name = self.name();
        match FIRST.iter().position(|first| *first == name) {
            Some(number) => number as u32,
            // r8 is 16.
            None => name[1..].parse::<u32>().map_or(0, |number| number + 8),
        }
    }

    /// The disassembler's name of the register.
    #[must_use]
    pub fn iced(self) -> iced_x86::Register {
        TABLE[usize::from(self.0)].2
    }

    /// All names with `%`, for hints.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<String> = TABLE.iter().map(|row| format!("%{}", row.0)).collect();
        names.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants name the registers they claim to.
    #[test]
    fn constants_fit_the_table() {
        let names = |list: &[Register]| list.iter().map(|r| r.name()).collect::<Vec<_>>();
        assert_eq!(
            names(&Register::ARGUMENTS),
            ["rdi", "rsi", "rdx", "rcx", "r8", "r9"]
        );
        assert_eq!(
            names(&Register::GO_ARGUMENTS),
            ["rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"]
        );
        assert_eq!(
            names(&[Register::RESULT, Register::STACK, Register::FRAME]),
            ["rax", "rsp", "rbp"]
        );
    }

    /// Numbers as perf has them.
    #[test]
    fn perf_numbers() {
        let number = |name| Register::from_name(name).expect("known").perf_number();
        let numbers = [number("rax"), number("rip"), number("r8"), number("r15")];
        assert_eq!(numbers, [0, 8, 16, 23]);
    }

    /// Offsets match libc's declaration of the C structure.
    #[test]
    fn offsets_are_those_of_pt_regs() {
        use std::mem::offset_of;
        for (name, offset) in [
            ("rdi", offset_of!(libc::user_regs_struct, rdi)),
            ("rsp", offset_of!(libc::user_regs_struct, rsp)),
            ("rax", offset_of!(libc::user_regs_struct, rax)),
            ("r15", offset_of!(libc::user_regs_struct, r15)),
            ("rip", offset_of!(libc::user_regs_struct, rip)),
        ] {
            let register = Register::from_name(name).expect("known");
            assert_eq!(usize::from(register.offset()), offset, "{name}");
        }
    }
}
