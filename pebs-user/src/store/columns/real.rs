//! Columns of floats.

use arrow_schema::{DataType, Field};
use parquet::file::statistics::Statistics;

use super::{Chunk, Column, PLAIN};
use crate::store::pages::Pages;
use crate::store::pages::levels::Levels;
use crate::store::pages::plain::Plain;

/// Floats with null.
#[derive(Debug, Default)]
pub struct NullableReal {
    plain: Plain,
    levels: Levels,
    pages: Pages,
}

impl NullableReal {
    #[inline]
    fn push(&mut self, value: Option<f64>) {
        self.levels.push(value.is_some());
        if let Some(value) = value
            && self.plain.push(value)
        {
            self.end_page();
        }
    }

    /// Pushes one value per row.
    #[inline(always)]
    pub(in crate::store) fn extend<'a, R>(
        &mut self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> Option<f64>,
    ) {
        match self.plain.extend_if_all(rows, &value) {
            present if present == rows.len() => {
                self.levels.repeat(true, rows.len() as u32);
                if self.plain.is_full() {
                    self.end_page();
                }
            }
            0 => self.levels.repeat(false, rows.len() as u32),
            _ => rows.iter().for_each(|row| self.push(value(row))),
        }
    }

    fn end_page(&mut self) {
        let rows = self.levels.rows();
        self.plain
            .end_page(&mut self.pages, rows, Some(&mut self.levels));
    }
}

impl Column for NullableReal {
    fn field(name: &str) -> Field {
        Field::new(name, DataType::Float64, true)
    }

    fn end(&mut self) -> Chunk<'_> {
        self.end_page();
        Chunk::new(
            &self.pages,
            PLAIN,
            Statistics::double(None, None, None, Some(self.levels.nulls()), false),
        )
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.levels.clear();
        self.pages.clear();
    }
}
