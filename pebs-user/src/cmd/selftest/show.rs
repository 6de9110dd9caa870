//! Prints the result of the self-test.

use std::process::ExitCode;

use serde_json::json;

use super::SelftestFormat;
use crate::failure::Result;
use crate::present::table::{Column, Table};
use crate::selftest::findings::{Findings, FunctionFindings, Length};

/// Prints the findings, one column per reset value; exit code 1 if a target was missed.
pub(super) fn show(all: &[Findings], format: SelftestFormat) -> Result<ExitCode> {
    let tests = all.iter().map(Findings::tests).sum();
    let misses: Vec<String> = all
        .iter()
        .flat_map(|found| {
            let of = |miss| format!("reset {}: {miss}", found.reset_ns);
            found.misses(tests).into_iter().map(of)
        })
        .collect();
    match format {
        SelftestFormat::Text => print!("{}", text(all, &misses)),
        SelftestFormat::Json => {
            let whole = json!({ "reset_values": all, "load": load(), "misses": misses });
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
    }
    Ok(ExitCode::from(u8::from(!misses.is_empty())))
}

/// Load average of the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

type Line = (&'static str, fn(&Findings) -> String);

/// The lines of the table.
const LINES: [Line; 19] = [
    ("reset value, ns", |f| f.reset_ns.to_string()),
    ("items / visits", |f| {
        format!("{} / {}", f.visits.items, f.visits.visits)
    }),
    ("  compared", |f| f.visits.compared.to_string()),
    ("  left out: off the CPU, disturbed, moved, damaged", |f| {
        let v = f.visits;
        format!(
            "{}, {}, {}, {}",
            v.off_cpu, v.disturbed, v.migrated, v.damaged
        )
    }),
    ("functions of 5 intervals or more, visits", |f| {
        f.rows(Length::Long).to_string()
    }),
    ("  bias of self_ns, worst function, %", |f| {
        bias(f.worst(Length::Long))
    }),
    ("  standard error, given / found, intervals", |f| {
        errors(f, Length::Long)
    }),
    ("  coverage of the 95 % interval, %", |f| {
        coverage(f, Length::Long)
    }),
    ("    of functions, lowest .. highest", |f| {
        f.coverages(Length::Long)
            .map_or_else(unknown, |[low, high]| {
                let one =
                    |(share, name): (f64, &str)| format!("{:.1} {}", share * 100.0, short(name));
                format!("{} .. {}", one(low), one(high))
            })
    }),
    ("  bias of span_ns, intervals", |f| {
        f.span_bias()
            .map_or_else(unknown, |bias| format!("{bias:+.2}"))
    }),
    ("shorter functions, visits", |f| {
        f.rows(Length::Short).to_string()
    }),
    ("  bias of self_ns, worst function, %", |f| {
        bias(f.worst(Length::Short))
    }),
    ("  coverage of the 95 % interval, %", |f| {
        coverage(f, Length::Short)
    }),
    ("pooled over items, worst function, %", |f| {
        let worst = f.worst_pooled();
        worst.map_or_else(unknown, |w| {
            format!("{:+.2} {}", w.bias() * 100.0, short(&w.name))
        })
    }),
    ("samples in items", |f| f.samples.in_visits.to_string()),
    ("  in a wrong item", |f| f.samples.wrong_item.to_string()),
    ("  in a wrong function, of those in user mode", |f| {
        format!("{} of {}", f.samples.wrong_function, f.samples.judged)
    }),
    ("a sample's interrupt, us; share of the time, %", |f| {
        let (Some(stop), Some(share)) = (f.stop_ns, f.stopped_share) else {
            return unknown();
        };
        format!("{:.1}; {:.0}", stop as f64 / 1e3, share * 100.0)
    }),
    ("clock error: samples, log, ns", |f| {
        let samples = f
            .clock_error_ns
            .map_or_else(|| "same clock".to_owned(), |e| format!("{e:.0}"));
        format!("{samples}, {}", f.truth_clock_error_ns)
    }),
];

fn unknown() -> String {
    "-".to_owned()
}

/// Removes the common prefix of the built-in workload's functions.
fn short(name: &str) -> &str {
    name.strip_prefix("selftest_").unwrap_or(name)
}

fn bias(worst: Option<&FunctionFindings>) -> String {
    worst.map_or_else(unknown, |f| {
        let (bias, error) = (f.bias * 100.0, f.bias_stderr * 100.0);
        format!("{bias:+.2} ± {error:.2} {}", short(&f.name))
    })
}

fn errors(found: &Findings, length: Length) -> String {
    let errors = found.errors(length);
    errors.map_or_else(unknown, |(given, made)| format!("{given:.2} / {made:.2}"))
}

fn coverage(found: &Findings, length: Length) -> String {
    let share = found.coverage(length);
    share.map_or_else(unknown, |share| format!("{:.1}", share * 100.0))
}

fn text(all: &[Findings], misses: &[String]) -> String {
    let values = all.iter().map(|_| Column::number(""));
    let mut table = Table::new(std::iter::once(Column::words("")).chain(values));
    for (name, value) in LINES {
        let values = all.iter().map(|it| value(it).into());
        table.row(std::iter::once(name.into()).chain(values));
    }
    let mut text = table.whole() + "\n";
    if let Some(load) = load() {
        text += &format!("load average of the machine: {load}\n");
    }
    if misses.is_empty() {
        text += "all targets reached\n";
    }
    for miss in misses {
        text += &format!("missed: {miss}\n");
    }
    text
}
