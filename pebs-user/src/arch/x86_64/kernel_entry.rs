//! Code that the kernel is entered by from user mode.

use pebs_common::record::entry;

/// The entry that a symbol of the kernel names: one of [`entry`]; 0 if it names none of them.
///
/// System calls are known by the number that the kernel keeps of them. With FRED all entries are by the same code, which
/// is none of these. Source: arch/x86/include/asm/idtentry.h, since Linux 5.8.
pub(crate) fn kernel_entry(symbol: &str) -> u64 {
    match symbol {
        "asm_exc_page_fault" => entry::PAGE_FAULT,
        "asm_exc_int3" => entry::BREAKPOINT,
        "asm_exc_debug" => entry::DEBUG,
        "asm_common_interrupt"
        | "asm_spurious_interrupt"
        | "asm_exc_nmi"
        | "asm_exc_xen_hypervisor_callback" => entry::INTERRUPT,
        _ if symbol.starts_with("asm_sysvec_") => entry::INTERRUPT,
        _ if symbol.starts_with("asm_exc_") => entry::EXCEPTION,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of Linux 5.15 to 6.18; those of FRED and of 32-bit system calls say nothing.
    #[test]
    fn symbols() {
        let of = |names: &[&str]| names.iter().map(|it| kernel_entry(it)).collect::<Vec<_>>();
        assert_eq!(of(&["asm_exc_page_fault"]), [entry::PAGE_FAULT]);
        assert_eq!(
            of(&["asm_common_interrupt", "asm_sysvec_apic_timer_interrupt"]),
            [entry::INTERRUPT; 2]
        );
        assert_eq!(
            of(&["asm_exc_int3", "asm_exc_debug"]),
            [entry::BREAKPOINT, entry::DEBUG]
        );
        assert_eq!(
            of(&["asm_exc_general_protection", "asm_exc_divide_error"]),
            [entry::EXCEPTION; 2]
        );
        let unknown = [
            "asm_fred_entrypoint_user",
            "asm_int80_emulation",
            "exc_page_fault",
        ];
        assert_eq!(of(&unknown), [0; 3]);
    }
}
