//! Finds a frame's caller: its registers, by the rule of an unwind table and a copy of the stack.
//!
//! Pure: no I/O. Nothing is guessed: what a rule needs and the copy does not have ends the stack, with the reason.

use gimli::{CfaRule, RegisterRule, UnwindExpression, UnwindTableRow};

use crate::arch::unwind::{
    CALLEE_SAVED, FRAME_POINTER, REGISTERS, RETURN_ADDRESS, RETURN_ADDRESS_BYTES, STACK_POINTER,
    code_of, go_return_address,
};

/// Bytes of a word.
const WORD: u64 = 8;

/// Whether a call puts the return address into a register.
const IN_REGISTER: bool = RETURN_ADDRESS_BYTES == 0;

/// An expression of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expression {
    /// Offset in the section, and length, bytes.
    pub(super) offset: usize,
    pub(super) length: usize,
    /// Whether it is in `.debug_frame`.
    pub(super) debug: bool,
}

/// Tables whose rules have expressions.
pub(crate) trait Expressions {
    /// Computes an expression. `initial`: what is on its stack at the begin. `None`: it is malformed, or needs what is not
    /// known.
    fn evaluate(
        &self,
        expression: Expression,
        initial: Option<u64>,
        registers: &Registers,
        stack: &StackCopy<'_>,
    ) -> Option<u64>;
}

/// No tables.
pub(crate) struct NoTables;

impl Expressions for NoTables {
    fn evaluate(
        &self,
        _: Expression,
        _: Option<u64>,
        _: &Registers,
        _: &StackCopy<'_>,
    ) -> Option<u64> {
        None
    }
}

/// End of a frame: the value of the stack pointer before the call (CFA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cfa {
    /// So far above a register's value.
    Above(u16, i64),
    Computed(Expression),
}

/// Place of the caller's value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Saved {
    /// Nowhere.
    Lost,
    /// Still in the register.
    Kept,
    /// In memory, so far from the frame's end.
    At(i64),
    /// It is the address so far from the frame's end.
    End(i64),
    /// In another register.
    In(u16),
    /// In memory, at a computed address.
    AtComputed(Expression),
    /// Computed.
    Computed(Expression),
}

/// Rule to find the registers of a function's caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameRule {
    cfa: Cfa,
    /// Place of the return address; `None`: there is no caller.
    caller: Option<Saved>,
    /// Other registers that the table names.
    saved: Box<[(u16, Saved)]>,
    /// The caller was interrupted by a signal, wherever it was.
    is_signal: bool,
}

impl FrameRule {
    /// The rule of a table's row. `debug`: of `.debug_frame`.
    pub(super) fn of(row: &UnwindTableRow<usize>, is_signal: bool, debug: bool) -> Self {
        let expression = |at: UnwindExpression<usize>| Expression {
            offset: at.offset,
            length: at.length,
            debug,
        };
        let saved = |rule: &RegisterRule<usize>| match rule {
            RegisterRule::SameValue => Saved::Kept,
            RegisterRule::Offset(offset) => Saved::At(*offset),
            RegisterRule::ValOffset(offset) => Saved::End(*offset),
            RegisterRule::Register(other) => Saved::In(other.0),
            RegisterRule::Expression(at) => Saved::AtComputed(expression(*at)),
            RegisterRule::ValExpression(at) => Saved::Computed(expression(*at)),
            _ => Saved::Lost,
        };
        let others = row.registers().filter(|(of, _)| *of != RETURN_ADDRESS);
        let others = others.map(|(of, rule)| (of.0, saved(rule)));
        let caller = row.registers().find(|(of, _)| *of == RETURN_ADDRESS);
        // Without a rule it is where the call put it.
        let caller = match caller {
            Some((_, rule)) => Some(saved(rule)).filter(|it| *it != Saved::Lost),
            None => IN_REGISTER.then_some(Saved::Kept),
        };
        Self {
            cfa: match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => Cfa::Above(register.0, *offset),
                CfaRule::Expression(at) => Cfa::Computed(expression(*at)),
            },
            caller,
            saved: others.collect(),
            is_signal,
        }
    }

    /// The rule of code that keeps a frame pointer, in its body.
    pub(crate) fn of_frame_pointer() -> Self {
        // The caller's frame pointer, then the return address.
        let word = WORD.cast_signed();
        let frame = 2 * word;
        Self {
            cfa: Cfa::Above(FRAME_POINTER.0, frame),
            caller: Some(Saved::At(-word)),
            saved: [(FRAME_POINTER.0, Saved::At(-frame))].into(),
            is_signal: false,
        }
    }

    /// The rule of a frame of Go code, with so many bytes above the stack pointer.
    pub(crate) fn of_depth(bytes: i64) -> Self {
        Self {
            cfa: Cfa::Above(STACK_POINTER.0, bytes + RETURN_ADDRESS_BYTES),
            caller: Some(go_return_address(bytes).map_or(Saved::Kept, Saved::At)),
            saved: [(FRAME_POINTER.0, Saved::Lost)].into(),
            is_signal: false,
        }
    }

    /// The rule of code without caller.
    pub(crate) fn outermost() -> Self {
        Self {
            caller: None,
            ..Self::of_depth(0)
        }
    }

    /// Whether the caller's address is that of an instruction, not the one behind a call.
    #[must_use]
    pub(crate) const fn is_signal(&self) -> bool {
        self.is_signal
    }
}

