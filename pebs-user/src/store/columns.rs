//! Reusable builders of Arrow columns.
//!
//! A builder lends its memory to an Arrow array and takes it back once the batch was written:
//! nothing is allocated per row, and after the first batches nothing per batch but the arrays'
//! headers.
//! Invariant: all builders of a table hold the same number of rows.

use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Field};
use arrow::error::ArrowError;

/// What the writer needs from a column of any type.
pub(super) trait Column {
    /// The column's Arrow field.
    fn field(name: &str) -> Field
    where
        Self: Sized;

    /// Moves the rows into an array. The builder is empty afterwards.
    ///
    /// # Errors
    /// If the rows make no valid array, which the builders exclude.
    fn lend(&mut self) -> Result<ArrayRef, ArrowError>;

    /// Takes the memory of the last array back. To be called once the array is dropped; if it is
    /// not, new memory is allocated.
    fn reclaim(&mut self);
}

/// A vector whose memory an Arrow buffer can borrow.
#[derive(Debug)]
struct Lent<T> {
    values: Vec<T>,
    buffer: Option<Buffer>,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            buffer: None,
        }
    }
}

impl<T: ArrowNativeType> Lent<T> {
    fn lend(&mut self) -> Buffer {
        let buffer = Buffer::from_vec(mem::take(&mut self.values));
        self.buffer = Some(buffer.clone());
        buffer
    }

    fn reclaim(&mut self) {
        if let Some(Ok(mut values)) = self.buffer.take().map(Buffer::into_vec::<T>) {
            values.clear();
            self.values = values;
        }
    }
}

/// A bitmap, lowest bit first.
#[derive(Debug, Default)]
struct Bits {
    bytes: Lent<u8>,
    len: usize,
    zeros: usize,
}

impl Bits {
    #[inline]
    fn push(&mut self, set: bool) {
        let bit = self.len % 8;
        if bit == 0 {
            self.bytes.values.push(0);
        }
        if let Some(last) = self.bytes.values.last_mut() {
            *last |= u8::from(set) << bit;
        }
        self.len += 1;
        self.zeros += usize::from(!set);
    }

    fn lend(&mut self) -> BooleanBuffer {
        self.zeros = 0;
        BooleanBuffer::new(self.bytes.lend(), 0, mem::take(&mut self.len))
    }

    /// The bitmap as a validity mask; none if nothing is null.
    fn lend_validity(&mut self) -> Option<NullBuffer> {
        let any_null = self.zeros > 0;
        let bits = self.lend();
        any_null.then(|| NullBuffer::new(bits))
    }
}

/// Numbers, none of them null.
#[derive(Debug)]
pub(super) struct Required<T: ArrowPrimitiveType> {
    values: Lent<T::Native>,
    kind: PhantomData<T>,
}

impl<T: ArrowPrimitiveType> Default for Required<T> {
    fn default() -> Self {
        Self {
            values: Lent::default(),
            kind: PhantomData,
        }
    }
}

impl<T: ArrowPrimitiveType> Required<T> {
    #[inline]
    pub(super) fn push(&mut self, value: T::Native) {
        self.values.values.push(value);
    }
}

impl<T: ArrowPrimitiveType> Column for Required<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, false)
    }

    fn lend(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = ScalarBuffer::<T::Native>::from(self.values.lend());
        Ok(Arc::new(PrimitiveArray::<T>::try_new(values, None)?))
    }

    fn reclaim(&mut self) {
        self.values.reclaim();
    }
}

/// Numbers, some of them null.
#[derive(Debug)]
pub(super) struct Nullable<T: ArrowPrimitiveType> {
    values: Lent<T::Native>,
    validity: Bits,
    kind: PhantomData<T>,
}

impl<T: ArrowPrimitiveType> Default for Nullable<T> {
    fn default() -> Self {
        Self {
            values: Lent::default(),
            validity: Bits::default(),
            kind: PhantomData,
        }
    }
}

impl<T: ArrowPrimitiveType> Nullable<T> {
    #[inline]
    pub(super) fn push(&mut self, value: Option<T::Native>) {
        self.values.values.push(value.unwrap_or_default());
        self.validity.push(value.is_some());
    }
}

impl<T: ArrowPrimitiveType> Column for Nullable<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, true)
    }

    fn lend(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = ScalarBuffer::<T::Native>::from(self.values.lend());
        let validity = self.validity.lend_validity();
        Ok(Arc::new(PrimitiveArray::<T>::try_new(values, validity)?))
    }

    fn reclaim(&mut self) {
        self.values.reclaim();
        self.validity.bytes.reclaim();
    }
}

/// Truth values, none of them null.
#[derive(Debug, Default)]
pub(super) struct Truth {
    bits: Bits,
}

impl Truth {
    #[inline]
    pub(super) fn push(&mut self, value: bool) {
        self.bits.push(value);
    }
}

