//! What was recorded, as the comparison needs it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::store::reader::{
    ReadError, Trace, column_bool, column_f64, column_i64, column_str, column_u8, column_u32,
    column_u64,
};
use crate::store::schema::{Table, sample_flag};
use arrow::array::Array;

/// One visit. Times are ns on `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default)]
pub struct Visit {
    /// Its item.
    pub item: u64,
    /// Begin.
    pub begin: i64,
    /// End.
    pub end: Option<i64>,
    /// Time on the CPU, ns.
    pub oncpu_ns: Option<i64>,
    /// `visit_flag`s.
    pub flags: u32,
    /// What each function took.
    pub functions: Vec<VisitFunction>,
}

/// One function within a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VisitFunction {
    /// Function.
    pub function: u32,
    /// Its samples.
    pub samples: u32,
    /// The published estimate, ns.
    pub span_ns: i64,
    /// Ours with its standard error, ns.
    pub self_ns: Option<(f64, f64)>,
}

/// One sample. Time is ns on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: i64,
    /// Visit.
    pub visit: Option<u64>,
    /// Thread.
    pub tid: u32,
    /// Function.
    pub function: u32,
    /// Taken in the kernel.
    pub kernel: bool,
}

/// A whole trace in memory.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Visits by number.
    pub visits: HashMap<u64, Visit>,
    /// Samples.
    pub samples: Vec<Sample>,
    /// Names of functions.
    pub names: HashMap<u32, String>,
    /// Functions of the kernel.
    pub kernel: HashMap<u32, bool>,
    /// Functions of the vdso: on x86-64 it does little but read the clock.
    pub clock_readers: HashSet<u32>,
    /// Reset value of the first event.
    pub reset: u64,
    /// 99th percentile of the conversion between kernel clocks, ns; `None`: there was one clock.
    pub clock_error_ns: Option<f64>,
}

impl Recorded {
    /// Reads a trace. Only the first event counts.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub fn read(dir: &Path) -> Result<Self, ReadError> {
        let trace = Trace::open(dir)?;
        let mut recorded = Self {
            reset: trace.info.events.first().map_or(0, |event| event.reset),
            clock_error_ns: trace.info.clock_error.map(|error| error.p99_ns),
            ..Self::default()
        };
        recorded.visits(&trace)?;
        recorded.visit_functions(&trace)?;
        recorded.samples(&trace)?;
        recorded.functions(&trace)?;
        Ok(recorded)
    }

    fn visits(&mut self, trace: &Trace) -> Result<(), ReadError> {
        let origin = trace.info.monotonic_ns.cast_signed();
        let columns = [
            "visit_id", "item_id", "begin_ns", "end_ns", "oncpu_ns", "flags",
        ];
        for batch in trace.scan(Table::Visits, &columns)? {
            let batch = batch?;
            let (id, item) = (column_u64(&batch, 0)?, column_u64(&batch, 1)?);
            let (begin, end) = (column_i64(&batch, 2)?, column_i64(&batch, 3)?);
            let (oncpu, flags) = (column_i64(&batch, 4)?, column_u32(&batch, 5)?);
            for row in 0..batch.num_rows() {
                let visit = Visit {
                    item: item.value(row),
                    begin: begin.value(row) + origin,
                    end: end.is_valid(row).then(|| end.value(row) + origin),
                    oncpu_ns: oncpu.is_valid(row).then(|| oncpu.value(row)),
                    flags: flags.value(row),
                    functions: Vec::new(),
                };
                self.visits.insert(id.value(row), visit);
            }
        }
        Ok(())
    }

    fn visit_functions(&mut self, trace: &Trace) -> Result<(), ReadError> {
        let columns = [
            "visit_id",
            "function_id",
            "samples",
            "span_ns",
            "self_ns",
            "self_stderr_ns",
            "event",
        ];
        for batch in trace.scan(Table::VisitFunctions, &columns)? {
            let batch = batch?;
            let (id, function) = (column_u64(&batch, 0)?, column_u32(&batch, 1)?);
            let (samples, span) = (column_u32(&batch, 2)?, column_i64(&batch, 3)?);
            let (own, error) = (column_f64(&batch, 4)?, column_f64(&batch, 5)?);
            let event = column_u8(&batch, 6)?;
            for row in (0..batch.num_rows()).filter(|&row| event.value(row) == 0) {
                let known = own.is_valid(row) && error.is_valid(row);
                let found = VisitFunction {
                    function: function.value(row),
                    samples: samples.value(row),
                    span_ns: span.value(row),
                    self_ns: known.then(|| (own.value(row), error.value(row))),
                };
                if let Some(visit) = self.visits.get_mut(&id.value(row)) {
                    visit.functions.push(found);
                }
            }
        }
        Ok(())
    }

    fn samples(&mut self, trace: &Trace) -> Result<(), ReadError> {
        let origin = trace.info.monotonic_ns.cast_signed();
        let columns = [
            "time_ns",
            "visit_id",
            "function_id",
            "flags",
            "event",
            "tid",
        ];
        for batch in trace.scan(Table::Samples, &columns)? {
            let batch = batch?;
            let (time, visit) = (column_i64(&batch, 0)?, column_u64(&batch, 1)?);
            let (function, flags) = (column_u32(&batch, 2)?, column_u32(&batch, 3)?);
            let (event, tid) = (column_u8(&batch, 4)?, column_u32(&batch, 5)?);
            let rows = (0..batch.num_rows()).filter(|&row| event.value(row) == 0);
            self.samples.extend(rows.map(|row| Sample {
                time: time.value(row) + origin,
                visit: visit.is_valid(row).then(|| visit.value(row)),
                tid: tid.value(row),
                function: function.value(row),
                kernel: flags.value(row) & sample_flag::KERNEL != 0,
            }));
        }
        Ok(())
    }

    fn functions(&mut self, trace: &Trace) -> Result<(), ReadError> {
        for batch in trace.scan(
            Table::Functions,
            &["function_id", "name", "kernel", "module"],
        )? {
            let batch = batch?;
            let (id, name) = (column_u32(&batch, 0)?, column_str(&batch, 1)?);
            let kernel = column_bool(&batch, 2)?;
            let module = column_str(&batch, 3)?;
            for row in 0..batch.num_rows() {
                if module.is_valid(row) && module.value(row) == "[vdso]" {
                    self.clock_readers.insert(id.value(row));
                }
                self.kernel.insert(id.value(row), kernel.value(row));
                if name.is_valid(row) {
                    self.names.insert(id.value(row), name.value(row).to_owned());
                }
            }
        }
        Ok(())
    }
}
