//! The overhead's paper, Figures 3 and 7: size of the buffer against its effect on the caches.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result};

use super::Lab;
use crate::frame::machine::l1_kib;
use crate::frame::page::{Section, included};
use crate::frame::pictures::{Panel, draw, intervals, line, medians, panel};
use crate::frame::rounds::rounds;
use crate::frame::shell;
use crate::frame::statistics::Spread;
use crate::frame::table::Table;
use crate::overhead::runs::{Bench, Work, cpu_of};
use crate::overhead::{caches, rings};

/// Sizes of the buffer that the program itself writes, KiB; times are shown relative to the first.
const SIZES: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Time between two records, ns: as samples of a clock come; the paper's R = 2,000 by its line of intervals; and faster, as a
/// line that the second level has again costs a twentieth of one that memory has.
const PACES: [(f64, &str); 3] = [
    (20_000.0, "every 20 us, as a software clock"),
    (310.0, "every 0.31 us, as PEBS at R = 2,000"),
    (40.0, "every 0.04 us"),
];

const ROUNDS: usize = 11;
const RING_ROUNDS: usize = 2;
const MEMORY_ROUNDS: usize = 5;

/// Times relative to the smallest buffer, by size.
struct Written {
    name: &'static str,
    work: &'static str,
    times: Vec<Spread>,
}

pub fn measure(lab: &Lab) -> Result<Section> {
    let bench = Bench::new(lab.lab.clone())?;
    let seconds = if lab.quick { 0.05 } else { 0.1 };
    let most = bench.sized("chase", 1, seconds, l1_kib() * 7 / 8)?;
    let part = bench.sized("chase", 1, seconds, l1_kib() / 4)?;
    let works = [
        ("needs 7/8 of the first level", most),
        ("needs a quarter of it", part),
    ];
    let mut written = Vec::new();
    for (name, work) in &works {
        for (pace, says) in PACES {
            let times = write_records(&bench, work, pace, lab.rounds(ROUNDS))?;
            written.push(Written {
                name: says,
                work: name,
                times,
            });
        }
    }
    let sweeps = rings::measure(
        &bench,
        if lab.quick { 0.05 } else { 0.3 },
        lab.rounds(RING_ROUNDS),
    )?;
    let costs = caches::measure(&bench, 2.0 * seconds, lab.rounds(MEMORY_ROUNDS))?;
    Ok(section(&written, &rings::write_table(&sweeps), &costs))
}

/// The work with records written into a buffer of each size, in turn: relative to the smallest of the round.
fn write_records(bench: &Bench, work: &Work, pace: f64, number: usize) -> Result<Vec<Spread>> {
    let step_ns = bench.native(work)? / work.steps as f64;
    let every = ((pace / step_ns) as u64).max(1).to_string();
    let run = |_, kib: &u64| -> Result<f64> {
        let mut words = bench.command(work).into_iter();
        let mut command = Command::new(words.next().context("no program")?);
        command.args(words).args([&kib.to_string(), &every]);
        cpu_of(&shell::output(&mut command)?, work)
    };
    let times = rounds(number, &SIZES, run)?;
    let relative = |times_of: &Vec<f64>| {
        let pairs = times_of.iter().zip(&times[0]);
        Spread::of(pairs.map(|(ns, smallest)| ns / smallest).collect())
    };
    Ok(times.iter().map(relative).collect())
}

