//! Code of known work, in assembly: what probes, counters and samples are measured on. Its callers declare it.
#![expect(unsafe_code, reason = "symbols for functions in assembly")]

/// Whether calls write to the stack, and returns read it.
pub(crate) const CALLS_USE_STACK: bool = true;

/// Offset of the instruction pointer in `struct pt_regs`.
pub(crate) const IP: i16 = 128;

/// Length of the instruction at `pebs_stepping_skipped`, bytes.
pub(crate) const SKIPPED: i32 = 5;

/// Ticks of the CPU's counter, once everything before it is done. Cost: some 25 ns.
#[inline(always)]
pub(crate) fn now() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: reads a counter; the fence waits for earlier instructions.
    unsafe {
        std::arch::asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nostack, nomem));
    };
    high << 32 | low
}

/// The body of a naked function that only calls another one. It begins with an instruction that is emulated under a probe.
macro_rules! passed_on {
    ($function:ident) => {
        core::arch::naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "call {}",
            "pop rbp",
            "ret",
            sym $function
        )
    };
}
pub(crate) use passed_on;

/// Works as a `Stay` plans, and notes when: word 0 and 1 are begin and end, 2 the rounds, 3 the longest that a round takes
/// undisturbed, 4 the longest, 5 and 6 the number and time of those that took longer. A round is eight multiplications.
macro_rules! timed_work {
    ($stay:expr, $multiplier:literal) => {
        std::arch::asm!(
            "mov {left}, [{stay} + 16]",
            "lfence",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov [{stay}], rax",
            "mov {last}, rax",
            "lfence",
            "2:",
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            concat!("imul {x}, {x}, ", $multiplier),
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov rdx, rax",
            "sub rdx, {last}",
            "mov {last}, rax",
            "cmp rdx, [{stay} + 24]",
            "ja 3f",
            "4:",
            "dec {left}",
            "jnz 2b",
            "jmp 5f",
            "3:",
            "inc qword ptr [{stay} + 40]",
            "add [{stay} + 48], rdx",
            "cmp rdx, [{stay} + 32]",
            "jbe 4b",
            "mov [{stay} + 32], rdx",
            "jmp 4b",
            "5:",
            "lfence",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "mov [{stay} + 8], rax",
            stay = in(reg) std::ptr::from_mut($stay),
            left = out(reg) _,
            last = out(reg) _,
            x = inout(reg) 1_u64 => _,
            out("rax") _,
            out("rdx") _,
            options(nostack),
        );
    };
}
pub(crate) use timed_work;

// Functions whose marks are measured: by emulation, long after another, by a single step, at a return.
std::arch::global_asm!(
    ".p2align 4",
    ".globl pebs_calibrate_emulated",
    ".hidden pebs_calibrate_emulated",
    "pebs_calibrate_emulated:",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 4",
    ".globl pebs_calibrate_apart",
    ".hidden pebs_calibrate_apart",
    "pebs_calibrate_apart:",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 4",
    ".globl pebs_calibrate_single_step",
    ".hidden pebs_calibrate_single_step",
    "pebs_calibrate_single_step:",
    "mov eax, edi",
    "ret",
    ".p2align 4",
    ".globl pebs_calibrate_returns",
    ".hidden pebs_calibrate_returns",
    "pebs_calibrate_returns:",
    "push rbp",
    "pop rbp",
    "ret",
);

// Functions of the same kind, 16 bytes each.
std::arch::global_asm!(
    ".p2align 4",
    ".globl pebs_calibrate_counts",
    ".hidden pebs_calibrate_counts",
    "pebs_calibrate_counts:",
    ".rept 9",
    "push rbp",
    "pop rbp",
    "ret",
    ".p2align 4",
    ".endr",
);

// Gives 1, or 0 if its second instruction is skipped.
std::arch::global_asm!(
    ".p2align 4",
    ".globl pebs_stepping_skipped",
    ".hidden pebs_stepping_skipped",
    ".globl pebs_stepping",
    ".hidden pebs_stepping",
    "pebs_stepping:",
    "xor eax, eax",
    "pebs_stepping_skipped:",
    // Five bytes.
    "mov eax, 1",
    "ret",
);

