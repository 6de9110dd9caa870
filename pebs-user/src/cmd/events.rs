//! `pebs-trace events [PATTERN]`: lists the events that can be sampled, and their precision.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::pmu::bits::BitField;
use crate::pmu::catalog::{Entry, Source, catalog};
use crate::pmu::event::nearest;
use crate::pmu::host::{CpuModel, Host, Vendor};
use crate::pmu::sysfs::Pmu;
use crate::pmu::table::EventTable;
use crate::present::table::{Column, Table};
use crate::probe::survey::fits;
use crate::terminal::say;
use crate::terminal::{self, shown};

/// Form of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EventsFormat {
    /// A table for people
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Options of `pebs-trace events`.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// Show only events whose name or description contains this text
    ///
    /// Case is ignored; '*' matches anything. Default: all events.
    #[arg(value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// Output format
    ///
    /// json also has the code of each event.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: EventsFormat,
    /// List the events of another Intel CPU, such as 6-55-4
    ///
    /// FAMILY-MODEL-STEPPING as perf names CPUs: model and stepping in hexadecimal; the stepping is optional. Shows
    /// Intel's list for it and the kernel's names.
    #[arg(long, value_name = "CPU", value_parser = cpu, conflicts_with = "sysfs")]
    pub cpu: Option<CpuModel>,
    /// Read the files of another machine from this directory
    ///
    /// It holds copies of that machine's proc/cpuinfo and sys/bus/event_source/devices.
    #[arg(long, value_name = "DIR")]
    pub sysfs: Option<PathBuf>,
}

/// The output of `--format json`.
#[derive(Serialize)]
struct Listing<'a> {
    cpu: &'a str,
    /// The kernel's release; null for another CPU.
    kernel: Option<&'a str>,
    /// Source of the vendor's events.
    table: &'a str,
    /// Events that fit.
    events: Vec<&'a Entry>,
}

/// Prints the list to stdout. Exit code 1 if nothing fits the pattern.
///
/// # Errors
/// If there is no such machine, or stdout can't be written.
pub fn run(args: &EventsArgs) -> Result<ExitCode> {
    let table = EventTable::embedded();
    let host = match (&args.cpu, &args.sysfs) {
        (Some(cpu), _) => another(cpu, &table)?,
        (None, Some(dir)) => copied(dir)?,
        (None, None) => Host::probe(Path::new("/")),
    };
    let all = catalog(&host, &table);
    let pattern = args.pattern.as_deref().unwrap_or_default();
    let wanted = |entry: &&Entry| fits(&entry.event, pattern) || fits(&entry.description, pattern);
    let events: Vec<&Entry> = all.iter().filter(wanted).collect();
    if events.is_empty() {
        explain_nothing(pattern, &host, &all, &table);
        return Ok(ExitCode::from(1));
    }
    let mut out = terminal::stdout();
    let written = match args.format {
        EventsFormat::Text => text(&mut out, &host, &events),
        EventsFormat::Json => {
            let listing = Listing {
                cpu: &host.cpu.name,
                kernel: Some(host.release.as_str()).filter(|release| !release.is_empty()),
                table: table.source(),
                events,
            };
            serde_json::to_writer_pretty(&mut out, &listing)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out))
        }
    };
    match written {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

fn explain_nothing(pattern: &str, host: &Host, all: &[Entry], table: &EventTable) {
    let name = shown(pattern);
    say!("no event of this machine matches '{name}'");
    let near = nearest(pattern, all.iter().map(|entry| entry.event.as_str()));
    let elsewhere = table.cpus_with(pattern);
    match (host.no_pmu_reason(), elsewhere.is_empty(), near.is_empty()) {
        (Some(reason), false, _) => say!("hint: {reason}; it exists on {}", elsewhere.join(", ")),
        (None, false, _) => say!("hint: it exists on {}", elsewhere.join(", ")),
        (_, true, false) => say!("hint: the nearest names are {}", near.join(", ")),
        (_, true, true) => {}
    }
}

/// `[VENDOR-]FAMILY-MODEL[-STEPPING]`.
fn cpu(text: &str) -> Result<CpuModel, String> {
    let wanted =
        || "FAMILY-MODEL or FAMILY-MODEL-STEPPING of an Intel CPU, such as 6-55-4".to_owned();
    let numbers = text.strip_prefix("GenuineIntel-").unwrap_or(text);
    let mut parts = numbers.split('-');
    let family = parts.next().and_then(|part| part.parse().ok());
    let mut hex = || parts.next().map(|part| u32::from_str_radix(part, 16));
    let (Some(family), Some(Ok(model)), stepping) = (family, hex(), hex()) else {
        return Err(wanted());
    };
    let stepping = stepping.unwrap_or(Ok(0)).map_err(|_| wanted())?;
    if parts.next().is_some() {
        return Err(wanted());
    }
    Ok(CpuModel {
        vendor: Vendor::Intel,
        family,
        model,
        stepping,
        name: format!("GenuineIntel-{family}-{model:X}-{stepping:X}"),
    })
}

/// A host with that CPU, built from the vendor's list of events.
fn another(cpu: &CpuModel, table: &EventTable) -> Result<Host> {
    let lists = table.of(cpu);
    if lists.is_empty() {
        let mut names: Vec<&str> = table.lists().map(|list| list.name).collect();
        names.dedup();
        return Err(Failure::new(
            format!("no list of events for CPU {}", cpu.name),
            format!("there are lists for {}", names.join(", ")),
        ));
    }
    let fields = [
        ("event", "config:0-7"),
        ("umask", "config:8-15,40-47"),
        ("edge", "config:18"),
        ("any", "config:21"),
        ("inv", "config:23"),
        ("cmask", "config:24-31"),
        ("offcore_rsp", "config1:0-63"),
        ("ldlat", "config1:0-15"),
        ("frontend", "config1:0-23"),
    ];
    let field = |(name, bits): &(&str, &str)| Some(((*name).to_owned(), BitField::parse(bits)?));
    let pmu = |list: &crate::pmu::table::CpuList<'_>| Pmu {
        name: list.pmu.to_owned(),
        formats: fields.iter().filter_map(field).collect(),
        max_precise: Some(3),
        ..Pmu::default()
    };
    Ok(Host {
        cpu: cpu.clone(),
        pmus: lists.iter().map(pmu).collect(),
        ..Host::default()
    })
}

