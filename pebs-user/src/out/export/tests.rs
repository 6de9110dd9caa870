//! Every format of a small trace, against golden text: `BLESS=1 cargo test -p pebs-trace export` rewrites
//! it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::{env, fs};

use clap::ValueEnum as _;
use proptest::prelude::*;
use prost::Message;

use super::perfetto::proto;
use super::{Format, export};
use crate::compare::losses::LossVisits;
use crate::compare::select::Selection;
use crate::compare::select::error::ExportError;
use crate::compare::testing::{self, small};
use crate::failure::Hint as _;
use crate::store::fixtures::{self, Did, Maker};
use crate::store::schema::Table;

fn exported(format: Format, selection: Selection) -> (Vec<u8>, String) {
    let trace = small();
    let mut out = Vec::new();
    let note = export(&trace, format, (selection, LossVisits::LeaveOut), &mut out).unwrap();
    (out, note)
}

fn text(format: Format, selection: Selection) -> String {
    String::from_utf8(exported(format, selection).0).unwrap()
}

fn slow(rule: &str) -> Selection {
    Selection::Slow(rule.parse().unwrap())
}

/// The output must be this file's.
#[track_caller]
fn golden(name: &str, got: &str) {
    crate::out::testing::golden("export", name, got);
}

/// A row a function, one for a visit without; text with separators is quoted, the unknown is empty.
#[test]
fn csv() {
    golden("small.csv", &text(Format::Csv, Selection::All));
}

/// Weights of visits that are whole add up to their durations.
#[test]
fn folded() {
    let folded = text(Format::Folded, Selection::All);
    let weights = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    let sum: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 50_000 + 200_000 + 55_000 + 56_000);
    golden("small.folded", &folded);
}

/// The frames and their colours: of all visits, and of slow ones against typical ones.
#[test]
fn flamegraph() {
    let frames = |svg: &str| {
        let mut frames = String::new();
        for group in svg.split("<g>").skip(1) {
            let title = group.split("<title>").nth(1).unwrap();
            let title = title.split("</title>").next().unwrap();
            let fill = group.split("fill=\"").nth(1).unwrap();
            let _ = writeln!(frames, "{title} {}", fill.split('"').next().unwrap());
        }
        frames
    };
    let all = text(Format::Flamegraph, Selection::All);
    assert!(all.contains("weight: self_ns"), "no weight in the picture");
    assert!(!all.contains(testing::HOSTILE));
    let all: Vec<String> = frames(&all)
        .lines()
        // Without a difference, colours are random.
        .map(|line| line.split(" rgb").next().unwrap().to_owned())
        .collect();
    golden("small.flamegraph.txt", &(all.join("\n") + "\n"));
    let slow = text(Format::Flamegraph, slow("52us"));
    golden("small.slow.flamegraph.txt", &frames(&slow));
}

/// A profile a probe, weights in order of time.
#[test]
fn speedscope() {
    let text = text(Format::Speedscope, Selection::All);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    let pretty = pretty.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    golden("small.speedscope.json", &(pretty + "\n"));
}

/// An item is a trace of its visits; each wait is within its visit, and those without an end are left out.
#[test]
fn otlp() {
    let text = text(Format::Otlp, Selection::All);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
    let spans = spans.unwrap();
    let is_of = |it: &serde_json::Value, visit: &str| {
        let attributes = it["attributes"].as_array().unwrap();
        let id = attributes.iter().find(|it| it["key"] == "visit_id");
        id.is_some_and(|it| it["value"]["intValue"] == visit)
    };
    let of = |visit: &str| spans.iter().find(|it| is_of(it, visit)).unwrap();
    let (recv, work) = (of("1"), of("2"));
    assert_eq!(recv["traceId"], work["traceId"], "item 7");
    let wait = spans.iter().find(|it| it["parentSpanId"] == work["spanId"]);
    assert_eq!(wait.unwrap()["traceId"], work["traceId"]);
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    let pretty = pretty.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    golden("small.otlp.json", &(pretty + "\n"));
}

