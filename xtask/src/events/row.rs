//! One event of the vendor's as a line of the table.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::Value;

use super::List;

/// Fixed counters stand from this bit on.
const FIXED: u32 = 16;

/// Appends a list: its head line, then its events by name. Returns the number of events.
pub fn write(text: &mut String, list: &List) -> Result<usize> {
    let mut rows: Vec<Row> = list
        .events
        .iter()
        .filter_map(|event| Row::new(event, list).transpose())
        .collect::<Result<_>>()?;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows.dedup_by(|a, b| a.name == b.name);
    let all: u32 = rows.iter().fold(0, |mask, row| mask | row.counters);
    let (general, fixed) = (all & ((1 << FIXED) - 1), all >> FIXED);
    writeln!(
        text,
        "@{}\t{}\t{}\t{}\t{general:x}\t{fixed:x}",
        list.name,
        list.pmu,
        list.cpus.join(" "),
        list.version
    )?;
    for row in &rows {
        let counters = if row.counters == general {
            String::new()
        } else {
            format!("{:x}", row.counters)
        };
        writeln!(
            text,
            "{}\t{}\t{}\t{counters}\t{}",
            row.name, row.terms, row.flags, row.description
        )?;
    }
    Ok(rows.len())
}

struct Row {
    name: String,
    terms: String,
    flags: String,
    counters: u32,
    description: String,
}

impl Row {
    /// `None` for an event that the kernel has no terms for.
    fn new(event: &Value, list: &List) -> Result<Option<Self>> {
        let name = event["EventName"].as_str().context("no EventName")?.trim();
        // perf has one name for both registers.
        let name = name
            .to_lowercase()
            .replace("offcore_response_0.", "offcore_response.");
        let described = ["BriefDescription", "PublicDescription"]
            .iter()
            .find_map(|key| event[*key].as_str())
            .unwrap_or_default();
        let words: Vec<&str> = described.split_whitespace().collect();
        let row = || -> Result<Option<Self>> {
            let Some(terms) = terms(&name, event)? else {
                return Ok(None);
            };
            Ok(Some(Self {
                terms,
                flags: flags(event, list.precise.get(&name).copied()),
                counters: counters(event)?,
                description: words.join(" ").trim_end_matches('.').to_owned(),
                name: name.clone(),
            }))
        };
        row().with_context(|| name.clone())
    }
}

/// The event in the terms of the kernel's PMU; `None` if it needs a register that the kernel does not fill.
///
/// Some names stand for a fixed counter, which the kernel chooses by an ordinary code. Source:
/// Documentation/admin-guide/perf; arch/x86/events/intel/core.c (`intel_perfmon_event_map`).
fn terms(name: &str, event: &Value) -> Result<Option<String>> {
    let fixed = match name {
        "inst_retired.any" | "inst_retired.any_p" => Some("event=0xc0"),
        "cpu_clk_unhalted.thread" | "cpu_clk_unhalted.core" => Some("event=0x3c"),
        "cpu_clk_unhalted.thread_any" => Some("event=0x3c,any=1"),
        "cpu_clk_unhalted.ref" => Some("event=0x00,umask=0x3"),
        _ => None,
    };
    if let Some(terms) = fixed {
        return Ok(Some(terms.to_owned()));
    }
    let code = number(event, "EventCode")?.unwrap_or(0);
    let mut terms = format!("event={code:#x}");
    let upper = number(event, "UMaskExt")?.unwrap_or(0);
    let umask = number(event, "UMask")?.unwrap_or(0) | upper << 8;
    if umask != 0 {
        write!(terms, ",umask={umask:#x}")?;
    }
    for (key, term) in [
        ("CounterMask", "cmask"),
        ("EdgeDetect", "edge"),
        ("Invert", "inv"),
        ("AnyThread", "any"),
    ] {
        if let Some(value) = number(event, key)?.filter(|value| *value != 0) {
            write!(terms, ",{term}={value:#x}")?;
        }
    }
    // Some registers add a filter: that of the extra register, which the kernel fills.
    let value = number(event, "MSRValue")?.unwrap_or(0);
    let term = match number(event, "MSRIndex")? {
        None | Some(0) => return Ok(Some(terms)),
        Some(0x3f6) => "ldlat",
        Some(0x3f7) => "frontend",
        Some(0x1a6 | 0x1a7) => "offcore_rsp",
        Some(_) => return Ok(None),
    };
    if value != 0 {
        write!(terms, ",{term}={value:#x}")?;
    }
    Ok(Some(terms))
}

