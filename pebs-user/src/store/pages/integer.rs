//! Integers as Parquet stores them.

/// An integer as Parquet stores it: in 32 bits up to `u32`, else in 64.
pub trait Integer: Copy + Default + Ord {
    /// The signed type of that width.
    type Stored: Stored;
    /// The number as it is stored.
    fn stored(self) -> Self::Stored;
    /// Bits in which any of the numbers differs from `other`.
    fn unlike(numbers: &[Self], other: Self) -> u64;
    /// The lowest 32 bits.
    fn low(self) -> u32;
    /// The number with its lowest 32 bits replaced.
    fn with_low(self, low: u32) -> Self;
}

/// `i32` or `i64`.
pub trait Stored: Copy + Default + Ord + Into<i64> {
    const MAX: Self;
    /// `self - other`, wrapping.
    fn less(self, other: Self) -> Self;
    /// Its bits as an unsigned number.
    fn bits(self) -> u64;
}

macro_rules! stored {
    ($($stored:ty, $unsigned:ty: $($type:ty)*;)*) => {$(
        impl Stored for $stored {
            const MAX: Self = Self::MAX;

            #[inline(always)]
            fn less(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }

        $(impl Integer for $type {
            type Stored = $stored;

            #[inline(always)]
            fn stored(self) -> $stored {
                self as $stored
            }

            #[inline(always)]
            fn unlike(numbers: &[Self], other: Self) -> u64 {
                let unlike = |bits, number: &Self| bits | (number ^ other);
                numbers.iter().fold(0, unlike) as u64
            }

            #[inline(always)]
            fn low(self) -> u32 {
                self as u32
            }

            #[inline(always)]
            fn with_low(self, low: u32) -> Self {
                (self as u64 & !u64::from(u32::MAX) | u64::from(low)) as Self
            }
        })*
    )*};
}

stored! {
    i32, u32: u8 u16 u32;
    i64, u64: i64 u64;
}
