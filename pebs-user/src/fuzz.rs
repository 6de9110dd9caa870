//! Entry points of the fuzz targets in `pebs-user/fuzz`: one function for each reader of untrusted bytes.
//!
//! In normal tests the committed corpus and all past findings go through the same functions.
//!
//! Invariant: no target panics, hangs, or allocates without bound, whatever the bytes.

use std::path::Path;

use pebs_common::config::MAX_BATCH;

use crate::correlate::Batch;
use crate::failure::Hint as _;
use crate::perf::data::attr::Attr;
use crate::perf::record::RawRecord;
use crate::pmu::event::EventSpec;
use crate::probe::program::{self, Arguments};
use crate::probe::usdt;
use crate::spec::expr::{self, Type};
use crate::spec::{End, Spec};
use crate::stream::clock::Clock;
use crate::stream::decode::{Body, Unordered, decode};
use crate::stream::sideband;
use crate::units::{Cpu, KtimeNs};
use crate::{import, perf, probe, store, symbolize};

/// A reader of hostile bytes. It owns the folder: files left there are overwritten by the next call.
pub type Target = fn(&[u8], &Path);

/// Every reader, by the name of its fuzz target and of its corpus.
pub const TARGETS: [(&str, Target); 16] = [
    ("wire", wire),
    ("sideband", sideband),
    ("perf_records", perf_records),
    ("perf_data", perf_data),
    ("marks", marks),
    ("spec", spec),
    ("expr", expression),
    ("event", event),
    ("usdt", usdt_arguments),
    ("binary", binary),
    ("symbols", symbols),
    ("unwind", unwind),
    ("process_files", process_files),
    ("trace_info", trace_info),
    ("trace_reader", trace_reader),
    ("recover", recover),
];

/// A ring's content, as the kernel programs write it: no record is made twice or lost.
pub fn wire(data: &[u8], _: &Path) {
    let mut clock = Clock::new(KtimeNs(1000));
    let mut inbox = Unordered::default();
    let decoded = decode(Cpu(3), data, &mut clock, &mut inbox);
    let made = decoded.samples + decoded.marks + decoded.tasks - decoded.clocks;
    assert_eq!(
        made,
        (inbox.samples.len() + inbox.records.len()) as u64,
        "records that were counted came out"
    );
    let mut batch = Batch::default();
    for record in &inbox.records {
        if let Body::Mark { args, .. } = record.body {
            let bytes = inbox.payloads.get(args);
            batch.read(Type::Signed(4), args.valid, bytes);
            assert!(batch.ids.len() <= MAX_BATCH, "ids are bounded");
        }
    }
}

/// Records about processes, framed as in perf's ring: `struct perf_event_header`, then the body.
pub fn sideband(data: &[u8], _: &Path) {
    let mut spaces = symbolize::space::Spaces::new();
    let mut rest = data;
    while let Some((header, tail)) = rest.split_first_chunk::<8>() {
        let [k0, k1, k2, k3, m0, m1, s0, s1] = *header;
        let size = usize::from(u16::from_ne_bytes([s0, s1])).max(8) - 8;
        let (body, after) = tail.split_at(size.min(tail.len()));
        let event = sideband::decode(RawRecord {
            kind: u32::from_ne_bytes([k0, k1, k2, k3]),
            misc: u16::from_ne_bytes([m0, m1]),
            body,
        });
        if let Some(event) = event {
            symbolize::fuzz::follow(&mut spaces, event.what);
        }
        rest = after;
    }
}

/// Records of an event with any attr: the attr, then records framed as in perf's rings.
pub fn perf_records(data: &[u8], _: &Path) {
    const ATTR: usize = 112;
    let Some((attr, mut rest)) = data.split_at_checked(ATTR) else {
        return;
    };
    let Some(attr) = Attr::read(attr) else {
        return;
    };
    while let Some((header, tail)) = rest.split_first_chunk::<8>() {
        let [k0, k1, k2, k3, m0, m1, s0, s1] = *header;
        let size = usize::from(u16::from_ne_bytes([s0, s1])).max(8) - 8;
        let (body, after) = tail.split_at(size.min(tail.len()));
        let raw = RawRecord {
            kind: u32::from_ne_bytes([k0, k1, k2, k3]),
            misc: u16::from_ne_bytes([m0, m1]),
            body,
        };
        if let Ok(record) = perf::record::decode(&attr.layout, raw)
            && let Some(id) = attr.layout.id_of(raw.kind, raw.body)
        {
            assert!(record.id.id.is_some(), "{id} is found by reading all, too");
        }
        rest = after;
    }
}

/// A recording of `perf record`, made into a trace: every sample is in it or booked.
pub fn perf_data(data: &[u8], dir: &Path) {
    import::fuzz::import(data, dir);
}

/// A table of marks.
pub fn marks(data: &[u8], _: &Path) {
    match import::marks::parse(&String::from_utf8_lossy(data)) {
        Ok(marks) => assert!(marks.0.is_sorted_by_key(|mark| mark.time)),
        Err(error) => assert!(error.hint().is_some()),
    }
}

