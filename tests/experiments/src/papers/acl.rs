//! The method's Figures 9 and 10: a firewall of DPDK, packets of three types, and the cost of tracing them.

mod cost;
mod drift;
mod scaled;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use pebs_tests::truth::{ItemTruth, Truth};

use super::Lab;
use crate::frame::page::Section;
use crate::frame::pictures::{self, Panel, draw, intervals, line};
use crate::frame::realtime::{self, Recording};
use crate::frame::statistics::{Spread, mean, median};
use crate::frame::table::Table;
use crate::frame::trace::{Function, Item};
use crate::frame::verdict::Verdict;
use crate::frame::{installed, workload};
use cost::{Costs, Latency};
use drift::Drift;
use scaled::Scaled;

/// Types of packets: their number is the remainder of the item's number by three.
const TYPES: [&str; 3] = ["A", "B", "C"];

/// Reset values, ns: the paper's numbers, which are micro-operations there, and the least value of the clock for its
/// 8,000.
const RESETS: [u64; 5] = [10_000, 12_000, 16_000, 20_000, 24_000];

/// Larger reset values, ns, at which samples cost less and less: they continue the curve.
const RARE: [u64; 4] = [50_000, 100_000, 200_000, 400_000];

/// Least reset value that is always measured, ns.
const LEAST: u64 = 16_000;

/// Packets of a run.
const PACKETS: usize = 30_000;

const ROUNDS: usize = 5;

/// Probed function, with the arguments that are recorded.
const FUNCTION: &str = "classify_packet(id=*(arg1):u64, type=*(arg1+8):u32)";

/// Largest part of the interval that a sample may take, or the program makes hardly any progress.
const MOST_OF_INTERVAL: f64 = 0.85;

/// A packet that took longer than this was off the CPU in between, ns.
const DISPLACED: f64 = 1e6;

/// Name of a missing prerequisite.
pub fn missing() -> Option<&'static str> {
    match (installed::dpdk_library(), installed::dpdk_headers()) {
        (Some(_), Some(_)) => None,
        (None, _) => Some("DPDK's librte_acl"),
        (_, None) => Some("DPDK's headers"),
    }
}

/// Builds a workload with libraries of DPDK, as the harness of the tests does.
pub(super) fn build(lab: &Lab, name: &str, libraries: &[&str]) -> Result<PathBuf> {
    let library = installed::dpdk_library().context("no librte_acl")?;
    let headers = PathBuf::from(installed::dpdk_headers().context("no DPDK headers")?);
    let generic = headers.parent().context("headers at the root")?;
    // The headers ask for libbsd where the configuration has it; nothing here needs it.
    let config = lab.dir.join("config.h");
    fs::write(&config, "#include <rte_config.h>\n#undef RTE_USE_LIBBSD\n")?;
    let mut flags = vec![
        "-march=native".to_owned(),
        "-include".to_owned(),
        config.display().to_string(),
        format!("-I{}", headers.display()),
        format!("-I{}/x86_64-linux-gnu/dpdk", generic.display()),
    ];
    let file = |name: &&str| library.replace("librte_acl", &format!("librte_{name}"));
    flags.extend(libraries.iter().map(file));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    lab.compile(name, &flags)
}

fn is_classify(function: &Function) -> bool {
    // The library's own inner functions have no names in stock packages.
    function.module.contains("librte_acl")
}

fn kind(id: u64) -> usize {
    (id as usize - 1) % TYPES.len()
}

/// Results of one recording.
struct Estimates {
    /// Time of a packet of each type in the classifier, pooled over all packets, us.
    pooled: [f64; 3],
    /// The middle of single items' own estimates by type, us a packet: ours, and the published span.
    own: [Spread; 3],
    span: [Spread; 3],
    /// Mean of an item's samples, by type.
    samples: [f64; 3],
    /// Part of the triples of items that follow one another in which A is above B and B above C, by their own estimates: all
    /// three had the same speed of the machine.
    ordered: f64,
    /// Time of a sample by the program's log, us: how much longer items took than without recording, by their samples.
    cost: f64,
}