/// A host whose sysfs and procfs files were copied to a directory.
fn copied(dir: &Path) -> Result<Host> {
    let host = Host::probe(dir);
    if host.pmus.is_empty() {
        return Err(Failure::new(
            format!("{} has no {}", dir.display(), crate::pmu::sysfs::DEVICES),
            "copy a machine's files: tar -ch /proc/cpuinfo /sys/bus/event_source/devices"
                .to_owned(),
        ));
    }
    Ok(host)
}

fn text(out: &mut impl Write, host: &Host, events: &[&Entry]) -> io::Result<()> {
    let kernel = if host.release.is_empty() {
        String::new()
    } else {
        format!(", Linux {}", host.release)
    };
    writeln!(out, "{}{kernel}", shown(&host.cpu.name))?;
    if let Some(reason) = host.no_pmu_reason() {
        writeln!(out, "{}", shown(&reason))?;
    }
    let mut rest = events;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|entry| entry.source == first.source);
        let (group, others) = rest.split_at(same.count());
        writeln!(out, "\n{}\n{}", title(&first.source), rows(group))?;
        rest = others;
    }
    Ok(())
}

fn title(source: &Source) -> String {
    match source {
        Source::Kernel => "Known to the kernel by name".to_owned(),
        Source::Pmu(name) => format!("PMU {} in sysfs", shown(name)),
        Source::Vendor(name) => format!("Intel's events of {name}"),
    }
}

fn rows(entries: &[&Entry]) -> String {
    let titles = ["event", "precise", "bulk", "what it counts"];
    let mut table = Table::new(titles.map(Column::words));
    for entry in entries {
        let mut what = entry.description.clone();
        if what.is_empty() {
            what = entry.code.clone().unwrap_or_default();
        }
        if entry.deprecated {
            what += " (deprecated)";
        }
        let cells = [
            shown(&entry.event).into_owned(),
            entry.precise.unwrap_or("-").to_owned(),
            if entry.bulk { "yes" } else { "-" }.to_owned(),
            shown(&what).into_owned(),
        ];
        table.row(cells.map(Into::into));
    }
    table.whole()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs as perf names them.
    #[test]
    fn cpus() {
        let parsed = |text| cpu(text).map(|cpu| (cpu.family, cpu.model, cpu.stepping));
        assert_eq!(parsed("6-55-4"), Ok((6, 0x55, 4)));
        assert_eq!(parsed("GenuineIntel-6-8F"), Ok((6, 0x8f, 0)));
        for text in ["", "6", "6-xx", "6-55-4-1", "AuthenticAMD-25-11", "6-55-"] {
            assert!(cpu(text).is_err(), "{text}");
        }
    }

    /// Another CPU's list is shown in groups, with precision and bulk.
    #[test]
    fn another_cpu() {
        let table = EventTable::embedded();
        let host = another(&cpu("6-55-4").unwrap(), &table).unwrap();
        let all = catalog(&host, &table);
        let entries: Vec<&Entry> = all.iter().collect();
        let mut out = Vec::new();
        text(&mut out, &host, &entries).unwrap();
        let out = String::from_utf8(out).unwrap();
        let line = out
            .lines()
            .find(|line| line.contains("mem_load_retired.l1_miss"));
        let words: Vec<&str> = line.unwrap().split_whitespace().take(3).collect();
        assert_eq!(words, ["mem_load_retired.l1_miss", "yes", "yes"]);
        assert!(out.contains("Intel's events of skylakex"), "{out}");
        assert!(another(&cpu("6-FF").unwrap(), &table).is_err());
    }

    /// Every argument has help.
    #[test]
    fn help() {
        let command = EventsArgs::augment_args(clap::Command::new("events"));
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{argument:?}");
        }
    }
}
