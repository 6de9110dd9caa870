//! Recognizes compiled `switch` statements, calls through pointers, and stack protectors.

use iced_x86::{Mnemonic, OpKind, Register as Iced};

use super::instruction::Instruction;
use crate::arch::common::{Flow, IndirectJump};

/// Offset of `stackguard0` in `runtime.g`: behind the bounds of the stack.
/// Source: src/runtime/runtime2.go of Go.
const GO_STACK_GUARD: u64 = 0x10;

/// Offset of the stack protector's value in the thread's block. Source: gcc and clang for x86-64 Linux.
const STACK_PROTECTOR: u64 = 0x28;

/// Number of instructions before an indirect jump that are searched for the load from its table.
const TABLE_WINDOW: usize = 12;

/// Distinguishes a `switch` from a call through a pointer, at `code[index]`.
pub(crate) fn indirect_jump(code: &[Instruction], index: usize, bytes: &[u8]) -> IndirectJump {
    let jump = &code[index].0;
    // `notrack`: compilers use it only for jump tables.
    if bytes.first() == Some(&0x3e) {
        return IndirectJump::Switch;
    }
    if jump.op0_kind() != OpKind::Memory {
        return through_register(code, index);
    }
    // `jmp *8(%rax)` is a call through a pointer; for `jmp *table(,%rax,8)` the table decides.
    if jump.memory_index() == Iced::None {
        return IndirectJump::TailCall;
    }
    if jump.memory_base() != Iced::None {
        return IndirectJump::Unclear;
    }
    IndirectJump::Table(jump.memory_displacement64())
}

/// `jmp *%rax`: a table if an entry of four bytes was added to the table's address shortly before, a tail
/// call if the register was loaded from memory or moved.
fn through_register(code: &[Instruction], index: usize) -> IndirectJump {
    let mut wanted = code[index].0.op0_register().full_register();
    let start = index.saturating_sub(TABLE_WINDOW);
    for before in code[start..index].iter().rev() {
        if !matches!(before.flow(), Flow::Next | Flow::Branch(_)) {
            break;
        }
        let before = &before.0;
        let writes = before.op0_kind() == OpKind::Register
            && before.op0_register().full_register() == wanted;
        let reads_alone = matches!(
            before.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        );
        if !writes || reads_alone {
            continue;
        }
        if before.mnemonic() == Mnemonic::Mov && before.op1_kind() == OpKind::Register {
            wanted = before.op1_register().full_register();
            continue;
        }
        return match before.mnemonic() {
            Mnemonic::Add => IndirectJump::Switch,
            Mnemonic::Mov if before.memory_index() == Iced::None => IndirectJump::TailCall,
            _ => IndirectJump::Unclear,
        };
    }
    // Loaded further away, or on several paths: a switch needs a table somewhere.
    if code.iter().any(|it| may_be_table_load(it, wanted)) {
        IndirectJump::Unclear
    } else {
        IndirectJump::TailCall
    }
}

/// Whether an instruction may load the register from an entry of a jump table.
fn may_be_table_load(instruction: &Instruction, wanted: Iced) -> bool {
    let it = &instruction.0;
    let writes = it.op0_kind() == OpKind::Register && it.op0_register().full_register() == wanted;
    writes
        && match it.mnemonic() {
            Mnemonic::Add => it.op1_kind() != OpKind::Immediate8,
            Mnemonic::Mov | Mnemonic::Movsxd => it.memory_index() != Iced::None,
            _ => false,
        }
}

/// Nearby addresses that code takes, including those of jump tables.
pub(crate) fn addresses_taken(code: &[Instruction]) -> impl Iterator<Item = u64> + '_ {
    let taken = code
        .iter()
        .filter(|it| it.0.mnemonic() == Mnemonic::Lea && it.0.is_ip_rel_memory_operand());
    taken.map(|it| it.0.ip_rel_memory_address())
}

