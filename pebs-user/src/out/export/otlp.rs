//! JSON of OpenTelemetry's protocol, for collectors, Jaeger and Tempo: an item is a trace, each of its visits a span, and
//! each wait a span within. An item with an argument whose text holds a W3C `traceparent` is part of the trace that it
//! names, below the caller's span.
//!
//! Weight: [`Weight::words`](crate::compare::load::Weight::words), as attributes `function.NAME` of the visit's span. Visits whose end
//! is not known are no spans. Times are those of the wall clock; of an imported recording without it, since ns 0 of the trace.
//! Sources: opentelemetry-proto, trace/v1/trace.proto; its JSON has ids in hexadecimal and 64-bit numbers as text. W3C Trace
//! Context, section 3.2 (<https://www.w3.org/TR/trace-context/#traceparent-header>).

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Input;
use crate::compare::load::{self, Visit, arg_text};
use crate::compare::names::file_name;
use crate::compare::select::VisitSet;
use crate::compare::select::error::ExportError;
use crate::rng::mix;
use crate::store::reader::ReadError;
use crate::store::schema::ArgValue;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    resource_spans: Vec<ResourceSpans>,
}

/// Spans of a process.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: [ScopeSpans; 1],
}

#[derive(Serialize)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    parent_span_id: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
}

#[derive(Serialize)]
struct Attribute {
    key: String,
    value: Value,
}

/// `AnyValue`.
#[derive(Serialize)]
enum Value {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "doubleValue")]
    Real(f64),
}

impl Attribute {
    fn text(key: &str, value: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            value: Value::Text(value.into()),
        }
    }

    fn number(key: &str, value: impl ToString) -> Self {
        Self {
            key: key.to_owned(),
            value: Value::Number(value.to_string()),
        }
    }
}

/// Writes the spans, process after process.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let set = &input.chosen.visits;
    let mut functions: FxHashMap<u64, Vec<Attribute>> = FxHashMap::default();
    load::functions(input.trace, set, |row| {
        if let Some(weight) = input.weight.get(&row) {
            functions.entry(row.visit_id).or_default().push(Attribute {
                key: format!("function.{}", input.functions.label(row.function_id.0)),
                value: Value::Real(weight),
            });
        }
    })?;
    let callers = callers(input, set)?;
    let mut processes: BTreeMap<u32, ResourceSpans> = BTreeMap::new();
    let mut places: FxHashMap<u64, (u32, usize)> = FxHashMap::default();
    load::visits(input.trace, set, |visit| {
        let Some(end) = visit.end_ns else { return };
        let process = processes.entry(visit.pid.0);
        let process = process.or_insert_with(|| of_process(input, &visit));
        let spans = &mut process.scope_spans[0].spans;
        places.insert(visit.visit_id, (visit.pid.0, spans.len()));
        let caller = callers.get(&(visit.pid.0, visit.item_id));
        let mut attributes = of_visit(input, &visit);
        attributes.extend(functions.remove(&visit.visit_id).unwrap_or_default());
        spans.push(Span {
            trace_id: caller.map_or_else(|| trace_id(input, &visit), |it| it.trace_id.clone()),
            span_id: span_id(input, [visit.visit_id, 0]),
            parent_span_id: caller.map_or_else(String::new, |it| it.span_id.clone()),
            name: input.probes.label(visit.probe_id.0),
            kind: INTERNAL,
            start_time_unix_nano: at(input, visit.begin_ns.0),
            end_time_unix_nano: at(input, end.0),
            attributes,
        });
    })?;
    let mut waits = 0;
    load::waits(input.trace, set, |wait| {
        let Some((pid, place)) = places.get(&wait.visit_id) else {
            return;
        };
        let Some(process) = processes.get_mut(pid) else {
            return;
        };
        let spans = &mut process.scope_spans[0].spans;
        let mut attributes = vec![Attribute::text("function", input.name(wait.function))];
        attributes.extend(wait.by.map(|by| Attribute::text("by", by.to_string())));
        waits += 1;
        spans.push(Span {
            trace_id: spans[*place].trace_id.clone(),
            span_id: span_id(input, [wait.visit_id, waits]),
            parent_span_id: spans[*place].span_id.clone(),
            name: wait.state,
            kind: INTERNAL,
            start_time_unix_nano: at(input, wait.begin_ns),
            end_time_unix_nano: at(input, wait.end_ns),
            attributes,
        });
    })?;
    let file = File {
        resource_spans: processes.into_values().collect(),
    };
    serde_json::to_writer(&mut *out, &file).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// A process as the service that OpenTelemetry has it for: by the file that has the probe of its first visit.
fn of_process(input: &Input<'_>, visit: &Visit) -> ResourceSpans {
    let info = &input.trace.info;
    let probe = info.probes.iter().find(|it| it.id == visit.probe_id);
    let path = probe
        .and_then(|it| it.sites.first())
        .map(|it| it.path.as_str());
    let label = input.probes.label(visit.probe_id.0);
    let service = path.map_or_else(|| label.split(':').next().unwrap_or(&label), file_name);
    ResourceSpans {
        resource: Resource {
            attributes: vec![
                Attribute::text("service.name", service),
                Attribute::number("process.pid", visit.pid.0),
                Attribute::text("host.name", &*info.host.name),
            ],
        },
        scope_spans: [ScopeSpans {
            scope: Scope {
                name: "pebs-trace",
                version: env!("CARGO_PKG_VERSION"),
            },
            spans: Vec::new(),
        }],
    }
}

