//! Operands of USDT probes, as assemblers write them.

use super::register::Register;
use crate::arch::common::signed;

/// A register, `None` for a constant, and what is added to it, and after each read of 8 bytes.
pub(crate) type Place = (Option<Register>, Vec<i64>);

/// Parses `%reg`, `$NUMBER`, `OFFSET(%reg)` or `VARIABLE(%rip)`. `variable`: the distance of one from the probed
/// instruction.
pub(crate) fn place(text: &str, variable: &dyn Fn(&str) -> Option<i64>) -> Option<Place> {
    if let Some(name) = text.strip_prefix('%') {
        return Some((Some(register(name)?), vec![0]));
    }
    if let Some(digits) = text.strip_prefix('$') {
        return Some((None, vec![signed(digits)?]));
    }
    let (offset, rest) = text.split_once('(')?;
    let register = register(rest.strip_suffix(')')?.strip_prefix('%')?)?;
    let offset = match signed(offset.trim()) {
        Some(offset) => offset,
        None if register.name() == "rip" => relative(offset.trim(), variable)?,
        None => return None,
    };
    Some((Some(register), vec![offset, 0]))
}

/// Parses `VARIABLE`, `VARIABLE+8` or `8+VARIABLE`: its distance from the probed instruction.
fn relative(text: &str, variable: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    let (name, offset) = match text.split_once('+') {
        None => match text.rsplit_once('-') {
            Some((name, digits)) => (name, -signed(digits)?),
            None => (text, 0),
        },
        Some((name, digits)) if signed(digits).is_some() => (name, signed(digits)?),
        Some((digits, name)) => (name, signed(digits)?),
    };
    variable(name)?.checked_add(offset)
}

/// Parses a register by any of its names (`edi`, `r8d`, `al`).
fn register(name: &str) -> Option<Register> {
    if let Some(found) = Register::from_name(name) {
        return Some(found);
    }
    let full = match name {
        "al" | "ax" | "eax" => "rax",
        "bl" | "bx" | "ebx" => "rbx",
        "cl" | "cx" | "ecx" => "rcx",
        "dl" | "dx" | "edx" => "rdx",
        "sil" | "si" | "esi" => "rsi",
        "dil" | "di" | "edi" => "rdi",
        "bpl" | "bp" | "ebp" => "rbp",
        other => other.strip_suffix(['d', 'w', 'b', 'l'])?,
    };
    Register::from_name(full)
}
