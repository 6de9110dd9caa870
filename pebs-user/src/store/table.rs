//! The tables: their names, and what their columns mean. Versions of the trace format.

use serde::{Deserialize, Serialize};

use super::declaration::declared;
use super::descriptions::Described;

/// Version of the trace format. A reader refuses a larger one.
///
/// A new table, or a new column that may be null, is no new version: what an older trace lacks is empty, or null. A column
/// that goes away or changes its meaning is one.
pub const SCHEMA_VERSION: u32 = 1;

/// The oldest version that is read. A trace of an older one is refused, and the program named that reads it.
pub const OLDEST_SCHEMA: u32 = 1;

macro_rules! list {
    ($(
        $(#[doc = $about:literal])+
        $table:ident = $variant:ident, $row:ident $(<$life:lifetime>)? $(($($derive:ident),+))?, $columns:ident $(in $writer:ty)? {
            $(
                $(#[doc = $words:literal])+
                $column:ident: $type:ty $(as $kind:ty)?,
            )+
        }
    )+) => {
        /// The tables, which are also the names of their folders.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Table {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Table {
            /// Every table.
            pub const ALL: [Self; [$(stringify!($table)),+].len()] = [$(Self::$variant),+];

            /// Folder of the table's segments.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($table),)+
                }
            }

            /// Description of a row, from the declaration's comment.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($about, "\n"),+),)+
                }
            }

            /// Its columns, without named arguments.
            #[must_use]
            pub const fn columns(self) -> &'static [Described] {
                match self {
                    $(Self::$variant => &[
                        $(Described { name: stringify!($column), words: concat!($($words, "\n"),+) },)+
                    ],)+
                }
            }
        }
    };
}

declared!(list);

impl Table {
    /// Whether traces of earlier versions lack it: it is empty there.
    #[must_use]
    pub const fn is_recent(self) -> bool {
        self as usize >= Self::Memory as usize
    }
}
