//! Shared cache lines as text, for people.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::compare::names::{FunctionName, file_name};
use crate::compare::report::lines::{Access, Count, Data, LineReport, SharedLine, Sharing};
use crate::present::functions::{NAME_WIDTH, SPEC_WIDTH, name_within};
use crate::present::human::{UNKNOWN, count, events, percent, plural, safe};
use crate::present::table::{Cell, Column, Table};
use crate::present::{Page, Tone};

/// Shown where no sample has a memory access.
pub(crate) const NOTHING: &str = "no sample of this trace has a memory access\n\
    hint: watch up to four variables (--event mem:BIN:VARIABLE:rw --reset 1), or record loads and stores: on Intel --event \
    mem-loads,ldlat=30:P --event mem-stores:P, on AMD --event ibs_op// --memory; from perf: 'perf c2c record', then import\n";

/// Threads that are listed by number; more are counted.
const THREADS_SHOWN: usize = 3;

/// Kinds of access that are listed of a line.
const KINDS_SHOWN: usize = 12;

/// The report as text for a pipe; the `top` lines.
#[cfg(test)]
#[must_use]
pub fn render(report: &LineReport, top: usize) -> String {
    page(report, top, crate::terminal::PIPE_WIDTH).plain()
}

/// The same, laid out for a width.
#[must_use]
pub(crate) fn page(report: &LineReport, top: usize, width: usize) -> Page {
    let mut out = Page::new(width);
    if report.events.is_empty() {
        NOTHING.lines().for_each(|line| out.paragraph(line));
        return out;
    }
    out.paragraph(&head(report));
    for (line, rank) in report.lines.iter().zip(1..).take(top) {
        out.gap();
        shared(&mut out, report, (rank, line));
    }
    out.gap();
    if report.lines.len() > top {
        out.paragraph(&format!(
            "{top} of {} lines; --top N lists more",
            count(report.lines.len() as u64)
        ));
    }
    out.paragraph(&format!(
        "listed: lines with a store that several threads use at the same time, with {} samples or more without those of \
         the thread with the most; events are samples x reset value, +- 1.96 standard errors",
        report.min_samples
    ));
    out
}

fn head(report: &LineReport) -> String {
    let events = report.events.iter();
    let events = events.map(|event| {
        let every = match event.frequency {
            Some(frequency) => format!("{frequency} times a second"),
            None => format!("every {}", count(event.reset)),
        };
        format!("{} {every}", safe(&event.name, SPEC_WIDTH))
    });
    let events = events.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{events}: {} with a memory access, {} of them loads and stores with address and thread",
        plural(report.samples, "sample"),
        count(report.used),
    );
    for (samples, what) in [
        (report.without_address, "without address, thread or process"),
        (report.without_op, "not known to be a load or a store"),
    ] {
        if samples > 0 {
            text += &format!("; {} {what}", count(samples));
        }
    }
    text += &match report.lines.len() {
        0 => "; no cache line is shared".to_owned(),
        lines => format!(
            "; {} of {} bytes shared",
            plural(lines as u64, "cache line"),
            report.line_bytes
        ),
    };
    if !report.line_bytes_known {
        text += &format!(
            " (the trace has no line size: taken for {} bytes)",
            report.line_bytes
        );
    }
    text
}

/// The kind of sharing in one word.
pub(crate) const fn kind(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::True => "true",
        Sharing::False => "false",
        Sharing::Both => "both",
        Sharing::Unknown => "unknown",
    }
}

fn sharing(line: &SharedLine) -> String {
    let [least, most] = line.same_bytes;
    let share = match least == most {
        true => percent(least),
        false => format!("{} to {}", percent(least), percent(most)),
    };
    let of = format!("{share} of conflicts on the same bytes");
    match line.sharing {
        Sharing::True => format!("true sharing ({of})"),
        Sharing::False => format!("false sharing ({of})"),
        Sharing::Both => format!("true and false sharing ({of})"),
        Sharing::Unknown => format!("true or false sharing: unknown ({of})"),
    }
}

fn shared(out: &mut Page, report: &LineReport, (rank, line): (u64, &SharedLine)) {
    let place = match &line.data {
        Some(data) => format!("{}, line {:#x}", whole(data), line.address),
        None => format!("line {:#x}", line.address),
    };
    let processes: BTreeSet<_> = line.threads.iter().filter_map(|it| it.pid).collect();
    let of = match (line.pid, processes.len()) {
        (None, _) => " of the kernel".to_owned(),
        (Some(_), 2..) => format!(" of {} processes", processes.len()),
        (Some(pid), _) => format!(" of process {pid}"),
    };
    let met = line.threads.iter().filter(|it| it.at_once).count();
    let mut text = format!(
        "{rank}. {place}{of}: {}; {} by {}",
        sharing(line),
        estimate(&line.all, "access"),
        plural(met as u64, "thread"),
    );
    if line.threads.len() > met {
        text += &format!(
            " at once, {} more at another time",
            line.threads.len() - met
        );
    }
    text += &format!(
        ", {} without the thread with the most",
        estimate(&line.contended, "")
    );
    if let Some(modified) = &line.hit_modified {
        text += &format!(
            ", {} found the line modified in another cache",
            estimate(modified, "")
        );
    }
    out.paragraph(&text);
    out.rows(&table(line));
    let kinds = kinds(line).len();
    if kinds > KINDS_SHOWN {
        out.paragraph(&format!(
            "{KINDS_SHOWN} of {kinds} kinds of access; --format json has all"
        ));
    }
    if let Some(advice) = advice(report, line) {
        out.paragraph(&advice);
    }
}