std::arch::global_asm!(
    // Listing 1: a load that misses the first level cache, in 20 or in 100 instructions.
    ".macro pebs_validate_chase per, filler",
    ".p2align 6",
    ".globl pebs_validate_chase\\per",
    ".hidden pebs_validate_chase\\per",
    "pebs_validate_chase\\per:",
    "push rbx",
    "21:",
    "mov eax, edx",
    "mov rbx, rdi",
    "22:",
    ".globl pebs_validate_chase\\per\\()_load",
    ".hidden pebs_validate_chase\\per\\()_load",
    "pebs_validate_chase\\per\\()_load:",
    "mov ebx, dword ptr [rbx]",
    "shl rbx, 7",
    "add rbx, rdi",
    ".rept \\filler",
    "add r8, 1",
    ".endr",
    "dec eax",
    "jnz 22b",
    "dec esi",
    "jnz 21b",
    "pop rbx",
    "ret",
    ".endm",
    "pebs_validate_chase 20, 15",
    "pebs_validate_chase 100, 95",
    // Listing 2: four loads of one word in a loop.
    ".p2align 6",
    ".globl pebs_validate_bias",
    ".hidden pebs_validate_bias",
    "pebs_validate_bias:",
    "mov rcx, rdi",
    ".globl pebs_validate_bias_1",
    ".hidden pebs_validate_bias_1",
    "pebs_validate_bias_1:",
    "mov eax, dword ptr [rsi]",
    ".globl pebs_validate_bias_2",
    ".hidden pebs_validate_bias_2",
    "pebs_validate_bias_2:",
    "mov eax, dword ptr [rsi]",
    ".globl pebs_validate_bias_3",
    ".hidden pebs_validate_bias_3",
    "pebs_validate_bias_3:",
    "mov eax, dword ptr [rsi]",
    ".globl pebs_validate_bias_4",
    ".hidden pebs_validate_bias_4",
    "pebs_validate_bias_4:",
    "mov eax, dword ptr [rsi]",
    "sub rcx, 1",
    "cmp rcx, 0",
    "jne pebs_validate_bias_1",
    ".globl pebs_validate_bias_end",
    ".hidden pebs_validate_bias_end",
    "pebs_validate_bias_end:",
    "ret",
    // The same with stores that touch four new pages: base, bytes of a page, rounds.
    ".p2align 6",
    ".globl pebs_validate_touch",
    ".hidden pebs_validate_touch",
    "pebs_validate_touch:",
    ".globl pebs_validate_touch_1",
    ".hidden pebs_validate_touch_1",
    "pebs_validate_touch_1:",
    "mov byte ptr [rdi], 1",
    "add rdi, rsi",
    ".globl pebs_validate_touch_2",
    ".hidden pebs_validate_touch_2",
    "pebs_validate_touch_2:",
    "mov byte ptr [rdi], 1",
    "add rdi, rsi",
    ".globl pebs_validate_touch_3",
    ".hidden pebs_validate_touch_3",
    "pebs_validate_touch_3:",
    "mov byte ptr [rdi], 1",
    "add rdi, rsi",
    ".globl pebs_validate_touch_4",
    ".hidden pebs_validate_touch_4",
    "pebs_validate_touch_4:",
    "mov byte ptr [rdi], 1",
    "add rdi, rsi",
    "sub rdx, 1",
    "jne pebs_validate_touch_1",
    ".globl pebs_validate_touch_end",
    ".hidden pebs_validate_touch_end",
    "pebs_validate_touch_end:",
    "ret",
    // Pointers, each to the next one: arguments are the first one, and the number of steps.
    ".p2align 6",
    ".globl pebs_validate_walk",
    ".hidden pebs_validate_walk",
    "pebs_validate_walk:",
    "mov rdi, qword ptr [rdi]",
    "sub rsi, 1",
    "jne pebs_validate_walk",
    "ret",
    // Listing 3: loads, stores, branches, taken branches, returns and locked instructions.
    ".p2align 6",
    ".globl pebs_validate_many",
    ".hidden pebs_validate_many",
    "pebs_validate_many:",
    "mov rcx, rdi",
    ".globl pebs_validate_many_call",
    ".hidden pebs_validate_many_call",
    "pebs_validate_many_call:",
    "call pebs_validate_many_return",
    ".globl pebs_validate_many_lock",
    ".hidden pebs_validate_many_lock",
    "pebs_validate_many_lock:",
    "lock add dword ptr [rsi], 1",
    "lock add dword ptr [rsi], 1",
    ".globl pebs_validate_many_load",
    ".hidden pebs_validate_many_load",
    "pebs_validate_many_load:",
    "mov eax, dword ptr [rsi]",
    "sub rcx, 1",
    "cmp rcx, 0",
    "je 32f",
    "cmp rcx, 0",
    ".globl pebs_validate_many_branch",
    ".hidden pebs_validate_many_branch",
    "pebs_validate_many_branch:",
    "jne pebs_validate_many_call",
    "32:",
    "ret",
    ".globl pebs_validate_many_return",
    ".hidden pebs_validate_many_return",
    "pebs_validate_many_return:",
    "ret",
);
