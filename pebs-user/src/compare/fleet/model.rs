//! Result of a comparison of a fleet's groups, as plain data.
//!
//! The JSON format of `pebs-trace explain --by` is this page: keys are field names, times are ns, shares are 0..1, unknown
//! values are null.

use serde::Serialize;

use crate::compare::explain::model::CauseType;

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const FLEET_VERSION: u32 = 1;

/// A time of the day, ns since 1970.
pub(crate) type Moment = i64;

/// Groups of many traces compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Fleet {
    /// [`FLEET_VERSION`].
    pub fleet_version: u32,
    /// The property that makes the groups.
    pub by: String,
    pub traces: u64,
    pub hosts: u64,
    /// Begin of the first trace, or the time asked for.
    pub since_ns: Moment,
    pub until_ns: Moment,
    /// Share of the traces' time in which items are another trace's, too: they count twice.
    pub twice: f64,
    pub probes: Vec<ProbeFleet>,
    pub unread: Vec<Unread>,
}

/// A trace that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Unread {
    pub trace: String,
    pub error: String,
}

/// The items of a probe, on all hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProbeFleet {
    pub spec: String,
    pub items: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Units that intervals resample.
    pub units: Units,
    /// By the value of the property, those that take longest first.
    pub groups: Vec<GroupRow>,
    /// Groups whose items take longer than those of the others, beyond chance. By host all slow hosts are one.
    pub slower: Vec<Slower>,
    /// Why no group can be told from the others; null if it can.
    pub too_few: Option<TooFew>,
}

/// Units that are drawn by chance: intervals cover the differences from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Units {
    Hosts,
    /// If the hosts are too few.
    Traces,
}

/// Why groups are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TooFew {
    /// There is one group.
    Groups,
    /// Fewer hosts than it takes to know how much they differ.
    Hosts,
    /// One trace, or two.
    Traces,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GroupRow {
    /// Value of the property; null: traces without it.
    pub value: Option<String>,
    pub hosts: u64,
    pub traces: u64,
    pub items: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    /// Share of items longer than `p99_ns` of all.
    pub slow_share: f64,
    /// It is in `slower`.
    pub is_slower: bool,
}

/// Groups whose items take longer, with the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Slower {
    /// Values of the property.
    pub values: Vec<Option<String>>,
    pub hosts: u64,
    pub items: u64,
    /// Mean duration of an item, here and in the others.
    pub mean: Contrast,
    /// Mean time of an item on the CPU.
    pub on_cpu: Contrast,
    /// Share of items longer than `p99_ns` of all, here and in the others.
    pub slow_share: Contrast,
    /// Time at which it began; null: it was so all the time, or that is not certain.
    pub since_ns: Option<Moment>,
    /// Functions and waits, the largest difference first.
    pub causes: Vec<FleetCause>,
    /// Properties that these hosts have in common and others have not, by host only.
    pub common: Vec<Common>,
}

impl Slower {
    /// Returns how much longer an item takes; on the CPU, if the durations' difference may be chance.
    pub(crate) fn gap_ns(mean: &Contrast, on_cpu: &Contrast) -> f64 {
        match mean.is_more() || !on_cpu.is_more() {
            true => mean.change,
            false => on_cpu.change,
        }
    }
}

/// A figure per item of some groups and of the others. The interval covers 95 % for all groups at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Contrast {
    pub here: f64,
    pub others: f64,
    pub change: f64,
    /// Lower end of its interval; null if units are too few.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Contrast {
    /// Whether the whole interval is above 0.
    pub(crate) fn is_more(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0)
    }
}

/// A function or wait that takes longer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FleetCause {
    pub kind: CauseType,
    /// Name of the function; null: all of the module, or of the kind.
    pub name: Option<String>,
    /// File name of its module; null if unknown.
    pub module: Option<String>,
    pub kernel: bool,
    /// State of the thread while off the CPU; null: on the CPU.
    pub state: Option<String>,
    /// Time per item, ns.
    #[serde(flatten)]
    pub time: Contrast,
    /// `change` as a share of [`Slower::gap_ns`].
    pub share: f64,
    /// Samples, or waits.
    pub samples: u64,
    pub others_samples: u64,
}

/// A value of a property that slow hosts have, and others do not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Common {
    pub property: String,
    pub value: String,
    /// Slow hosts with it.
    pub slow: u64,
    pub of_slow: u64,
    /// Other hosts with it.
    pub others: u64,
    pub of_others: u64,
    /// Probability of this by chance, corrected for all values that were tested.
    pub chance: f64,
}
