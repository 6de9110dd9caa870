//! Columns of strings.

use arrow_schema::{DataType, Field};
use parquet::file::statistics::Statistics;

use super::{Chunk, Column, PLAIN};
use crate::store::pages::Pages;
use crate::store::pages::levels::Levels;
use crate::store::pages::plain::Plain;

/// Strings with null.
#[derive(Debug, Default)]
pub struct NullableText {
    plain: Plain,
    levels: Levels,
    pages: Pages,
}

impl NullableText {
    #[inline]
    pub(in crate::store) fn push(&mut self, value: Option<&str>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.plain.push_text(value)
        {
            self.end_page();
        }
    }

    /// Pushes one value per row.
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> Option<&'a str>,
    ) {
        rows.iter().for_each(|row| self.push(value(row)));
    }

    /// Bytes of text in memory, without the current page.
    pub(in crate::store) fn text_bytes(&self) -> usize {
        self.pages.bytes()
    }

    fn end_page(&mut self) {
        let rows = self.levels.rows();
        self.plain
            .end_page(&mut self.pages, rows, Some(&mut self.levels));
    }

    fn chunk(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::byte_array(None, None, None, Some(self.levels.nulls()), false),
        )
    }
}

impl Column for NullableText {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.chunk()
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.levels.clear();
        self.pages.clear();
    }
}

/// Strings without null.
#[derive(Debug, Default)]
pub struct Text {
    plain: Plain,
    rows: u32,
    pages: Pages,
}

impl Text {
    #[inline]
    fn push(&mut self, value: &str) {
        self.rows += 1;
        if self.plain.push_text(value) {
            self.end_page();
        }
    }

    /// Pushes one value per row.
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> &'a str,
    ) {
        rows.iter().for_each(|row| self.push(value(row)));
    }

    fn end_page(&mut self) {
        self.plain.end_page(&mut self.pages, self.rows, None);
        self.rows = 0;
    }
}

impl Column for Text {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Utf8, false)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::byte_array(None, None, None, Some(0), false),
        )
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.rows = 0;
        self.pages.clear();
    }
}
