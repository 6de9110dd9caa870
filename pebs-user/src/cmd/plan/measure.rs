//! Converts the counts into the inputs of the cost model.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pebs_stats::summary::upper_median;
use serde::Serialize;

use super::PlanArgs;
use super::sizes::SampleBytes;
use crate::cmd::calibrate;
use crate::cmd::values::Extra;
use crate::cost::overhead::Counts;
use crate::cost::plan::{Counted, Price};
use crate::cost::ring::{Caches, Sensitivity};
use crate::failure::{Failure, Result};
use crate::pmu::attr::{EventClass, reset_value};
use crate::pmu::host::Host;
use crate::record::{Counting, grant};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::CostInfo;
use crate::store::schema::Table;
use crate::store::view::{Select as _, View as _, columns};

/// The event by which the target's use of the caches is measured.
pub(super) const MISSES: &str = "cache-misses";

/// Tables whose size depends on visits and time, not on samples.
const BESIDE: [Table; 4] = [
    Table::Visits,
    Table::Waits,
    Table::BatchItems,
    Table::Frequencies,
];

/// Reset value with which it is opened once.
const MISSES_RESET: u64 = 100_000;

/// Everything that the plan follows from.
#[derive(Clone, Debug)]
pub(super) struct PlanBasis {
    pub counted: Counted,
    pub price: Price,
    /// Smallest reset value that is considered.
    pub least_reset: u64,
    /// Bytes in a second that all but samples fill of the ring of the CPU that has most of them.
    pub ring_bytes_per_s: f64,
    /// Bytes of the trace per second other than those of samples.
    pub rows_bytes_per_s: f64,
    pub sample_bytes: SampleBytes,
    pub caches: Caches,
    pub sensitivity: Sensitivity,
    /// Source of the sensitivity.
    pub why: SensitivitySource,
}

/// Source of the sensitivity to the caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub(super) enum SensitivitySource {
    /// Given by `--cache`.
    Typed,
    /// From counted cache misses.
    Misses {
        /// Misses in a us on the CPU.
        per_us: f64,
    },
    /// Unknown: this machine can't count cache misses.
    Unknown,
}

/// Whether the CPU counts cache misses. Opens the event once, as virtual machines may lack it.
pub(super) fn counts_misses() -> bool {
    let host = Host::probe(Path::new("/"));
    let opens = || {
        let reset = reset_value(MISSES_RESET).ok()?;
        grant(&MISSES.parse().ok()?, &host, reset).ok()
    };
    host.core_pmu().is_some() && opens().is_some()
}

/// Collects the results of the counting run.
///
/// # Errors
/// If nothing was counted, or a cost is unknown.
pub(super) fn look(counting: &Counting, trace: &Path, args: &PlanArgs) -> Result<PlanBasis> {
    let seconds = counting.info.duration_ns.unwrap_or_default() as f64 / 1e9;
    if counting.visits == 0 {
        return Err(Failure::new(
            format!("cannot plan: no item was finished in {seconds:.1} s"),
            format!("{}; or give a longer --duration", counting.no_item),
        ));
    }
    let Some(event) = counting.events.first() else {
        return Err(Failure::bare("cannot plan without an event"));
    };
    let times = counting
        .times
        .first()
        .copied()
        .flatten()
        .unwrap_or_default();
    let happened = times.scaled().filter(|events| *events > 0.0);
    let Some(events) = happened else {
        return Err(Failure::new(
            format!(
                "cannot plan: event '{}' did not happen in {seconds:.1} s",
                event.name
            ),
            "give a longer --duration, or another --event (cpu-clock)".to_owned(),
        ));
    };
    let Some(alpha_ns) = counting.units.sample_ns else {
        return Err(Failure::new(
            format!(
                "cannot plan: the cost of a sample of '{}' is unknown",
                event.name
            ),
            format!("'pebs-trace calibrate --event {}' measures it", event.name),
        ));
    };
    let cost = counting.info.cost.unwrap_or_default();
    let known = cost
        .marks_ns
        .zip(cost.page_faults_ns)
        .zip(cost.visits_oncpu_ns);
    let Some(((marks_ns, faults_ns), oncpu_ns)) = known else {
        return Err(Failure::new(
            "cannot plan: the cost of marks could not be measured".to_owned(),
            "'pebs-trace doctor' says what this machine can do".to_owned(),
        ));
    };
    let Some(extras_ns) = extras_ns(&cost, &args.with) else {
        return Err(Failure::new(
            "cannot plan: the cost of --with could not be measured".to_owned(),
            "plan without it; trace.json of the recording has its cost".to_owned(),
        ));
    };
    let (items, item_ns) = items(trace)?;
    let fixed_ns = marks_ns + faults_ns + extras_ns;
    // Part of a mark is outside of its visit; without samples the slow-down is that of the fixed costs alone.
    let with_marks_ns = match cost.slowdown {
        Some(slowdown) if slowdown > 0.0 => fixed_ns / slowdown + fixed_ns,
        _ => oncpu_ns,
    };
    let counted = Counted {
        wall_ns: seconds * 1e9,
        cpu_ns: times.enabled_ns as f64,
        events,
        oncpu_ns: with_marks_ns,
        fixed_ns,
        visits: counting.visits,
        items,
        item_ns,
    };
    let calibration = counting.calibration.as_ref();
    let (sensitivity, why) = sensitivity(counting, args.cache, counted.cpu_ns);
    // A clock's sample interrupt is recorded like any other interrupt.
    let is_seen = args.with.contains(&Extra::Irq) && event.class == EventClass::Clock;
    let interrupt_ns = counting
        .units
        .extras
        .interrupt_ns
        .filter(|_| is_seen)
        .unwrap_or(0.0);
    let at_most_ns = calibration.map_or(alpha_ns, |it| it.fit.alpha_at_most_ns());
    let beside = BESIDE
        .iter()
        .map(|table| bytes_of(&trace.join(table.name())));
    Ok(PlanBasis {
        price: Price {
            alpha_ns: alpha_ns + interrupt_ns,
            alpha_at_most_ns: at_most_ns + interrupt_ns,
            counts: match event.class {
                EventClass::Clock => Counts::Time,
                _ => Counts::Work,
            },
        },
        least_reset: calibrate::first_reset(event).unwrap_or(1),
        ring_bytes_per_s: counting.most_ring_bytes as f64 / seconds,
        rows_bytes_per_s: beside.sum::<f64>() / seconds,
        sample_bytes: SampleBytes::of(event, args.call_graph),
        caches: caches(Path::new("/")),
        sensitivity,
        why,
        counted,
    })
}