/// Figures of one recording; `alone`: mean time of a packet without recording, us, by type.
fn estimates(recording: &Recording, times: usize, alone: [f64; 3]) -> Estimates {
    let mut found = Estimates {
        pooled: [f64::NAN; 3],
        own: [Spread::UNKNOWN; 3],
        span: [Spread::UNKNOWN; 3],
        samples: [f64::NAN; 3],
        ordered: ordered(&recording.items),
        cost: f64::NAN,
    };
    for (t, _) in TYPES.iter().enumerate() {
        let items: Vec<_> = recording
            .items
            .iter()
            .filter(|it| kind(it.id) == t)
            .collect();
        let mean =
            |of: &dyn Fn(&Item) -> f64| mean(&items.iter().map(|it| of(it)).collect::<Vec<f64>>());
        let classified = |it: &Item| {
            let functions = it.functions.iter().filter(|f| is_classify(f));
            functions.map(|f| f.samples).sum::<f64>()
        };
        // Samples in the kernel are of an interrupt's end: pebs-trace's own.
        let of_program = |it: &Item| {
            let functions = it.functions.iter().filter(|f| !f.kernel);
            functions.map(|f| f.samples).sum::<f64>()
        };
        let share = mean(&classified) / mean(&of_program);
        let us = 1e-3 / times as f64;
        // Not the mean: in a packet of some us an interrupt of the host is a hundred packets.
        let net = median(items.iter().map(|it| it.net_ns).collect());
        found.pooled[t] = share * net * us;
        found.samples[t] = mean(&Item::samples);
        found.own[t] = Spread::middle(items.iter().map(|it| it.of(is_classify) * us).collect());
        let span = |it: &&Item| {
            let functions = it.functions.iter().filter(|f| is_classify(f));
            functions.map(|f| f.span_ns).fold(0.0, f64::max) * us
        };
        found.span[t] = Spread::middle(items.iter().map(span).collect());
    }
    let with = logged(&recording.truth, times, workload::inside);
    let longer: f64 = (0..TYPES.len()).map(|t| with[t] - alone[t]).sum();
    found.cost = longer * times as f64 / found.samples.iter().sum::<f64>();
    found
}

/// See [`Estimates::ordered`].
fn ordered(items: &[Item]) -> f64 {
    let triples = items.windows(3).filter(|it| {
        let [a, b, c] = [&it[0], &it[1], &it[2]];
        kind(a.id) == 0 && (b.id, c.id) == (a.id + 1, a.id + 2)
    });
    let own = |it: &Item| it.of(is_classify);
    let (mut all, mut ordered) = (0, 0);
    for it in triples {
        all += 1;
        ordered += usize::from(own(&it[0]) > own(&it[1]) && own(&it[1]) > own(&it[2]));
    }
    ordered as f64 / f64::from(all)
}

/// Mean time of packets of each type, us, without those that were off the CPU.
fn logged(truth: &Truth, times: usize, of: impl Fn(&ItemTruth) -> Option<f64>) -> [f64; 3] {
    std::array::from_fn(|t| {
        let items = truth.items.iter().filter(|it| kind(it.id) == t);
        let kept = items.filter_map(&of);
        let kept: Vec<f64> = kept.filter(|ns| *ns < DISPLACED * times as f64).collect();
        mean(&kept) / 1e3 / times as f64
    })
}

/// Median over rounds of a figure.
fn typical(rounds: &[Estimates], of: impl Fn(&Estimates) -> f64) -> Spread {
    Spread::of(rounds.iter().map(of).collect())
}

pub fn measure(lab: &Lab) -> Result<Section> {
    let program = build(lab, "acl", &["acl", "eal"])?;
    let packets = if lab.quick { PACKETS / 10 } else { PACKETS };
    let count = packets.to_string();
    let costs = Costs::measure(lab)?;
    let mut baseline = [const { Vec::new() }; 3];
    let is_possible = |reset: &u64| *reset == LEAST || costs.share(*reset) < MOST_OF_INTERVAL;
    let (resets, refused): (Vec<u64>, Vec<u64>) = RESETS.into_iter().partition(is_possible);
    let all: Vec<u64> = resets.iter().chain(&RARE).copied().collect();
    let mut rounds: Vec<Vec<Estimates>> = resets.iter().map(|_| Vec::new()).collect();
    let mut latency = Latency::new(&all);
    for _ in 0..lab.rounds(ROUNDS) {
        let log = realtime::alone(lab, &program, &[&count])?;
        let alone = logged(&log, 1, workload::inside);
        for (all, us) in baseline.iter_mut().zip(alone) {
            all.push(us);
        }
        latency.add_alone(logged(&log, 1, workload::outside));
        for (at, reset) in all.iter().enumerate() {
            let recording = realtime::record(lab, &program, &[&count], FUNCTION, *reset)?;
            latency.add(
                *reset,
                &recording,
                logged(&recording.truth, 1, workload::outside),
            );
            if let Some(rounds) = rounds.get_mut(at) {
                rounds.push(estimates(&recording, 1, alone));
            }
        }
    }
    let scaled = Scaled::measure(lab, &program, &costs)?;
    let drift = Drift::measure(lab)?;
    let baseline = baseline.map(Spread::of);
    let costs = costs.again(lab)?;
    let judged = resets.iter().position(|reset| *reset == LEAST);
    let judged = &rounds[judged.context("not measured")?];
    let mut musts = Verdict::from(scaled.musts());
    musts.goal(
        format!(
            "pooled over packets, a sample every {} us: A above B above C in every round",
            LEAST / 1000
        ),
        judged
            .iter()
            .all(|it| it.pooled[0] > it.pooled[1] && it.pooled[1] > it.pooled[2]),
    );
    for (what, holds) in latency.musts((&costs, &drift)) {
        musts.goal(what, holds);
    }
    let mut ours = format!(
        "`tests/workloads/acl.c` on Debian's librte_acl: 50,000 rules in 150 contexts of 334; *baseline* is the program's own log \
         without pebs-trace.\n\n{}\nSingle packets take less than the shortest interval of the clock. Their time in the library, us, is \
         pooled over all packets of a type (share of samples x median net time): the median of {} rounds of {packets} packets, \
         with its interval of 95 %.\n\n",
        scaled.table(),
        lab.rounds(ROUNDS)
    );
    ours += &pooled_table(&resets, baseline, &rounds);
    if !refused.is_empty() {
        let refused: Vec<String> = refused
            .iter()
            .map(|reset| (reset / 1000).to_string())
            .collect();
        let _ = writeln!(
            ours,
            "\nR = {} us left the program no time: a sample takes {:.1} us here.",
            refused.join(" and "),
            costs.sample_us()
        );
    }
    let _ = write!(
        ours,
        "\nFigure 10: mean latency of a packet less that without recording, us:\n\n{}",
        latency.table((&costs, &drift))
    );
    let differs = differs(baseline, &scaled, &drift, judged, &latency, &costs);
    Ok(Section {
        title: "Figures 9 and 10 of the method's paper: packets of three types through a firewall, and the overhead",
        published: "50,000 rules in 247 tries; per-packet time of `rte_acl_classify` at R = 8,000 to 24,000 \
                    micro-operations and by instrumentation (*baseline*): 12 to 14 us for type A, about 6 us for C, B between \
                    them; the order is the same at each R. Overhead (latency with less latency without) falls as R grows. Both \
                    figures are pictures; the text has no further numbers."
            .to_owned(),
        ours,
        differs,
        pictures: vec![
            ("acl.svg", picture(&resets, baseline, &rounds, &scaled)),
            ("acl-overhead.svg", latency.picture((&costs, &drift))),
        ],
        musts,
    })
}

