//! The Arrow schema of every table, and the columns that its rows go to.
//!
//! One `table!` block states a table's columns: name, Arrow type and where the value comes from.
//! Source: design page 6 for names and types; `store::schema` for the rows.

mod batched;
mod estimates;
mod samples;

use std::sync::Arc;

use arrow::datatypes::{
    Field, Int64Type, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use thiserror::Error;

use super::columns::{
    Addresses, Chunk, Column, Lists, Nullable, NullableCoded, NullableReal, NullableText,
    NullableTruth, Required, Text, Truth,
};
use super::pages::coded::{Halves, Rounded};
use super::schema::{
    ArgColumn, ArgType, ArgValue, BatchItemRow, FrequencyRow, FunctionRow, FunctionStatRow,
    LossRow, MemoryRow, SampleRow, StackRow, Table, VisitFunctionRow, VisitRow, WaitRow,
};
use crate::stream::decode::Actor;
use crate::units::Cpu;
pub(super) use batched::{Batched, Extend};
pub(super) use samples::Samples;

/// Why argument columns can't be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ColumnError {
    /// The name is a column of every trace.
    #[error("cannot name an argument '{name}': column '{column}' of table visits has that name")]
    Taken {
        /// Name of the argument.
        name: String,
        /// The column.
        column: String,
    },
    /// Two arguments have the same name but for case, which SQL engines ignore.
    #[error("cannot name two arguments '{first}' and '{second}': SQL does not tell them apart")]
    Twice {
        /// First name.
        first: String,
        /// Second name.
        second: String,
    },
    /// The name is empty.
    #[error("cannot make a column of an argument without a name")]
    Unnamed,
}

impl ColumnError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let name = match self {
            Self::Taken { name, .. } => name,
            Self::Twice { second, .. } => second,
            Self::Unnamed => return Some("write NAME=EXPR in the probe's SPEC".to_owned()),
        };
        Some(format!(
            "'{name}' is a name in the probe's SPEC; choose another, for example '{name}_arg=EXPR'"
        ))
    }
}

/// Checks that argument columns fit beside the fixed columns of `visits`.
///
/// Case is ignored, as SQL engines do.
///
/// # Errors
/// If a name is taken, given twice, or empty.
pub fn check_columns(columns: &[ArgColumn]) -> Result<(), ColumnError> {
    let fixed = VisitFields::fields();
    for (index, ArgColumn { name, r#type: _ }) in columns.iter().enumerate() {
        if name.is_empty() {
            return Err(ColumnError::Unnamed);
        }
        if let Some(field) = fixed.iter().find(|f| f.name().eq_ignore_ascii_case(name)) {
            return Err(ColumnError::Taken {
                name: name.clone(),
                column: field.name().clone(),
            });
        }
        let earlier = &columns[..index];
        if let Some(first) = earlier.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
            return Err(ColumnError::Twice {
                first: first.name.clone(),
                second: name.clone(),
            });
        }
    }
    Ok(())
}

/// Arrow schema of a table; `args` are the argument columns of the trace, which `visits` has at
/// its end.
#[must_use]
pub fn table_schema(table: Table, args: &[ArgColumn]) -> SchemaRef {
    let fields = match table {
        Table::Visits => {
            let mut fields = VisitFields::fields();
            fields.extend(args.iter().map(ArgBuilder::field_of));
            fields
        }
        Table::VisitFunctions => VisitFunctionColumns::fields(),
        Table::Samples => SampleColumns::fields(),
        Table::Waits => WaitColumns::fields(),
        Table::FunctionStats => FunctionStatColumns::fields(),
        Table::Functions => FunctionColumns::fields(),
        Table::Losses => LossColumns::fields(),
        Table::Memory => MemoryColumns::fields(),
        Table::Stacks => StackColumns::fields(),
        Table::BatchItems => BatchItemColumns::fields(),
        Table::Frequencies => FrequencyColumns::fields(),
    };
    Arc::new(Schema::new(fields))
}

/// What the writer needs from the columns of any table.
pub(super) trait RowColumns {
    /// Rows held.
    fn rows(&self) -> usize;

    /// Whether the rows held should be written before more come.
    fn is_full(&self) -> bool;

    /// Ends the pages and shows the chunks, in the schema's order.
    fn end(&mut self) -> Vec<Chunk<'_>>;

    /// Forgets the rows, keeps the room.
    fn clear(&mut self);
}

/// Rows of a row group at most: bounds the memory. A quarter of it would make a trace 2 % larger.
pub(super) const GROUP_ROWS: usize = 256 * 1024;