/// Cost of recording the `--with` data, ns; `None` if unknown.
fn extras_ns(cost: &CostInfo, with: &[Extra]) -> Option<f64> {
    let of = |extra, ns: Option<f64>| if with.contains(&extra) { ns } else { Some(0.0) };
    Some(of(Extra::Irq, cost.interrupts_ns)? + of(Extra::Waits, cost.encounters_ns)?)
}

columns! {
    struct Times of visits { probe_id, item_id, oncpu_ns }
}

/// Number of items with known time on the CPU, and its median.
fn items(trace: &Path) -> Result<(u64, f64), ReadError> {
    let trace = Trace::open(trace)?;
    let mut times: HashMap<(u16, u64), Option<i64>> = HashMap::new();
    for batch in Times::scan(&trace)? {
        let batch = batch?;
        let Times {
            probe_id,
            item_id,
            oncpu_ns,
        } = Times::of(&batch)?;
        for row in 0..batch.num_rows() {
            let sum = times.entry((probe_id[row], item_id[row]));
            let sum = sum.or_insert(Some(0));
            *sum = sum.zip(oncpu_ns.get(row)).map(|(sum, ns)| sum + ns);
        }
    }
    let known: Vec<i64> = times.into_values().flatten().collect();
    let items = known.len() as u64;
    Ok((items, upper_median(known).unwrap_or(0) as f64))
}

fn bytes_of(folder: &Path) -> f64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum::<u64>() as f64
}

fn sensitivity(
    counting: &Counting,
    typed: Sensitivity,
    cpu_ns: f64,
) -> (Sensitivity, SensitivitySource) {
    if typed != Sensitivity::Auto {
        return (typed, SensitivitySource::Typed);
    }
    let misses = counting.times.get(1).copied().flatten();
    let misses = misses.and_then(|times| times.scaled());
    match misses {
        Some(misses) => {
            let per_us = misses / cpu_ns * 1e3;
            (
                Sensitivity::of_misses(misses, cpu_ns),
                SensitivitySource::Misses { per_us },
            )
        }
        None => (Sensitivity::Auto, SensitivitySource::Unknown),
    }
}

/// Caches of the first CPU below `root`.
/// Source: Documentation/ABI/testing/sysfs-devices-system-cpu.
fn caches(root: &Path) -> Caches {
    let mut caches = Caches::default();
    let mut last = 0;
    for index in 0..8 {
        let folder = root.join(format!("sys/devices/system/cpu/cpu0/cache/index{index}"));
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        let found = || {
            let level: u32 = read("level")?.trim().parse().ok()?;
            let kib: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
            let sharers = crate::pmu::sysfs::parse_cpu_list(&read("shared_cpu_list")?)?.len();
            (read("type")?.trim() != "Instruction").then_some((level, kib << 10, sharers as u64))
        };
        let Some((level, bytes, sharers)) = found() else {
            continue;
        };
        if level == 2 {
            caches.l2 = Some(bytes / sharers.max(1));
        }
        if level > last {
            last = level;
            caches.llc_share = Some(bytes / sharers.max(1));
        }
    }
    caches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes are the share of one CPU; a missing one is unknown.
    #[test]
    fn caches_from_a_tree() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(caches(tree.path()), Caches::default());
        let all = [
            ("1", "Data", "32K", "0"),
            ("1", "Instruction", "64K", "0"),
            ("2", "Unified", "1024K", "0"),
            ("3", "Unified", "32768K", "0-1,8-9"),
        ];
        for (n, (level, kind, size, shared)) in all.into_iter().enumerate() {
            let at = format!("sys/devices/system/cpu/cpu0/cache/index{n}");
            let folder = tree.path().join(at);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", shared),
            ] {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        let expect = Caches {
            l2: Some(1 << 20),
            llc_share: Some(8 << 20),
        };
        assert_eq!(caches(tree.path()), expect);
    }
}
