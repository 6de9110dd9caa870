//! Instructions that the mark program does in place of the kernel, which would single-step them.
//!
//! From Linux 6.19 on, a program at a probe may change the target's registers, and the kernel then leaves the probed
//! instruction alone. Only instructions are done that touch nothing but general registers, and `ret`. The stack pointer
//! changes by `ret` only, as another tool's return probe at the same place looks at it.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register as Iced};
use pebs_common::config::{NO_WORD, Step, step_kind};

use super::register::Register;

/// Returns the step by which the program does the instruction; `None` if it does not.
pub(crate) fn step(bytes: &[u8]) -> Option<Step> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.len() != bytes.len() || instruction.is_invalid() {
        return None;
    }
    let step = Step {
        length: u8::try_from(bytes.len()).ok()?,
        ..Step::NONE
    };
    let kind = |kind| Some(Step { kind, ..step });
    match instruction.mnemonic() {
        Mnemonic::Ret if matches!(bytes, [0xc3] | [0xf3, 0xc3]) => kind(step_kind::RETURN),
        Mnemonic::Endbr64 => kind(step_kind::NEXT),
        Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Xor => assigned(&instruction, step),
        _ => None,
    }
}

/// A register that becomes another one plus a constant, or a constant.
fn assigned(instruction: &iced_x86::Instruction, step: Step) -> Option<Step> {
    if instruction.op0_kind() != OpKind::Register || instruction.has_lock_prefix() {
        return None;
    }
    let to = instruction.op0_register();
    let kind = match to {
        _ if to.is_gpr64() => step_kind::ASSIGN,
        _ if to.is_gpr32() => step_kind::ASSIGN_32,
        _ => return None,
    };
    if to.full_register() == Iced::RSP {
        return None;
    }
    let (kind, from, add) = match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Mov, OpKind::Register) => (kind, word(instruction.op1_register())?, 0),
        (Mnemonic::Xor, OpKind::Register) if instruction.op1_register() == to => {
            (step_kind::ZERO, NO_WORD, 0)
        }
        (Mnemonic::Mov, OpKind::Immediate32) => {
            let value = instruction.immediate32().cast_signed();
            (kind, NO_WORD, value)
        }
        (Mnemonic::Mov, OpKind::Immediate32to64 | OpKind::Immediate64) => {
            let value = instruction.immediate(1).cast_signed();
            (kind, NO_WORD, i32::try_from(value).ok()?)
        }
        (Mnemonic::Lea, OpKind::Memory) => {
            let base = instruction.memory_base();
            if instruction.memory_index() != Iced::None || !base.is_gpr64() {
                return None;
            }
            let add = instruction.memory_displacement64().cast_signed();
            (kind, word(base)?, i32::try_from(add).ok()?)
        }
        _ => return None,
    };
    Some(Step {
        kind,
        to: word(to)?,
        from,
        add,
        ..step
    })
}

/// Index of a general register of four or eight bytes in the kernel's `struct pt_regs`.
fn word(register: Iced) -> Option<u8> {
    if !register.is_gpr64() && !register.is_gpr32() {
        return None;
    }
    let full = register.full_register();
    let name = format!("{full:?}").to_lowercase();
    u8::try_from(Register::from_name(&name)?.offset() / 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(bytes: &[u8]) -> Option<(u8, u8, u8, i32)> {
        step(bytes).map(|it| {
            assert_eq!(usize::from(it.length), bytes.len());
            (it.kind, it.to, it.from, it.add)
        })
    }

    /// Each instruction becomes a step, with registers by their place in `pt_regs`.
    #[test]
    fn instructions() {
        let (rax, rbp, rdi, rsp) = (10, 4, 14, 19);
        assert_eq!(done(&[0xc3]), Some((step_kind::RETURN, 0, 0, 0)));
        assert_eq!(done(&[0xf3, 0xc3]), Some((step_kind::RETURN, 0, 0, 0)));
        assert_eq!(
            done(&[0xf3, 0x0f, 0x1e, 0xfa]),
            Some((step_kind::NEXT, 0, 0, 0))
        );
        // mov %rsp,%rbp; mov %edi,%eax; mov $-1,%rax; mov $-1,%eax; lea -8(%rdi),%rax; xor %eax,%eax
        assert_eq!(
            done(&[0x48, 0x89, 0xe5]),
            Some((step_kind::ASSIGN, rbp, rsp, 0))
        );
        assert_eq!(
            done(&[0x89, 0xf8]),
            Some((step_kind::ASSIGN_32, rax, rdi, 0))
        );
        assert_eq!(
            done(&[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff]),
            Some((step_kind::ASSIGN, rax, NO_WORD, -1))
        );
        assert_eq!(
            done(&[0xb8, 0xff, 0xff, 0xff, 0xff]),
            Some((step_kind::ASSIGN_32, rax, NO_WORD, -1))
        );
        assert_eq!(
            done(&[0x48, 0x8d, 0x47, 0xf8]),
            Some((step_kind::ASSIGN, rax, rdi, -8))
        );
        assert_eq!(
            done(&[0x31, 0xc0]),
            Some((step_kind::ZERO, rax, NO_WORD, 0))
        );
    }

    /// Memory, the stack pointer, parts of registers, addresses of the program and other flags are left to the kernel.
    #[test]
    fn left_to_the_kernel() {
        for bytes in [
            // ret $8; bnd ret
            &[0xc2, 8, 0][..],
            &[0xf2, 0xc3],
            // mov (%rdi),%rax; mov %rax,(%rdi); mov %al,%dl; mov %rbp,%rsp; mov %ds,%eax
            &[0x48, 0x8b, 0x07],
            &[0x48, 0x89, 0x07],
            &[0x88, 0xc2],
            &[0x48, 0x89, 0xec],
            &[0x8c, 0xd8],
            // movabs $0x1122334455667788,%rax
            &[0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            // lea (%rip),%rax; lea (%rdi,%rsi),%rax; lea (%edi),%eax; lea 8(%rsp),%rsp
            &[0x48, 0x8d, 0x05, 0, 0, 0, 0],
            &[0x48, 0x8d, 0x04, 0x37],
            &[0x67, 0x8d, 0x07],
            &[0x48, 0x8d, 0x64, 0x24, 0x08],
            // xor %ecx,%eax; sub $8,%rsp; pop %rbx
            &[0x31, 0xc8],
            &[0x48, 0x83, 0xec, 0x08],
            &[0x5b],
            &[0x66, 0x89, 0xf8],
            &[],
        ] {
            assert_eq!(step(bytes), None, "{bytes:x?}");
        }
    }
}
