//! Reads arguments of the probed function according to an [`ArgProgram`].

use core::arch::asm;

use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_probe_read_user_str};
use pebs_common::config::{ArgKind, ArgProgram, MAX_DEREFS, NO_REGISTER, widen};

use crate::arch::{self, Registers};

/// Reads a number, or the address of a string or an array.
#[inline(always)]
pub fn value(registers: &Registers, program: &ArgProgram) -> Option<u64> {
    let (value, is_known) = value_or_zero(registers, program);
    is_known.then_some(value)
}

/// The same, and whether it could be read. For values that are kept for later: the verifier refuses to keep the
/// uninitialized value of a `None`.
#[inline(always)]
pub fn value_or_zero(registers: &Registers, program: &ArgProgram) -> (u64, bool) {
    let mut value = 0;
    let is_known = argument_value(registers, program, &raw mut value) != 0;
    (value, is_known)
}

/// Reads an argument into `value`; returns 1, or 0 if it can't be read.
///
/// Functions with a name in the object are verified once, by the types of their arguments; inlined ones along each
/// path to them. With eight arguments in six sizes of buffers these exceeded the million instructions that Linux 6.1
/// verifies.
///
/// Source: `do_check_subprogs`, kernel/bpf/verifier.c.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn argument_value(
    registers: *const Registers,
    program: *const ArgProgram,
    value: *mut u64,
) -> u64 {
    if registers.is_null() || program.is_null() || value.is_null() {
        // Never the case, but the verifier needs the check.
        return 0;
    }
    // SAFETY: they are not null, and the verifier makes sure that callers hand over as many bytes as the types have.
    let (registers, program, value) = unsafe { (&*registers, &*program, &mut *value) };
    let register = match program.reg_offset {
        NO_REGISTER => 0,
        offset => match arch::register(registers, offset.into()) {
            Some(register) => register,
            None => return 0,
        },
    };
    match value_from(register, program) {
        Some(read) => *value = read,
        None => return 0,
    }
    1
}

/// Evaluates a program, starting from the value of its register.
#[inline(always)]
pub fn value_from(register: u64, program: &ArgProgram) -> Option<u64> {
    let mut value = register.wrapping_add(program.add as i64 as u64);
    for step in 0..MAX_DEREFS {
        if step >= program.steps as usize {
            if step > 0 && is_address(program) {
                value = value.wrapping_add(program.derefs[step] as i64 as u64);
            }
            break;
        }
        value = follow(value, step, program)?;
    }
    if is_address(program) {
        return Some(value);
    }
    Some(extend(value, program))
}

/// Limits a number in a way that the verifier sees, even if the compiler knows that it is smaller.
#[inline(always)]
pub fn at_most(number: u64, most: u64) -> u64 {
    let mut number = number;
    // SAFETY: no instruction.
    unsafe { asm!("/* {0} */", inout(reg) number) };
    number.min(most)
}

/// Whether the value is the address of the data, not a number itself.
#[inline(always)]
const fn is_address(program: &ArgProgram) -> bool {
    program.kind >= ArgKind::Str as u8
}

/// Makes one step: reads 8 bytes of user memory.
#[inline(always)]
pub fn follow(value: u64, step: usize, program: &ArgProgram) -> Option<u64> {
    let address = value.wrapping_add(program.derefs[step] as i64 as u64);
    let mut value = 0u64;
    // SAFETY: the helper checks the user address and writes 8 bytes into `value`.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut value).cast(), 8, address as *const _) } != 0;
    if failed {
        // The number may be at the end of its page.
        let last = step + 1 == program.steps as usize;
        // SAFETY: as above, at most 4 bytes.
        let failed =
            unsafe { bpf_probe_read_user((&raw mut value).cast(), 4, address as *const _) } != 0;
        if failed || !last || program.width == 8 || is_address(program) {
            return None;
        }
    }
    Some(value)
}

/// Extends the last bytes of a number according to its program.
#[inline(always)]
pub fn extend(value: u64, program: &ArgProgram) -> u64 {
    widen(value, program.width, program.kind == ArgKind::Signed as u8)
}

/// Reads a number of at most 8 bytes from the target.
#[inline(always)]
pub fn number(address: u64, width: u64) -> Option<u64> {
    let mut value = 0u64;
    let width = at_most(width, 8) as u32;
    // SAFETY: the helper checks the user address and writes at most 8 bytes into `value`.
    let failed =
        unsafe { bpf_probe_read_user((&raw mut value).cast(), width, address as *const _) } != 0;
    (!failed).then_some(value)
}

pub use pebs_common::config::{STR_CUT, STR_LONG, STR_SHORT};

/// Reads a text of known length, keeping at most `SIZE - 8` bytes and at most `capacity`, after a length word at
/// `room`.
#[inline(always)]
pub fn bytes<const SIZE: usize>(
    room: *mut u8,
    (address, length): (u64, u64),
    capacity: u64,
) -> bool {
    let kept = at_most(length.min(capacity), (SIZE - 8) as u64);
    let bytes = room.wrapping_add(8);
    // SAFETY: the caller made sure of SIZE bytes at `room`; the helper checks the user address.
    let failed =
        unsafe { bpf_probe_read_user(bytes.cast(), kept as u32, address as *const _) } != 0;
    if failed {
        return false;
    }
    let cut = if length > kept { STR_CUT } else { 0 };
    // SAFETY: as above; ring records are aligned to 8 bytes and so are offsets in them.
    unsafe { room.cast::<u64>().write(kept | cut) };
    true
}

/// Reads a string of at most `SIZE - 8` bytes, including its NUL, keeping at most `capacity`, after a length word
/// at `room`. `ends`: what follows the `capacity` bytes is no part of it.
#[inline(always)]
pub fn string<const SIZE: usize>(room: *mut u8, address: u64, capacity: u64, ends: bool) -> bool {
    let bytes = room.wrapping_add(8);
    // SAFETY: the caller made sure of SIZE bytes at `room`; the helper checks the user address.
    let read =
        unsafe { bpf_probe_read_user_str(bytes.cast(), (SIZE - 8) as u32, address as *const _) };
    if read <= 0 {
        return false;
    }
    let length = read as u64 - 1;
    let kept = length.min(capacity);
    // A string that fills the buffer may end there, or continue.
    let is_full = read as usize == SIZE - 8;
    let goes_on = is_full && number(address.wrapping_add(length), 1).is_some_and(|next| next != 0);
    let cut = if !ends && (length > kept || goes_on) {
        STR_CUT
    } else {
        0
    };
    // SAFETY: as above; ring records are aligned to 8 bytes and so are offsets in them.
    unsafe { room.cast::<u64>().write(kept | cut) };
    true
}
