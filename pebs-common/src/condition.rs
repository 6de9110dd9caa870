//! Conditions of branches: whether a conditional branch will be taken.

/// A condition on the processor's flags (x86-64: the low four bits of a branch's opcode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition(u8);

/// Number of conditions.
const COUNT: u8 = 16;

impl Condition {
    /// The condition of the branch whose opcode ends in these four bits; `None` if there are more.
    #[must_use]
    pub const fn of_opcode(bits: u8) -> Option<Self> {
        if bits < COUNT {
            return Some(Self(bits));
        }
        None
    }

    /// The opposite.
    #[must_use]
    pub const fn negated(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Value of [`crate::config::SiteConfig::condition`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0 + 1
    }

    /// The condition with that code; `None`: no condition.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code.checked_sub(1) {
            Some(bits) => Self::of_opcode(bits),
            None => None,
        }
    }

    /// Whether it holds with these flags.
    ///
    /// Source: Intel, Software Developer's Manual, volume 1, appendix B.
    #[inline(always)]
    #[must_use]
    pub const fn holds(self, flags: u64) -> bool {
        let (carry, parity, zero) = (flags & 1, flags >> 2 & 1, flags >> 6 & 1);
        let (sign, overflow) = (flags >> 7 & 1, flags >> 11 & 1);
        let less = sign ^ overflow;
        let value = match self.0 >> 1 {
            0 => overflow,
            1 => carry,
            2 => zero,
            3 => carry | zero,
            4 => sign,
            5 => parity,
            6 => less,
            _ => zero | less,
        };
        value != (self.0 & 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Condition::of_opcode(16), None);
        assert_eq!(Condition::from_code(0), None);
    }
}