/// Bytes of text in argument columns that are held in memory at most, give or take a page.
const GROUP_TEXT_BYTES: usize = 8 << 20;

macro_rules! table {
    (
        $(#[$doc:meta])*
        $name:ident, $row:ident: $Row:ty {
            $($column:ident: $kind:ty = $value:expr;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name {
            rows: usize,
            $($column: $kind,)+
        }

        impl $name {
            fn fields() -> Vec<Field> {
                vec![$(<$kind>::field(stringify!($column)),)+]
            }
        }

        impl Extend<$Row> for $name {
            #[inline(always)]
            fn extend(&mut self, rows: &[$Row]) {
                self.rows += rows.len();
                $(self.$column.extend(rows, |$row| $value);)+
            }
        }

        impl RowColumns for $name {
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
        }
    };
}

table! {
    /// The fixed columns of `visits`.
    VisitFields, row: VisitRow {
        visit_id: Required<UInt64Type> = row.visit_id;
        item_id: Required<UInt64Type> = row.item_id;
        probe_id: Required<UInt16Type> = row.probe_id.0;
        pid: Required<UInt32Type> = row.pid.0;
        tid: Required<UInt32Type> = row.tid.0;
        cpu_begin: Nullable<UInt16Type> = row.cpu_begin.known();
        cpu_end: Nullable<UInt16Type> = row.cpu_end.and_then(Cpu::known);
        begin_ns: Required<Int64Type> = row.begin_ns.0;
        end_ns: Nullable<Int64Type> = row.end_ns.map(|time| time.0);
        duration_ns: Nullable<Int64Type> = row.duration_ns;
        oncpu_ns: Nullable<Int64Type> = row.oncpu_ns;
        net_ns: Nullable<Int64Type> = row.net_ns;
        net_stderr_ns: Nullable<Int64Type> = row.net_stderr_ns;
        samples: Required<UInt32Type> = row.samples;
        flags: Required<UInt32Type> = row.flags;
        switches: Nullable<UInt32Type> = row.switches;
        migrations: Nullable<UInt32Type> = row.migrations;
        page_faults: Nullable<UInt32Type> = row.page_faults;
        irq_ns: Nullable<Int64Type> = row.interference.irq_ns;
        softirq_ns: Nullable<Int64Type> = row.interference.softirq_ns;
        fault_ns: Nullable<Int64Type> = row.interference.fault_ns;
        major_faults: Nullable<UInt32Type> = row.interference.major_faults;
        shared_ns: Nullable<Int64Type> = row.shared_ns;
    }
}

table! {
    /// Columns of `visit_functions`.
    VisitFunctionColumns, row: VisitFunctionRow {
        visit_id: Required<UInt64Type> = row.visit_id;
        item_id: Required<UInt64Type> = row.item_id;
        function_id: Required<UInt32Type> = row.function_id.0;
        event: Required<UInt8Type> = row.event.0;
        samples: Required<UInt32Type> = row.samples;
        events: Nullable<UInt64Type> = row.events;
        first_ns: Required<Int64Type> = row.first_ns.0;
        last_ns: Required<Int64Type> = row.last_ns.0;
        span_ns: Required<Int64Type> = row.span_ns;
        self_ns: NullableCoded<Halves> = row.self_ns;
        self_stderr_ns: NullableCoded<Rounded> = row.self_stderr_ns;
    }
}

table! {
    /// Columns of `samples`.
    SampleColumns, row: SampleRow {
        time_ns: Required<Int64Type> = row.time_ns.0;
        visit_id: Nullable<UInt64Type> = row.visit_id;
        function_id: Required<UInt32Type> = row.function_id.0;
        ip: Addresses = row.ip;
        tid: Nullable<UInt32Type> = row.tid.known();
        cpu: Nullable<UInt16Type> = row.cpu.known();
        event: Required<UInt8Type> = row.event.0;
        flags: Required<UInt32Type> = row.flags;
        stack_id: Nullable<UInt32Type> = row.stack_id.map(|id| id.0);
    }
}

table! {
    /// Columns of `waits`.
    WaitColumns, row: WaitRow {
        visit_id: Required<UInt64Type> = row.visit_id;
        item_id: Required<UInt64Type> = row.item_id;
        tid: Required<UInt32Type> = row.tid.0;
        begin_ns: Required<Int64Type> = row.begin_ns.0;
        end_ns: Required<Int64Type> = row.end_ns.0;
        function_id: Nullable<UInt32Type> = row.function_id.map(|id| id.0);
        state: Text = row.state;
        cpu_from: Nullable<UInt16Type> = row.cpu_from.known();
        cpu_to: Nullable<UInt16Type> = row.cpu_to.known();
        runnable_ns: Nullable<Int64Type> = row.runnable_ns;
        woken_by: NullableText = row.waker_name();
        woken_by_pid: Nullable<UInt32Type> = row.waker_thread().map(|it| it.pid.0);
        woken_by_tid: Nullable<UInt32Type> = row.waker_thread().map(|it| it.tid.0);
        preempted_by: NullableText = row.preempted_by.as_ref().map(Actor::name);
        preempted_by_pid: Nullable<UInt32Type> = row.preempted_by.map(|it| it.pid.0);
        preempted_by_tid: Nullable<UInt32Type> = row.preempted_by.map(|it| it.tid.0);
        stack_id: Nullable<UInt32Type> = row.stack_id.map(|id| id.0);
    }
}

table! {
    /// Columns of `function_stats`.
    FunctionStatColumns, row: FunctionStatRow {
        begin_ns: Required<Int64Type> = row.begin_ns.0;
        end_ns: Required<Int64Type> = row.end_ns.0;
        probe_id: Required<UInt16Type> = row.probe_id.0;
        measure: Text = row.measure;
        function_id: Nullable<UInt32Type> = row.function_id.map(|id| id.0);
        event: Nullable<UInt8Type> = row.event.map(|id| id.0);
        loss: Truth = row.loss;
        visits: Required<UInt64Type> = row.visits;
        visits_with: Required<UInt64Type> = row.visits_with;
        samples: Nullable<UInt64Type> = row.samples;
        samples_squared: NullableReal = row.samples_squared;
        samples_product: NullableReal = row.samples_product;
        samples_active_ns: NullableReal = row.samples_active_ns;
        sum_ns: NullableReal = row.sum_ns;
        sum_squared: NullableReal = row.sum_squared;
        min_ns: NullableReal = row.min_ns;
        max_ns: NullableReal = row.max_ns;
        bucket_ns: Lists<Int64Type> = &row.bucket_ns;
        bucket_count: Lists<UInt64Type> = &row.bucket_count;
    }
}

table! {
    /// Columns of `functions`.
    FunctionColumns, row: FunctionRow {
        function_id: Required<UInt32Type> = row.function_id.0;
        name: NullableText = row.name.as_deref();
        module: NullableText = row.module.as_deref();
        build_id: NullableText = row.build_id.as_deref();
        offset: Nullable<UInt64Type> = row.offset;
        size: Nullable<UInt64Type> = row.size;
        file: NullableText = row.file.as_deref();
        line: Nullable<UInt32Type> = row.line;
        kernel: Truth = row.kernel;
        inlined: NullableTruth = Some(row.inlined);
        system_call: NullableText = row.system_call.as_deref();
    }
}

table! {
    /// Columns of `losses`.
    LossColumns, row: LossRow {
        begin_ns: Required<Int64Type> = row.begin_ns.0;
        end_ns: Required<Int64Type> = row.end_ns.0;
        cpu: Nullable<UInt16Type> = row.cpu.and_then(Cpu::known);
        tid: Nullable<UInt32Type> = row.tid.map(|tid| tid.0);
        reason: Text = &row.reason;
        records: Nullable<UInt64Type> = row.records;
    }
}

table! {
    /// Columns of `memory`.
    MemoryColumns, row: MemoryRow<'_> {
        time_ns: Required<Int64Type> = row.time_ns.0;
        visit_id: Nullable<UInt64Type> = row.visit_id;
        function_id: Required<UInt32Type> = row.function_id.0;
        tid: Nullable<UInt32Type> = row.tid.known();
        event: Required<UInt8Type> = row.event.0;
        events: Nullable<UInt64Type> = row.events;
        op: NullableText = row.op;
        level: NullableText = row.level;
        snoop: NullableText = row.snoop;
        tlb: NullableText = row.tlb;
        locked: NullableTruth = row.locked;
        blocked: NullableText = row.blocked;
        latency_cycles: Nullable<UInt32Type> = row.latency_cycles;
        op_cycles: Nullable<UInt32Type> = row.op_cycles;
        retire_cycles: Nullable<UInt32Type> = row.retire_cycles;
        tlb_cycles: Nullable<UInt32Type> = row.tlb_cycles;
        page_bytes: Nullable<UInt64Type> = row.page_bytes;
        taken: NullableTruth = row.taken;
        mispredicted: NullableTruth = row.mispredicted;
        addr: Nullable<UInt64Type> = row.addr;
        phys_addr: Nullable<UInt64Type> = row.phys_addr;
        data_src: Nullable<UInt64Type> = row.data_src;
    }
}

table! {
    /// Columns of `stacks`.
    StackColumns, row: StackRow {
        stack_id: Required<UInt32Type> = row.stack_id.0;
        frames: Lists<UInt32Type> = &row.frames;
        truncated: Truth = row.truncated;
    }
}

table! {
    /// Columns of `batch_items`.
    BatchItemColumns, row: BatchItemRow {
        visit_id: Required<UInt64Type> = row.visit_id;
        item_id: Nullable<UInt64Type> = row.item_id;
        items: Nullable<UInt32Type> = row.items;
        share: NullableReal = Some(row.share);
    }
}

table! {
    /// Columns of `frequencies`.
    FrequencyColumns, row: FrequencyRow {
        time_ns: Required<Int64Type> = row.time_ns.0;
        cpu: Required<UInt16Type> = row.cpu.0;
        khz: Required<UInt32Type> = row.khz;
    }
}

/// An argument column.
#[derive(Debug)]
enum ArgBuilder {
    U64(Nullable<UInt64Type>),
    I64(Nullable<Int64Type>),
    Str(NullableText),
}

impl ArgBuilder {
    fn new(kind: ArgType) -> Self {
        match kind {
            ArgType::U64 => Self::U64(Nullable::default()),
            ArgType::I64 => Self::I64(Nullable::default()),
            ArgType::Str => Self::Str(NullableText::default()),
        }
    }

    fn field_of(column: &ArgColumn) -> Field {
        match column.r#type {
            ArgType::U64 => Nullable::<UInt64Type>::field(&column.name),
            ArgType::I64 => Nullable::<Int64Type>::field(&column.name),
            ArgType::Str => NullableText::field(&column.name),
        }
    }

    /// Appends a value, or null and `false` if it has another type than the column.
    #[inline]
    fn push(&mut self, value: Option<&ArgValue>) -> bool {
        match (self, value) {
            (Self::U64(column), Some(ArgValue::U64(value))) => column.push(Some(*value)),
            (Self::I64(column), Some(ArgValue::I64(value))) => column.push(Some(*value)),
            (Self::Str(column), Some(ArgValue::Str(value))) => column.push(Some(value)),
            (Self::U64(column), other) => {
                column.push(None);
                return other.is_none();
            }
            (Self::I64(column), other) => {
                column.push(None);
                return other.is_none();
            }
            (Self::Str(column), other) => {
                column.push(None);
                return other.is_none();
            }
        }
        true
    }

    fn text_bytes(&self) -> usize {
        match self {
            Self::U64(_) | Self::I64(_) => 0,
            Self::Str(column) => column.text_bytes(),
        }
    }

    fn as_column(&mut self) -> &mut dyn Column {
        match self {
            Self::U64(column) => column,
            Self::I64(column) => column,
            Self::Str(column) => column,
        }
    }
}

/// Columns of `visits`: the fixed ones and one per named argument.
#[derive(Debug)]
pub(super) struct VisitColumns {
    fixed: Batched<VisitFields, Vec<VisitRow>>,
    args: Vec<ArgBuilder>,
}

impl VisitColumns {
    pub(super) fn new(args: &[ArgColumn]) -> Self {
        Self {
            fixed: Batched::default(),
            args: args.iter().map(|a| ArgBuilder::new(a.r#type)).collect(),
        }
    }

    /// Appends a row. A missing argument is null; so is one of the wrong type.
    ///
    /// # Errors
    /// The index of the first argument whose type is not its column's. The row was appended.
    #[inline]
    pub(super) fn push(&mut self, row: &VisitRow, args: &[Option<ArgValue>]) -> Result<(), usize> {
        self.fixed.push(*row);
        let mut wrong = None;
        for (index, column) in self.args.iter_mut().enumerate() {
            let value = args.get(index).and_then(Option::as_ref);
            if !column.push(value) && wrong.is_none() {
                wrong = Some(index);
            }
        }
        wrong.map_or(Ok(()), Err)
    }
}

impl RowColumns for VisitColumns {
    #[inline]
    fn rows(&self) -> usize {
        self.fixed.rows()
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.fixed.is_full()
            || self.args.iter().map(ArgBuilder::text_bytes).sum::<usize>() >= GROUP_TEXT_BYTES
    }

    fn end(&mut self) -> Vec<Chunk<'_>> {
        let mut chunks = self.fixed.end();
        chunks.extend(self.args.iter_mut().map(|arg| arg.as_column().end()));
        chunks
    }

    fn clear(&mut self) {
        self.fixed.clear();
        for column in &mut self.args {
            column.as_column().clear();
        }
    }
}

#[cfg(test)]
mod tests;