/// Time off the CPU is under the call stack that blocked, in every format that has stacks of waits.
#[test]
fn stacks_of_waits() {
    let mut maker = Maker::new(fixtures::info(&["/opt/app:handle"]));
    maker.extras = true;
    let did = [Did::Ran(1, 50_000), Did::Waited(4, "sleeping", 70_000)];
    maker.visit(&fixtures::VisitFixture::new(0, "", &did));
    let names = [
        (1, "parse", "/opt/app"),
        (3, "schedule", "[kernel]"),
        (4, "fsync", "/lib/libc.so"),
    ];
    let trace = maker.finish(&names);
    let text = |format| {
        let mut out = Vec::new();
        export(
            &trace,
            format,
            (Selection::All, LossVisits::LeaveOut),
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    };
    let folded = text(Format::Folded);
    let line = "app:handle;parse;fsync;schedule_[k];[sleeping] 70000";
    assert!(folded.lines().any(|it| it == line), "{folded}");
    assert!(text(Format::Flamegraph).contains("<title>[sleeping] (70,000 ns"));
    let json = |format| -> serde_json::Value { serde_json::from_str(&text(format)).unwrap() };
    let speedscope = json(Format::Speedscope);
    let frames = &speedscope["shared"]["frames"];
    let profile = &speedscope["profiles"][0];
    let wait = profile["samples"].as_array().unwrap().last().unwrap();
    let names = wait.as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|at| frames[at.as_u64().unwrap() as usize]["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["app:handle", "parse", "fsync", "schedule", "[sleeping]"]
    );
    let firefox = json(Format::Firefox);
    let marker = &firefox["threads"][0]["markers"]["data"];
    let causes: Vec<_> = marker
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["cause"].is_object())
        .collect();
    assert_eq!(causes, [false, true], "{marker}");
}

/// Items and waits are markers with searchable fields; samples are on their threads.
#[test]
fn firefox() {
    let text = text(Format::Firefox, Selection::All);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut shown = String::new();
    let _ = writeln!(shown, "{}", json["meta"]["product"]);
    let _ = writeln!(shown, "{:#}", json["meta"]["markerSchema"]);
    for thread in json["threads"].as_array().unwrap() {
        let _ = writeln!(shown, "{} {}", thread["pid"], thread["tid"]);
        for part in ["markers", "samples", "stackTable", "stringArray"] {
            let _ = writeln!(shown, "{part} {}", thread[part]);
        }
    }
    golden("small.firefox.txt", &shown);
}

/// Slices nest on their tracks, arrows go from stage to stage, samples name function and probe.
#[test]
fn perfetto() {
    let (bytes, _) = exported(Format::Perfetto, Selection::All);
    let trace = proto::Trace::decode(bytes.as_slice()).unwrap();
    golden("small.perfetto.txt", &show_perfetto(&trace));
    let (bytes, _) = exported(Format::Perfetto, Selection::Item(7));
    let trace = proto::Trace::decode(bytes.as_slice()).unwrap();
    let begins = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref());
    let flows: Vec<(usize, usize)> = begins
        .filter(|event| event.categories == ["item"])
        .map(|event| (event.flow_ids.len(), event.terminating_flow_ids.len()))
        .collect();
    assert_eq!(flows, [(1, 0), (0, 1)]);
}

fn show_perfetto(trace: &proto::Trace) -> String {
    let mut shown = String::new();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut stacks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for packet in &trace.packet {
        if let Some(data) = &packet.interned_data {
            for name in &data.function_names {
                let text = String::from_utf8(name.str.clone().unwrap()).unwrap();
                names.insert(name.iid.unwrap(), text);
            }
            for stack in &data.callstacks {
                stacks.insert(stack.iid.unwrap(), stack.frame_ids.clone());
            }
        }
        if let Some(track) = &packet.track_descriptor {
            let proto::TrackDescriptor {
                uuid,
                name,
                process,
                thread,
                parent_uuid,
            } = track;
            let _ = writeln!(
                shown,
                "track {uuid:?} {name:?} {process:?} {thread:?} in {parent_uuid:?}"
            );
        }
        let time = packet.timestamp.unwrap_or(0);
        if let Some(event) = &packet.track_event {
            let track = event.track_uuid.unwrap();
            let name = event.name.as_deref().unwrap_or("");
            let _ = write!(
                shown,
                "{time} track {track} {:?} {name}",
                event.r#type.unwrap()
            );
            for note in &event.debug_annotations {
                let name = note.name.as_deref().unwrap();
                let number = note.uint_value.map(|it| it.to_string());
                let number = number.or(note.int_value.map(|it| it.to_string()));
                let value = number.or(note.string_value.clone()).unwrap();
                let _ = write!(shown, " {name}={value:?}");
            }
            let _ = writeln!(
                shown,
                " {:?} {:?}",
                event.flow_ids, event.terminating_flow_ids
            );
        }
        if let Some(sample) = &packet.perf_sample {
            let stack = stacks[&sample.callstack_iid.unwrap()].iter();
            let stack: Vec<&str> = stack.map(|frame| names[frame].as_str()).collect();
            let _ = writeln!(
                shown,
                "{time} sample tid {} mode {} {stack:?}",
                sample.tid.unwrap(),
                sample.cpu_mode.unwrap()
            );
        }
    }
    shown
}

/// `Profile`, limited to the fields written.
#[derive(Clone, PartialEq, Message)]
struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<super::pprof::ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<super::pprof::Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<super::pprof::Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<super::pprof::Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "13")]
    comment: i64,
}