/// Returns a change that would part the threads.
fn advice(report: &LineReport, line: &SharedLine) -> Option<String> {
    let bytes = report.line_bytes;
    match line.sharing {
        Sharing::False => Some(format!(
            "hint: give what each thread stores a line of its own: alignas({bytes})"
        )),
        Sharing::Both => Some(format!(
            "hint: lines of their own for what each thread stores (alignas({bytes})) would end {} of the conflicts",
            percent(1.0 - line.same_bytes[1])
        )),
        Sharing::True | Sharing::Unknown => None,
    }
}

/// `12,340 accesses`, as an estimate if there is one, else the samples.
fn estimate(it: &Count, noun: &str) -> String {
    let noun = |one: bool| match (noun, one) {
        ("", _) => String::new(),
        ("access", true) => " access".to_owned(),
        (_, _) => " accesses".to_owned(),
    };
    match (it.events, it.events_stderr) {
        (Some(n), Some(error)) => {
            format!("{}{} +- {}", events(n), noun(false), events(1.96 * error))
        }
        _ => format!("{}{} sampled", count(it.samples), noun(it.samples == 1)),
    }
}

/// Accesses of several threads that differ in the thread alone.
struct Alike<'a> {
    access: &'a Access,
    threads: Vec<u32>,
    all: Count,
    hit_modified: u64,
    items: u64,
    slow_items: u64,
}

/// The kinds of access of the threads that used a line at the same time as others, the most sampled first.
fn kinds(line: &SharedLine) -> Vec<Alike<'_>> {
    let mut found: Vec<Alike<'_>> = Vec::new();
    let key = |it: &Access| -> (FunctionName, &'static str, u32, Option<u32>) {
        (it.function.clone(), it.op, it.offset, it.bytes)
    };
    for thread in line.threads.iter().filter(|it| it.at_once) {
        for access in &thread.accesses {
            let known = found.iter_mut().find(|it| key(it.access) == key(access));
            match known {
                Some(it) => {
                    it.threads.push(thread.tid);
                    it.all = sum(&it.all, &access.all);
                    it.hit_modified += access.hit_modified;
                    it.items += access.items;
                    it.slow_items += access.slow_items;
                }
                None => found.push(Alike {
                    access,
                    threads: vec![thread.tid],
                    all: access.all,
                    hit_modified: access.hit_modified,
                    items: access.items,
                    slow_items: access.slow_items,
                }),
            }
        }
    }
    found.sort_by_key(|it| Reverse(it.all.samples));
    found
}

/// The sum of two counts; unknown if one is.
fn sum(a: &Count, b: &Count) -> Count {
    let errors = a.events_stderr.zip(b.events_stderr);
    Count {
        samples: a.samples + b.samples,
        events: a.events.zip(b.events).map(|(a, b)| a + b),
        events_stderr: errors.map(|(a, b)| a.hypot(b)),
    }
}

fn table(line: &SharedLine) -> Table {
    let mut table = Table::new([
        Column::names("", 20),
        Column::words("access"),
        Column::number("byte"),
        Column::number("size").rank(4),
        Column::names("data", 12).rank(3),
        Column::words("thread").rank(2),
        Column::number("items").rank(6),
        Column::number("slow").rank(7).tone(Tone::Slow),
        Column::number("events"),
        Column::number("+-").rank(8),
        Column::number("samples").rank(1),
        Column::number("HitM").rank(5),
        Column::names("", 10).rank(9).tone(Tone::Faint),
    ]);
    for it in kinds(line).iter().take(KINDS_SHOWN) {
        let function = it.access.function.clone();
        let module = function.module.as_deref().map(file_name);
        let module = module.map_or_else(String::new, |it| safe(it, NAME_WIDTH));
        let data = it.access.data.as_ref();
        let modified = match &line.hit_modified {
            Some(_) => count(it.hit_modified),
            None => String::new(),
        };
        table.row([
            Cell::fitted(move |width| name_within(&function, width)),
            it.access.op.into(),
            format!("+{}", it.access.offset).into(),
            it.access
                .bytes
                .map_or_else(|| UNKNOWN.to_owned(), |bytes| bytes.to_string())
                .into(),
            data.map_or_else(|| UNKNOWN.to_owned(), place).into(),
            threads(&it.threads).into(),
            some(it.items).into(),
            some(it.slow_items).into(),
            it.all
                .events
                .map_or_else(|| UNKNOWN.to_owned(), events)
                .into(),
            it.all
                .events_stderr
                .map_or_else(|| UNKNOWN.to_owned(), |error| events(1.96 * error))
                .into(),
            count(it.all.samples).into(),
            modified.into(),
            module.into(),
        ]);
    }
    table
}

fn some(n: u64) -> String {
    if n > 0 { count(n) } else { String::new() }
}

fn threads(tids: &[u32]) -> String {
    if tids.len() > THREADS_SHOWN {
        return plural(tids.len() as u64, "thread");
    }
    let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
    tids.join(", ")
}

/// `counters+8`, `[heap]+0x1200`.
fn place(data: &Data) -> String {
    let name = match (&data.symbol, &data.object) {
        (Some(symbol), _) => safe(symbol, NAME_WIDTH),
        (None, Some(object)) => safe(file_name(object), NAME_WIDTH),
        (None, None) => "memory".to_owned(),
    };
    match data.offset {
        0 => name,
        offset if data.symbol.is_some() => format!("{name}+{offset}"),
        offset => format!("{name}+{offset:#x}"),
    }
}

/// The same without the offset, with the binary of a variable.
fn whole(data: &Data) -> String {
    match (&data.symbol, &data.object) {
        (Some(symbol), Some(object)) => format!(
            "{} of {}",
            safe(symbol, NAME_WIDTH),
            safe(file_name(object), NAME_WIDTH)
        ),
        (None, None) => "memory without a name".to_owned(),
        _ => place(&Data {
            offset: 0,
            ..data.clone()
        }),
    }
}
