//! Compiles expressions to programs for the eBPF side.
//!
//! The meaning of `argN` depends on the calling convention and the place; a program is a register, up to four
//! reads, and a type.

use pebs_common::config::{ArgKind, ArgProgram, MAX_DEREFS, NO_REGISTER, STR_LONG, STR_SHORT};

use crate::arch::Register;
use crate::arch::unwind::RETURN_ADDRESS_BYTES;
use crate::spec::expr::{Behind, Expr, Ids, Type};
use crate::store::schema::ArgType;

/// Bytes of a string in the payload without `str(x, LEN)`, including its length word of 8 bytes.
pub(crate) const STRING_SLOT: u32 = 64;

/// Location of an argument: a register, and the reads that lead to the value.
///
/// `offsets` holds the constant added to the register, then the one added after each read of 8
/// bytes: `[8]` is `reg+8`, `[8, 0]` is `*(reg+8)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The register; `None` for a constant.
    pub register: Option<Register>,
    /// Constants, one more than there are reads.
    pub offsets: Vec<i64>,
    /// Type of the value, if the source defines it (USDT).
    pub r#type: Type,
}

/// Meaning of `argN` at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arguments<'a> {
    /// At a function's entry, System V ABI.
    SysV,
    /// At a function's entry, Go's register ABI.
    Go,
    /// At an address within a function: the argument registers with their current values.
    Inside,
    /// At a return: arguments are gone, `retval` exists.
    Return,
    /// At a USDT probe: its operands, or why one can't be read.
    Usdt(&'a [Result<Operand, String>]),
}

/// An expression ready to be laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// Register that the value starts from; it must be unmodified at the probe. `None` for a constant.
    pub register: Option<Register>,
    /// Program that reads the length, for a text of known length.
    pub length: Option<Box<Self>>,
    /// Type of its column.
    pub r#type: ArgType,
    /// The program; offset still 0, stack pointer not yet adjusted.
    program: ArgProgram,
}

impl Compiled {
    /// Size in the payload, bytes.
    #[must_use]
    pub(crate) fn slot(&self) -> u32 {
        match self.r#type {
            ArgType::Str => 8 + self.program.capacity.next_multiple_of(8),
            ArgType::U64 | ArgType::I64 => 8,
        }
    }

    /// Bytes written when reading it, from its offset on.
    #[must_use]
    pub(crate) fn reach(&self) -> u32 {
        let bytes = match self.r#type {
            ArgType::Str if self.slot() as usize <= STR_SHORT => STR_SHORT,
            ArgType::Str => STR_LONG,
            ArgType::U64 | ArgType::I64 => 8,
        };
        self.slot().max(bytes as u32)
    }

    /// The program for a site whose stack pointer is `sp_adjust` below that at the entry, storing its value at
    /// `offset` in the payload.
    #[must_use]
    pub(crate) fn program(&self, sp_adjust: i64, offset: u16) -> ArgProgram {
        let mut program = self.program;
        program.offset = offset;
        if self.register == Some(Register::STACK) {
            // Distances within a prologue are far below 2^31.
            let adjust = i32::try_from(sp_adjust).unwrap_or(0);
            program.add = program.add.saturating_add(adjust);
        }
        program
    }
}

