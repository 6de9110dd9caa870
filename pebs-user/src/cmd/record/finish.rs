//! The end of a recording: the report, the summary, the exit code.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::args::RecordArgs;
use crate::cmd::report::{self, Format};
use crate::failure::Hint as _;
use crate::ledger::{CpuLedger, Ledger, Reason};
use crate::record::Recorded;
use crate::store::run::RunInfo;
use crate::terminal::say;

/// Removing probes from this many places takes seconds. Source: `uprobe_unregister_sync`, kernel/events/uprobes.c.
const MANY_PLACES: usize = 50;

/// Prints the report and remarks, without the notes that were printed, and returns the exit code.
pub(super) fn finish(args: &RecordArgs, noted: &[String], recorded: Recorded) -> ExitCode {
    // The trace is complete even if its report fails.
    let printed = report::print(&recorded.trace, args.format, noted);
    let unprinted = printed.err().filter(|error| !error.is_broken_pipe());
    if let Some(error) = &unprinted {
        say!("error: {error}");
        if let Some(hint) = error.hint() {
            say!("hint: {hint}");
        }
    }
    say!("recording ended: {}", recorded.ended_by);
    if let Some(status) = recorded.command {
        say!("command {status}");
    } else if let Some(pid) = recorded.command_that_goes_on() {
        say!("the command (process {}) goes on, without probes", pid.0);
    }
    for warning in &recorded.warnings {
        warn(&warning.text, &warning.hint);
    }
    for fault in &recorded.faults {
        say!("warning: {fault}: this is a bug");
    }
    if let Some(error) = &recorded.cut {
        say!("error: {error}: the trace holds only what was written before");
        if let Some(hint) = error.hint() {
            say!("hint: {hint}");
        }
    }
    let info = &recorded.info;
    let above = loss_is_above(args, info, recorded.ring_bytes);
    say_where(&recorded.trace, args.format);
    if let Some(copied) = info.copied.first() {
        warn(&format!("{copied}: the trace is not complete"), COPIED);
    }
    let died = !info.crashes.is_empty();
    let bad = died
        || !info.copied.is_empty()
        || above
        || unprinted.is_some()
        || recorded.cut.is_some()
        || !recorded.faults.is_empty();
    let places = recorded.places;
    if places >= MANY_PLACES {
        say!("removing the probes of {places} places: the kernel waits at each");
    }
    drop(recorded);
    ExitCode::from(u8::from(bad))
}

/// Hint for copied code.
const COPIED: &str = "to record all of it, run the program without huge pages for code \
    (node: without --use-largepages)";

fn warn(text: &str, hint: &str) {
    say!("warning: {text}");
    say!("hint: {hint}");
}

/// Prints the path of the trace: to stdout for text, else to stderr, to keep the data clean.
fn say_where(trace: &Path, format: Format) {
    let line = format!("trace: {}", trace.display());
    if format == Format::Text {
        // Ignored: the reader may have closed the pipe.
        let _ = writeln!(crate::terminal::stdout(), "{line}");
    } else {
        say!("{line}");
    }
}

/// Warns of loss above `--max-loss`; returns whether there was.
fn loss_is_above(args: &RecordArgs, info: &RunInfo, ring_bytes: u32) -> bool {
    let Some(totals) = info.ledger.as_ref().map(Ledger::totals) else {
        return false;
    };
    let loss = totals.samples.loss_ratio().max(totals.marks.loss_ratio()) * 100.0;
    if loss <= args.max_loss {
        return false;
    }
    let (samples, marks) = (totals.samples.lost(), totals.marks.lost());
    warn(
        &format!(
            "lost {loss:.3} % ({samples} samples, {marks} marks), above --max-loss {}",
            args.max_loss
        ),
        &against_loss(&totals, ring_bytes),
    );
    true
}

/// Hint against the most frequent kind of loss.
fn against_loss(totals: &CpuLedger, ring_bytes: u32) -> String {
    let of = |reason| totals.samples.of(reason) + totals.marks.of(reason);
    let (disk, memory) = (of(Reason::DroppedDisk), of(Reason::DroppedMemory));
    let rest = totals.samples.lost() + totals.marks.lost() - disk - memory;
    if disk > memory.max(rest) {
        return "free space on the disk, or choose another place with -o".to_owned();
    }
    if memory > rest {
        return "raise --max-memory or --reset".to_owned();
    }
    let ring = bytesize::ByteSize::b(u64::from(ring_bytes));
    format!(
        "raise --ring-size (now {}) or --reset",
        ring.display().iec()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hint fits the reason of the loss: larger rings do not help against a full disk.
    #[test]
    fn losses() {
        let hint = |lost: &[(Reason, u64)]| {
            let mut totals = CpuLedger::default();
            lost.iter()
                .for_each(|(reason, n)| totals.samples.book(*reason, *n));
            totals.marks.book(Reason::DroppedRingFull, 1);
            against_loss(&totals, 512 << 10)
        };
        let rings = "raise --ring-size (now 512.0 KiB) or --reset";
        assert_eq!(
            hint(&[(Reason::DroppedRingFull, 5), (Reason::DroppedDisk, 3)]),
            rings
        );
        assert!(hint(&[(Reason::DroppedDisk, 3)]).starts_with("free space on the disk"));
        let memory = hint(&[(Reason::DroppedMemory, 3), (Reason::Late, 1)]);
        assert_eq!(memory, "raise --max-memory or --reset");
    }
}
