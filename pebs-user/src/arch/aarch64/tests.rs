//! Instructions as GNU's assembler encodes them, and any words.

use pebs_common::condition::Condition;
use proptest::prelude::*;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand};

use super::calls;
use super::idioms;
use super::instruction::{Instruction, access_at, access_before, decode, shape};
use super::register::Register;
use super::registers_written::written;
use super::uprobe::{BREAKPOINT, Kernel, is_breakpoint};
use crate::arch::common::{DataAccess, EntryClass, Flow, IndirectJump};

const AT: u64 = 0x1000;

fn code(words: &[u32]) -> Vec<Instruction> {
    let (code, wrong) = decode(&bytes(words), AT);
    assert_eq!(wrong, None);
    code
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn one(word: u32) -> Instruction {
    code(&[word])[0]
}

fn registers(names: &[&str]) -> u32 {
    let known = |name: &&str| Register::from_name(name).expect("known").bit();
    names.iter().map(known).fold(0, |set, bit| set | bit)
}

/// The flow of control of each group of branches is known.
#[test]
fn flow() {
    for (word, flow) in [
        (0xb400_0040, Flow::Branch(AT + 8)),  // cbz x0, .+8
        (0x372f_ffc3, Flow::Branch(AT - 8)),  // tbnz w3, #5, .-8
        (0x5400_0068, Flow::Branch(AT + 12)), // b.hi .+12
        (0x5400_006e, Flow::Jump(AT + 12)),   // b.al .+12
        (0x17ff_fffc, Flow::Jump(AT - 16)),   // b .-16
        (0x9400_0040, Flow::Call),            // bl .+0x100
        (0xd63f_0060, Flow::IndirectCall),    // blr x3
        (0xd61f_0200, Flow::IndirectJump),    // br x16
        (0xd71f_0822, Flow::IndirectJump),    // braa x1, x2
        (0xd65f_03c0, Flow::Return),          // ret
        (0xd65f_0bff, Flow::Return),          // retaa
        (0xd400_0001, Flow::SystemCall),      // svc #0
        (0xd420_00a0, Flow::Trap),            // brk #5
        (0xd440_0020, Flow::Trap),            // hlt #1
        (0x0000_0000, Flow::Trap),            // udf #0
        (0xd523_3060, Flow::Transaction),     // tstart x0
        (0xd503_201f, Flow::Next),            // nop
        (0xd53b_d043, Flow::Next),            // mrs x3, tpidr_el0
        (0xa9be_7bfd, Flow::Next),            // stp x29, x30, [sp, #-32]!
    ] {
        assert_eq!(one(word).flow(), flow, "{word:#x}");
    }
    assert_eq!(one(0x9400_0040).call_target(), Some(AT + 0x100));
    assert_eq!(one(0x9400_0040).goes_on(), [AT + 4, AT + 0x100]);
    assert_eq!(one(0xd503_201f).goes_on(), [AT + 4; 2]);
    // A comparison that finds more: neither equal nor without carry.
    let condition = one(0x5400_0068).condition().expect("b.hi");
    assert_eq!(Some(condition), Condition::of_opcode(8));
    assert_eq!(
        [0xb400_0040, 0x17ff_fffc, 0x5400_006e].map(|it| one(it).condition()),
        [None; 3]
    );
}

/// An instruction is emulated by the kernel, single-stepped or refused.
#[test]
fn classes() {
    let (old, new) = (
        Kernel::from_release("6.1.0-18-arm64"),
        Kernel::from_release("6.18"),
    );
    let class = |kernel: Kernel, word: u32| kernel.class(&word.to_le_bytes());
    // Branches, ret, adr, adrp.
    for word in [
        0xb400_0040,
        0x372f_ffc3,
        0x5400_0068,
        0x17ff_fffc,
        0x9400_0040,
        0xd63f_0060,
        0xd61f_0200,
        0xd65f_03c0,
        0x9000_0000,
        0x1000_0027,
    ] {
        assert_eq!(class(old, word), Ok(EntryClass::Emulated), "{word:#x}");
    }
    // stp, mov, ldr, paciasp, bti, mrs, dmb, ldar, ldadd, casal, fadd, isb.
    for word in [
        0xa9be_7bfd,
        0x9100_03fd,
        0xf940_0bf3,
        0xd503_233f,
        0xd503_245f,
        0xd53b_d043,
        0xd503_3bbf,
        0xc8df_fc20,
        0xf821_0062,
        0xc8e1_fc62,
        0x1e62_2820,
        0xd503_3fdf,
    ] {
        assert_eq!(class(new, word), Ok(EntryClass::SingleStep), "{word:#x}");
    }
    // retaa, braa, svc, brk, udf, ldr of a literal, ldxr, stxr, msr, yield, autiasp, hlt, tstart, cpyfp, bc.eq, cbgt.
    for word in [
        0xd65f_0bff,
        0xd71f_0822,
        0xd400_0001,
        0xd420_00a0,
        0,
        0x5800_0040,
        0xc85f_7c20,
        0xc802_7c20,
        0xd51b_d043,
        0xd503_203f,
        0xd503_23bf,
        0xd440_0020,
        0xd523_3060,
        0x1901_0440,
        0x5400_0050,
        0x7400_0041,
    ] {
        assert!(class(new, word).is_err(), "{word:#x}");
    }
    let nop = 0xd503_201f;
    assert_eq!(
        [class(old, nop), class(new, nop)],
        [Ok(EntryClass::SingleStep), Ok(EntryClass::Emulated)]
    );
    assert!(new.class(&[0, 0]).is_err() && new.class(&[]).is_err());
    assert!(is_breakpoint(BREAKPOINT) && is_breakpoint(0xd420_0000_u32.to_le_bytes()));
    assert!(!is_breakpoint(nop.to_le_bytes()));
}

/// Registers that change.
#[test]
fn registers_that_change() {
    for (word, names) in [
        (0xa9be_7bfd, &["sp"][..]),           // stp x29, x30, [sp, #-32]!
        (0xa8c2_7bfd, &["x29", "x30", "sp"]), // ldp x29, x30, [sp], #32
        (0x9100_03fd, &["x29"]),              // mov x29, sp
        (0x9100_03bf, &["sp"]),               // mov sp, x29
        (0xf940_0bf3, &["x19"]),              // ldr x19, [sp, #16]
        (0xf900_0bf3, &[]),                   // str x19, [sp, #16]
        (0xd503_233f, &["x30"]),              // paciasp
        (0xd503_23bf, &["x30"]),              // autiasp
        (0xd503_245f, &[]),                   // bti c
        (0xd503_201f, &[]),                   // nop
        (0x9400_0040, &["x30"]),              // bl
        (0xd63f_0060, &["x30"]),              // blr x3
        (0xd61f_0200, &[]),                   // br x16
        (0xd53b_d043, &["x3"]),               // mrs x3, tpidr_el0
        (0xd51b_d043, &[]),                   // msr tpidr_el0, x3
        (0x9e66_0004, &["x4"]),               // fmov x4, d0
        (0x0e0c_3c25, &["x5"]),               // umov w5, v1.s[1]
        (0x1e62_2820, &[]),                   // fadd d0, d1, d2
        (0xf100_143f, &[]),                   // cmp x1, #5
        (0xeb02_0026, &["x6"]),               // subs x6, x1, x2
        (0xfa40_0820, &[]),                   // ccmp x1, #0, #0, eq
        (0x9b02_0c27, &["x7"]),               // madd x7, x1, x2, x3
        (0xd282_4688, &["x8"]),               // movz x8, #0x1234
        (0x6941_0861, &["x1", "x2"]),         // ldpsw x1, x2, [x3, #8]
        (0xf821_0062, &["x2"]),               // ldadd x1, x2, [x3]
        (0xf840_8549, &["x9", "x10"]),        // ldr x9, [x10], #8
        (0xb81f_cd49, &["x10"]),              // str w9, [x10, #-4]!
        (0xf980_0000, &[]),                   // prfm pldl1keep, [x0]
        (0x3dc0_0020, &[]),                   // ldr q0, [x1]
        (0x4cdf_7020, &["x1"]),               // ld1 {v0.16b}, [x1], #16
        (0xb400_0040, &[]),                   // cbz x0
        (0x1000_0027, &["x7"]),               // adr x7
    ] {
        assert_eq!(written(word), registers(names), "{word:#x}");
    }
    let x0 = Register::ARGUMENTS[0];
    assert!(one(0x9000_0000).changes(&[x0]) && !one(0x9000_0000).changes(&[Register::STACK]));
    assert!(
        !one(0xa9be_7bfd).changes(&[Register::STACK]),
        "see the stack's change"
    );
}

/// Changes of the stack pointer; only constant ones are known.
#[test]
fn stack() {
    for (word, change) in [
        (0xa9be_7bfd, Some(-32)),   // stp x29, x30, [sp, #-32]!
        (0xa8c2_7bfd, Some(32)),    // ldp x29, x30, [sp], #32
        (0xd140_07ff, Some(-4096)), // sub sp, sp, #0x1, lsl #12
        (0x9100_43ff, Some(16)),    // add sp, sp, #16
        (0x9100_03bf, None),        // mov sp, x29
        (0xf81f_0ffe, Some(-16)),   // str x30, [sp, #-16]!
        (0x9100_03fd, Some(0)),     // mov x29, sp
        (0x0420_5000, None),        // addvl: of SVE
    ] {
        assert_eq!(one(word).stack_change(), change, "{word:#x}");
    }
    // In a new frame, in a frame that is large enough, and one that is not.
    assert!(one(0xa9be_7bfd).saves_registers(0));
    let str_16 = one(0xf900_0bf3);
    assert!(str_16.saves_registers(24) && !str_16.saves_registers(16));
    // str d8, [sp, #24]; str w9, [x10, #-4]!; ldr x19, [sp, #16].
    assert!(one(0xfd00_0fe8).saves_registers(32));
    assert!(!one(0xb81f_cd49).saves_registers(100) && !one(0xf940_0bf3).saves_registers(100));
}

/// Loads and stores, their sizes, and whether they may fault.
#[test]
fn memory() {
    let access = |op, bytes, address| Some(DataAccess { op, bytes, address });
    for (word, found) in [
        (0xf940_0bf3, access("load", 8, None)),   // ldr x19, [sp, #16]
        (0x3940_1c83, access("load", 1, None)),   // ldrb w3, [x4, #7]
        (0x3dc0_0020, access("load", 16, None)),  // ldr q0, [x1]
        (0xfd00_0fe8, access("store", 8, None)),  // str d8, [sp, #24]
        (0xa9be_7bfd, access("store", 16, None)), // stp
        (0x6941_0861, access("load", 8, None)),   // ldpsw x1, x2, [x3, #8]
        (0x5800_0040, access("load", 8, Some(AT + 8))), // ldr x0, .+8
        (0xf821_0062, access("load+store", 8, None)), // ldadd
        (0xc8e1_fc62, access("load+store", 8, None)), // casal
        (0xc85f_7c20, access("load", 8, None)),   // ldxr x0, [x1]
        (0xc802_7c20, access("store", 8, None)),  // stxr w2, x0, [x1]
        (0x9b02_0c27, None),                      // madd
    ] {
        assert_eq!(one(word).data_access(), found, "{word:#x}");
        assert_eq!(
            one(word).writes_memory(),
            found.is_some_and(|it| it.op != "load"),
            "{word:#x}"
        );
    }
    // By the stack pointer they do not fault; by others they may.
    assert!(!one(0xf940_0bf3).may_fault() && !one(0x5800_0040).may_fault());
    assert!(one(0x3940_1c83).may_fault() && one(0xf862_7820).may_fault());
    // dc zva
    assert!(one(0xd50b_7420).writes_memory());
    let code = bytes(&[0xd503_201f, 0x3940_1c83, 0xd65f_03c0]);
    assert_eq!(access_before(&code, AT, AT + 8), access("load", 1, None));
    assert_eq!(
        [AT, AT + 4, AT + 6].map(|end| access_before(&code, AT, end)),
        [None; 3]
    );
    assert_eq!(access_at(&code[4..], AT + 4), access("load", 1, None));
    assert_eq!(access_at(&code[..3], AT), None);
}

/// Text, with the addresses of targets.
#[test]
fn text() {
    for (word, text) in [
        (0xa9be_7bfd, "stp x29, x30, [sp, #-0x20]!"),
        (0xb400_0040, "cbz x0, 0x1008"),
        (0x372f_ffc3, "tbnz w3, #0x5, 0xff8"),
        (0x5400_0068, "b.hi 0x100c"),
        (0x9400_0040, "bl 0x1100"),
        (0xd65f_03c0, "ret"),
        (0x0420_5000, ".inst 0x04205000"),
    ] {
        assert_eq!(one(word).text(), text);
    }
}

/// Places where branches land are known; padding is.
#[test]
fn landings() {
    let (bti, paciasp, nop) = (one(0xd503_245f), one(0xd503_233f), one(0xd503_201f));
    assert!(bti.is_branch_target() && paciasp.is_branch_target() && !nop.is_branch_target());
    assert!(bti.is_landing() && nop.is_landing() && !paciasp.is_landing());
    assert!(nop.is_filler() && one(0).is_filler() && one(0xd420_0000).is_breakpoint());
    // cpyfp
    assert!(!one(0x1901_0440).is_one_step() && nop.is_one_step());
}

/// A function has the same shape wherever it lies and whatever its constants, and another one with other registers.
#[test]
fn shapes() {
    let of = |words: &[u32]| shape(&bytes(words), AT);
    let (one, count) = of(&[
        0x9400_0040,
        0xd503_201f,
        0xf940_0bf3,
        0x9100_43ff,
        0x5400_0068,
    ]);
    assert_eq!(count, 4);
    // bl, ldr x19, [sp, #8], add sp, sp, #32, b.hi
    assert_eq!(
        of(&[0x9400_0080, 0xf940_07f3, 0x9100_83ff, 0x5400_0028]),
        (one, 4)
    );
    // ldr x20; b.ls
    assert_ne!(
        of(&[0x9400_0080, 0xf940_07f4, 0x9100_83ff, 0x5400_0028]).0,
        one
    );
    assert_ne!(
        of(&[0x9400_0080, 0xf940_07f3, 0x9100_83ff, 0x5400_0029]).0,
        one
    );
}

/// Calls are found; a function ends behind the last instruction that its jumps reach.
#[test]
fn calls_and_ends() {
    // bl .+0x100; ret; (not allocated); bl .+8; ret
    let words = [
        0x9400_0040,
        0xd65f_03c0,
        0x6000_0000,
        0x9400_0002,
        0xd65f_03c0,
    ];
    assert_eq!(calls::targets(&bytes(&words), AT), [AT + 20, AT + 0x100]);
    // cbz x0, .+8; ret; nop; ret; ret
    let words = [
        0xb400_0040,
        0xd65f_03c0,
        0xd503_201f,
        0xd65f_03c0,
        0xd65f_03c0,
    ];
    assert_eq!(calls::end_of(&bytes(&words), AT), Some(AT + 16));
    assert_eq!(calls::end_of(&bytes(&[0xd61f_0200]), AT), None);
    assert_eq!(calls::end_of(&[], AT), None);
}

/// `switch` statements, as gcc and clang compile them, and calls through pointers.
#[test]
fn indirect_jumps() {
    let kind = |words: &[u32]| {
        let code = code(words);
        idioms::indirect_jump(&code, code.len() - 1, &[])
    };
    // ldrb w1, [x1, w0, uxtw]; adr x2, .+12; add x1, x2, w1, sxtb #2; br x1
    let by_byte = [0x3860_4821, 0x1000_0062, 0x8b21_8841, 0xd61f_0020];
    assert_eq!(kind(&by_byte), IndirectJump::Switch);
    // ldrsw x8, [x9, x8, lsl #2]; add x8, x8, x9; br x8
    let by_word = [0xb8a8_7928, 0x8b09_0108, 0xd61f_0100];
    assert_eq!(kind(&by_word), IndirectJump::Switch);
    assert!(idioms::loads_entry(&code(&by_word)) && !idioms::loads_entry(&code(&by_byte)));
    // ldr x1, [x0, #24]; mov x16, x1; br x16
    assert_eq!(
        kind(&[0xf940_0c01, 0xaa01_03f0, 0xd61f_0200]),
        IndirectJump::TailCall
    );
    // br x3
    assert_eq!(kind(&[0xd61f_0060]), IndirectJump::TailCall);
    // ldr x1, [x2, x3, lsl #3]; br x1
    assert_eq!(kind(&[0xf863_7841, 0xd61f_0020]), IndirectJump::Unclear);
    // adrp x1, .+0x2000; add x1, x1, #0x10; adr x7, .+4
    let taken = code(&[0xd000_0001, 0x9100_4021, 0x1000_0027]);
    assert_eq!(
        idioms::addresses_taken(&taken).collect::<Vec<_>>(),
        [0x3010, AT + 12]
    );
    // ldr x16, [x28, #16]
    assert!(idioms::checks_goroutine_stack(&one(0xf940_0b90)));
    assert!(!idioms::checks_goroutine_stack(&one(0xf940_0bf3)));
}

/// Whether an operation's first register is read, or none of these: of stores, comparisons, branches and atomic operations.
fn reads_first(word: u32, text: &str) -> bool {
    const OPERATIONS: [&str; 26] = [
        "st",
        "cbz",
        "cbnz",
        "tbz",
        "tbnz",
        "br",
        "bl",
        "ret",
        "ccm",
        "sys",
        "msr",
        "rmif",
        "swp",
        "cas",
        "ldadd",
        "ldclr",
        "ldeor",
        "ldset",
        "ldsmax",
        "ldsmin",
        "ldumax",
        "ldumin",
        "autiasppcr",
        "setf",
        "autibsppcr",
        "rprfm",
    ];
    let name = text.split(' ').next().unwrap_or_default();
    // Not allocated, though the other decoder takes them: moves from a vector, and `irg`.
    let is_vector = word >> 25 & 0b111 == 0b111;
    let is_no_move =
        is_vector && ["umov", "smov", "mov"].contains(&name) && word & 0x00e0_0000 != 0;
    let is_no_tag = name == "irg" && word & 0x0020_0000 != 0;
    is_no_move || is_no_tag || OPERATIONS.iter().any(|it| name.starts_with(it))
}

/// Properties of a word fit together, and agree with another decoder.
fn check(word: u32, address: u64) -> Result<(), TestCaseError> {
    let bytes = word.to_le_bytes();
    let kernels = [Kernel::from_release("5.15"), Kernel::from_release("6.18")];
    let (code, wrong) = decode(&bytes, address);
    let [instruction] = code[..] else {
        prop_assert_eq!(wrong, Some(address));
        prop_assert!(kernels.iter().all(|it| it.class(&bytes).is_err()));
        return Ok(());
    };
    let flow = instruction.flow();
    prop_assert_eq!(
        instruction.jump_target().is_some(),
        matches!(flow, Flow::Jump(_) | Flow::Branch(_))
    );
    prop_assert!(instruction.condition().is_none() || matches!(flow, Flow::Branch(_)));
    prop_assert!(!instruction.saves_registers(1 << 20) || instruction.writes_memory());
    let (_, _, _) = (
        instruction.text(),
        instruction.data_access(),
        instruction.stack_change(),
    );
    let _ = (
        shape(&bytes, address),
        idioms::is_simple(&instruction),
        instruction.may_fault(),
    );
    // What the kernel emulates is what depends on the place, and nothing else; that it never steps.
    let emulated = kernels[0].class(&bytes) == Ok(EntryClass::Emulated);
    prop_assert!(!emulated || flow != Flow::Next || word & 0x1f00_0000 == 0x1000_0000);
    prop_assert!(flow == Flow::Next || kernels[1].class(&bytes) != Ok(EntryClass::SingleStep));

    let Ok(other) = InstDecoder::default().decode(&mut U8Reader::new(&bytes)) else {
        return Ok(());
    };
    let text = other.to_string();
    if other.opcode == Opcode::Invalid {
        return Ok(());
    }
    let returns = matches!(other.opcode, Opcode::RET);
    prop_assert!(!returns || flow == Flow::Return, "{}", text);
    prop_assert!(
        !matches!(other.opcode, Opcode::BL) || flow == Flow::Call,
        "{}",
        text
    );
    prop_assert!(
        !matches!(other.opcode, Opcode::BLR) || flow == Flow::IndirectCall,
        "{}",
        text
    );
    let result = match other.operands[0] {
        Operand::Register(_, number @ 0..=30) => 1_u32 << number,
        Operand::RegisterOrSP(_, number @ 0..=31) => 1_u32 << number,
        _ => 0,
    };
    prop_assert!(
        reads_first(word, &text) || written(word) & result == result,
        "{:#x} {} does not change {:#x}",
        word,
        text,
        result
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Any word is decoded without panic, and what is said of it fits together; the register that another decoder names
    /// as the result is among those that change; that decoder and this one agree on where control goes.
    #[test]
    fn any_word(word: u32, address in (0_u64..1 << 46).prop_map(|it| it * 4)) {
        check(word, address)?;
    }
}
