//! Macros that make the code of [`super::schema`]: rows, columns and readers of tables, what interrupts visits.

/// Makes rows, columns and readers of the declared tables. For each:
///
/// * the row, a struct with a field for each column;
/// * the columns that rows are written to;
/// * a module with a type for each column, by which it is read ([`columns!`](crate::columns)), and `All` of them.
macro_rules! rows {
    ($(
        $(#[doc = $about:literal])+
        $table:ident = $variant:ident, $row:ident $(<$life:lifetime>)? $(($($derive:ident),+))?, $columns:ident $(in $writer:ty)? {
            $(
                $(#[doc = $words:literal])+
                $column:ident: $type:ty $(as $kind:ty)?,
            )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, Default, PartialEq $($(, $derive)+)?)]
            pub struct $row $(<$life>)? {
                $($(#[doc = $words])+ pub $column: $type,)+
            }

            impl $(<$life>)? $row $(<$life>)? {
                /// The values as their columns have them, in the order of the columns.
                pub fn each_cell(&self, mut take: impl FnMut(&'static str, Cell<'_>)) {
                    $(take(
                        stringify!($column),
                        Stored::<kind!($type $(, $kind)?)>::cell(&self.$column).into(),
                    );)+
                }
            }

            #[cfg(test)]
            impl $(<$life>)? $row $(<$life>)? {
                /// A row for tests, see [`super::fixtures::rows`].
                pub(in crate::store) fn numbered(n: u64) -> Self {
                    use super::fixtures::rows::Numbered;
                    Self { $($column: Numbered::numbered(n, stringify!($column)),)+ }
                }
            }

            #[doc(hidden)]
            #[derive(Debug, Default)]
            pub struct $columns {
                pub(super) rows: usize,
                $(pub(super) $column: kind!($type $(, $kind)?),)+
            }

            impl $(<$life>)? Extend<$row $(<$life>)?> for $columns {
                #[inline(always)]
                fn extend(&mut self, rows: &[$row $(<$life>)?]) {
                    self.rows += rows.len();
                    $(self.$column.extend(
                        rows,
                        |row| Stored::<kind!($type $(, $kind)?)>::cell(&row.$column),
                    );)+
                }
            }

            impl RowColumns for $columns {
                #[inline]
                fn rows(&self) -> usize {
                    self.rows
                }

                #[inline]
                fn is_full(&self) -> bool {
                    self.rows >= GROUP_ROWS $(|| self.$column.is_full())+
                }

                fn end(&mut self) -> Vec<Chunk<'_>> {
                    vec![$(self.$column.end(),)+]
                }

                fn clear(&mut self) {
                    self.rows = 0;
                    $(self.$column.clear();)+
                }

                fn end_segment(&mut self) {
                    $(self.$column.end_segment();)+
                }
            }

            #[doc = concat!("Columns of `", stringify!($table), "`, to be read.")]
            #[allow(non_camel_case_types, reason = "columns are named as they are in the trace")]
            pub mod $table {
                use super::*;

                /// The table.
                pub const TABLE: Table = Table::$variant;

                $(
                    $(#[doc = $words])+
                    #[derive(Clone, Copy, Debug)]
                    pub struct $column;

                    impl Named for $column {
                        type View<'a> = <kind!($type $(, $kind)?) as Typed>::View<'a>;
                        const NAME: &'static str = stringify!($column);
                    }
                )+

                crate::columns! {
                    /// All columns.
                    pub(crate) struct All of $table { $($column),+ }
                }

                /// Reads every row, as [`Trace::scan`] does.
                ///
                /// # Errors
                /// As [`Trace::scan`].
                pub fn each(trace: &Trace, mut take: rows!(@each $row $(, $life)?)) -> Result<(), ReadError> {
                    for batch in All::scan(trace)? {
                        let batch = batch?;
                        let columns = All::of(&batch)?;
                        (0..batch.num_rows()).for_each(|row| take(columns.row(row)));
                    }
                    Ok(())
                }

                impl<'a> All<'a> {
                    /// A row.
                    pub(crate) fn row(&self, row: usize) -> rows!(@row $row 'a $(, $life)?) {
                        $row {
                            $($column: Stored::<'a, kind!($type $(, $kind)?)>::read(self.$column.get(row)),)+
                        }
                    }
                }
            }
        )+
    };
    (@each $row:ident) => { impl FnMut($row) };
    (@each $row:ident, $life:lifetime) => { impl FnMut($row<'_>) };
    (@row $row:ident $a:lifetime) => { $row };
    (@row $row:ident $a:lifetime, $life:lifetime) => { $row<$a> };
}
pub(super) use rows;

/// Declares the interruption columns of `visits` and their names in reports: first the times, then the numbers.
macro_rules! interference {
    (
        $(#[doc = $about:literal])+
        times { $($time:ident = $time_words:literal,)+ }
        numbers { $($number:ident = $number_words:expr,)+ }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct InterferenceColumns {
            $(pub $time: Option<i64>,)+
            $(pub $number: Option<u32>,)+
        }

        impl InterferenceColumns {
            /// Names of the columns.
            pub const NAMES: &[&str] = &[$(stringify!($time),)+ $(stringify!($number),)+];

            /// Their names in reports.
            pub const WORDS: [&str; Self::NAMES.len()] = [$($time_words,)+ $($number_words,)+];

            /// Number of times; they come first.
            pub const TIMES: usize = [$($time_words),+].len();

            /// The values in the order of the columns.
            #[must_use]
            pub fn values(&self) -> [Option<i64>; Self::NAMES.len()] {
                [$(self.$time,)+ $(self.$number.map(i64::from),)+]
            }
        }

        impl VisitRow {
            /// Interrupt, softirq and page-fault columns.
            #[must_use]
            pub const fn interference(&self) -> InterferenceColumns {
                InterferenceColumns {
                    $($time: self.$time,)+
                    $($number: self.$number,)+
                }
            }
        }

        crate::columns! {
            /// The columns of a batch.
            pub(crate) struct InterferenceViews of visits { $($time,)+ $($number,)+ }
        }

        impl InterferenceViews<'_> {
            /// Whether any row has a value.
            pub(crate) fn is_known(&self) -> bool {
                [$(self.$time.has_some(),)+ $(self.$number.has_some(),)+].contains(&true)
            }

            /// The values of a row.
            pub(crate) fn get(&self, row: usize) -> InterferenceColumns {
                InterferenceColumns {
                    $($time: self.$time.get(row),)+
                    $($number: self.$number.get(row),)+
                }
            }
        }
    };
}
pub(super) use interference;
