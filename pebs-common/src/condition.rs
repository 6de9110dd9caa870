//! Conditions of branches: whether a conditional branch will be taken.

use crate::arch::condition;

/// A condition on the processor's flags: the low four bits of a branch's opcode.
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
    #[inline(always)]
    #[must_use]
    pub const fn holds(self, flags: u64) -> bool {
        let value = condition(self.0 >> 1, flags);
        value != (self.0 & 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are sixteen, of which each has an opposite.
    #[test]
    fn numbers() {
        let condition = Condition::of_opcode(6).expect("one of sixteen");
        assert_eq!(Condition::from_code(condition.code()), Some(condition));
        assert_eq!(condition.negated().negated(), condition);
        assert_ne!(condition.negated().holds(0), condition.holds(0));
        assert_eq!(Condition::of_opcode(16), None);
        assert_eq!(Condition::from_code(0), None);
    }
}