/// Compiles an expression for a place.
///
/// # Errors
/// A message and hint: the value does not exist at this place, or the eBPF program can't run the steps.
pub(crate) fn compile(
    expr: &Expr,
    arguments: Arguments<'_>,
) -> Result<Compiled, (String, Option<String>)> {
    match expr {
        Expr::Str(address, length) => string(address, *length, arguments),
        Expr::Chars(address, size, most) => chars(address, *size, *most, arguments),
        Expr::Deref(address, Some(Type::Str)) => string(address, None, arguments),
        Expr::Text(address, length, most) => text(address, length, *most, arguments),
        Expr::Deref(address, r#type) => {
            let mut operand = whole(address, arguments)?;
            operand.offsets.push(0);
            numeric(&operand, r#type.unwrap_or(Type::Unsigned(8)))
        }
        Expr::Cast(inner, r#type) => {
            let operand = operand(inner, arguments)?;
            if r#type.width() > operand.r#type.width() {
                return refuse("the value is narrower than that type", "leave the type out");
            }
            numeric(&operand, *r#type)
        }
        other => {
            let operand = operand(other, arguments)?;
            numeric(&operand, operand.r#type)
        }
    }
}

/// The ids of a batch, ready to be laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Address of the first id.
    pub array: Compiled,
    /// Number of ids.
    pub count: Compiled,
    pub r#type: Type,
}

/// Compiles the ids of a batch for a place. A number of items without a type is an `i32`, as the upper half of its
/// register is undefined.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_ids(ids: &Ids, arguments: Arguments<'_>) -> Result<Batch, Refusal> {
    let r#type = ids.r#type.unwrap_or(Type::Unsigned(8));
    let count = match &ids.count {
        Expr::Str(..) | Expr::Chars(..) => {
            return refuse(
                "the number of items must not be a string",
                "for example arg3",
            );
        }
        Expr::Deref(inner, None) => {
            let typed = Expr::Deref(inner.clone(), Some(Type::Signed(4)));
            compile(&typed, arguments)?
        }
        typed @ (Expr::Cast(..) | Expr::Deref(..)) => compile(typed, arguments)?,
        untyped => {
            let operand = operand(untyped, arguments)?;
            let known = operand.r#type.width() < 8;
            let r#type = if known {
                operand.r#type
            } else {
                Type::Signed(4)
            };
            numeric(&operand, r#type)?
        }
    };
    let operand = whole(&ids.array, arguments)?;
    let program = ArgProgram {
        kind: ArgKind::Ids as u8,
        width: r#type.width(),
        ..steps(&operand, Trailing::Kept)?
    };
    let array = |program| Compiled {
        register: operand.register,
        length: None,
        r#type: ArgType::U64,
        program,
    };
    let Some(behind) = &ids.behind else {
        let array = array(program);
        return Ok(Batch {
            array,
            count,
            r#type,
        });
    };
    let Behind::Offset(offset) = behind else {
        return refuse(
            "fields have no place without debug information",
            "give the offset: arg2[arg3]->16:u64",
        );
    };
    let is_signed = matches!(r#type, Type::Signed(_));
    Ok(Batch {
        array: array(ArgProgram {
            kind: ArgKind::IdsBehind as u8,
            is_signed: is_signed.into(),
            capacity: small(*offset)?.cast_unsigned(),
            ..program
        }),
        count,
        // As passed, extended to 64 bits.
        r#type: Type::Unsigned(8),
    })
}

/// A constant in the width of the eBPF program.
fn small(value: i64) -> Result<i32, Refusal> {
    i32::try_from(value).map_err(|_| (format!("offset {value} is beyond 2 GiB"), None))
}

/// A message and its hint.
type Refusal = (String, Option<String>);

fn refuse<T>(what: impl Into<String>, hint: &str) -> Result<T, Refusal> {
    Err((what.into(), Some(hint.to_owned())))
}

/// Follows an expression to its register and offsets.
fn operand(expr: &Expr, arguments: Arguments<'_>) -> Result<Operand, Refusal> {
    match expr {
        Expr::Arg(n) => argument(*n, arguments),
        Expr::Reg(register) => Ok(plain(*register)),
        Expr::Retval => match arguments {
            Arguments::Return => Ok(plain(Register::RESULT)),
            _ => refuse(
                "retval exists only at a return",
                "use it with BIN:FUNC or at FUNC%return",
            ),
        },
        Expr::Add(inner, value) => {
            let mut operand = whole(inner, arguments)?;
            if let Some(last) = operand.offsets.last_mut() {
                *last = last.saturating_add(*value);
            }
            operand.r#type = Type::Unsigned(8);
            Ok(operand)
        }
        Expr::Deref(inner, None | Some(Type::Unsigned(8) | Type::Signed(8))) => {
            let mut operand = whole(inner, arguments)?;
            operand.offsets.push(0);
            operand.r#type = Type::Unsigned(8);
            Ok(operand)
        }
        Expr::Deref(..) => refuse(
            "an inner dereference reads a pointer of 8 bytes",
            "give the type of the last one only: *(*(arg1+8)+16):u32",
        ),
        Expr::Str(..) | Expr::Chars(..) | Expr::Text(..) => refuse(
            "a string can't be part of another value",
            "name it by itself",
        ),
        Expr::Path(_) => refuse(
            "names of arguments are known at a function's entry only",
            "write a register and an offset: *(%rdi+16):u32",
        ),
        Expr::Cast(..) => refuse("a type goes last", "for example (arg1+8):u32"),
    }
}

/// The same, for use as a pointer: a narrower value (of a USDT probe) has an undefined upper half.
fn whole(expr: &Expr, arguments: Arguments<'_>) -> Result<Operand, Refusal> {
    let operand = operand(expr, arguments)?;
    if operand.r#type.width() == 8 {
        return Ok(operand);
    }
    refuse(
        format!("the argument has {} bytes only", operand.r#type.width()),
        "it can be named by itself, not followed or added to",
    )
}

fn plain(register: Register) -> Operand {
    Operand {
        register: Some(register),
        offsets: vec![0],
        r#type: Type::Unsigned(8),
    }
}

/// Hint at how the stack is read.
fn on_stack() -> String {
    format!("*(%{}+OFFSET) reads the stack", Register::STACK.name())
}

/// Location of argument `n`.
fn argument(n: u32, arguments: Arguments<'_>) -> Result<Operand, Refusal> {
    let index = n as usize - 1;
    match arguments {
        Arguments::SysV => Ok(Register::ARGUMENTS.get(index).map_or_else(
            || Operand {
                register: Some(Register::STACK),
                offsets: vec![
                    RETURN_ADDRESS_BYTES + 8 * (index - Register::ARGUMENTS.len()) as i64,
                    0,
                ],
                r#type: Type::Unsigned(8),
            },
            |register| plain(*register),
        )),
        Arguments::Go => match Register::GO_ARGUMENTS.get(index) {
            Some(register) => Ok(plain(*register)),
            None => refuse(
                format!("arg{n} of a Go function lies on its stack in no fixed place"),
                &format!(
                    "arg1 to arg{} are Go's argument registers; {}",
                    Register::GO_ARGUMENTS.len(),
                    on_stack()
                ),
            ),
        },
        Arguments::Inside => match Register::ARGUMENTS.get(index) {
            Some(register) => Ok(plain(*register)),
            None => refuse(
                format!("arg{n} can't be found within a function"),
                &format!("only at its entry; {}", on_stack()),
            ),
        },
        Arguments::Return => refuse(
            format!("arg{n} is gone at a return"),
            "read it where the function starts; retval is the result",
        ),
        Arguments::Usdt(operands) => match operands.get(index) {
            Some(Ok(operand)) => Ok(operand.clone()),
            Some(Err(reason)) => refuse(
                format!("arg{n} of the USDT probe can't be read: {reason}"),
                "leave it out, or read a register",
            ),
            None => refuse(
                format!("the USDT probe has {} arguments, no arg{n}", operands.len()),
                "'pebs-trace probes BIN' lists them",
            ),
        },
    }
}

/// A program for a string at the address `expr`.
fn string(expr: &Expr, length: Option<u32>, arguments: Arguments<'_>) -> Result<Compiled, Refusal> {
    let operand = whole(expr, arguments)?;
    let capacity = length.unwrap_or(STRING_SLOT - 8);
    let program = steps(&operand, Trailing::Kept)?;
    Ok(Compiled {
        register: operand.register,
        length: None,
        r#type: ArgType::Str,
        program: ArgProgram {
            kind: ArgKind::Str as u8,
            capacity,
            ..program
        },
    })
}

/// Program for the text in an array of `size` characters.
fn chars(
    address: &Expr,
    size: u32,
    most: Option<u32>,
    arguments: Arguments<'_>,
) -> Result<Compiled, Refusal> {
    let most = most.unwrap_or(STRING_SLOT - 8);
    let mut text = string(address, Some(most.min(size)), arguments)?;
    text.program.is_signed = (size <= most).into();
    Ok(text)
}

/// Program for a text of known length.
fn text(
    address: &Expr,
    length: &Expr,
    most: Option<u32>,
    arguments: Arguments<'_>,
) -> Result<Compiled, Refusal> {
    let text = string(address, most, arguments)?;
    let length = compile(length, arguments)?;
    if length.r#type == ArgType::Str {
        return refuse(
            "the length of a string must not be a string",
            "for example arg2",
        );
    }
    Ok(Compiled {
        length: Some(Box::new(length)),
        program: ArgProgram {
            kind: ArgKind::Bytes as u8,
            ..text.program
        },
        ..text
    })
}

