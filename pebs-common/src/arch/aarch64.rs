//! AArch64.

/// Words of the kernel's `struct pt_regs` up to the processor's state.
/// Source: `struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h.
pub const REGISTER_WORDS: usize = 34;

/// Whether the condition holds whose number is twice this one: 1, or 0. `flags`: the processor's state.
///
/// Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C1.2.4, "Condition codes".
#[inline(always)]
pub(crate) const fn condition(half: u8, flags: u64) -> u64 {
    let (negative, zero) = (flags >> 31 & 1, flags >> 30 & 1);
    let (carry, overflow) = (flags >> 29 & 1, flags >> 28 & 1);
    let less = negative ^ overflow;
    match half {
        0 => zero,
        1 => carry,
        2 => negative,
        3 => overflow,
        4 => carry & (zero ^ 1),
        5 => less ^ 1,
        6 => (zero | less) ^ 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::condition;

    /// The flags of a comparison, as the processor sets them, decide as the numbers compare.
    #[test]
    fn comparisons() {
        for one in i8::MIN..=i8::MAX {
            for other in [i8::MIN, -100, -2, -1, 0, 1, 2, 77, i8::MAX] {
                let (difference, overflow) = one.overflowing_sub(other);
                // A subtraction sets the carry where nothing was borrowed.
                let carry = one.cast_unsigned() >= other.cast_unsigned();
                let flags = u64::from(difference < 0) << 31
                    | u64::from(one == other) << 30
                    | u64::from(carry) << 29
                    | u64::from(overflow) << 28;
                let higher = one.cast_unsigned() > other.cast_unsigned();
                let values = [
                    one == other,
                    carry,
                    difference < 0,
                    overflow,
                    higher,
                    one >= other,
                    one > other,
                    true,
                ];
                for (half, value) in (0..).zip(values) {
                    assert_eq!(condition(half, flags) == 1, value, "{half} {one} {other}");
                }
            }
        }
    }
}
