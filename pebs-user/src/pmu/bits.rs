//! Bit fields of a PMU's `format/` files.

use std::fmt;

/// Word of `perf_event_attr` that has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Config,
    /// `config1`.
    Config1,
    /// `config2`.
    Config2,
    /// `config3`.
    Config3,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "config",
            Self::Config1 => "config1",
            Self::Config2 => "config2",
            Self::Config3 => "config3",
        })
    }
}

/// A bit field: the bits of its value, lowest first, as in `config:0-7,32-35`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitField {
    pub word: Word,
    /// First and last bit of each range, in the order in which the value fills them.
    ranges: Vec<(u8, u8)>,
}

/// Why a value does not fit a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value {value:#x} does not fit the {width} bits of {field}")]
pub struct Overflow {
    pub value: u64,
    /// Number of bits.
    pub width: u32,
    /// The field as sysfs writes it.
    pub field: BitField,
}

impl BitField {
    /// Parses the text of a format file; `None` if malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = match word {
            "config" => Word::Config,
            "config1" => Word::Config1,
            "config2" => Word::Config2,
            "config3" => Word::Config3,
            _ => return None,
        };
        let ranges: Option<Vec<_>> = ranges.split(',').map(parse_range).collect();
        Some(Self {
            word,
            ranges: ranges?,
        })
    }

    /// Number of bits.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.ranges
            .iter()
            .map(|&(low, high)| u32::from(high - low) + 1)
            .sum()
    }

    /// The word's bits that belong to the field.
    #[must_use]
    pub fn mask(&self) -> u64 {
        let bits = |&(low, high): &(u8, u8)| ones(u32::from(high - low) + 1) << low;
        self.ranges
            .iter()
            .map(bits)
            .fold(0, |mask, bits| mask | bits)
    }

    /// The word's bits for a value.
    ///
    /// # Errors
    /// The value has bits beyond the field.
    pub fn encode(&self, value: u64) -> Result<u64, Overflow> {
        let (mut word, mut rest) = (0, value);
        for &(low, high) in &self.ranges {
            let width = u32::from(high - low) + 1;
            word |= (rest & ones(width)) << low;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        if rest != 0 {
            let (field, width) = (self.clone(), self.width());
            return Err(Overflow {
                value,
                width,
                field,
            });
        }
        Ok(word)
    }
}

impl fmt::Display for BitField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.word)?;
        for (n, (low, high)) in self.ranges.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            if low == high {
                write!(f, "{comma}{low}")?;
            } else {
                write!(f, "{comma}{low}-{high}")?;
            }
        }
        Ok(())
    }
}

/// Parses `7` or `0-7`.
fn parse_range(text: &str) -> Option<(u8, u8)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high && high < 64).then_some((low, high))
}

/// The lowest `width` bits set.
const fn ones(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value fills the ranges lowest first, whichever way they are written.
    #[test]
    fn values_fill_ranges() {
        let cases = [
            ("config:0-7", 0xc2, 0xc2),
            ("config:0-7,32-35", 0x1c2, 0x1_0000_00c2),
            ("config:0", 1, 1),
            ("config:8-15\n", 1, 0x100),
            ("config1:0-63", u64::MAX, u64::MAX),
            ("config2:63", 1, 1 << 63),
        ];
        for (text, value, expect) in cases {
            let field = BitField::parse(text).unwrap();
            assert_eq!(field.encode(value), Ok(expect), "{text}");
            assert_eq!(expect & !field.mask(), 0, "{text}");
            assert_eq!(field.to_string(), text.trim());
        }
    }

    /// A value too wide is refused and the message names value and bits.
    #[test]
    fn overflow_names_bits() {
        let field = BitField::parse("config:0-7,32-35").unwrap();
        assert_eq!(
            field.encode(0x1000).unwrap_err().to_string(),
            "value 0x1000 does not fit the 12 bits of config:0-7,32-35"
        );
    }

    /// Malformed texts are refused.
    #[test]
    fn nonsense_is_none() {
        for text in [
            "",
            "config",
            "config:",
            "config:7-0",
            "config:0-64",
            "config9:0-7",
            "config:a",
        ] {
            assert_eq!(BitField::parse(text), None, "{text}");
        }
    }

    proptest! {
        /// No text panics; parsed fields survive display, and encode only into their own bits.
        #[test]
        fn parse_never_panics(text in "\\PC{0,24}|config:[0-9,-]{0,12}", value: u64) {
            if let Some(field) = BitField::parse(&text) {
                let again = BitField::parse(&field.to_string());
                prop_assert_eq!(again.as_ref(), Some(&field));
                let _ = field.encode(value);
            }
        }
    }
}