fn pooled_table(resets: &[u64], baseline: [Spread; 3], rounds: &[Vec<Estimates>]) -> String {
    let [a, b, c] = baseline;
    let mut table = Table::new("R, us: | A: | B: | C:");
    table.row(format_args!("baseline | {a:.2} | {b:.2} | {c:.2}"));
    for (reset, rounds) in resets.iter().zip(rounds) {
        let [a, b, c] = [0, 1, 2].map(|t| typical(rounds, |it| it.pooled[t]));
        let reset = reset / 1000;
        table.row(format_args!("{reset} | {a:.2} | {b:.2} | {c:.2}"));
    }
    table.to_string()
}

fn differs(
    baseline: [Spread; 3],
    scaled: &Scaled,
    drift: &Drift,
    judged: &[Estimates],
    latency: &Latency,
    costs: &Costs,
) -> String {
    let off =
        |t: usize| (typical(judged, |it| it.pooled[t]).median / baseline[t].median - 1.0) * 100.0;
    let share = costs.share(LEAST);
    format!(
        "*Times.* The program's own log says {:.1}, {:.1} and {:.1} us here: this machine's time for 150 tries (the paper's \
         247 are not possible with the stock library, which holds what one context takes in one trie). {} *Bias.* At {reset} us \
         pooled estimates are {:+.0}, {:+.0} and {:+.0} % off the log. There a sample takes {:.0} % of each interval, so each 5 % of \
         what it costs are {:.0} % of what is left to the program. {} Experiment: the longer items, where a sample takes no more \
         of an interval than in the paper, are off by the little that is said of them above. {}",
        baseline[0].median,
        baseline[1].median,
        baseline[2].median,
        scaled.explained(),
        off(0),
        off(1),
        off(2),
        100.0 * share,
        5.0 * share / (1.0 - share),
        drift.explained(),
        latency.explained((costs, drift)),
        reset = LEAST / 1000,
    )
}

/// A panel for single items, one for pooled packets, with their intervals as lines.
fn picture(
    resets: &[u64],
    baseline: [Spread; 3],
    rounds: &[Vec<Estimates>],
    scaled: &Scaled,
) -> String {
    let pooled = resets.iter().zip(rounds).map(|(reset, rounds)| {
        let by_type = std::array::from_fn(|t| typical(rounds, |it| it.pooled[t]));
        (*reset as f64 / 1e3, by_type)
    });
    let panels = [
        scaled.panel(),
        panel(
            "single packets, pooled; interval of 95 %",
            baseline,
            &pooled.collect::<Vec<_>>(),
        ),
    ];
    draw("Time of packets in the classifier (Figure 9)", &panels)
}

/// Times by reset value, in us, with their intervals as lines.
fn panel(title: &str, baseline: [Spread; 3], rows: &[(f64, [Spread; 3])]) -> Panel {
    let (first, last) = match rows {
        [first, .., last] => (first.0, last.0),
        _ => (0.0, 1.0),
    };
    let logs = baseline.iter().zip(["log", "", ""]);
    let logs = logs.map(|(it, name)| line(name, vec![(first, it.median), (last, it.median)]));
    let all = || {
        let rows = rows.iter();
        rows.flat_map(|(reset, by_type)| by_type.map(|it| (*reset, it)))
    };
    let medians = pictures::medians("A above B above C", all());
    let series = logs.chain(intervals(all())).chain([medians]);
    pictures::panel(title, "R, us", "us in rte_acl_classify", series.collect())
}
