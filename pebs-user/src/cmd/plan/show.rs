//! Prints the plan.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use bytesize::ByteSize;
use serde_json::json;

use super::PlanArgs;
use super::measure::{PlanBasis, SensitivitySource};
use crate::cmd::values::Format;
use crate::cost::overhead::Counts;
use crate::cost::plan::{Goal, Row, SHOWN, Verdict, resets};
use crate::cost::ring::{Advice, Sensitivity, advise};
use crate::failure::{Failure, Result};
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::reset;
use crate::present::human::{UNKNOWN, count, maybe_time, percent, plural, time};
use crate::present::table::{Column, Table};
use crate::record::Counting;
use crate::terminal::quoted;
use crate::terminal::say;

/// A plan for output.
struct Shown<'a> {
    counting: &'a Counting,
    event: &'a ResolvedEvent,
    found: &'a PlanBasis,
    goal: &'a Goal,
    args: &'a PlanArgs,
    rows: Vec<Row>,
    verdict: Verdict,
    ring: Option<Advice>,
}

/// Prints the table and the advice; exit code 1 if the goal can't be met.
pub(super) fn show(
    counting: &Counting,
    found: &PlanBasis,
    goal: &Goal,
    args: &PlanArgs,
) -> Result<ExitCode> {
    let Some(event) = counting.events.first() else {
        return Err(Failure::bare("cannot plan without an event"));
    };
    let verdict = suited(found.counted.judge(goal, &found.price), event);
    let recommended = match verdict {
        Verdict::Met { reset } | Verdict::FewSamples { reset, .. } => Some(reset),
        Verdict::MarksAbove { .. } => None,
    };
    let mut all = resets(found.least_reset, recommended.unwrap_or_default());
    all.extend(recommended);
    all.sort_unstable();
    all.dedup();
    let row = |reset| found.counted.row(reset, &found.price);
    let shown = Shown {
        rows: all.into_iter().map(row).collect(),
        ring: recommended.map(|reset| ring(found, reset)),
        verdict,
        counting,
        event,
        found,
        goal,
        args,
    };
    let text = match args.format {
        Format::Text => shown.text(),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&shown.json())?),
    };
    write!(crate::terminal::stdout(), "{text}")?;
    if let Some(note) = &counting.note {
        say!("note: {note}");
    }
    let met = matches!(verdict, Verdict::Met { .. });
    Ok(ExitCode::from(u8::from(!met)))
}

/// Replaces the computed reset value by a near one that does not run in step with periodic work.
fn suited(verdict: Verdict, event: &ResolvedEvent) -> Verdict {
    let near = |reset| reset::near(&event.class, reset, 1, i64::MAX.cast_unsigned());
    match verdict {
        Verdict::Met { reset } => Verdict::Met { reset: near(reset) },
        Verdict::FewSamples {
            reset,
            wanted,
            overhead,
        } => Verdict::FewSamples {
            reset: near(reset),
            wanted,
            overhead,
        },
        Verdict::MarksAbove { .. } => verdict,
    }
}

/// Ring size for a reset value: samples of a CPU that is never idle, and other records of the busiest CPU.
fn ring(found: &PlanBasis, reset: u64) -> Advice {
    let counted = &found.counted;
    let samples = match found.price.counts {
        Counts::Time => 1e9 / reset as f64,
        Counts::Work => counted.rate() * 1e9 / reset as f64,
    };
    let rate = samples * found.sample_bytes.ring as f64 + found.ring_bytes_per_s;
    advise(rate, found.caches, found.sensitivity)
}