fn of_visit(input: &Input<'_>, visit: &Visit) -> Vec<Attribute> {
    let mut attributes = vec![
        Attribute::number("item_id", visit.item_id),
        Attribute::number("visit_id", visit.visit_id),
        Attribute::number("thread.id", visit.tid.0),
        Attribute::number("samples", visit.samples),
    ];
    attributes.extend(visit.net_ns.map(|ns| Attribute::number("net_ns", ns)));
    attributes.extend(visit.oncpu_ns.map(|ns| Attribute::number("oncpu_ns", ns)));
    if visit.flags != 0 {
        attributes.push(Attribute::text("flags", visit.flag_names()));
    }
    let args = visit.known_args(&input.trace.info.columns);
    attributes.extend(args.map(|(name, value)| {
        let key = format!("args.{name}");
        match value {
            ArgValue::Str(text) => Attribute::text(&key, &**text),
            // Beyond 63 bits a number is text.
            ArgValue::U64(number) if i64::try_from(*number).is_err() => {
                Attribute::text(&key, arg_text(value))
            }
            ArgValue::U64(_) | ArgValue::I64(_) => Attribute::number(&key, arg_text(value)),
        }
    }));
    attributes
}

/// The span of a caller, from another process.
#[derive(Debug, PartialEq, Eq)]
struct Caller {
    trace_id: String,
    span_id: String,
}

impl Caller {
    /// The first `traceparent` in a text: `00-TRACE-SPAN-FLAGS`, of 2, 32, 16 and 2 digits.
    fn of(text: &str) -> Option<Self> {
        const LENGTHS: [usize; 4] = [2, 32, 16, 2];
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
        text.split(|c| !is_part(c)).find_map(|word| {
            let mut parts = word.split('-');
            let [version, trace_id, span_id, flags] = LENGTHS.map(|length| {
                let is_digit = |c| matches!(c, b'0'..=b'9' | b'a'..=b'f');
                let part = parts.next().filter(|it| it.len() == length);
                part.filter(|it| it.bytes().all(is_digit))
            });
            let is_set = |id: &&str| id.bytes().any(|it| it != b'0');
            flags?;
            // A later version may have more parts.
            version.filter(|it| *it != "ff" && (*it != "00" || parts.next().is_none()))?;
            Some(Self {
                trace_id: trace_id.filter(is_set)?.to_owned(),
                span_id: span_id.filter(is_set)?.to_owned(),
            })
        })
    }
}

/// Callers of items, by process and item.
fn callers(input: &Input<'_>, set: &VisitSet) -> Result<FxHashMap<(u32, u64), Caller>, ReadError> {
    let mut callers = FxHashMap::default();
    load::visits(input.trace, set, |visit| {
        let texts = visit.args.iter().filter_map(|it| match it {
            Some(ArgValue::Str(text)) => Caller::of(text),
            _ => None,
        });
        for caller in texts {
            callers
                .entry((visit.pid.0, visit.item_id))
                .or_insert(caller);
        }
    })?;
    Ok(callers)
}

/// Id of a span, unique among recordings as far as 64 bits can be, as other services have spans in the same trace; never 0,
/// which is invalid.
fn span_id(input: &Input<'_>, numbers: [u64; 2]) -> String {
    let info = &input.trace.info;
    let host = info.host.name.bytes();
    let seed = host.fold(
        info.wall_clock_ns as u64,
        |sum, it| mix(sum ^ u64::from(it)),
    );
    let id = numbers.iter().fold(seed, |sum, it| mix(sum ^ it));
    format!("{:016x}", id.max(1))
}

/// Id of the item, unique among processes and runs; never 0, which is invalid.
fn trace_id(input: &Input<'_>, visit: &Visit) -> String {
    // About a ms, within 50 days.
    let run = (input.trace.info.wall_clock_ns >> 20) as u32 | 1;
    format!("{run:08x}{:08x}{:016x}", visit.pid.0, visit.item_id)
}

/// A time of the trace, ns since 1970.
fn at(input: &Input<'_>, ns: i64) -> String {
    let time = input.trace.info.wall_clock_ns.saturating_add(ns);
    time.max(0).to_string()
}

#[cfg(test)]
mod tests {
    use super::Caller;

    /// A `traceparent` is found alone and in a request's text; what is none is not taken for one.
    #[test]
    fn callers() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        const SPAN: &str = "00f067aa0ba902b7";
        let of = |text: &str| Caller::of(text).map(|it| (it.trace_id, it.span_id));
        let known = Some((TRACE.to_owned(), SPAN.to_owned()));
        let plain = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!(of(&plain), known);
        let request = format!("GET /a HTTP/1.1\r\ntraceparent: {plain}\r\nHost: a");
        assert_eq!(of(&request), known);
        assert_eq!(of(&format!("cc-{TRACE}-{SPAN}-01-what-follows")), known);
        assert_eq!(of(&format!("cc-{TRACE}-{SPAN}-01-ab")), known);
        let zero = "0".repeat(32);
        for wrong in [
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-ab"),
            format!("00-{zero}-{SPAN}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}"),
            format!("a00-{TRACE}-{SPAN}-01"),
            String::new(),
        ] {
            assert_eq!(of(&wrong), None, "{wrong}");
        }
    }
}