/// Registers of a frame, by DWARF number; `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// Instruction pointer, or return address.
    pub ip: u64,
    pub values: [Option<u64>; REGISTERS],
}

impl Registers {
    /// Stack pointer.
    pub(crate) fn sp(&self) -> Option<u64> {
        self.get(STACK_POINTER.0)
    }

    pub(super) fn get(&self, register: u16) -> Option<u64> {
        match register {
            it if it == RETURN_ADDRESS.0 && !IN_REGISTER => Some(self.ip),
            it => *self.values.get(usize::from(it))?,
        }
    }
}

/// Copy of a stack's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackCopy<'a> {
    /// Address of the first byte.
    pub start: u64,
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word at an address, if all of it was copied.
    #[must_use]
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk()?;
        Some(u64::from_ne_bytes(*word))
    }
}

/// Why no caller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCaller {
    /// There is none: the thread began here.
    Outermost,
    /// The rule needs memory that was not copied.
    NotCopied,
    /// The rule makes no sense, or needs a register whose value is lost.
    Unusable,
}

/// Replaces the registers by the caller's.
///
/// # Errors
/// There is no caller, or it can't be found. The registers are unchanged.
///
/// Cost: some 10 ns, without expressions.
pub(crate) fn step(
    tables: &impl Expressions,
    rule: &FrameRule,
    registers: &mut Registers,
    stack: &StackCopy<'_>,
) -> Result<(), NoCaller> {
    let caller = rule.caller.ok_or(NoCaller::Outermost)?;
    // An expression does not say why it failed.
    let compute = |expression: Expression, initial| {
        let value = tables.evaluate(expression, initial, registers, stack);
        value.ok_or(NoCaller::Unusable)
    };
    let end = match rule.cfa {
        Cfa::Above(register, offset) => {
            let base = registers.get(register).ok_or(NoCaller::Unusable)?;
            base.wrapping_add_signed(offset)
        }
        Cfa::Computed(expression) => compute(expression, None)?,
    };
    // Only a signal can have been handled on another stack.
    let sp = registers.sp().ok_or(NoCaller::Unusable)?;
    // A function without a frame is called by a function with one.
    let has_frame = end > sp || end == sp && caller == Saved::Kept;
    if !rule.is_signal && (!has_frame || end % WORD != 0) {
        return Err(NoCaller::Unusable);
    }
    let word = |address| stack.word(address).ok_or(NoCaller::NotCopied);
    let find = |register: u16, saved: Saved| match saved {
        Saved::Lost => Ok(None),
        Saved::Kept => Ok(registers.get(register)),
        Saved::At(offset) => word(end.wrapping_add_signed(offset)).map(Some),
        Saved::End(offset) => Ok(Some(end.wrapping_add_signed(offset))),
        Saved::In(other) => Ok(registers.get(other)),
        Saved::AtComputed(expression) => word(compute(expression, Some(end))?).map(Some),
        Saved::Computed(expression) => compute(expression, Some(end)).map(Some),
    };
    let ip = find(RETURN_ADDRESS.0, caller)?.ok_or(NoCaller::Unusable)?;
    let ip = code_of(ip);
    if ip == 0 {
        return Err(NoCaller::Outermost);
    }
    let mut values = [None; REGISTERS];
    for register in CALLEE_SAVED {
        values[usize::from(register)] = registers.get(register);
    }
    values[usize::from(STACK_POINTER.0)] = Some(end);
    for (register, saved) in &rule.saved {
        if let Some(value) = values.get_mut(usize::from(*register)) {
            // A register that can't be read is unknown: most callers don't need it.
            *value = find(*register, *saved).unwrap_or(None);
        }
    }
    *registers = Registers { ip, values };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: u64 = 0x1000;

    fn registers(frame_pointer: u64) -> Registers {
        let mut values = [Some(7); REGISTERS];
        values[usize::from(STACK_POINTER.0)] = Some(SP);
        values[usize::from(FRAME_POINTER.0)] = Some(frame_pointer);
        Registers { ip: 0x10, values }
    }

    fn above(register: u16, offset: i64, saved: &[(u16, Saved)]) -> FrameRule {
        FrameRule {
            cfa: Cfa::Above(register, offset),
            caller: Some(Saved::At(-8)),
            saved: saved.into(),
            is_signal: false,
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The return address is below the frame's end, where the caller's stack begins; saved registers are restored, those that
    /// a callee may change are unknown.
    #[test]
    fn restores_registers() {
        let bytes = bytes(&[1, 0x2000, 0x4444]);
        let stack = StackCopy {
            start: SP,
            bytes: &bytes,
        };
        let rule = above(STACK_POINTER.0, 24, &[(FRAME_POINTER.0, Saved::At(-16))]);
        let mut now = registers(9);
        assert_eq!(step(&NoTables, &rule, &mut now, &stack), Ok(()));
        assert_eq!((now.ip, now.sp()), (0x4444, Some(SP + 24)));
        assert_eq!(now.get(FRAME_POINTER.0), Some(0x2000));
        assert_eq!(now.get(0), None);
        assert!(CALLEE_SAVED.iter().all(|it| now.get(*it).is_some()));
        let by_pointer = FrameRule::of_frame_pointer();
        let mut now = registers(SP + 8);
        assert_eq!(step(&NoTables, &by_pointer, &mut now, &stack), Ok(()));
        assert_eq!((now.ip, now.sp()), (0x4444, Some(SP + 24)));
    }

    /// Bytes that were not copied are not read, a frame does not end below its stack pointer, lost registers are not
    /// used, and a return address of 0 is none.
    #[test]
    fn ends() {
        let bytes = bytes(&[1, 0]);
        let stack = StackCopy {
            start: SP,
            bytes: &bytes,
        };
        let ended = |rule: &FrameRule| {
            let mut now = registers(9);
            let found = step(&NoTables, rule, &mut now, &stack);
            assert_eq!(now, registers(9));
            found
        };
        let sp = STACK_POINTER.0;
        assert_eq!(ended(&above(sp, 32, &[])), Err(NoCaller::NotCopied));
        assert_eq!(ended(&above(sp, 16, &[])), Err(NoCaller::Outermost));
        assert_eq!(ended(&above(sp, 0, &[])), Err(NoCaller::Unusable));
        assert_eq!(ended(&above(sp, 12, &[])), Err(NoCaller::Unusable));
        let none = FrameRule {
            caller: None,
            ..above(sp, 16, &[])
        };
        assert_eq!(ended(&none), Err(NoCaller::Outermost));
        let mut lost = registers(9);
        lost.values[3] = None;
        let by_lost = above(3, 16, &[]);
        assert_eq!(
            step(&NoTables, &by_lost, &mut lost, &stack),
            Err(NoCaller::Unusable)
        );
    }
}
