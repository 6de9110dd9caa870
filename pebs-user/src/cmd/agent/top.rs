//! `pebs-trace agent top`: what targets do now, a table that is renewed every second.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use crate::agent::{self, Health};
use crate::failure::{Context as _, Result};
use crate::out::view::screen;
use crate::present::human::{count, percent, time};
use crate::present::table::{Column, Table};
use crate::terminal::{self, shown};

use super::{print_result, size};

/// Between two tables, unless something else was asked for.
const EVERY: &str = "1s";

/// Options of `pebs-trace agent top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub agent: super::Asked,
    /// Renew the table after this time
    #[arg(long, value_name = "TIME", default_value = EVERY, value_parser = every)]
    pub every: Duration,
    /// End after this many tables
    ///
    /// Default: never, or if the output is no terminal, after one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
}

/// A time that leaves the agent something else to do.
fn every(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match time < Duration::from_millis(100) {
        true => Err("at least 100ms".to_owned()),
        false => Ok(time),
    }
}

/// Shows tables until the user ends it, or there were enough.
///
/// # Errors
/// No agent answers, or the output can't be written.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode> {
    let socket = args.agent.socket()?;
    let mut last: Option<Health> = None;
    let mut table = |width: usize| -> Result<String> {
        let health = agent::ask(&socket)?;
        let text = text(&health, last.as_ref(), width);
        last = Some(health);
        Ok(text)
    };
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        let shown = screen::show_text(args.every, args.iterations, table);
        shown.context("cannot use the terminal")??;
        return Ok(ExitCode::SUCCESS);
    }
    // Rates need two answers.
    let _ = table(terminal::PIPE_WIDTH)?;
    for _ in 0..args.iterations.unwrap_or(1) {
        std::thread::sleep(args.every);
        print_result(&table(terminal::width())?, "table")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The table, with rates since the last answer.
fn text(health: &Health, last: Option<&Health>, width: usize) -> String {
    let mut table = Table::new(vec![
        Column::names("target", 8),
        Column::words("state"),
        Column::number("processes").rank(2),
        Column::number("items/s"),
        Column::number("slow"),
        Column::number("p50"),
        Column::number("p99"),
        Column::number("sampled every").rank(1),
        Column::number("slow-down"),
        Column::number("lost"),
    ]);
    let seconds = last.map(|last| health.seconds - last.seconds);
    let seconds = seconds.filter(|it| *it > 0.0);
    let absent = || "-".to_owned();
    for it in &health.targets {
        let before = last.and_then(|last| last.targets.iter().find(|was| was.name == it.name));
        let rate = before.zip(seconds).map(|(was, seconds)| {
            count((it.items.saturating_sub(was.items) as f64 / seconds).round() as u64)
        });
        let cells = [
            shown(&it.name).into_owned(),
            it.state.name().to_owned(),
            it.processes.to_string(),
            rate.unwrap_or_else(absent),
            count(it.slow),
            it.p50_ns.map_or_else(absent, |ns| time(ns as f64)),
            it.p99_ns.map_or_else(absent, |ns| time(ns as f64)),
            it.reset.map_or_else(absent, count),
            it.slowdown.map_or_else(absent, percent),
            count(it.lost),
        ];
        table.row(cells.map(Into::into));
    }
    let cpu = last.zip(seconds).map(|(last, seconds)| {
        let used = health.cpu_seconds - last.cpu_seconds;
        format!("{} of a CPU, ", percent(used / seconds))
    });
    let mut text = table.lines(width).join("\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n\nagent {} (process {}): {}{} of memory, {} of {} of disk",
        shown(&health.version),
        health.pid,
        cpu.unwrap_or_default(),
        size(health.memory_bytes),
        size(health.disk.bytes),
        size(health.disk.max_bytes),
    );
    for it in &health.targets {
        if let Some(error) = &it.error {
            let _ = writeln!(text, "{}: {}", shown(&it.name), shown(error));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{State, TargetHealth};

    fn health(seconds: f64, items: u64) -> Health {
        Health {
            version: "1".to_owned(),
            pid: 7,
            seconds,
            cpu_seconds: seconds / 100.0,
            memory_bytes: 50 << 20,
            targets: vec![
                TargetHealth {
                    name: "web".to_owned(),
                    state: State::Records,
                    processes: 2,
                    items,
                    slow: 12,
                    p50_ns: Some(1_500_000),
                    p99_ns: Some(20_000_000),
                    slowdown: Some(0.004),
                    reset: Some(400_009),
                    ..TargetHealth::default()
                },
                TargetHealth {
                    name: "db".to_owned(),
                    error: Some("no\tpreset".to_owned()),
                    ..TargetHealth::default()
                },
            ],
            ..Health::default()
        }
    }

    /// Rates are those since the last answer; what is unknown is no number.
    #[test]
    fn table() {
        let (first, second) = (health(10.0, 100), health(12.0, 3_100));
        let shown = text(&second, Some(&first), 120);
        let words = |name: &str| {
            let line = shown.lines().find(|it| it.trim_start().starts_with(name));
            let words = line.unwrap().split_whitespace().map(str::to_owned);
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words("web"),
            "web records 2 1,500 12 1.50 ms 20.0 ms 400,009 0.4 % 0"
        );
        assert_eq!(words("db "), "db waits 0 0 0 - - - - 0");
        assert!(
            shown.contains("(process 7): 1.0 % of a CPU, 50.0 MiB"),
            "{shown}"
        );
        assert!(shown.contains("db: no\\tpreset"), "{shown}");
        let alone = text(&first, None, 120);
        assert!(alone.contains("(process 7): 50.0 MiB"), "{alone}");
    }

    /// It is asked for now and then.
    #[test]
    fn not_too_often() {
        assert_eq!(every("2s"), Ok(Duration::from_secs(2)));
        assert!(every("1ms").is_err() && every("soon").is_err());
    }
}
