//! The machine, and what the kernel and programs have for it.

/// Its name for people.
pub(crate) const NAME: &str = "aarch64";

/// Architecture in the headers of its binaries.
pub(crate) const ARCHITECTURE: object::Architecture = object::Architecture::Aarch64;

/// The same in an ELF header.
pub(crate) const ELF: object::elf::Machine = object::elf::EM_AARCH64;

/// Folder of Debian's libraries for it, below `/lib` and `/usr/lib`.
pub(crate) const LIBRARIES: [&str; 2] = ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];

/// Members of the kernel's structures, from `struct task_struct` on and one within the other, with the thread pointer:
/// the first one of `uw`.
///
/// Source: arch/arm64/include/asm/processor.h.
pub(crate) const THREAD_POINTER: [(&str, &str); 2] =
    [("task_struct", "thread"), ("thread_struct", "uw")];

/// Whether programs can tell that they run in a virtual machine.
pub(crate) const TELLS_GUESTS: bool = false;

/// Whether the sample of a data breakpoint is at the instruction behind the one that accessed the data.
pub(crate) const WATCHES_BEHIND: bool = false;

/// Interrupts of CPUs that the kernel traces, without those of devices, to which the timer belongs. Each has a tracepoint
/// `_entry` and one `_exit`.
///
/// Source: include/trace/events/ipi.h.
pub(crate) const INTERRUPTS: [&str; 1] = ["ipi"];

/// Value to subtract from a variable's place in a program's thread-local segment to get its distance from the thread
/// pointer: two words precede the segment.
///
/// Source: ELF Handling For Thread-Local Storage, 3: variant I, local-exec model.
pub(crate) fn thread_local(address: u64, _size: u64, align: u64) -> u64 {
    const WORDS: u64 = 16;
    let padding = address.wrapping_sub(WORDS) & align.wrapping_sub(1);
    WORDS.wrapping_add(padding).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable is two words and its segment's alignment behind the thread pointer.
    #[test]
    fn thread_local_variables() {
        let place = |address, align, variable: u64| {
            variable.wrapping_sub(thread_local(address, 100, align))
        };
        assert_eq!(place(0x1000, 8, 4), 20);
        assert_eq!(place(0x1000, 64, 4), 68);
        assert_eq!(place(0x1010, 64, 0), 16);
    }
}
