//! Compares a report with the truth about the load.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::load::Size;

/// A large item has as many times the samples of another one, at least: freeing one takes 40 times as long as a GET.
const TIMES: f64 = 10.0;

/// Returns the verdict, or fails with the reason.
///
/// The samples decide, not the duration: any item may be preempted for milliseconds, which is not
/// Redis's fault. Nor the time on the CPU: the kernel may not know of time that a host takes away,
/// but no sample is taken in it. Distances between samples vary, so one item may have few of them:
/// those of all large items together are compared.
pub fn of(report: &Value, size: Size) -> Result<String> {
    let probe = &report["probes"][0];
    let visits = probe["visits"]
        .as_u64()
        .context("the report has no probes[0].visits")?;
    let expected = (size.small + size.big) as u64;
    if visits != expected {
        bail!("{visits} items recorded, {expected} asked for");
    }
    let items = slowest(probe)?;
    let is_big = |key: &str| key.starts_with("big:");
    let found = items.iter().filter(|(_, key)| is_big(key)).count();
    if found != size.big {
        bail!("{found} of {} large items are among the slowest", size.big);
    }
    let samples = |big| {
        let these = items.iter().filter(move |(_, key)| is_big(key) == big);
        these.map(|(samples, _)| samples).sum::<u64>()
    };
    let (theirs, rest, others) = (samples(true), samples(false), items.len() - found);
    let function = probe["spread"][0]["function"]["name"]
        .as_str()
        .unwrap_or("unknown");
    let shares = format!(
        "of {visits} items, the {found} GETs of expired big:* have {theirs} samples, the {others} \
         others among the {} slowest {rest}; what sets them apart most is {function}",
        items.len(),
    );
    if theirs as f64 / (found as f64) < TIMES * rest.max(1) as f64 / others.max(1) as f64 {
        bail!("too few: {shares}");
    }
    Ok(format!("right: {shares}"))
}

/// Samples and key of the slowest items.
fn slowest(probe: &Value) -> Result<Vec<(u64, &str)>> {
    let visits = probe["slowest"]
        .as_array()
        .context("the report has no slowest items")?;
    visits
        .iter()
        .map(|visit| {
            let samples = visit["samples"]
                .as_u64()
                .context("an item without its samples")?;
            Ok((samples, argument(visit, "key").unwrap_or("")))
        })
        .collect()
}

fn argument<'a>(visit: &'a Value, name: &str) -> Option<&'a str> {
    let args = visit["args"].as_array()?;
    args.iter().find(|arg| arg["name"] == name)?["value"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SIZE: Size = Size { small: 2, big: 1 };

    fn report(visits: u64, slow_key: &str, slow: u64) -> Value {
        let visit =
            |key: &str, n: u64| json!({"samples": n, "args": [{"name": "key", "value": key}]});
        let slowest = [visit("small:000001", 3), visit(slow_key, slow)];
        json!({"probes": [{"visits": visits, "slowest": slowest, "spread": []}]})
    }

    /// Right only if the number of items and the keys of the slow ones are, and these have the samples.
    #[test]
    fn verdicts() {
        let right = of(&report(3, "big:000", 120), SIZE).unwrap();
        assert!(right.contains("have 120 samples, the 1 others"), "{right}");
        assert!(of(&report(2, "big:000", 120), SIZE).is_err());
        assert!(of(&report(3, "small:000000", 120), SIZE).is_err());
        assert!(of(&report(3, "big:000", 20), SIZE).is_err());
        assert!(of(&json!({}), SIZE).is_err());
    }
}
