//! Items that come as regularly as samples: how far the share of each function is from that of its work, with distances
//! between samples that are equal and that vary.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::{Workload, number};
use crate::frame::lab::Lab;
use crate::frame::shell;
use crate::frame::table::Table;

pub(super) const REGULAR: Workload = Workload {
    name: "regular",
    args: &[],
    function: "handle(id=*(arg1):u64)",
};

/// Rounds of work of an item, and number of items: about 5 us to 5 ms, and a second in all.
const ITEMS: [(u32, u32); 5] = [
    (240, 80_000),
    (1_200, 30_000),
    (4_800, 10_000),
    (48_000, 1_000),
    (240_000, 200),
];

/// Reset values; `None`: pebs-trace chooses it.
const RESETS: [Option<u32>; 6] = [
    Some(50_021),
    Some(61_003),
    Some(100_000),
    Some(100_003),
    Some(250_007),
    None,
];

/// Values of `--jitter`.
const JITTERS: [&str; 2] = ["0", "90"];

/// The functions of an item, in the order of their calls.
pub(super) const FUNCTIONS: [&str; 3] = ["nine", "seven", "four"];

/// Their shares of an item's work.
const SHARES: [f64; 3] = [0.45, 0.35, 0.2];

/// A function in a recording.
struct Found {
    /// Difference of its share from the right one, as a part of that.
    bias: f64,
    /// Whether the 95 % interval holds the right one.
    covered: bool,
}

/// Records each length of items at each reset value with both; a table of it.
pub(super) fn table(lab: &Lab) -> Result<String> {
    let program = lab.compile(REGULAR.name, &[])?;
    let mut table = Table::new(
        "rounds: | reset, ns: | equal distances: bias of nine, seven, four, % | with jitter, % | beats: equal | with jitter",
    );
    let mut all: [Vec<Found>; 2] = Default::default();
    for (rounds, items) in ITEMS {
        for reset in RESETS {
            let (mut biases, mut beats) = (Vec::new(), Vec::new());
            for (jitter, all) in JITTERS.iter().zip(&mut all) {
                let run = Run {
                    rounds,
                    items,
                    reset,
                    jitter,
                };
                let report = run.record(lab, &program)?;
                let found = compare(&report);
                let each = found.iter().map(|it| format!("{:+.1}", it.bias * 100.0));
                biases.push(each.collect::<Vec<_>>().join(" "));
                let positions = &report["run"]["positions"][0]["beats"];
                beats.push(positions.as_bool().map_or(
                    "unknown",
                    |beats| {
                        if beats { "yes" } else { "no" }
                    },
                ));
                all.extend(found);
            }
            let reset = reset.map_or_else(|| "none".to_owned(), |reset| reset.to_string());
            table.row(format_args!(
                "{rounds} | {reset} | {} | {} | {} | {}",
                biases[0], biases[1], beats[0], beats[1]
            ));
        }
    }
    let mut text = table.to_string();
    for (jitter, all) in JITTERS.iter().zip(&all) {
        let number = all.len() as f64;
        let mean = all.iter().map(|it| it.bias.abs()).sum::<f64>() / number;
        let worst = all.iter().map(|it| it.bias.abs()).fold(0.0, f64::max);
        let covered = all.iter().filter(|it| it.covered).count() as f64 / number;
        let _ = writeln!(
            text,
            "\n`--jitter {jitter}`: bias {:.1} % in the mean, {:.0} % at worst; {:.0} % of {number} intervals hold the truth.",
            mean * 100.0,
            worst * 100.0,
            covered * 100.0
        );
    }
    Ok(text)
}

/// A recording of the workload.
struct Run<'a> {
    rounds: u32,
    items: u32,
    reset: Option<u32>,
    jitter: &'a str,
}

impl Run<'_> {
    /// Makes it; the report in JSON.
    fn record(&self, lab: &Lab, program: &Path) -> Result<Value> {
        let spec = format!("{}:{}", program.display(), REGULAR.function);
        let reset = self.reset.map(u64::from);
        let mut command = lab.recording(&spec, reset, &["--force", "--jitter", self.jitter])?;
        command.arg(program);
        shell::output(command.args([self.items, self.rounds].map(|it| it.to_string())))?;
        lab.ask("report")
    }
}

/// A function's row of all items; `None` if it has no sample.
pub(super) fn of_function<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let probe = &report["probes"][0];
    let rows = ["spread", "largest"].map(|list| probe[list].as_array());
    let mut rows = rows.into_iter().flatten().flatten();
    // A wait has the function in which it began.
    let row = rows.find(|row| row["state"].is_null() && row["function"]["name"] == name);
    row.map(|row| &row["all"])
}

/// The functions with a sample, compared with their shares of the work.
fn compare(report: &Value) -> Vec<Found> {
    let of = |name: &str| of_function(report, name);
    let per_item = |name| of(name).map_or(0.0, |all| number(&all["per_visit"]));
    let all: f64 = FUNCTIONS.into_iter().map(per_item).sum();
    let found = FUNCTIONS.into_iter().zip(SHARES).map(|(name, share)| {
        let right = share * all;
        let holds = of(name)
            .is_some_and(|all| (number(&all["low"])..=number(&all["high"])).contains(&right));
        Found {
            bias: per_item(name) / right - 1.0,
            covered: holds,
        }
    });
    found.collect()
}