impl Column for Truth {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Boolean, false)
    }

    fn lend(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BooleanArray::new(self.bits.lend(), None)))
    }

    fn reclaim(&mut self) {
        self.bits.bytes.reclaim();
    }
}

/// Strings, some of them null.
#[derive(Debug, Default)]
pub(super) struct NullableText {
    bytes: Lent<u8>,
    ends: Lent<i32>,
    validity: Bits,
}

impl NullableText {
    #[inline]
    pub(super) fn push(&mut self, value: Option<&str>) {
        if self.ends.values.is_empty() {
            self.ends.values.push(0);
        }
        self.bytes
            .values
            .extend_from_slice(value.unwrap_or_default().as_bytes());
        // A table is flushed long before its text reaches i32::MAX bytes; if it ever were not, the
        // array would be refused when lent, not misread.
        self.ends.values.push(self.bytes.values.len() as i32);
        self.validity.push(value.is_some());
    }

    /// Bytes of text held.
    pub(super) const fn text_bytes(&self) -> usize {
        self.bytes.values.len()
    }
}

impl Column for NullableText {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, true)
    }

    fn lend(&mut self) -> Result<ArrayRef, ArrowError> {
        if self.ends.values.is_empty() {
            self.ends.values.push(0);
        }
        let ends = ScalarBuffer::<i32>::from(self.ends.lend());
        let bytes = self.bytes.lend();
        let validity = self.validity.lend_validity();
        if ends.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(ArrowError::OffsetOverflowError(bytes.len()));
        }
        let array = StringArray::try_new(OffsetBuffer::new(ends), bytes, validity)?;
        Ok(Arc::new(array))
    }

    fn reclaim(&mut self) {
        self.bytes.reclaim();
        self.ends.reclaim();
        self.validity.bytes.reclaim();
    }
}

/// Strings, none of them null.
#[derive(Debug, Default)]
pub(super) struct Text {
    inner: NullableText,
}

impl Text {
    #[inline]
    pub(super) fn push(&mut self, value: &str) {
        self.inner.push(Some(value));
    }
}

impl Column for Text {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, false)
    }

    fn lend(&mut self) -> Result<ArrayRef, ArrowError> {
        self.inner.lend()
    }

    fn reclaim(&mut self) {
        self.inner.reclaim();
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{Int64Type, UInt64Type};

    use super::*;

    // The memory of a column is the same before and after a batch: nothing is allocated anew.
    #[test]
    fn memory_is_taken_back() {
        let mut column = Required::<Int64Type>::default();
        (0..1000).for_each(|n| column.push(n));
        let before = column.values.values.as_ptr();
        let array = column.lend().unwrap();
        assert_eq!(array.as_primitive::<Int64Type>().value(999), 999);
        drop(array);
        column.reclaim();
        assert_eq!(column.values.values.as_ptr(), before);
        assert!(column.values.values.is_empty());
    }

    // An array that is still held keeps its values: the column takes new memory.
    #[test]
    fn held_array_is_left_alone() {
        let mut column = Required::<Int64Type>::default();
        column.push(7);
        let array = column.lend().unwrap();
        column.reclaim();
        column.push(8);
        assert_eq!(array.as_primitive::<Int64Type>().value(0), 7);
    }

    // Nulls are nulls, values are values, over bitmaps longer than a byte and a second batch.
    #[test]
    fn nulls_survive() {
        let mut column = Nullable::<UInt64Type>::default();
        for round in 0..2_u64 {
            for n in 0..19 {
                column.push((n % 3 != round).then_some(n));
            }
            let array = column.lend().unwrap();
            let values: Vec<_> = array.as_primitive::<UInt64Type>().iter().collect();
            let expected: Vec<_> = (0..19).map(|n| (n % 3 != round).then_some(n)).collect();
            assert_eq!(values, expected);
            drop(array);
            column.reclaim();
        }
    }

    // Text of several batches: empty strings are not null, and offsets begin anew.
    #[test]
    fn text_survives() {
        let mut column = NullableText::default();
        assert_eq!(column.lend().unwrap().len(), 0);
        column.reclaim();
        for _ in 0..2 {
            for value in [Some("GET"), None, Some(""), Some("käse")] {
                column.push(value);
            }
            assert_eq!(column.text_bytes(), 8);
            let array = column.lend().unwrap();
            let values: Vec<_> = array.as_string::<i32>().iter().collect();
            assert_eq!(values, [Some("GET"), None, Some(""), Some("käse")]);
            drop(array);
            column.reclaim();
        }
    }

    // Truth values come back as pushed.
    #[test]
    fn truth_survives() {
        let mut column = Truth::default();
        (0..10).for_each(|n| column.push(n % 4 == 0));
        let array = column.lend().unwrap();
        let values: Vec<_> = array.as_boolean().iter().flatten().collect();
        assert_eq!(values, (0..10).map(|n| n % 4 == 0).collect::<Vec<_>>());
    }
}