/// `p` precise, `P` only ever precise, `n` not precise; `a` records the data's address; `d` deprecated.
fn flags(event: &Value, older: Option<bool>) -> String {
    let set = |key: &str| event[key].as_str().is_some_and(|value| value != "0");
    let says = |key: &str| event[key].is_string();
    let precise = if says("Precise") {
        Some(set("Precise"))
    } else if says("PEBS") {
        Some(set("PEBS"))
    } else {
        older.or_else(|| set("Data_LA").then_some(true))
    };
    let mut flags = match (precise, event["PEBS"].as_str()) {
        (Some(true), Some("2")) => "P",
        (Some(true), _) => "p",
        (Some(false), _) => "n",
        (None, _) => "",
    }
    .to_owned();
    flags += if set("Data_LA") { "a" } else { "" };
    flags += if set("Deprecated") { "d" } else { "" };
    flags
}

/// Counters that can count it: `0,1,2,3` or `Fixed counter 1`, as bits.
fn counters(event: &Value) -> Result<u32> {
    let text = event["Counter"].as_str().unwrap_or("0").to_lowercase();
    let (list, base) = match text.strip_prefix("fixed counter") {
        Some(list) => (list, FIXED),
        None => (text.as_str(), 0),
    };
    let mut mask = 0;
    for number in list.split(',') {
        let number: u32 = number.trim().parse().context("unknown counter")?;
        // Fixed counters are also numbered from 32.
        let bit = if number >= 32 {
            number - 32 + FIXED
        } else {
            number + base
        };
        mask |= 1 << bit;
    }
    Ok(mask)
}

/// The first number of a list, decimal or hexadecimal; `None` if there is none.
fn number(event: &Value, key: &str) -> Result<Option<u64>> {
    let Some(text) = event[key].as_str() else {
        return Ok(None);
    };
    let first = text.split(',').next().unwrap_or_default().trim();
    let number = match first.to_lowercase().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => first.parse(),
    };
    let number = number.with_context(|| format!("{key} is '{text}'"))?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event's fields become terms, flags and counters.
    #[test]
    fn rows() -> Result<()> {
        let event = serde_json::json!({
            "EventName": "MEM_TRANS_RETIRED.LOAD_LATENCY_GT_64", "EventCode": "0xCD", "UMask": "0x1",
            "MSRIndex": "0x3F6", "MSRValue": "0x40", "PEBS": "2", "Data_LA": "1", "Counter": "0,1,2,3",
            "BriefDescription": "Counts  loads\nabove 64 cycles. ",
        });
        let list = List {
            name: "skylake".into(),
            pmu: "cpu".into(),
            cpus: vec!["6-4E".into()],
            version: "v1".into(),
            events: vec![event],
            precise: std::collections::HashMap::new(),
        };
        let mut text = String::new();
        assert_eq!(write(&mut text, &list)?, 1);
        assert_eq!(
            text,
            "@skylake\tcpu\t6-4E\tv1\tf\t0\nmem_trans_retired.load_latency_gt_64\t\
             event=0xcd,umask=0x1,ldlat=0x40\tPa\t\tCounts loads above 64 cycles\n"
        );
        Ok(())
    }

    /// Precision that the vendor does not state stays unknown.
    #[test]
    fn unknown_precision() {
        let event = serde_json::json!({"EventName": "X", "Counter": "Fixed counter 1"});
        assert_eq!(flags(&event, None), "");
        assert_eq!(flags(&event, Some(false)), "n");
        assert_eq!(counters(&event).ok(), Some(1 << 17));
    }
}
