//! Columns of whole numbers that come many times one after another.

use arrow::datatypes::Field;

use super::{Chunk, Column, DELTA, WholeType};
use crate::store::pages::Pages;
use crate::store::pages::levels::Levels;
use crate::store::pages::runs::Runs;

/// Whole numbers, none of them null.
#[derive(Debug)]
pub(in crate::store) struct Repeated<T: WholeType> {
    runs: Runs<T::Native>,
    pages: Pages,
}

impl<T: WholeType> Default for Repeated<T> {
    fn default() -> Self {
        Self {
            runs: Runs::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: WholeType> Repeated<T> {
    /// Pushes a value of each row.
    #[inline(always)]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> T::Native,
    ) {
        rows.iter().for_each(|row| self.repeat(value(row), 1));
    }

    /// Pushes a value some times.
    #[inline]
    pub(in crate::store) fn repeat(&mut self, value: T::Native, mut times: usize) {
        while times > 0 {
            times = self.runs.repeat(value, times);
            if self.runs.is_full() {
                self.runs.end_page(&mut self.pages, None);
            }
        }
    }
}

impl<T: WholeType> Column for Repeated<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.runs.end_page(&mut self.pages, None);
        Chunk::new(&self.pages, DELTA, T::statistics(self.runs.range(), 0))
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.pages.clear();
    }
}

/// Whole numbers, some of them null.
#[derive(Debug)]
pub(in crate::store) struct NullableRepeated<T: WholeType> {
    runs: Runs<T::Native>,
    levels: Levels,
    pages: Pages,
}

impl<T: WholeType> Default for NullableRepeated<T> {
    fn default() -> Self {
        Self {
            runs: Runs::default(),
            levels: Levels::default(),
            pages: Pages::default(),
        }
    }
}

impl<T: WholeType> NullableRepeated<T> {
    /// Pushes a value of each row.
    #[inline(always)]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> Option<T::Native>,
    ) {
        rows.iter().for_each(|row| self.repeat(value(row), 1));
    }

    /// Pushes a value some times.
    #[inline]
    pub(in crate::store) fn repeat(&mut self, value: Option<T::Native>, mut times: usize) {
        let Some(value) = value else {
            return self.levels.repeat(false, times as u32);
        };
        while times > 0 {
            let left = self.runs.repeat(value, times);
            self.levels.repeat(true, (times - left) as u32);
            times = left;
            if self.runs.is_full() {
                self.runs.end_page(&mut self.pages, Some(&mut self.levels));
            }
        }
    }
}

impl<T: WholeType> Column for NullableRepeated<T> {
    fn field(name: &str) -> Field {
        Field::new(name, T::DATA_TYPE, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.runs.end_page(&mut self.pages, Some(&mut self.levels));
        Chunk::new(
            &self.pages,
            DELTA,
            T::statistics(self.runs.range(), self.levels.nulls()),
        )
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.levels.clear();
        self.pages.clear();
    }
}
