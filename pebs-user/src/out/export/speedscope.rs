//! JSON for <https://www.speedscope.app>: a profile for each probe, item after item in order of begin.
//!
//! Weight: [`Weight::words`](crate::compare::load::Weight::words); a wait is a frame `[sleeping]` on top of the
//! function in which the thread blocked. Within a visit, parts are in the order of their first
//! samples. Source: speedscope's file-format-schema.json.

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Input;
use super::stacks::Shares;
use crate::compare::load;
use crate::compare::select::error::ExportError;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    name: &'a str,
    exporter: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

/// Part of a visit.
struct Part {
    begin_ns: i64,
    function: Option<u32>,
    stack: Option<u32>,
    /// State of a wait; `None`: on the CPU.
    state: Option<String>,
    weight: f64,
}

/// Writes the file.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut frames = Frames::default();
    let mut probes: BTreeMap<u16, Profile> = BTreeMap::new();
    let mut visits = Vec::new();
    load::visits(input.trace, &input.chosen.visits, |visit| {
        visits.push((visit.begin_ns.0, visit.visit_id, visit.probe_id.0));
    })?;
    visits.sort_unstable();
    let mut parts = parts(input)?;
    for (_, visit, probe) in visits {
        let name = input.probes.label(probe);
        let profile = probes.entry(probe).or_insert_with(|| Profile {
            r#type: "sampled",
            name: name.clone(),
            unit: if input.weight.is_time() {
                "nanoseconds"
            } else {
                "none"
            },
            start_value: 0.0,
            end_value: 0.0,
            samples: Vec::new(),
            weights: Vec::new(),
        });
        let mut of_visit = parts.remove(&visit).unwrap_or_default();
        of_visit.sort_by_key(|part| part.begin_ns);
        for part in of_visit {
            profile.samples.push(frames.stack(input, &name, &part));
            profile.weights.push(part.weight);
            profile.end_value += part.weight;
        }
    }
    let file = File {
        schema: SCHEMA,
        name: &input.note,
        exporter: format!("pebs-trace {}", env!("CARGO_PKG_VERSION")),
        shared: Shared { frames: frames.all },
        profiles: probes.into_values().collect(),
    };
    serde_json::to_writer(&mut *out, &file).map_err(std::io::Error::from)?;
    Ok(())
}

fn parts(input: &Input<'_>) -> Result<FxHashMap<u64, Vec<Part>>, ExportError> {
    let mut parts: FxHashMap<u64, Vec<Part>> = FxHashMap::default();
    let set = &input.chosen.visits;
    let shares = Shares::read(input.trace, set, input.weight.event(), |sample| {
        (sample.visit_id, sample.function)
    })?;
    load::functions(input.trace, set, |row| {
        if let Some(weight) = input.weight.get(&row) {
            let of_visit = parts.entry(row.visit_id).or_default();
            let shares = shares.split(&(row.visit_id, row.function_id.0), row.samples, weight);
            of_visit.extend(shares.into_iter().map(|share| Part {
                begin_ns: row.first_ns.0,
                function: Some(row.function_id.0),
                stack: share.stack,
                state: None,
                weight: share.weight,
            }));
        }
    })?;
    if input.weight.is_time() {
        load::waits(input.trace, set, |wait| {
            parts.entry(wait.visit_id).or_default().push(Part {
                begin_ns: wait.begin_ns,
                function: wait.function,
                stack: wait.stack,
                weight: wait.ns() as f64,
                state: Some(wait.state),
            });
        })?;
    }
    Ok(parts)
}

/// Frames by number.
#[derive(Default)]
struct Frames {
    all: Vec<Frame>,
    numbers: FxHashMap<Frame, usize>,
}

impl Frames {
    fn stack(&mut self, input: &Input<'_>, probe: &str, part: &Part) -> Vec<usize> {
        let plain = |name| Frame {
            name,
            file: None,
            line: None,
        };
        let mut numbers = vec![self.number(plain(probe.to_owned()))];
        let path = match part.state {
            None => input.stacks.path(part.stack, part.function),
            Some(_) => input.stacks.wait_path(part.stack, part.function),
        };
        for function in path {
            let place = function.and_then(|id| input.functions.get(id));
            numbers.push(self.number(Frame {
                name: input.name(function),
                file: place.and_then(|place| place.file.clone()),
                line: place.and_then(|place| place.line),
            }));
        }
        if let Some(state) = &part.state {
            numbers.push(self.number(plain(format!("[{state}]"))));
        }
        numbers
    }

    fn number(&mut self, frame: Frame) -> usize {
        if let Some(number) = self.numbers.get(&frame) {
            return *number;
        }
        self.numbers.insert(frame.clone(), self.all.len());
        self.all.push(frame);
        self.all.len() - 1
    }
}
