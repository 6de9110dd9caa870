//! Code of known work, in assembly: what probes, counters and samples are measured on. Its callers declare it.
#![expect(unsafe_code, reason = "symbols for functions in assembly")]

/// Whether calls write to the stack, and returns read it.
pub(crate) const CALLS_USE_STACK: bool = false;

/// Offset of the instruction pointer in `struct pt_regs`.
pub(crate) const IP: i16 = 256;

/// Length of the instruction at `pebs_stepping_skipped`, bytes.
pub(crate) const SKIPPED: i32 = 4;

/// Ticks of the machine's counter, once everything before it is done. A tick has 1 to 50 ns.
#[inline(always)]
pub(crate) fn now() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter; the barrier waits for earlier instructions.
    unsafe {
        std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem));
    };
    ticks
}

/// The body of a naked function that only calls another one. It begins with an instruction that is emulated under a probe.
macro_rules! passed_on {
    ($function:ident) => {
        core::arch::naked_asm!(
            "b 2f",
            "2:",
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "bl {}",
            "ldp x29, x30, [sp], #16",
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
            "ldr {left}, [{stay}, #16]",
            concat!("mov {factor}, #", $multiplier),
            "isb",
            "mrs {last}, cntvct_el0",
            "str {last}, [{stay}]",
            "isb",
            "2:",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mul {x}, {x}, {factor}",
            "mrs {now}, cntvct_el0",
            "sub {took}, {now}, {last}",
            "mov {last}, {now}",
            "ldr {now}, [{stay}, #24]",
            "cmp {took}, {now}",
            "b.hi 3f",
            "4:",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            "b 5f",
            "3:",
            "ldr {now}, [{stay}, #40]",
            "add {now}, {now}, #1",
            "str {now}, [{stay}, #40]",
            "ldr {now}, [{stay}, #48]",
            "add {now}, {now}, {took}",
            "str {now}, [{stay}, #48]",
            "ldr {now}, [{stay}, #32]",
            "cmp {took}, {now}",
            "b.ls 4b",
            "str {took}, [{stay}, #32]",
            "b 4b",
            "5:",
            "isb",
            "mrs {now}, cntvct_el0",
            "str {now}, [{stay}, #8]",
            stay = in(reg) std::ptr::from_mut($stay),
            left = out(reg) _,
            last = out(reg) _,
            factor = out(reg) _,
            now = out(reg) _,
            took = out(reg) _,
            x = inout(reg) 1_u64 => _,
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
    "b 2f",
    "2: ret",
    ".p2align 4",
    ".globl pebs_calibrate_apart",
    ".hidden pebs_calibrate_apart",
    "pebs_calibrate_apart:",
    "b 2f",
    "2: ret",
    ".p2align 4",
    ".globl pebs_calibrate_single_step",
    ".hidden pebs_calibrate_single_step",
    "pebs_calibrate_single_step:",
    "mov w0, w1",
    "ret",
    ".p2align 4",
    ".globl pebs_calibrate_returns",
    ".hidden pebs_calibrate_returns",
    "pebs_calibrate_returns:",
    "b 2f",
    "2: ret",
);

// Functions of the same kind, 16 bytes each.
std::arch::global_asm!(
    ".p2align 4",
    ".globl pebs_calibrate_counts",
    ".hidden pebs_calibrate_counts",
    "pebs_calibrate_counts:",
    ".rept 9",
    "b 2f",
    "2: ret",
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
    "mov w0, #0",
    "pebs_stepping_skipped:",
    "mov w0, #1",
    "ret",
);

std::arch::global_asm!(
    // Listing 1: a load that misses the first level cache, in 20 or in 100 instructions.
    ".macro pebs_validate_chase per, filler",
    ".p2align 6",
    ".globl pebs_validate_chase\\per",
    ".hidden pebs_validate_chase\\per",
    "pebs_validate_chase\\per:",
    "nop",
    "21:",
    "mov w8, w2",
    "mov x9, x0",
    "22:",
    ".globl pebs_validate_chase\\per\\()_load",
    ".hidden pebs_validate_chase\\per\\()_load",
    "pebs_validate_chase\\per\\()_load:",
    "ldr w9, [x9]",
    "lsl x9, x9, #7",
    "add x9, x9, x0",
    ".rept \\filler",
    "add x10, x10, #1",
    ".endr",
    "subs w8, w8, #1",
    "b.ne 22b",
    "subs w1, w1, #1",
    "b.ne 21b",
    "nop",
    "ret",
    ".endm",
    "pebs_validate_chase 20, 15",
    "pebs_validate_chase 100, 95",
    // Listing 2: four loads of one word in a loop.
    ".p2align 6",
    ".globl pebs_validate_bias",
    ".hidden pebs_validate_bias",
    "pebs_validate_bias:",
    ".globl pebs_validate_bias_1",
    ".hidden pebs_validate_bias_1",
    "pebs_validate_bias_1:",
    "ldr w8, [x1]",
    ".globl pebs_validate_bias_2",
    ".hidden pebs_validate_bias_2",
    "pebs_validate_bias_2:",
    "ldr w8, [x1]",
    ".globl pebs_validate_bias_3",
    ".hidden pebs_validate_bias_3",
    "pebs_validate_bias_3:",
    "ldr w8, [x1]",
    ".globl pebs_validate_bias_4",
    ".hidden pebs_validate_bias_4",
    "pebs_validate_bias_4:",
    "ldr w8, [x1]",
    "subs x0, x0, #1",
    "b.ne pebs_validate_bias_1",
    ".globl pebs_validate_bias_end",
    ".hidden pebs_validate_bias_end",
    "pebs_validate_bias_end:",
    "ret",
    // The same with stores that touch four new pages: base, bytes of a page, rounds.
    ".p2align 6",
    ".globl pebs_validate_touch",
    ".hidden pebs_validate_touch",
    "pebs_validate_touch:",
    "mov w8, #1",
    ".globl pebs_validate_touch_1",
    ".hidden pebs_validate_touch_1",
    "pebs_validate_touch_1:",
    "strb w8, [x0]",
    "add x0, x0, x1",
    ".globl pebs_validate_touch_2",
    ".hidden pebs_validate_touch_2",
    "pebs_validate_touch_2:",
    "strb w8, [x0]",
    "add x0, x0, x1",
    ".globl pebs_validate_touch_3",
    ".hidden pebs_validate_touch_3",
    "pebs_validate_touch_3:",
    "strb w8, [x0]",
    "add x0, x0, x1",
    ".globl pebs_validate_touch_4",
    ".hidden pebs_validate_touch_4",
    "pebs_validate_touch_4:",
    "strb w8, [x0]",
    "add x0, x0, x1",
    "subs x2, x2, #1",
    "b.ne pebs_validate_touch_1",
    ".globl pebs_validate_touch_end",
    ".hidden pebs_validate_touch_end",
    "pebs_validate_touch_end:",
    "ret",
    // Pointers, each to the next one: arguments are the first one, and the number of steps.
    ".p2align 6",
    ".globl pebs_validate_walk",
    ".hidden pebs_validate_walk",
    "pebs_validate_walk:",
    "ldr x0, [x0]",
    "subs x1, x1, #1",
    "b.ne pebs_validate_walk",
    "ret",
    // Listing 3: loads, stores, branches, taken branches, returns and exclusive loads.
    ".p2align 6",
    ".globl pebs_validate_many",
    ".hidden pebs_validate_many",
    "pebs_validate_many:",
    "mov x9, x0",
    "mov x10, x30",
    ".globl pebs_validate_many_call",
    ".hidden pebs_validate_many_call",
    "pebs_validate_many_call:",
    "bl pebs_validate_many_return",
    ".globl pebs_validate_many_lock",
    ".hidden pebs_validate_many_lock",
    "pebs_validate_many_lock:",
    "ldaxr w8, [x1]",
    "stlxr w11, w8, [x1]",
    "ldaxr w8, [x1]",
    "stlxr w11, w8, [x1]",
    ".globl pebs_validate_many_load",
    ".hidden pebs_validate_many_load",
    "pebs_validate_many_load:",
    "ldr w8, [x1]",
    "subs x9, x9, #1",
    "b.eq 32f",
    "cmp x9, #0",
    ".globl pebs_validate_many_branch",
    ".hidden pebs_validate_many_branch",
    "pebs_validate_many_branch:",
    "b.ne pebs_validate_many_call",
    "32:",
    "mov x30, x10",
    "ret",
    ".globl pebs_validate_many_return",
    ".hidden pebs_validate_many_return",
    "pebs_validate_many_return:",
    "ret",
);