fn section(written: &[Written], rings: &str, costs: &[caches::Cost]) -> Section {
    let mut ours = String::from(
        "Rings of pebs-trace first, then the paper's experiment with its rate. The program of the second writes records of 192 \
         bytes (PEBS: 192 to 200) into a buffer round and round by itself, as the CPU does, since no interrupt comes to PEBS's \
         rate. Its cache is the first level, which is the core's own: the last level, where the paper saw it, is shared with other \
         machines here, and runs through it differ by more than what is looked for.\n\n",
    );
    ours += &included(&format!(
        "## Size of pebs-trace's rings\n{}",
        rings.trim_start_matches("# Size of the rings\n")
    ));
    let sizes = SIZES.map(|kib| format!(" | {kib} KiB:")).concat();
    let mut table = Table::new(&format!("work | records{sizes}"));
    for it in written {
        let times = it.times.iter().map(|time| format!(" | {time:.3}"));
        let times = times.collect::<String>();
        table.row(format_args!("{} | {}{times}", it.work, it.name));
    }
    let _ = write!(
        ours,
        "\n\n### Records written by the program\n\nCPU time relative to a buffer of {} KiB, medians of rounds with intervals of 95 %:\n\n{table}",
        SIZES[0]
    );
    ours += "\n";
    ours += &included(&format!("{}\n", caches::write_table(costs)));
    let last = |at: usize| written[at].times.last().copied().unwrap_or(Spread::UNKNOWN);
    let (clock, pebs, fast, small) = (last(0), last(1), last(2), last(5));
    let grows = fast.low > 1.0;
    let differs = format!(
        "*Buffer.* The size of pebs-trace's rings makes no difference that can be told from noise (a software clock writes 2 MB/s), \
         where omnetpp takes longer with a larger buffer of PEBS (some 600 MB/s at R = 2,000). Experiment: the second table. Work \
         that needs 7/8 of its cache takes {clock:.3} times as long with the largest buffer as with the smallest if records come as \
         a clock's samples do, {pebs:.3} times at PEBS's rate, {fast:.3} times at eight times that, {}; work that leaves the \
         buffer room {small:.3} times. So it is the rate: what a buffer takes of a cache is what is written until the work uses a \
         line again, at most the buffer.",
        if grows {
            "as published of omnetpp"
        } else {
            "which is not what was published"
        },
    );
    Section {
        title: "Figures 3 and 7 of the overhead's paper: size of the buffer and the caches",
        published: "R = 2,000 micro-operations, buffers of 4 KiB to 4 MiB. Records go through the caches: beyond the size of the \
                    last level they become memory traffic. omnetpp, which needs the cache, is faster with small buffers, hmmer, \
                    which does not, with large ones, as interrupts are fewer. The figures are pictures; the text has no times."
            .to_owned(),
        ours,
        differs: format!("{differs} {}", cost_by_memory(costs)),
        pictures: vec![("buffer.svg", picture(written))],
        musts: vec![
            (
                "with records at the highest rate, work that needs its cache is slower with the largest buffer than with the \
                 smallest"
                    .to_owned(),
                grows,
            ),
            (
                "with records at a clock's rate its time does not change by more than 2 %".to_owned(),
                (0.98..=1.02).contains(&clock.median) || clock.holds(1.0),
            ),
        ]
        .into(),
    }
}

/// Additional cost of a sample for work that needs memory, and on two threads.
fn cost_by_memory(costs: &[caches::Cost]) -> String {
    let of = |kib: u64, threads: u32| {
        let found = costs
            .iter()
            .find(|it| (it.kib, it.threads) == (kib, threads));
        found.map_or(Spread::UNKNOWN, |it| it.sample.scaled(1e-3))
    };
    let mut text = String::from(
        "*Interrupts.* Experiment: a chase through memory of growing size, with a sample every 20 us. ",
    );
    for threads in [1, 2] {
        let (small, large) = (of(4, threads), of(768, threads));
        let verdict = match (large.is_above(small), small.is_above(large)) {
            (true, _) => "so it does take lines of the caches, which the work fetches again",
            (_, true) => "so it costs less where the work waits for memory",
            _ => "so none that can be seen here is paid for the caches",
        };
        let _ = write!(
            text,
            "On {threads} thread{} a sample costs {small:.2} us with 4 KiB and {large:.2} us with 768 KiB: {verdict}. ",
            if threads == 1 { "" } else { "s" }
        );
    }
    let (one, two) = (of(4, 1), of(4, 2));
    let verdict = if two.is_above(one) {
        "two CPUs at work make each interrupt dearer, whatever memory is needed"
    } else {
        "two CPUs at work do not make an interrupt dearer"
    };
    let _ = write!(
        text,
        "With 4 KiB it is {one:.2} us on one thread, {two:.2} us on two: {verdict}."
    );
    text
}

fn picture(written: &[Written]) -> String {
    let of_work = |it: &Written| {
        let times = || (0..).map(f64::from).zip(it.times.iter().copied());
        let smallest = vec![(0.0, 1.0), ((SIZES.len() - 1) as f64, 1.0)];
        let series = [line("smallest buffer", smallest)].into_iter();
        let series = series.chain(intervals(times()));
        let series = series.chain([medians("measured", times())]);
        let pace = it.name.split(',').next().unwrap_or_default();
        panel(
            &format!("{}; {pace}", it.work),
            "buffer: 1 KiB x 4^x",
            "relative time",
            series.collect(),
        )
    };
    let panels: Vec<Panel> = written.iter().map(of_work).collect();
    draw(
        "Time by size of a buffer that is written round and round (Figure 7)",
        &panels,
    )
}
