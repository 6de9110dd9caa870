//! Rows of the tables, the columns that they are written to, and readers, as [`super::declaration`] says; and what the
//! numbers and words in some columns mean.

use arrow_array::types::{UInt16Type, UInt32Type};
use serde::Serialize;

pub use super::argument::{ArgColumn, ArgType, ArgValue};
use super::columns::{
    Addresses, Chunk, Column, Nullable, NullableCoded, NullableReal, NullableText, NullableTruth,
    Required, RequiredCoded, Text, Typed,
};
use super::declaration::declared;
use super::declare::{interference, rows};
pub use super::flags::{sample_flag, visit_flag};
use super::pages::coded::{Halves, Rounded, Small};
use super::read_error::ReadError;
use super::reader::Trace;
use super::row_columns::{Extend, GROUP_ROWS, RowColumns};
use super::stored::{Stored, kind};
pub use super::table::{OLDEST_SCHEMA, SCHEMA_VERSION, Table};
use super::values::{Cell, View as _};
use super::view::{Named, Select as _};
use crate::units::{Cpu, EventId, FunctionId, Pid, ProbeId, StackId, Tid, TraceNs};

/// Declares a struct of some columns of a table, by their names: numbers without null are slices, others have
/// `get(row)`.
///
/// ```
/// use pebs_user::store::view::{Select as _, View as _};
///
/// pebs_user::columns! {
///     /// How long visits took.
///     struct Durations of visits { probe_id, duration_ns }
/// }
///
/// # fn print(trace: &pebs_user::store::reader::Trace) -> Result<(), pebs_user::store::reader::ReadError> {
/// for batch in Durations::scan(trace)? {
///     let batch = batch?;
///     let columns = Durations::of(&batch)?;
///     for (row, probe) in columns.probe_id.iter().enumerate() {
///         println!("{probe} {:?}", columns.duration_ns.get(row));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident of $table:ident { $($column:ident),+ $(,)? }
    ) => {
        $(#[$meta])*
        $visibility struct $name<'a> {
            $($visibility $column: <$crate::store::schema::$table::$column as $crate::store::view::Named>::View<'a>,)+
        }

        impl<'a> $crate::store::view::Select<'a> for $name<'a> {
            const TABLE: $crate::store::schema::Table = $crate::store::schema::$table::TABLE;
            const NAMES: &'static [&'static str] = &[
                $(<$crate::store::schema::$table::$column as $crate::store::view::Named>::NAME,)+
            ];

            fn of(
                batch: &'a ::arrow_array::RecordBatch,
            ) -> ::std::result::Result<Self, $crate::store::reader::ReadError> {
                Ok(Self {
                    $($column: $crate::store::view::view::<$crate::store::schema::$table::$column>(batch)?,)+
                })
            }
        }
    };
}

declared!(rows);

/// Whether a flag distinguishes a visit from others of its trace: all visits have `sampled_bounds`, or none, and so with
/// `sampled_turns`.
#[must_use]
pub fn is_own_flag(name: &str) -> bool {
    let of_all = [visit_flag::SAMPLED_BOUNDS, visit_flag::SAMPLED_TURNS];
    of_all.iter().all(|flag| name != visit_flag::name(*flag))
}

interference! {
    /// Columns of `visits`: interrupt, softirq and page-fault time while the visit was its thread's current one (of nested
    /// visits the innermost, so that a sum counts each once). It is included in the visit's time and, except for waiting in
    /// major faults, in its time on the CPU and in the times of the functions that were interrupted.
    times {
        irq_ns = "interrupts",
        softirq_ns = "softirqs",
        fault_ns = "page faults",
        reclaim_ns = "memory reclaim",
    }
    numbers {
        major_faults = MAJOR_FAULTS,
    }
}

/// Name in reports of page faults whose page had to be read.
pub const MAJOR_FAULTS: &str = "major faults";

/// `waits.woken_by` of an interrupt: a timer, the disk, the network.
pub const INTERRUPT: &str = "[interrupt]";

/// Values of a row of `function_stats`, beside the states of waits.
pub mod measure {
    /// Duration of a visit.
    pub const DURATION: &str = "duration";
    /// Time of a visit on the CPU.
    pub const ONCPU: &str = "oncpu";
    /// Time of a function on the CPU in a visit.
    pub const SELF: &str = "self";
}

/// States of `counts`.
pub mod count_state {
    /// Counted all the time.
    pub const EXACT: &str = "exact";
    /// Counted a part of the time.
    pub const SCALED: &str = "scaled";
    /// Not counted at any time.
    pub const NO_TURN: &str = "no turn";
    /// Not known.
    pub const UNKNOWN: &str = "unknown";
}

/// Values of [`FunctionRow::kernel_entry`].
pub mod kernel_entry {
    pub const SYSTEM_CALL: &str = "system call";
    pub const PAGE_FAULT: &str = "page fault";
    pub const INTERRUPT: &str = "interrupt";
    /// Of another tool.
    pub const BREAKPOINT: &str = "breakpoint";
    pub const EXCEPTION: &str = "exception";
}

/// `functions.module` of pebs-trace's own work, which is part of no profile.
pub const OWN_MODULE: &str = "[pebs-trace]";

/// `functions.module` of code in memory of no file: made at run time.
pub const ANONYMOUS_MODULE: &str = "[anon]";