impl Shown<'_> {
    fn text(&self) -> String {
        let counted = &self.found.counted;
        let mut text = format!(
            "counted {} for {}: {}, {} of CPU time ({} within visits), {:.1} CPUs busy; {}\n",
            self.event.name,
            time(counted.wall_ns),
            plural(counted.items, "item"),
            time(counted.cpu_ns),
            time(counted.oncpu_ns),
            counted.cpu_ns / counted.wall_ns,
            self.counting.ended_by,
        );
        let native = counted.within();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "a median item takes {} on the CPU; marks and counted page faults{} cost {}; a sample costs {} ({}){}\n\n{}\n",
            time(counted.item_ns),
            if self.args.with.is_empty() {
                ""
            } else {
                " and --with"
            },
            share((native.elapsed_ns > 0.0).then(|| native.fixed_ns / native.elapsed_ns)),
            time(self.found.price.alpha_ns),
            self.counting.source,
            self.sizes() + &self.stacks(),
            self.table()
        );
        text + &self.advice()
    }

    /// The assumed sizes of samples with call stacks or memory accesses.
    fn sizes(&self) -> String {
        let sizes = self.found.sample_bytes;
        let assumed = match sizes.frames {
            Some(frames) => format!(", with an assumed stack of {frames} frames"),
            None if self.event.access != 0 => ", with its memory access".to_owned(),
            None => return String::new(),
        };
        let (ring, trace) = (sizes.ring, sizes.trace);
        format!("\na sample takes {ring} bytes of a ring{assumed}, and about {trace} of the trace")
    }

    /// Whether a recording without a reset value would take call stacks.
    fn stacks(&self) -> String {
        let chosen = self.counting.stacks.as_ref();
        chosen.map_or_else(String::new, |it| format!("\nwithout --reset, {it}"))
    }

    fn table(&self) -> String {
        let titles = [
            format!("reset, {}", self.event.unit),
            "slow-down of items".to_owned(),
            "1 s of work takes".to_owned(),
            "samples/item".to_owned(),
            format!("shortest function ({SHOWN} samples)"),
            "trace".to_owned(),
        ];
        let mut table = Table::new(titles.map(Column::number));
        let chosen = match self.verdict {
            Verdict::Met { reset } => Some(reset),
            _ => None,
        };
        for row in &self.rows {
            let mark = if chosen == Some(row.reset) { "* " } else { "" };
            let cells = [
                format!("{mark}{}", count(row.reset)),
                share(row.overhead),
                row.second_takes_s
                    .map_or_else(|| UNKNOWN.to_owned(), |s| format!("{s:.3} s")),
                row.samples_per_item
                    .map_or_else(|| UNKNOWN.to_owned(), number),
                maybe_time(row.shortest_ns),
                self.trace_bytes(row).map_or_else(
                    || UNKNOWN.to_owned(),
                    |bytes| format!("{}/min", size(60.0 * bytes)),
                ),
            ];
            table.row(cells.map(Into::into));
        }
        table.whole()
    }

    /// Bytes of the trace in a second.
    fn trace_bytes(&self, row: &Row) -> Option<f64> {
        let found = self.found;
        Some(row.samples_per_s? * found.sample_bytes.trace + found.rows_bytes_per_s)
    }

    fn advice(&self) -> String {
        let Goal {
            overhead, samples, ..
        } = *self.goal;
        let (goal, wanted_samples) = (percent(overhead), number(samples));
        match self.verdict {
            Verdict::Met { .. } => format!("{}\n{}\n", self.why_ring(), self.command()),
            Verdict::FewSamples {
                reset,
                wanted,
                overhead,
            } => {
                let here = self.found.counted.row(reset, &self.found.price);
                let has = here
                    .samples_per_item
                    .map_or_else(|| UNKNOWN.to_owned(), number);
                let other = match wanted {
                    Some(wanted) => format!(
                        "{wanted_samples} samples need --reset {wanted}, which slows items down by {}",
                        share(overhead)
                    ),
                    None => format!(
                        "this event can't give {wanted_samples} samples in so short an item: probe a function that \
                         does more, or look at many items together"
                    ),
                };
                format!(
                    "no reset value gives both at most {goal} and {wanted_samples} samples in the median item: \
                     --reset {reset} keeps to {goal} with {has} samples\n{other}\n{}\n{}\n",
                    self.why_ring(),
                    self.command()
                )
            }
            Verdict::MarksAbove { overhead } => format!(
                "no reset value keeps to {goal}: marks and counted page faults alone cost {}\n\
                 probe a function that is called less often, or give --max-overhead above that\n",
                share(Some(overhead).filter(|it| it.is_finite()))
            ),
        }
    }

    /// Why the ring has its size.
    fn why_ring(&self) -> String {
        let (Some(ring), found) = (self.ring, self.found) else {
            return String::new();
        };
        let target = match (found.sensitivity, found.why) {
            (Sensitivity::Sensitive, SensitivitySource::Typed) => {
                "as the program needs the caches".to_owned()
            }
            (Sensitivity::Oblivious, SensitivitySource::Typed) => {
                "as the program does not need the caches".to_owned()
            }
            (Sensitivity::Sensitive, SensitivitySource::Misses { per_us }) => {
                format!("as the program may need the caches ({per_us:.1} misses in a us)")
            }
            (_, SensitivitySource::Misses { per_us }) => {
                format!("as the program hardly misses the caches ({per_us:.2} in a us)")
            }
            _ => {
                "as nothing here counts cache misses and the program may need the caches (--cache)"
                    .to_owned()
            }
        };
        let limit = match ring.cache_limit {
            Some(limit) => format!("at most {}, {target}", size(limit as f64)),
            None if found.caches.l2.is_none() => "the caches are unknown".to_owned(),
            None => format!(
                "writing it costs the program less than {} in cache misses, whatever its size",
                percent(ring.pollution.max(0.001))
            ),
        };
        let lasts = ring.stands_still_ns.map_or_else(String::new, |ns| {
            format!("; holds what comes in {}", time(ns))
        });
        format!(
            "ring: {} ({} for the rate of records; {limit}{lasts})",
            size(ring.bytes as f64),
            size(ring.wanted as f64)
        )
    }

    /// The command line to record with.
    fn command(&self) -> String {
        let (Verdict::Met { reset } | Verdict::FewSamples { reset, .. }) = self.verdict else {
            return String::new();
        };
        let mut words = vec!["pebs-trace".to_owned()];
        for spec in &self.args.uprobes {
            words.extend(["--uprobe".to_owned(), quoted(spec)]);
        }
        if self.args.event != "auto" {
            words.extend(["--event".to_owned(), quoted(&self.args.event)]);
        }
        for (name, value) in self.args.details() {
            words.push(name.to_owned());
            words.extend((!value.is_empty()).then_some(value));
        }
        words.extend(["--reset".to_owned(), reset.to_string()]);
        if self.event.nmi {
            // The cost of a sample was measured with one interrupt per sample.
            words.extend(["--transport".to_owned(), "bpf".to_owned()]);
        }
        if let Some(ring) = self.ring {
            let size = ByteSize::b(ring.bytes).display().iec().to_string();
            words.extend([
                "--ring-size".to_owned(),
                size.replace(' ', "").replace(".0", ""),
            ]);
        }
        for pid in &self.args.pids {
            words.extend(["-p".to_owned(), pid.to_string()]);
        }
        if !self.args.command_line.is_empty() {
            words.push("--".to_owned());
            let command = self.args.command_line.iter();
            words.extend(command.map(|word| quoted(&word.to_string_lossy())));
        }
        words.join(" ")
    }

    fn json(&self) -> serde_json::Value {
        let (counted, found) = (&self.found.counted, self.found);
        let rows = self.rows.iter().map(|row| {
            let mut value = json!(row);
            value["trace_bytes_per_s"] = json!(self.trace_bytes(row));
            value
        });
        json!({
            "event": self.event.name,
            "unit": self.event.unit,
            "counted": {
                "wall_ns": counted.wall_ns,
                "cpu_ns": counted.cpu_ns,
                "events": counted.events,
                "oncpu_ns": counted.oncpu_ns,
                "marks_ns": counted.fixed_ns,
                "visits": counted.visits,
                "items": counted.items,
                "item_ns": counted.item_ns,
            },
            "sample_bytes": found.sample_bytes,
            "ring_bytes_per_s": found.ring_bytes_per_s,
            "alpha_ns": found.price.alpha_ns,
            "alpha_at_most_ns": found.price.alpha_at_most_ns,
            "unit_costs": self.counting.source,
            "stacks": self.counting.stacks,
            "goal": { "overhead": self.goal.overhead, "samples_per_item": self.goal.samples },
            "rows": rows.collect::<Vec<_>>(),
            "verdict": self.verdict,
            "ring": self.ring,
            "cache": { "sensitivity": found.sensitivity, "known": found.why, "sizes": found.caches },
            "command": self.command(),
        })
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "all of the time".to_owned(), percent)
}

/// A number of samples: two digits where there are few.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => count(v.round() as u64),
        v if v < 0.005 => "<0.01".to_owned(),
        v if v >= 9.995 => format!("{}", (v * 10.0).round() / 10.0),
        v => format!("{}", (v * 100.0).round() / 100.0),
    }
}

fn size(bytes: f64) -> String {
    ByteSize::b(bytes as u64).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small numbers of samples keep their digits.
    #[test]
    fn numbers() {
        assert_eq!(
            [0.000_6, 0.031, 10.0, 12.34, 1_234.0].map(number),
            ["<0.01", "0.03", "10", "12.3", "1,234"]
        );
        assert_eq!(share(None), "all of the time");
    }
}
