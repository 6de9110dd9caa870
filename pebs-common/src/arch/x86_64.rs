//! x86-64.

/// Words of the kernel's `struct pt_regs`. Source: arch/x86/include/asm/ptrace.h.
pub const REGISTER_WORDS: usize = 21;

/// Whether the condition holds whose number is twice this one: 1, or 0. `flags`: eflags.
///
/// Source: Intel, Software Developer's Manual, volume 1, appendix B.
#[inline(always)]
pub(crate) const fn condition(half: u8, flags: u64) -> u64 {
    let (carry, parity, zero) = (flags & 1, flags >> 2 & 1, flags >> 6 & 1);
    let (sign, overflow) = (flags >> 7 & 1, flags >> 11 & 1);
    let less = sign ^ overflow;
    match half {
        0 => overflow,
        1 => carry,
        2 => zero,
        3 => carry | zero,
        4 => sign,
        5 => parity,
        6 => less,
        _ => zero | less,
    }
}

#[cfg(test)]
mod tests {
    use crate::condition::Condition;

    /// The flags of a comparison, as the processor sets them, decide as the numbers compare.
    #[test]
    fn comparisons() {
        let holds = |bits, flags| {
            let condition = Condition::of_opcode(bits).expect("one of sixteen");
            let holds = condition.holds(flags);
            assert_eq!(condition.negated().holds(flags), !holds);
            assert_eq!(Condition::from_code(condition.code()), Some(condition));
            holds
        };
        for one in i8::MIN..=i8::MAX {
            for other in [i8::MIN, -100, -2, -1, 0, 1, 2, 77, i8::MAX] {
                let (below, equal) = (one.cast_unsigned() < other.cast_unsigned(), one == other);
                let (difference, overflow) = one.overflowing_sub(other);
                let (sign, even) = (difference < 0, difference.count_ones() % 2 == 0);
                let flags = u64::from(below)
                    | u64::from(even) << 2
                    | u64::from(equal) << 6
                    | u64::from(sign) << 7
                    | u64::from(overflow) << 11;
                let less = one < other;
                let values = [
                    overflow,
                    below,
                    equal,
                    below || equal,
                    sign,
                    even,
                    less,
                    less || equal,
                ];
                for (bits, value) in (0..).step_by(2).zip(values) {
                    assert_eq!(holds(bits, flags), value, "{bits} {one} {other}");
                    assert_eq!(holds(bits + 1, flags), !value, "{bits} {one} {other}");
                }
            }
        }
    }
}
