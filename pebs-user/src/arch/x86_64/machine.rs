//! The machine, and what the kernel and programs have for it.

/// Its name for people.
pub(crate) const NAME: &str = "x86-64";

/// Architecture in the headers of its binaries.
pub(crate) const ARCHITECTURE: object::Architecture = object::Architecture::X86_64;

/// The same in an ELF header.
pub(crate) const ELF: object::elf::Machine = object::elf::EM_X86_64;

/// Folder of Debian's libraries for it, below `/lib` and `/usr/lib`.
pub(crate) const LIBRARIES: [&str; 2] = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"];

/// Members of the kernel's structures, from `struct task_struct` on and one within the other, with the thread pointer.
pub(crate) const THREAD_POINTER: [(&str, &str); 2] =
    [("task_struct", "thread"), ("thread_struct", "fsbase")];

/// Whether programs can tell that they run in a virtual machine.
pub(crate) const TELLS_GUESTS: bool = true;

/// Whether the sample of a data breakpoint is at the instruction behind the one that accessed the data.
pub(crate) const WATCHES_BEHIND: bool = true;

/// Interrupts of CPUs that the kernel traces, without those of devices. Each has a tracepoint `_entry` and one `_exit`.
///
/// Source: arch/x86/include/asm/trace/irq_vectors.h.
pub(crate) const INTERRUPTS: [&str; 10] = [
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
    "error_apic",
];

/// Value to subtract from a variable's place in a program's thread-local segment to get its distance from the thread
/// pointer: the segment's aligned end.
///
/// Source: ELF Handling For Thread-Local Storage, 3: variant II (x86-64), local-exec model.
pub(crate) fn thread_local(address: u64, size: u64, align: u64) -> u64 {
    let end = address.wrapping_add(size);
    size.wrapping_add(end.wrapping_neg() & align.wrapping_sub(1))
}
