//! The recorded data, as needed by the comparison.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::path::Path;

use crate::store::reader::{ReadError, Trace};
use crate::store::schema::{VisitRow, sample_flag, visits};
use crate::store::view::{Select as _, View as _, columns};

columns! {
    struct Functions of visit_functions { visit_id, function_id, samples, span_ns, self_ns, self_stderr_ns, event }
}

columns! {
    struct Samples of samples { time_ns, visit_id, function_id, flags, event, tid }
}

columns! {
    struct Named of functions { function_id, name, kernel, module }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Visit {
    pub row: VisitRow,
    /// Time of each function.
    pub functions: Vec<VisitFunction>,
}

/// One function within a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VisitFunction {
    pub function: u32,
    pub samples: u32,
    /// The published estimate, ns.
    pub span_ns: i64,
    /// Ours with its standard error, ns.
    pub self_ns: Option<(f64, f64)>,
}

/// One sample. Time is ns on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When.
    pub time: i64,
    pub visit: Option<u64>,
    /// Thread.
    pub tid: u32,
    pub function: u32,
    /// Taken in the kernel.
    pub kernel: bool,
}

/// A whole trace in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Visits by number.
    pub visits: HashMap<u64, Visit>,
    pub samples: Vec<Sample>,
    /// Names of functions.
    pub names: HashMap<u32, String>,
    /// Functions of the kernel.
    pub kernel: HashMap<u32, bool>,
    /// Functions of the vdso: on x86-64 it does little but read the clock.
    pub clock_readers: HashSet<u32>,
    /// Reset value of the first event.
    pub reset: u64,
    /// Number of consecutive visits whose samples are one draw of their distances.
    pub run: Option<NonZeroU64>,
    /// `CLOCK_MONOTONIC` at time 0 of visits, ns; times of samples are on it.
    pub origin: i64,
    /// 99th percentile of the conversion between kernel clocks, ns; `None`: there was one clock.
    pub clock_error_ns: Option<f64>,
}

impl Recorded {
    /// Reads a trace. Only the first event counts.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub(crate) fn read(dir: &Path) -> Result<Self, ReadError> {
        let trace = Trace::open(dir)?;
        let mut recorded = Self {
            reset: trace.info.events.first().map_or(0, |event| event.reset),
            run: Some(trace.visits_in_stretch()?),
            origin: trace.info.monotonic_ns.cast_signed(),
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
        visits::each(trace, |row| {
            let functions = Vec::new();
            self.visits.insert(row.visit_id, Visit { row, functions });
        })
    }

    fn visit_functions(&mut self, trace: &Trace) -> Result<(), ReadError> {
        for batch in Functions::scan(trace)? {
            let batch = batch?;
            let columns = Functions::of(&batch)?;
            for row in (0..batch.num_rows()).filter(|&row| columns.event[row] == 0) {
                let (own, error) = (columns.self_ns.get(row), columns.self_stderr_ns.get(row));
                let found = VisitFunction {
                    function: columns.function_id[row],
                    samples: columns.samples[row],
                    span_ns: columns.span_ns[row],
                    self_ns: own.zip(error),
                };
                if let Some(visit) = self.visits.get_mut(&columns.visit_id[row]) {
                    visit.functions.push(found);
                }
            }
        }
        Ok(())
    }

    fn samples(&mut self, trace: &Trace) -> Result<(), ReadError> {
        let origin = trace.info.monotonic_ns.cast_signed();
        for batch in Samples::scan(trace)? {
            let batch = batch?;
            let columns = Samples::of(&batch)?;
            let rows = (0..batch.num_rows()).filter(|&row| columns.event[row] == 0);
            self.samples.extend(rows.map(|row| Sample {
                time: columns.time_ns[row] + origin,
                visit: columns.visit_id.get(row),
                tid: columns.tid.get(row).unwrap_or(0),
                function: columns.function_id[row],
                kernel: columns.flags[row] & sample_flag::KERNEL != 0,
            }));
        }
        Ok(())
    }

    fn functions(&mut self, trace: &Trace) -> Result<(), ReadError> {
        for batch in Named::scan(trace)? {
            let batch = batch?;
            let columns = Named::of(&batch)?;
            for (row, &id) in columns.function_id.iter().enumerate() {
                if columns.module.get(row) == Some("[vdso]") {
                    self.clock_readers.insert(id);
                }
                self.kernel.insert(id, columns.kernel.get(row));
                if let Some(name) = columns.name.get(row) {
                    self.names.insert(id, name.to_owned());
                }
            }
        }
        Ok(())
    }
}