/// A SPEC as typed, and its expressions compiled for the places that they can be at.
pub fn spec(data: &[u8], _: &Path) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Spec::parse(text) {
        Ok(spec) => {
            let end = match &spec.end {
                End::At(end) => end.args.as_slice(),
                End::Return | End::Next => &[],
            };
            spec.begin
                .args
                .iter()
                .chain(end)
                .for_each(|arg| compile(&arg.expr));
            if let Some(ids) = &spec.begin.ids {
                let _ = program::compile_ids(ids, Arguments::SysV);
                compile(&ids.array);
                compile(&ids.count);
            }
        }
        Err(error) => assert!(error.to_string().contains('^'), "the fault is shown"),
    }
}

/// An EXPR alone.
pub fn expression(data: &[u8], _: &Path) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(parsed) = expr::parse(text, 0, text.len())
    {
        compile(&parsed);
    }
}

fn compile(expr: &expr::Expr) {
    for arguments in [
        Arguments::SysV,
        Arguments::Go,
        Arguments::Inside,
        Arguments::Return,
    ] {
        if let Ok(compiled) = program::compile(expr, arguments) {
            let _ = compiled.program(24, 8);
        }
    }
}

/// An EVENT as typed; one that parses is printed as it would be typed, and means the same then.
pub fn event(data: &[u8], _: &Path) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<EventSpec>() {
        Ok(event) => assert_eq!(event.to_string().parse(), Ok(event)),
        Err(error) => assert!(error.caret().contains('^'), "the fault is shown"),
    }
}

/// The arguments of a USDT note.
pub fn usdt_arguments(data: &[u8], _: &Path) {
    let _ = usdt::operands(&String::from_utf8_lossy(data));
}

/// A binary to be probed: symbols, unwind table, code, DWARF, notes.
pub fn binary(data: &[u8], _: &Path) {
    probe::fuzz::binary(data);
}

/// A binary that a traced process has mapped.
pub fn symbols(data: &[u8], _: &Path) {
    symbolize::fuzz::symbols(data);
}

/// An `.eh_frame` section alone, which is deeper in a binary than mutation gets.
pub fn unwind(data: &[u8], _: &Path) {
    symbolize::fuzz::unwind(data);
}

/// Text about a process: `/proc/PID/maps`, perf maps, mangled names.
pub fn process_files(data: &[u8], _: &Path) {
    symbolize::fuzz::process_files(data);
}

/// `trace.json`.
pub fn trace_info(data: &[u8], dir: &Path) {
    store::fuzz::info(data, dir);
}

/// A closed segment: a byte that chooses the table, then Parquet.
pub fn trace_reader(data: &[u8], dir: &Path) {
    store::fuzz::closed_segment(data, dir);
}

/// An open segment of a writer that died: a byte that chooses the table, then Parquet that
/// ends anywhere.
pub fn recover(data: &[u8], dir: &Path) {
    store::fuzz::open_segment(data, dir);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use pebs_common::record::{Kind, TaskKind};

    use super::*;

    fn inputs(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The rings in the corpus have every kind of record, and each record is decoded: none is of a kind that is gone.
    #[test]
    fn kinds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/wire");
        let (mut kinds, mut tasks) = (BTreeSet::new(), BTreeSet::new());
        for input in inputs(&corpus) {
            let bytes = std::fs::read(&input).unwrap();
            let mut clock = Clock::new(KtimeNs(1000));
            let decoded = decode(Cpu(3), &bytes, &mut clock, &mut Unordered::default());
            assert_eq!(decoded.malformed, 0, "{}", input.display());
            let mut rest = bytes.as_slice();
            while let Some((header, frames)) = rest.split_first_chunk::<8>() {
                let [s0, s1, s2, _, ..] = *header;
                let size = u32::from_ne_bytes([s0, s1, s2, 0]) as usize;
                match Kind::from_u8(frames[0] & 0xf).unwrap() {
                    Kind::Task => tasks.insert(frames[0] >> 4),
                    kind => kinds.insert(kind as u8),
                };
                rest = &frames[size.next_multiple_of(8)..];
            }
        }
        let known = |number: &u8| Kind::from_u8(*number).is_some_and(|it| it != Kind::Task);
        assert!(kinds.into_iter().eq((0..=u8::MAX).filter(known)));
        let known = |number: &u8| TaskKind::from_u8(*number).is_some();
        assert!(tasks.into_iter().eq((0..=u8::MAX).filter(known)));
    }

    /// Every committed input, including findings of earlier fuzzing, goes through its reader.
    #[test]
    fn corpus() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        let scratch = tempfile::tempdir().unwrap();
        for (name, target) in TARGETS {
            let inputs = inputs(&corpus.join(name));
            assert!(!inputs.is_empty(), "{name} has no corpus");
            for input in inputs {
                println!("{}", input.display());
                target(&std::fs::read(&input).unwrap(), scratch.path());
            }
        }
        assert_eq!(std::fs::read_dir(&corpus).unwrap().count(), TARGETS.len());
    }
}
