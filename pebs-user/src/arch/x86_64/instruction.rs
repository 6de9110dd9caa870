//! A decoded instruction.

use std::fmt::{self, Write as _};

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register as Iced, UsedRegister,
};

use pebs_common::condition::Condition;

use super::register::Register;
use crate::arch::common::{DataAccess, Flow};

/// Bytes of the longest instruction.
pub(crate) const LONGEST: u64 = 15;

/// An instruction at its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction(pub(super) iced_x86::Instruction);

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

/// A checksum of the operations and registers of code at an address, without addresses, constants and fillers, and the
/// number of its instructions. The same in all versions of this program.
pub(crate) fn shape(bytes: &[u8], address: u64) -> (u32, usize) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut sum = Checksum(crc32fast::Hasher::new());
    let mut count = 0;
    let mut instruction = iced_x86::Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            break;
        }
        if Instruction(instruction).is_filler() {
            continue;
        }
        count += 1;
        // The checksum takes all text.
        let _ = write!(sum, "{:?}", instruction.mnemonic());
        for operand in 0..instruction.op_count() {
            let _ = match instruction.op_kind(operand) {
                OpKind::Register => write!(sum, " {:?}", instruction.op_register(operand)),
                OpKind::Memory => write!(
                    sum,
                    " [{:?} {:?} {}]",
                    instruction.memory_base(),
                    instruction.memory_index(),
                    instruction.memory_index_scale()
                ),
                _ => write!(sum, " -"),
            };
        }
        let _ = sum.write_char('\n');
    }
    (sum.0.finalize(), count)
}

/// Sums text up.
struct Checksum(crc32fast::Hasher);

impl fmt::Write for Checksum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
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

    /// Addresses at which the program goes on: the next instruction, and the target of a direct jump or call.
    pub(crate) fn goes_on(&self) -> [u64; 2] {
        match self.0.near_branch_target() {
            0 => [self.next(); 2],
            to => [self.next(), to],
        }
    }

    /// Target of a direct jump, conditional or not.
    pub(crate) fn jump_target(&self) -> Option<u64> {
        match self.flow() {
            Flow::Jump(to) | Flow::Branch(to) => Some(to),
            _ => None,
        }
    }

    /// Target of a direct call.
    pub(crate) fn call_target(&self) -> Option<u64> {
        (self.flow() == Flow::Call).then(|| self.0.near_branch_target())
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

    /// Whether it is there for indirect branches to land on, so that a probe should be elsewhere: none is, as Linux does not
    /// check where branches land in programs.
    #[expect(clippy::unused_self, reason = "the interface of all architectures")]
    pub(crate) const fn is_branch_target(&self) -> bool {
        false
    }

    /// Whether it saves registers in the function's frame, of which `depth` bytes are below the stack pointer at the entry:
    /// `push` does, but is emulated itself.
    #[expect(clippy::unused_self, reason = "the interface of all architectures")]
    pub(crate) const fn saves_registers(&self, _depth: i64) -> bool {
        false
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

    /// Returns its access to data in memory; `None`: it has none, or several.
    ///
    /// The stack is no data of an instruction that pushes or pops something else.
    pub(crate) fn data_access(&self) -> Option<DataAccess> {
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&self.0).used_memory();
        let is_own = |it: &&iced_x86::UsedMemory| {
            it.access() != OpAccess::NoMemAccess
                && (it.base() != Iced::RSP || self.0.memory_base() == Iced::RSP)
        };
        let mut own = used.iter().filter(is_own);
        let (first, None) = (own.next()?, own.next()) else {
            return None;
        };
        let access = first.access();
        let stores = writes(access);
        let loads = !matches!(access, OpAccess::Write | OpAccess::CondWrite);
        // Thread-local data is at another address in each thread.
        let is_local = matches!(first.segment(), Iced::FS | Iced::GS);
        let fixed = first.base() == Iced::None && first.index() == Iced::None && !is_local;
        Some(DataAccess {
            op: match (loads, stores) {
                (true, true) => "load+store",
                (false, true) => "store",
                (_, false) => "load",
            },
            bytes: first.memory_size().size() as u32,
            address: fixed.then(|| first.displacement()),
        })
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

/// Access of the instruction that begins at `at`.
pub(crate) fn access_at(bytes: &[u8], at: u64) -> Option<DataAccess> {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    let instruction = Instruction(decoder.decode());
    instruction.data_access()
}

/// Access of the instruction that ends at `end`, in code that begins at `start`; `None` if no instruction ends there, or
/// the next one may be the one that accessed: a string instruction that is not at its end.
pub(crate) fn access_before(bytes: &[u8], start: u64, end: u64) -> Option<DataAccess> {
    let (code, _) = decode(bytes, start);
    let next = code.partition_point(|it| it.address() < end);
    if code.get(next).is_some_and(|it| !it.is_one_step()) {
        return None;
    }
    let before = code[..next].last().filter(|it| it.next() == end)?;
    before.data_access()
}

/// Whether an access may write.
const fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instruction before an address is found from the begin of its function; its access says load or store, size, and
    /// the address where no register decides it.
    #[test]
    fn accesses() {
        let code = [
            // mov eax, [rdi]; add qword [rdi+8], 1; lock inc dword [rip+0x10]; mov [rip+4], al; push rbx; rep movsb; ret
            &[0x8b, 0x07][..],
            &[0x48, 0x83, 0x47, 0x08, 0x01],
            &[0xf0, 0xff, 0x05, 0x10, 0, 0, 0],
            &[0x88, 0x05, 0x04, 0, 0, 0],
            &[0x53],
            &[0xf3, 0xa4],
            &[0xc3],
        ]
        .concat();
        let found = |end| access_before(&code, 0x1000, end);
        let access = |op, bytes, address| DataAccess { op, bytes, address };
        assert_eq!(found(0x1002), Some(access("load", 4, None)));
        assert_eq!(found(0x1007), Some(access("load+store", 8, None)));
        assert_eq!(found(0x100e), Some(access("load+store", 4, Some(0x101e))));
        assert_eq!(found(0x1014), Some(access("store", 1, Some(0x1018))));
        // A push; behind it a string instruction that may be the one; several places; the first instruction.
        assert_eq!([0x1015, 0x1017, 0x1000].map(found), [None; 3]);
        assert_eq!(found(0x1003), None, "no instruction ends there");
        assert_eq!(
            access_at(&code[2..], 0x1002),
            Some(access("load+store", 8, None))
        );
        assert_eq!(access_at(&[], 0x1000), None);
    }
}
