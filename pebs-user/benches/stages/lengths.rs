//! Effect of a recording's length: cost per record and memory, from rings to closed files.
//!
//! Records are generated during the run, as the draining thread would deliver them; the cost includes the thread that
//! closes segments, but not the generation. Segments are closed by the trace's time, as in a recording.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pebs_user::pipeline::Keep;
use pebs_user::pipeline::synthetic;
use pebs_user::units::KtimeNs;

use crate::figures::cpu_time;
use crate::input::{first_batches, own_workload};
use crate::rows::{self, Scratch};
use crate::{cycle, pipeline, timed};

/// CPUs and threads.
const MACHINE: (u16, u32) = (8, 16);

/// Lengths in records, from the argument `lengths=1e6,1e8`; `None` without it.
pub fn asked() -> Option<Vec<usize>> {
    let asked = std::env::args().find_map(|it| it.strip_prefix("lengths=").map(str::to_owned))?;
    let lengths = asked
        .split(',')
        .map(|it| it.parse().map(|n: f64| n as usize));
    Some(
        lengths
            .collect::<Result<_, _>>()
            .expect("numbers of records"),
    )
}

/// Directory in which to keep the trace, from `trace=DIR`; `None` without it.
pub fn kept() -> Option<PathBuf> {
    std::env::args().find_map(|it| it.strip_prefix("trace=").map(PathBuf::from))
}

/// Measures each length and prints a table. A trace to keep needs a single length.
pub fn run(lengths: &[usize], kept: Option<&Path>) {
    println!(
        "{:>14} {:>12} {:>16} {:>12}",
        "records", "ns a record", "peak memory", "bytes each"
    );
    for &length in lengths {
        let figures = one(length, kept);
        println!(
            "{:>14} {:>12.1} {:>12.1} MiB {:>12.2}",
            figures.records,
            figures.cpu.as_nanos() as f64 / figures.records as f64,
            figures.peak_kib as f64 / 1024.0,
            figures.bytes as f64 / figures.records as f64,
        );
    }
}

struct Figures {
    records: usize,
    cpu: Duration,
    peak_kib: u64,
    bytes: u64,
}

fn one(length: usize, kept: Option<&Path>) -> Figures {
    let workload = own_workload(MACHINE.0, MACHINE.1, length);
    let scratch = Scratch::new();
    let writer = kept.map_or_else(|| scratch.writer(false), rows::kept);
    let mut pipeline = pipeline(writer, Keep::All, false);
    for batch in first_batches(&workload) {
        pipeline.cycle(&mut cycle(batch));
    }
    forget_peak();
    let begin = cpu_time();
    let (mut making, mut records, mut end) = (Duration::ZERO, 0, workload.start);
    let mut batches = synthetic::stream(&workload);
    loop {
        let mut next = None;
        making += timed(|| next = batches.next());
        let Some(batch) = next else { break };
        let bytes: usize = batch.streams.iter().map(|(_, bytes)| bytes.len()).sum();
        // 8 bytes of frame and 32 of record.
        records += bytes / 40;
        end = batch.frontier;
        pipeline.cycle(&mut cycle(batch));
    }
    let outcome = pipeline.finish(KtimeNs(end.0));
    assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
    let bytes = outcome.writer.bytes_written();
    rows::finish(outcome.writer);
    Figures {
        records,
        cpu: (cpu_time() - begin).saturating_sub(making),
        peak_kib: peak_kib(),
        bytes,
    }
}

/// Resets the kernel's record of the largest resident size.
///
/// Source: Documentation/filesystems/proc.rst, `clear_refs`.
fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("this process's own file");
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this process's own file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|it| it.parse().ok()).expect("a peak")
}