/// Whether an indirect jump goes through a register.
pub(crate) fn is_through_register(jump: &Instruction) -> bool {
    jump.0.op0_kind() == OpKind::Register
}

/// Address of the table of 8-byte addresses used by `jmp *table(,%rax,8)`.
pub(crate) fn absolute_table(jump: &Instruction) -> Option<u64> {
    let is_plain = jump.0.memory_base() == Iced::None && jump.0.memory_index_scale() == 8;
    is_plain.then(|| jump.0.memory_displacement64())
}

/// Whether an entry of four bytes of a table was loaded shortly before.
pub(crate) fn loads_entry(before: &[Instruction]) -> bool {
    let near = before.iter().rev().take(TABLE_WINDOW);
    let mut added = false;
    for it in near {
        added |= it.0.mnemonic() == Mnemonic::Add;
        if it.0.mnemonic() == Mnemonic::Movsxd && it.0.memory_index() != Iced::None {
            return added && it.0.memory_index_scale() == 4;
        }
    }
    false
}

/// Whether an instruction compares the stack protector's value.
pub(crate) fn checks_stack(instruction: &Instruction) -> bool {
    let it = &instruction.0;
    it.segment_prefix() == Iced::FS
        && it.memory_base() == Iced::None
        && it.memory_displacement64() == STACK_PROTECTOR
        && matches!(it.mnemonic(), Mnemonic::Sub | Mnemonic::Xor | Mnemonic::Cmp)
}

/// Whether an instruction compares the stack pointer with the limit of Go's current goroutine, which r14 points to
/// from Go 1.17 on.
pub(crate) fn checks_goroutine_stack(instruction: &Instruction) -> bool {
    let it = &instruction.0;
    it.mnemonic() == Mnemonic::Cmp
        && it.memory_base() == Iced::R14
        && it.memory_displacement64() == GO_STACK_GUARD
}

/// Whether code begins with the call that reports a smashed stack, after padding.
pub(crate) fn begins_with_call(code: &[Instruction]) -> bool {
    let aligns =
        |it: &&Instruction| !matches!(it.0.mnemonic(), Mnemonic::Nop | Mnemonic::Vzeroupper);
    let first = code.iter().take(3).find(aligns);
    first.is_some_and(|it| it.flow() == Flow::Call)
}

/// Moves and arithmetic of a few cycles each.
pub(crate) fn is_simple(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    let instruction = &instruction.0;
    if instruction.is_string_instruction() || instruction.has_lock_prefix() {
        return false;
    }
    matches!(
        instruction.mnemonic(),
        M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Lea
            | M::Xor
            | M::Or
            | M::And
            | M::Add
            | M::Sub
            | M::Sbb
            | M::Neg
            | M::Not
            | M::Inc
            | M::Dec
            | M::Shl
            | M::Shr
            | M::Sar
            | M::Test
            | M::Cmp
            | M::Cdqe
            | M::Cwde
            | M::Cdq
            | M::Cqo
            | M::Nop
            | M::Endbr64
            | M::Pop
            | M::Leave
            | M::Vzeroupper
            | M::Movaps
            | M::Movups
            | M::Movapd
            | M::Movupd
            | M::Movdqa
            | M::Movdqu
            | M::Movss
            | M::Movsd
            | M::Movq
            | M::Movd
            | M::Vmovaps
            | M::Vmovups
            | M::Vmovapd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vmovss
            | M::Vmovsd
            | M::Vmovq
            | M::Vmovd
            | M::Pxor
            | M::Xorps
            | M::Xorpd
            | M::Vpxor
            | M::Vxorps
            | M::Sete
            | M::Setne
            | M::Seta
            | M::Setae
            | M::Setb
            | M::Setbe
            | M::Setg
            | M::Setge
            | M::Setl
            | M::Setle
            | M::Sets
            | M::Setns
            | M::Cmove
            | M::Cmovne
            | M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovs
            | M::Cmovns
    )
}
