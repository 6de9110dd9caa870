//! Ring contents through decode, order, correlate and estimate, compared with golden text.
//!
//! Every `fixtures/NAME.in` is a script of ring contents (see `script.rs`), `fixtures/NAME.out` the expected output.
//! `PEBS_BLESS=1 cargo test -p pebs-trace --test replay` rewrites the golden texts: read the difference before you keep
//! it. A function is its address's bucket of 256 bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod printer;
mod script;

use std::path::{Path, PathBuf};

use pebs_user::correlate::{CorrelateOptions, Correlator};
use pebs_user::store::run::VisitRule;
use pebs_user::stream::clock::Clock;
use pebs_user::stream::decode::Interferences;
use pebs_user::stream::decode::decode;
use pebs_user::stream::order::Order;
use pebs_user::units::{Cpu, KtimeNs, TraceNs};

use printer::Printer;
use script::{ORIGIN, Script, Step};

/// Replays steps and returns the output as text. Panics if a record is unaccounted for.
fn replay(script: &Script) -> String {
    let mut clock = Clock::new(KtimeNs(ORIGIN));
    let by_id = script::probes()
        .probes
        .into_iter()
        .map(|p| p.rule == VisitRule::ById);
    let mut order = Order::new(&by_id.collect::<Vec<_>>());
    let options = CorrelateOptions {
        switches: true,
        other_waits: false,
        costly_events: u64::MAX,
        page_faults: true,
        interference: Interferences::default(),
        counters: 0,
        count_interval_ns: 0,
        ids_in_user_mode: false,
        max_samples: script.hold,
    };
    let mut correlator = Correlator::new(&script::probes(), options);
    let mut printer = Printer::new(script.brief);
    let mut end = TraceNs(0);
    let finish = Step {
        streams: Vec::new(),
        frontier: None,
    };
    for step in script.steps.iter().chain([&finish]) {
        for (cpu, bytes) in &step.streams {
            let decoded = decode(Cpu(*cpu), bytes, &mut clock, &mut order);
            printer.decoded(*cpu, &decoded);
        }
        let frontier = step.frontier.map_or(TraceNs(i64::MAX), TraceNs);
        let mut late = Vec::new();
        let mut ready = order.advance(frontier, |record| late.push(record));
        printer.count(&ready);
        end = ready.last().map_or(end, |last| last.max(end));
        correlator.advance(&mut ready, frontier, &mut printer);
        drop(ready);
        late.iter().for_each(|late| printer.late(late));
    }
    assert_eq!(order.waiting(), 0);
    correlator.finish(end, &mut printer);
    printer.finish()
}

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut scripts: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "in"))
        .collect();
    scripts.sort();
    scripts
}

/// Every script gives its golden text, independent of buffer addresses and time.
#[test]
fn golden() {
    let bless = std::env::var_os("PEBS_BLESS").is_some_and(|value| value == "1");
    let scripts = fixtures();
    assert!(scripts.len() >= 10, "{} scripts", scripts.len());
    let mut faults = Vec::new();
    for path in scripts {
        let script = script::parse(&std::fs::read_to_string(&path).unwrap());
        let (got, golden) = (replay(&script), path.with_extension("out"));
        if bless {
            std::fs::write(&golden, &got).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != got {
            faults.push(format!("{} differs; it gave\n{got}", golden.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The output does not depend on how often the rings are drained, unless a record comes behind a frontier.
#[test]
fn drains_do_not_matter() {
    // Only the order in which visits of different threads close, and so their numbers, may differ.
    let visits = |text: &str| -> Vec<String> {
        let mut blocks: Vec<String> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with("decoded")) {
            let words = line
                .strip_prefix("visit ")
                .and_then(|line| line.split_once(' '));
            let line = words.map_or(line, |(_number, rest)| rest);
            match blocks.last_mut() {
                Some(block) if line.starts_with(' ') => block.push_str(line),
                _ => blocks.push(line.to_owned()),
            }
        }
        blocks.sort();
        blocks
    };
    for path in fixtures() {
        let script = script::parse(&std::fs::read_to_string(&path).unwrap());
        let often = replay(&script);
        if !often.contains("late") {
            let once = replay(&script.in_one_drain());
            assert_eq!(visits(&often), visits(&once), "{}", path.display());
        }
    }
}