/// Values, stacks and labels, by their names.
#[test]
fn pprof() {
    let (bytes, note) = exported(Format::Pprof, Selection::All);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice())
        .read_to_end(&mut plain)
        .unwrap();
    let profile = PprofProfile::decode(plain.as_slice()).unwrap();
    let text = |number: i64| profile.string_table[number as usize].as_str();
    assert_eq!((text(0), text(profile.comment)), ("", note.as_str()));
    let mut shown = String::new();
    for kind in &profile.sample_type {
        let _ = writeln!(shown, "{} in {}", text(kind.r#type), text(kind.unit));
    }
    for sample in &profile.sample {
        let frame = |id: &u64| {
            let location = profile.location.iter().find(|it| it.id == *id).unwrap();
            let function = location.line[0].function_id;
            let function = profile
                .function
                .iter()
                .find(|it| it.id == function)
                .unwrap();
            format!(
                "{} ({}:{})",
                text(function.name),
                text(function.filename),
                function.start_line
            )
        };
        let stack: Vec<String> = sample.location_id.iter().map(frame).collect();
        let _ = write!(shown, "{:?} {stack:?}", sample.value);
        for label in &sample.label {
            let value = if label.str != 0 {
                format!("{:?}", text(label.str))
            } else {
                label.num.to_string()
            };
            let _ = write!(
                shown,
                " {}={value}{}",
                text(label.key),
                text(label.num_unit)
            );
        }
        shown.push('\n');
    }
    golden("small.pprof.txt", &shown);
}

/// The note counts the visits chosen and left out.
#[test]
fn notes() {
    let note = exported(Format::Folded, Selection::All).1;
    assert_eq!(
        note,
        "4 of 6 visits; weight: self_ns, estimated CPU time in ns from samples of cpu-clock, and time of \
         waits; 1 visits left out as they overlap a loss (--all takes them); 1 visits left out as their \
         end is unknown"
    );
    let note = exported(Format::Perfetto, slow("60us")).1;
    assert_eq!(
        note,
        "1 of 6 visits (slow: 60us); weight: one for each sample of cpu-clock"
    );
    let note = exported(Format::Csv, Selection::Item(11)).1;
    assert!(note.starts_with("1 of 6 visits (item 11); "), "{note}");
}

/// A request that can't be exported is an error with a hint.
#[test]
fn refusals() {
    let trace = small();
    let error = |selection| {
        let asked = (selection, LossVisits::LeaveOut);
        let error: ExportError =
            export(&trace, Format::Folded, asked, &mut Vec::new()).unwrap_err();
        (error.to_string(), error.hint().unwrap())
    };
    let at = trace.dir.display();
    let (message, hint) = error(Selection::Item(4_711));
    assert_eq!(message, format!("no item 4711 in trace {at}"));
    assert_eq!(hint, "the slowest items are 7, 9, 8");
    let (message, _) = error(slow("1s"));
    let reason = "none is by 1s, the longest took 199 us";
    assert_eq!(message, format!("no slow visits in trace {at}: {reason}"));
    // The end of item 12 is unknown.
    let (message, _) = error(Selection::Item(12));
    assert!(message.starts_with("nothing to export"), "{message}");
    let empty = testing::finish(testing::maker());
    for format in [Format::Csv, Format::Perfetto, Format::Flamegraph] {
        let asked = (Selection::All, LossVisits::LeaveOut);
        let error = export(&empty, format, asked, &mut Vec::new()).unwrap_err();
        assert!(
            error.to_string().starts_with("no visits in trace"),
            "{error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A damaged trace ends in an error or in output, in every format, never in a panic.
    #[test]
    fn turned_bytes(
        table in 0..Table::ALL.len(),
        places in prop::collection::vec((0.0..1.0, 1_u8..), 1..4),
    ) {
        let trace = small();
        for segment in trace.segments(Table::ALL[table]) {
            let mut bytes = fs::read(segment).unwrap();
            for (place, turn) in &places {
                let place = (bytes.len() as f64 * place) as usize;
                bytes[place] ^= turn;
            }
            fs::write(segment, &bytes).unwrap();
        }
        for format in Format::value_variants() {
            let asked = (Selection::All, LossVisits::Include);
            let _ = export(&trace, *format, asked, &mut Vec::new());
        }
        let nothing = String::new();
        let _ = crate::out::html::write(&trace, None, LossVisits::Include, nothing, &mut Vec::new());
    }

    /// Any times and numbers within nine years, and references to missing rows.
    #[test]
    fn strange_rows(rows in testing::strange()) {
        let mut maker = testing::maker();
        for row in rows {
            testing::put_strange(&mut maker, row);
        }
        let trace = testing::finish(maker);
        for format in Format::value_variants() {
            for selection in [Selection::All, slow("p50")] {
                let asked = (selection, LossVisits::Include);
                let _ = export(&trace, *format, asked, &mut Vec::new());
            }
        }
    }
}