/// A program for a number.
fn numeric(operand: &Operand, r#type: Type) -> Result<Compiled, Refusal> {
    let (kind, width, column) = match r#type {
        Type::Unsigned(width) => (ArgKind::Unsigned, width, ArgType::U64),
        Type::Signed(width) => (ArgKind::Signed, width, ArgType::I64),
        Type::Str => return refuse("only a dereference reads a string", "write str(X)"),
    };
    let program = steps(operand, Trailing::Refused)?;
    Ok(Compiled {
        register: operand.register,
        length: None,
        r#type: column,
        program: ArgProgram {
            kind: kind as u8,
            width,
            ..program
        },
    })
}

/// Treatment of a constant after the last read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trailing {
    /// Kept: it is an offset from a pointer.
    Kept,
    /// A number is not added to.
    Refused,
}

/// The reads of a program.
fn steps(operand: &Operand, trailing: Trailing) -> Result<ArgProgram, Refusal> {
    let Some((last, reads)) = operand.offsets.split_last() else {
        return refuse("nothing to read", "name a register or an argument");
    };
    if reads.len() > MAX_DEREFS {
        return refuse(
            format!("{} reads in a row, {MAX_DEREFS} at most", reads.len()),
            "start from a pointer that is nearer",
        );
    }
    let behind = !reads.is_empty() && *last != 0;
    if behind && trailing == Trailing::Refused {
        return refuse(
            "arithmetic on a value that was read can't be done",
            "offsets go inside the dereference; add to columns in the query",
        );
    }
    if behind && reads.len() == MAX_DEREFS {
        return refuse(
            format!("an offset behind {MAX_DEREFS} reads, which are the most there can be"),
            "start from a pointer that is nearer",
        );
    }
    let mut program = ArgProgram {
        reg_offset: operand.register.map_or(NO_REGISTER, Register::offset),
        steps: u8::try_from(reads.len()).unwrap_or(u8::MAX),
        add: if reads.is_empty() { small(*last)? } else { 0 },
        ..ArgProgram::NONE
    };
    let behind = behind.then_some(last);
    for (slot, offset) in program.derefs.iter_mut().zip(reads.iter().chain(behind)) {
        *slot = small(*offset)?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::expr::parse;

    fn expr(text: &str) -> Expr {
        parse(text, 0, text.len()).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
    }

    fn entry(text: &str) -> ArgProgram {
        compile(&expr(text), Arguments::SysV)
            .unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
            .program(0, 0)
    }

    /// Every form of the grammar compiles to its register, reads and width.
    #[test]
    fn forms_compile() {
        let p = entry("arg1");
        assert_eq!((p.reg_offset, p.steps, p.width, p.add), (112, 0, 8, 0));
        let p = entry("arg2 + 8 - 0x10");
        assert_eq!((p.reg_offset, p.steps, p.add), (104, 0, -8));
        let p = entry("arg1:u32");
        assert_eq!((p.steps, p.width, p.kind), (0, 4, ArgKind::Unsigned as u8));
        let p = entry("*(arg1+16):i16");
        assert_eq!((p.steps, p.width, p.kind), (1, 2, ArgKind::Signed as u8));
        assert_eq!(p.derefs[0], 16);
        let p = entry("*(*(%r12-8)+4):u8");
        assert_eq!((p.reg_offset, p.steps, p.width), (24, 2, 1));
        assert_eq!(p.derefs[..2], [-8, 4]);
        let p = entry("**arg1:u32");
        assert_eq!((p.steps, p.width), (2, 4));
        let p = entry("str(*(*(arg1+80)+8))");
        assert_eq!((p.steps, p.kind, p.capacity), (2, ArgKind::Str as u8, 56));
        assert_eq!(p.derefs[..2], [80, 8]);
        let p = entry("str(arg1+3, 20)");
        assert_eq!((p.steps, p.add, p.capacity), (0, 3, 20));
        let p = entry("str(*arg1+8)");
        assert_eq!((p.steps, p.add, p.derefs), (1, 0, [0, 8, 0, 0]));
        let p = entry("*(arg2):str");
        assert_eq!((p.steps, p.kind), (0, ArgKind::Str as u8));
    }

    /// A text has a program for its address and one for its length, which may be any number.
    #[test]
    fn texts() {
        let text = |text: &str| {
            let it =
                compile(&expr(text), Arguments::SysV).unwrap_or_else(|f| panic!("{text}: {f:?}"));
            let length = it.length.as_ref().map(|length| length.program(0, 0));
            (it.program(0, 0), length.expect("a length"))
        };
        let (p, length) = text("str(arg1, arg2)");
        assert_eq!(
            (p.reg_offset, p.kind, p.capacity),
            (112, ArgKind::Bytes as u8, 56)
        );
        assert_eq!((length.reg_offset, length.steps, length.width), (104, 0, 8));
        let (p, length) = text("str(*(*(arg1+8)+24), *(*(arg1+8)+16):u32, 200)");
        assert_eq!((p.steps, p.derefs, p.capacity), (2, [8, 24, 0, 0], 200));
        assert_eq!(
            (length.steps, length.derefs, length.width),
            (2, [8, 16, 0, 0], 4)
        );
        let (_, length) = text("str(arg1, arg2:u32)");
        assert_eq!(length.width, 4);
        let fault = |text: &str| parse(text, 0, text.len()).expect_err(text).what;
        assert!(fault("str(arg1, str(arg2))").contains("must not be a string"));
        assert!(fault("str(arg1, arg2, 1000)").contains("1 to 464"));
        assert!(fault("str(arg1, arg2, arg3)").contains("1 to 464"));
    }

    /// The ids of a batch: an array at a pointer, or in a structure behind one; the count is `i32` unless a type is
    /// given.
    #[test]
    fn batches() {
        let batch = |text: &str| {
            let ids = crate::spec::expr::parse_ids(text, 0, text.len()).expect(text);
            let it = compile_ids(&ids, Arguments::SysV).expect(text);
            [it.array.program(0, 0), it.count.program(0, 0)]
        };
        let [array, count] = batch("arg2[arg3]:u32");
        assert_eq!((array.reg_offset, array.kind, array.width), (104, 4, 4));
        assert_eq!((count.kind, count.width), (ArgKind::Signed as u8, 4));
        let [array, count] = batch("*(arg1+8)+16[*(arg1+24)]");
        assert_eq!((array.steps, array.derefs), (1, [8, 16, 0, 0]));
        assert_eq!((array.width, count.width, count.derefs[0]), (8, 4, 24));
        let [array, _] = batch("arg2[arg3]->16:i32");
        assert_eq!(
            (array.kind, array.width, array.capacity, array.is_signed),
            (6, 4, 16, 1)
        );
        let [array, _] = batch("*(arg1+8)[arg3] -> 0");
        assert_eq!(
            (array.kind, array.width, array.capacity, array.is_signed),
            (6, 8, 0, 0)
        );
        let [_, count] = batch("arg1[arg2:u64]:ptr");
        assert_eq!((count.kind, count.width), (ArgKind::Unsigned as u8, 8));
    }

    /// Arguments after the sixth are on the stack; the stack pointer may have moved since the entry.
    #[test]
    fn stack_arguments_follow_the_stack_pointer() {
        let compiled = compile(&expr("arg7"), Arguments::SysV).expect("compiles");
        let p = compiled.program(24, 8);
        assert_eq!((p.reg_offset, p.steps, p.offset), (152, 1, 8));
        assert_eq!(i64::from(p.add) + i64::from(p.derefs[0]), 32);
    }

    /// Go's arguments are in other registers; the location of the tenth is unknown.
    #[test]
    fn go_arguments() {
        let compiled = compile(&expr("arg1"), Arguments::Go).expect("compiles");
        assert_eq!(compiled.register.map(Register::name), Some("rax"));
        assert!(compile(&expr("arg10"), Arguments::Go).is_err());
    }

    /// Values that do not exist at a place are refused with a sentence.
    #[test]
    fn places_are_checked() {
        let fault = |text, place| compile(&expr(text), place).expect_err(text).0;
        assert!(fault("retval", Arguments::SysV).contains("only at a return"));
        assert!(fault("arg1", Arguments::Return).contains("gone at a return"));
        assert!(fault("arg7", Arguments::Inside).contains("within a function"));
        assert!(fault("*(arg1):u64+4", Arguments::SysV).contains("can't be done"));
        assert!(fault("*(*(arg1):u32)", Arguments::SysV).contains("8 bytes"));
        assert!(fault("*****arg1", Arguments::SysV).contains("4 at most"));
        assert!(fault("str(****arg1+8)", Arguments::SysV).contains("behind 4 reads"));
    }
}
