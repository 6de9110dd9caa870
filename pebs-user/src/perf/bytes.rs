//! A cursor over bytes.

/// Unread bytes. Numbers are in this machine's byte order; a read returns `None` and takes nothing if too few
/// bytes are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Like [`Bytes::take`], for a length that was read from the bytes.
    pub(super) fn take_u64(&mut self, len: u64) -> Option<&'a [u8]> {
        self.take(usize::try_from(len).ok()?)
    }

    /// Takes `count` elements of `size` bytes.
    pub(super) fn take_array(&mut self, count: u64, size: usize) -> Option<&'a [u8]> {
        self.take_u64(count.checked_mul(size as u64)?)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_ne_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Takes two u32.
    #[inline]
    pub(super) fn pair(&mut self) -> Option<(u32, u32)> {
        let mut word = Self(self.take(8)?);
        Some((word.u32()?, word.u32()?))
    }

    /// Returns the bytes before the first zero byte, or all; takes nothing.
    pub(super) fn text(&self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        &self.0[..end.unwrap_or(self.0.len())]
    }

    /// Takes the bytes before the first zero byte, and that byte; `None` if there is none.
    pub(super) fn c_string(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }
}
