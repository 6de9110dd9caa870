//! A decoded instruction.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register as Iced, UsedRegister,
};

use pebs_common::condition::Condition;

use super::register::Register;

/// An instruction at its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction(pub(super) iced_x86::Instruction);

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// To the next instruction.
    Next,
    /// To an address.
    Jump(u64),
    /// To an address or to the next instruction.
    Branch(u64),
    /// To an address in a register or in memory.
    IndirectJump,
    /// To a function, and back.
    Call,
    /// To a function that a register or memory names, and back.
    IndirectCall,
    /// Out of the function.
    Return,
    /// Into the kernel, and back.
    SystemCall,
    /// Begin or end of a transaction, which may go back to an abort handler.
    Transaction,
    /// Nowhere: the instruction stops the program.
    Trap,
}

impl Flow {
    /// Whether control may continue with the next instruction.
    pub(crate) const fn falls_through(self) -> bool {
        !matches!(
            self,
            Self::Jump(_) | Self::IndirectJump | Self::Return | Self::Trap
        )
    }
}

/// Disassembles code that lies at an address, up to the first bytes that are no instruction: their address, if there are
/// any.
pub(crate) fn decode(bytes: &[u8], address: u64) -> (Vec<Instruction>, Option<u64>) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut code = Vec::with_capacity(bytes.len() / 4);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return (code, Some(instruction.ip()));
        }
        code.push(Instruction(instruction));
    }
    (code, None)
}

impl Instruction {
    pub(crate) const fn address(&self) -> u64 {
        self.0.ip()
    }

    /// Address of the next instruction.
    pub(crate) const fn next(&self) -> u64 {
        self.0.next_ip()
    }

    pub(crate) fn flow(&self) -> Flow {
        match self.0.flow_control() {
            FlowControl::Next => Flow::Next,
            FlowControl::UnconditionalBranch => Flow::Jump(self.0.near_branch_target()),
            FlowControl::ConditionalBranch => Flow::Branch(self.0.near_branch_target()),
            FlowControl::IndirectBranch => Flow::IndirectJump,
            FlowControl::Call => Flow::Call,
            FlowControl::IndirectCall => Flow::IndirectCall,
            FlowControl::Return => Flow::Return,
            FlowControl::Interrupt => Flow::SystemCall,
            FlowControl::XbeginXabortXend => Flow::Transaction,
            FlowControl::Exception => Flow::Trap,
        }
    }

    /// Target of a direct jump, conditional or not.
    pub(crate) fn jump_target(&self) -> Option<u64> {
        match self.flow() {
            Flow::Jump(to) | Flow::Branch(to) => Some(to),
            _ => None,
        }
    }

    /// Condition of a conditional branch on the processor's flags.
    pub(crate) fn condition(&self) -> Option<Condition> {
        if !self.0.is_jcc_short_or_near() {
            return None;
        }
        let number = (self.0.condition_code() as u8).checked_sub(ConditionCode::o as u8)?;
        Condition::of_opcode(number)
    }

    /// Text as in debuggers (Intel syntax).
    pub(crate) fn text(&self) -> String {
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        options.set_space_after_operand_separator(true);
        let mut text = String::new();
        formatter.format(&self.0, &mut text);
        text
    }

    /// Whether it only returns, without removing arguments from the stack.
    pub(crate) fn is_plain_return(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Ret
    }

    pub(crate) fn is_nop(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Nop
    }

    /// Whether it is padding that compilers put between code.
    pub(crate) fn is_filler(&self) -> bool {
        matches!(self.0.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    }

    pub(crate) fn is_breakpoint(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Int3
    }

    /// Whether it has no effect at a function's entry: a nop, or `endbr64`.
    pub(crate) fn is_landing(&self) -> bool {
        matches!(self.0.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop)
    }

    /// Whether it may fault in a program that is right: it accesses memory that is neither on the stack nor at a fixed
    /// address.
    pub(crate) fn may_fault(&self) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&self.0).used_memory();
        let accessed = used
            .iter()
            .filter(|it| it.access() != OpAccess::NoMemAccess);
        accessed.into_iter().any(|it| {
            !matches!(it.base(), Iced::RSP | Iced::RBP | Iced::RIP | Iced::None)
                || it.index() != Iced::None
        })
    }

    pub(crate) fn writes_memory(&self) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&self.0).used_memory();
        used.iter().any(|it| writes(it.access()))
    }

    /// Whether it changes one of these registers. For the stack pointer see [`Self::stack_change`].
    pub(crate) fn changes(&self, registers: &[Register]) -> bool {
        self.written().iter().any(|it| {
            let full = it.register().full_register();
            full != Iced::RSP && registers.iter().any(|wanted| wanted.iced() == full)
        })
    }

    /// Change of the stack pointer, bytes; `None` if it is not constant.
    pub(crate) fn stack_change(&self) -> Option<i64> {
        let mut written = self.written().into_iter();
        if !written.any(|it| it.register().full_register() == Iced::RSP) {
            return Some(0);
        }
        let it = &self.0;
        if it.mnemonic() == Mnemonic::Leave {
            return None;
        }
        if it.is_stack_instruction() {
            return Some(i64::from(it.stack_pointer_increment()));
        }
        if it.op0_kind() != OpKind::Register || it.op0_register() != Iced::RSP {
            return None;
        }
        let constant = || it.try_immediate(1).ok().map(u64::cast_signed);
        match it.mnemonic() {
            Mnemonic::Sub => constant().map(|value| -value),
            Mnemonic::Add => constant(),
            Mnemonic::Lea if it.memory_base() == Iced::RSP && it.memory_index() == Iced::None => {
                Some(it.memory_displacement64().cast_signed())
            }
            _ => None,
        }
    }

    /// Whether it completes in one step: a string instruction may be resumed in the middle.
    pub(crate) fn is_one_step(&self) -> bool {
        !self.0.is_string_instruction()
    }

    fn written(&self) -> Vec<UsedRegister> {
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&self.0).used_registers().iter();
        used.filter(|it| writes(it.access())).copied().collect()
    }
}

/// Whether an access may write.
const fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}
