//! `pebs-trace traces`: lists what a lake has.

use std::process::ExitCode;

use bytesize::ByteSize;
use chrono::{DateTime, NaiveDate, Utc};
use serde_json::json;

use super::print_result;
use super::values::Format;
use crate::failure::Result;
use crate::lake::{Address, Filter, Host, Lake, Listed, list};
use crate::present::table::{Column, Table};
use crate::terminal::shown;

/// Options of `pebs-trace traces`.
#[derive(Clone, Debug, clap::Args)]
pub struct TracesArgs {
    /// The lake: a directory, s3://BUCKET/PREFIX, gs:// or az://
    #[arg(value_name = "LAKE")]
    pub lake: Address,

    /// Only traces that went on after this time, such as 2026-03-01 or 2h
    ///
    /// A day (2026-03-01) or a time (2026-03-01T03:00:00Z) in UTC, or how long ago. Traces that lasted longer than a day may be missing.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<DateTime<Utc>>,

    /// Only traces that began before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<DateTime<Utc>>,

    /// Only traces of this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<Host>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub format: Format,
}

/// Lists traces.
///
/// # Errors
/// The lake can't be read.
pub fn run(args: &TracesArgs) -> Result<ExitCode> {
    let lake = Lake::open(&args.lake)?;
    let filter = Filter {
        since: args.since,
        until: args.until,
        host: args.host.clone(),
    };
    let listed = list(&lake, &filter)?;
    let text = match args.format {
        Format::Text if listed.is_empty() => "no traces\n".to_owned(),
        Format::Text => text(&listed),
        Format::Json => serde_json::to_string_pretty(&json(&args.lake, &listed))? + "\n",
    };
    print_result(&text, "list")?;
    Ok(ExitCode::SUCCESS)
}

fn text(listed: &[Listed]) -> String {
    let mut table = Table::new(vec![
        Column::words("begin"),
        Column::names("host", 8),
        Column::names("target", 8),
        Column::number("items"),
        Column::number("slow"),
        Column::number("lost").rank(1),
        Column::number("size").rank(1),
        Column::words("trace"),
    ]);
    for Listed { host, manifest } in listed {
        let cells = [
            manifest.begin.format("%Y-%m-%d %H:%M:%S").to_string(),
            host.to_string(),
            shown(manifest.target.as_deref().unwrap_or("-")).into_owned(),
            manifest.items.to_string(),
            manifest
                .slow
                .map_or_else(|| "-".to_owned(), |it| it.to_string()),
            manifest.lost.to_string(),
            ByteSize(manifest.bytes.unsigned_abs())
                .display()
                .si()
                .to_string(),
            manifest.trace_id.to_string(),
        ];
        table.row(cells.map(Into::into));
    }
    table.whole() + "\n"
}

fn json(lake: &Address, listed: &[Listed]) -> serde_json::Value {
    let each = listed.iter().map(|Listed { host, manifest: it }| {
        json!({
            "trace": format!("{lake}#{host}/{}", it.trace_id),
            "host": host.to_string(),
            "target": it.target,
            "begin": it.begin.to_rfc3339(),
            "end": it.end.map(|it| it.to_rfc3339()),
            "labels": it.labels,
            "probes": it.probes,
            "items": it.items,
            "slow": it.slow,
            "samples": it.samples,
            "lost": it.lost,
            "bytes": it.bytes,
            "objects": it.objects.len() + 1,
        })
    });
    each.collect()
}

/// A day, a time, or how long ago.
fn time(text: &str) -> Result<DateTime<Utc>, String> {
    let ago = text.strip_suffix(" ago").unwrap_or(text);
    let day = || {
        Some(
            text.parse::<NaiveDate>()
                .ok()?
                .and_hms_opt(0, 0, 0)?
                .and_utc(),
        )
    };
    let time = || Some(humantime::parse_rfc3339_weak(text).ok()?.into());
    let ago = || {
        let ago = humantime::parse_duration(ago).ok()?;
        Utc::now().checked_sub_signed(chrono::TimeDelta::from_std(ago).ok()?)
    };
    let time = day().or_else(time).or_else(ago);
    time.ok_or_else(|| {
        "there are 2026-03-01, 2026-03-01T03:00:00Z, and 2h for two hours ago".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days, times, and how long ago.
    #[test]
    fn times() {
        let at = |text: &str| time(text).unwrap().to_rfc3339();
        assert_eq!(at("2026-03-01"), "2026-03-01T00:00:00+00:00");
        assert_eq!(at("2026-03-01T03:04:05Z"), "2026-03-01T03:04:05+00:00");
        assert_eq!(at("2026-03-01 03:04:05"), "2026-03-01T03:04:05+00:00");
        let then = time("2h").unwrap();
        let ago = Utc::now() - then;
        assert_eq!((ago.num_minutes(), time("2h ago").is_ok()), (120, true));
        assert!(time("soon").is_err());
    }
}
