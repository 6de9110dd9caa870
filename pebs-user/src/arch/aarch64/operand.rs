//! Operands of USDT probes, as assemblers write them.

use super::register::Register;
use crate::arch::common::signed;

/// A register, `None` for a constant, and what is added to it, and after each read of 8 bytes.
pub(crate) type Place = (Option<Register>, Vec<i64>);

/// Parses `REG`, `NUMBER`, `[REG]` or `[REG, OFFSET]`.
pub(crate) fn place(text: &str, _variable: &dyn Fn(&str) -> Option<i64>) -> Option<Place> {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        let (register, offset) = inner.split_once(',').unwrap_or((inner, ""));
        let offset = offset.trim().trim_start_matches('#');
        return Some((Some(named(register.trim())?), vec![signed(offset)?, 0]));
    }
    if let Some(register) = named(text) {
        return Some((Some(register), vec![0]));
    }
    let digits = text.trim_start_matches('#');
    let has_digits = !digits.is_empty();
    has_digits
        .then(|| signed(digits))
        .flatten()
        .map(|value| (None, vec![value]))
}

/// A register by its name, or by that of its lower half.
fn named(name: &str) -> Option<Register> {
    let half = || Register::from_name(&format!("x{}", name.strip_prefix('w')?));
    Register::from_name(name).or_else(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that gcc and clang write.
    #[test]
    fn forms() {
        let parsed = |text| {
            place(text, &|_| None)
                .map(|(register, offsets)| (register.map(Register::name), offsets))
        };
        assert_eq!(parsed("x0"), Some((Some("x0"), vec![0])));
        assert_eq!(parsed("w19"), Some((Some("x19"), vec![0])));
        assert_eq!(parsed("[sp, 12]"), Some((Some("sp"), vec![12, 0])));
        assert_eq!(parsed("[x29, #-8]"), Some((Some("x29"), vec![-8, 0])));
        assert_eq!(parsed("[x1]"), Some((Some("x1"), vec![0, 0])));
        assert_eq!(parsed("-5"), Some((None, vec![-5])));
        assert_eq!(parsed("[x1, x2]"), None);
        assert_eq!(
            [parsed("d0"), parsed(""), parsed("w31"), parsed("[x1")],
            [None, None, None, None]
        );
    }
}
