//! Gzipped protobuf for `go tool pprof`: a sample for each function and each wait of each visit.
//!
//! Values of a sample: `samples` (count), `self` (ns, or events where the event is not a clock), `wait`
//! (ns). Labels: `item`, `visit`, `duration`, `flags`, and every argument by its name; so `-tagfocus
//! key=...` shows one item. Streamed: only names and the visits are held. Source: pprof's
//! proto/profile.proto.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use rustc_hash::FxHashMap;

use super::Input;
use super::stacks::Shares;
use crate::compare::load;
use crate::compare::load::Visit;
use crate::compare::select::error::ExportError;
use crate::store::schema::ArgValue;

/// Numbers of `Profile`'s fields.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// Writes the profile.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut writer = Writer {
        out: GzEncoder::new(out, Compression::default()),
        strings: Strings::default(),
        functions: FxHashMap::default(),
        buffer: Vec::new(),
    };
    writer.strings.number("");
    writer.header(input)?;
    writer.samples(input)?;
    writer.strings()?;
    writer.out.finish()?;
    Ok(())
}

struct Writer<'a> {
    out: GzEncoder<&'a mut dyn Write>,
    strings: Strings,
    /// Locations, each of one function with the same number, by name and, of a function of the
    /// trace, its id.
    functions: FxHashMap<(String, Option<u32>), u64>,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    fn header(&mut self, input: &Input<'_>) -> Result<(), ExportError> {
        let unit = if input.weight.is_time() {
            "nanoseconds"
        } else {
            "count"
        };
        for (r#type, unit) in [
            ("samples", "count"),
            ("self", unit),
            ("wait", "nanoseconds"),
        ] {
            let (r#type, unit) = (self.strings.number(r#type), self.strings.number(unit));
            self.message(field::SAMPLE_TYPE, &ValueType { r#type, unit })?;
        }
        let (comment, default) = (
            self.strings.number(&input.note),
            self.strings.number("self"),
        );
        let info = &input.trace.info;
        for (field, number) in [
            (field::TIME_NANOS, info.wall_clock_ns),
            (field::DURATION_NANOS, info.duration_ns.unwrap_or(0)),
            (field::COMMENT, comment),
            (field::DEFAULT_SAMPLE_TYPE, default),
        ] {
            self.buffer.clear();
            prost::encoding::int64::encode(field, &number, &mut self.buffer);
            self.out.write_all(&self.buffer)?;
        }
        Ok(())
    }

    fn samples(&mut self, input: &Input<'_>) -> Result<(), ExportError> {
        let mut visits = FxHashMap::default();
        load::visits(input.trace, &input.chosen.visits, |visit| {
            visits.insert(visit.visit_id, visit);
        })?;
        let set = &input.chosen.visits;
        let shares = Shares::read(input.trace, set, input.weight.event(), |sample| {
            (sample.visit_id, sample.function)
        })?;
        let mut result = Ok(());
        load::functions(input.trace, set, |row| {
            let Some(weight) = input.weight.get(&row) else {
                return;
            };
            let visit = &visits[&row.visit_id];
            for share in shares.split(&(row.visit_id, row.function_id.0), row.samples, weight) {
                let value = vec![i64::from(share.samples), share.weight.round() as i64, 0];
                let path = input.stacks.path(share.stack, Some(row.function_id.0));
                if result.is_ok() {
                    result = self.sample(input, visit, &path, None, value);
                }
            }
        })?;
        result?;
        let mut result = Ok(());
        load::waits(input.trace, &input.chosen.visits, |wait| {
            if result.is_ok() {
                let visit = &visits[&wait.visit_id];
                let state = format!("[{}]", wait.state);
                let value = vec![0, 0, wait.ns()];
                let path = input.stacks.wait_path(wait.stack, wait.function);
                result = self.sample(input, visit, &path, Some(&state), value);
            }
        })?;
        result
    }

    fn sample(
        &mut self,
        input: &Input<'_>,
        visit: &Visit,
        path: &[Option<u32>],
        state: Option<&str>,
        value: Vec<i64>,
    ) -> Result<(), ExportError> {
        let probe = input.probes.label(visit.probe_id.0);
        let mut location_id = vec![self.location(input, &probe, None)?];
        for function in path {
            location_id.push(self.location(input, &input.name(*function), *function)?);
        }
        if let Some(state) = state {
            location_id.push(self.location(input, state, None)?);
        }
        // The innermost comes first.
        location_id.reverse();
        let label = self.labels(input, visit);
        let sample = Sample {
            location_id,
            value,
            label,
        };
        self.message(field::SAMPLE, &sample)
    }

    fn labels(&mut self, input: &Input<'_>, visit: &Visit) -> Vec<Label> {
        let mut labels = vec![
            self.text_label("item", &visit.item_id.to_string()),
            self.text_label("visit", &visit.visit_id.to_string()),
        ];
        if let Some(duration) = visit.duration_ns {
            labels.push(Label {
                key: self.strings.number("duration"),
                num: duration,
                num_unit: self.strings.number("nanoseconds"),
                ..Label::default()
            });
        }
        if visit.flags != 0 {
            labels.push(self.text_label("flags", &visit.flag_names()));
        }
        for (name, value) in visit.known_args(&input.trace.info.columns) {
            labels.push(match value {
                ArgValue::I64(number) => Label {
                    key: self.strings.number(name),
                    num: *number,
                    ..Label::default()
                },
                // A label's number has a sign: a larger one is text.
                ArgValue::U64(number) => match i64::try_from(*number) {
                    Ok(num) => Label {
                        key: self.strings.number(name),
                        num,
                        ..Label::default()
                    },
                    Err(_) => self.text_label(name, &number.to_string()),
                },
                ArgValue::Str(text) => self.text_label(name, text),
            });
        }
        labels
    }

    fn text_label(&mut self, key: &str, text: &str) -> Label {
        Label {
            key: self.strings.number(key),
            str: self.strings.number(text),
            ..Label::default()
        }
    }

    fn location(
        &mut self,
        input: &Input<'_>,
        name: &str,
        function: Option<u32>,
    ) -> Result<u64, ExportError> {
        let key = (name.to_owned(), function);
        if let Some(id) = self.functions.get(&key) {
            return Ok(*id);
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(key, id);
        let place = function.and_then(|id| input.functions.get(id));
        let line = place.and_then(|place| place.line).map_or(0, i64::from);
        let file = place.and_then(|place| place.file.as_ref().or(place.module.as_ref()));
        let name = self.strings.number(name);
        let function = Function {
            id,
            name,
            system_name: name,
            filename: file.map_or(0, |file| self.strings.number(file)),
            start_line: line,
        };
        self.message(field::FUNCTION, &function)?;
        let line = vec![Line {
            function_id: id,
            line,
        }];
        self.message(field::LOCATION, &Location { id, line })?;
        Ok(id)
    }

    fn strings(&mut self) -> Result<(), ExportError> {
        for text in &self.strings.all {
            self.buffer.clear();
            encode_key(
                field::STRING_TABLE,
                WireType::LengthDelimited,
                &mut self.buffer,
            );
            encode_varint(text.len() as u64, &mut self.buffer);
            self.buffer.extend_from_slice(text.as_bytes());
            self.out.write_all(&self.buffer)?;
        }
        Ok(())
    }

    fn message(&mut self, field: u32, message: &impl Message) -> Result<(), ExportError> {
        self.buffer.clear();
        encode_key(field, WireType::LengthDelimited, &mut self.buffer);
        // A vector grows as needed.
        let _ = message.encode_length_delimited(&mut self.buffer);
        Ok(self.out.write_all(&self.buffer)?)
    }
}

/// The string table.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    numbers: FxHashMap<String, i64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as i64;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }
}
