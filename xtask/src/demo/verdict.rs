//! Compares a report with the truth about the load.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::load::Size;

/// Returns the verdict, or fails with the reason.
///
/// The samples decide, not the duration: any item may be preempted for milliseconds, which is not
/// Redis's fault. Nor the time on the CPU: the kernel may not know of time that a host takes away,
/// but no sample is taken in it. There is no fixed limit either: machines differ, the order of the
/// items does not.
pub fn of(report: &Value, size: Size) -> Result<String> {
    let probe = &report["probes"][0];
    let visits = probe["visits"]
        .as_u64()
        .context("the report has no probes[0].visits")?;
    let expected = (size.small + size.big) as u64;
    if visits != expected {
        bail!("{visits} items recorded, {expected} asked for");
    }
    let mut items = slowest(probe)?;
    items.sort_by_key(|(samples, _)| std::cmp::Reverse(*samples));
    let (slow, others) = items
        .split_at_checked(size.big)
        .context("the report has fewer slow items than there were")?;
    let wrong: Vec<&str> = slow
        .iter()
        .map(|(_, key)| *key)
        .filter(|key| !key.starts_with("big:"))
        .collect();
    if !wrong.is_empty() {
        bail!("among the {} items with most samples: {wrong:?}", size.big);
    }
    let samples = |item: Option<&(u64, &str)>| item.map_or(0, |(samples, _)| *samples);
    let function = probe["spread"][0]["function"]["name"]
        .as_str()
        .unwrap_or("unknown");
    Ok(format!(
        "right: of {visits} items, the {} with most samples ({} or more, all others {} or fewer) \
         are the GETs of expired big:*; what sets them apart most is {function}",
        size.big,
        samples(slow.last()),
        samples(others.first()),
    ))
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

    fn report(visits: u64, slow_key: &str) -> Value {
        let visit =
            |key: &str, n: u64| json!({"samples": n, "args": [{"name": "key", "value": key}]});
        let slowest = [visit("small:000001", 3), visit(slow_key, 120)];
        json!({"probes": [{"visits": visits, "slowest": slowest, "spread": []}]})
    }

    /// Right only if the number of items and the keys of the slow ones are.
    #[test]
    fn verdicts() {
        let right = of(&report(3, "big:000"), SIZE).unwrap();
        assert!(
            right.contains("120 or more, all others 3 or fewer"),
            "{right}"
        );
        assert!(of(&report(2, "big:000"), SIZE).is_err());
        assert!(of(&report(3, "small:000000"), SIZE).is_err());
        assert!(of(&json!({}), SIZE).is_err());
    }
}
