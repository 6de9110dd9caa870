//! Machines that recordings come from, by the name that `uname -m` has for them.
//!
//! Records, addresses and names are the same on all of them; registers and machine code are not.

/// Whether the machine has addresses of 32 bits.
#[must_use]
pub(crate) fn is_narrow(arch: &str) -> bool {
    /// Their 64-bit successors have other names (`ppc64`, `riscv64`).
    const NARROW: [&str; 7] = ["m68k", "mips", "parisc", "ppc", "riscv32", "s390", "sparc"];
    let is_x86 = arch.len() == 4 && arch.starts_with('i') && arch.ends_with("86");
    // `armv7l`; also `armv8l`, as 64-bit ARM is called by programs of 32 bits.
    is_x86 || (arch.starts_with("arm") && arch != "arm64") || NARROW.contains(&arch)
}

/// Whether its registers and machine code are not those that this program knows.
#[must_use]
pub(crate) fn is_foreign(arch: &str) -> bool {
    arch != std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as in the kernel's `UTS_MACHINE`.
    #[test]
    fn names() {
        let narrow = [
            "i386", "i686", "armv7l", "armv8l", "arm", "ppc", "mips", "s390",
        ];
        assert!(narrow.iter().all(|it| is_narrow(it)));
        let wide = [
            "x86_64",
            "aarch64",
            "arm64",
            "riscv64",
            "ppc64le",
            "loongarch64",
            "mips64",
            "s390x",
        ];
        assert!(!wide.iter().any(|it| is_narrow(it)));
        assert!(is_foreign("ppc64le") && !is_foreign(std::env::consts::ARCH));
    }
}
