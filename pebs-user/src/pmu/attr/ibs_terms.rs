//! Terms of AMD's IBS that not every CPU and kernel has.
//!
//! Source: arch/x86/events/amd/ibs.c (`perf_ibs_init`, `ibs_op_ldlat_is_visible`, `zen4_ibs_extensions_is_visible`).

use std::ops::RangeInclusive;

use super::EventError;
use crate::pmu::sysfs::{Config, Pmu};

/// Values of `ldlat` that the kernel accepts, cycles.
const LATENCIES: RangeInclusive<u64> = 128..=2048;

/// Hint for a term that this PMU lacks: where it exists, and what to use instead; `None` if it is not a term of IBS.
pub(super) fn advice(pmu: &str, term: &str, known: &[String]) -> Option<String> {
    let (needs, instead) = match (pmu, term) {
        ("ibs_op", "ldlat") => {
            let missed = if known.iter().any(|term| term == "l3missonly") {
                "ibs_op/l3missonly=1/ samples what missed the L3, "
            } else {
                ""
            };
            (
                "Zen 5 and Linux 6.15",
                format!(
                    "{missed}ibs_op// --memory has the latency of every load that missed the L1"
                ),
            )
        }
        ("ibs_op", "l3missonly") => (
            "Zen 4 and Linux 5.19",
            "ibs_op// --memory shows which cache each access hit".to_owned(),
        ),
        ("ibs_fetch", "l3missonly") => ("Zen 4 and Linux 5.19", "ibs_fetch// has all".to_owned()),
        ("ibs_op" | "ibs_fetch", "swfilt") => (
            "Linux 6.14",
            "':u' and ':k' choose the mode without it".to_owned(),
        ),
        _ => return None,
    };
    let known = known.join(", ");
    Some(format!(
        "'{term}' needs {needs} (here {pmu} has {known}); {instead}"
    ))
}

/// Refuses a latency for which the kernel would only say `EINVAL`. 0: none set.
pub(super) fn check_latency(pmu: &Pmu, config: &Config) -> Result<(), EventError> {
    if pmu.name != "ibs_op" || !pmu.formats.contains_key("ldlat") {
        return Ok(());
    }
    let latency = config.config1 & 0xfff;
    if latency == 0 || LATENCIES.contains(&latency) {
        return Ok(());
    }
    Err(EventError::LoadLatency {
        latency,
        least: *LATENCIES.start(),
        most: *LATENCIES.end(),
    })
}
