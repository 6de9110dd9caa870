//! Result of a comparison, as plain data.
//!
//! The JSON format of `pebs-trace diff` is this page: keys are field names, times are ns, shares are 0..1,
//! unknown values are null.

use serde::{Serialize, Serializer};

use crate::compare::counted::{CountedClass, CountedRow, CountedVisits, Excess};
use crate::compare::explain::model::CauseType;
use crate::compare::remarks::TooLittle;
use crate::units::CountUnit;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const DIFF_VERSION: u32 = 1;

/// Two traces compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Diff {
    /// [`DIFF_VERSION`].
    pub diff_version: u32,
    /// Path of the trace before, as given.
    pub before: String,
    /// Path of the trace after, as given.
    pub after: String,
    /// Relative growth above which a figure fails; null: no limit.
    pub fail_above: Option<f64>,
    /// Figures compared, all probes together: the number that intervals are corrected for.
    pub comparisons: u64,
    /// Probes that both traces have.
    pub probes: Vec<ProbeDiff>,
    /// Figures that fail; in words.
    pub failed: Vec<Failed>,
    /// Reasons why the traces are hard to compare, and remarks.
    pub notes: Vec<Note>,
}

/// A probe in two traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProbeDiff {
    pub spec_before: String,
    pub spec_after: String,
    /// Visits counted before.
    pub items_before: u64,
    /// Visits counted after.
    pub items_after: u64,
    /// Mean duration before.
    pub mean_before_ns: f64,
    /// Mean, median and 99th percentile of the durations, and the mean time on the CPU.
    pub durations: Vec<DurationDiff>,
    /// Functions and waits, the largest change first.
    pub rows: Vec<RowDiff>,
    /// Why there are no functions or waits; null if there are.
    pub too_little: Option<TooLittle>,
    /// Events that were counted in both, per item: `slow` is after, `typical` before. Their intervals are among
    /// the simultaneous ones.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "counted_changes"
    )]
    pub counted_events: Vec<CountedRow>,
}

/// Writes rows of counted events under the names of a comparison of traces.
fn counted_changes<S: Serializer>(rows: &[CountedRow], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        event: &'a str,
        unit: CountUnit,
        before: Option<CountedClass>,
        after: Option<CountedClass>,
        change: Option<Excess>,
        rate_change: Option<Excess>,
        visits: CountedVisits,
    }
    to.collect_seq(rows.iter().map(|row| Row {
        event: &row.event,
        unit: row.unit,
        before: row.typical,
        after: row.slow,
        change: row.excess,
        rate_change: row.rate_excess,
        visits: row.visits,
    }))
}

/// A figure before and after, per item. Intervals cover the truth with 95 % for all figures of the comparison
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    pub before_ns: f64,
    pub after_ns: f64,
    /// After - before.
    pub change_ns: f64,
    /// Lower end of its interval; null if there are too few items, or if samples beat with them and it is a function.
    pub change_low_ns: Option<f64>,
    /// Upper end.
    pub change_high_ns: Option<f64>,
    /// `change_ns` as a share of the base: of durations the figure before, of functions and waits the
    /// mean duration before.
    pub share: f64,
    /// Lower end of its interval.
    pub share_low: Option<f64>,
    /// Upper end.
    pub share_high: Option<f64>,
    /// The interval does not contain 0.
    pub changed: bool,
    /// The whole interval is above `fail_above`.
    pub fails: bool,
}

/// A figure of the durations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DurationDiff {
    /// `mean`, `p50`, `p99`; `on_cpu`: the mean time on the CPU.
    pub figure: &'static str,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// A function or wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RowDiff {
    pub kind: CauseType,
    /// Name of the function; null: all of the module, or of the kind.
    pub name: Option<String>,
    /// File name of its module; null if unknown.
    pub module: Option<String>,
    /// Kernel code.
    pub kernel: bool,
    /// State of the thread while off the CPU; null: on the CPU.
    pub state: Option<String>,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// Samples before; waits if off the CPU.
    pub before_samples: u64,
    pub after_samples: u64,
}

/// A figure that fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failed {
    /// A figure of the durations, see [`DurationDiff::figure`].
    Duration(&'static str),
    Row(RowDiff),
}

/// Why two traces are hard to compare, or a remark. Pairs: before, after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    OnlyBefore {
        spec: String,
    },
    OnlyAfter {
        spec: String,
    },
    ProbesDiffer([String; 2]),
    EventsDiffer([String; 2]),
    ResetsDiffer([u64; 2]),
    HostsDiffer {
        what: HostPart,
        values: [String; 2],
    },
    /// Only one of them has switches.
    SwitchesDiffer,
    NoSwitches,
    /// They kept the details of different items.
    KeptDiffers,
    /// There are no intervals, so that nothing fails.
    TooFewItems,
    /// Samples beat with the items of a probe, in the trace after or before.
    Beats {
        spec: String,
        is_after: bool,
    },
}

/// A property that may differ between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPart {
    /// Its name.
    Host,
    Kernel,
    Cpu,
}
