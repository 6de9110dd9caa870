//! The method's Figures 9 and 10 from outside: the firewall as a pipeline of DPDK, and a tester at its ports.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use pebs_tests::truth::Truth;

use super::Lab;
use super::acl;
use super::interval::{PUBLISHED, published_us};
use crate::frame::page::Section;
use crate::frame::pictures::{self, draw, intervals, line};
use crate::frame::statistics::{Spread, mean, quantiles};
use crate::frame::table::Table;
use crate::frame::trace::query;
use crate::frame::verdict::Verdict;
use crate::frame::{installed, realtime};

/// Ratio of intervals to the paper's: an interrupt takes some 75 times as long as a record of PEBS.
const SLOWER: f64 = 75.0;

/// Classifications of a packet: those of an interval, four times, as the port's own part is some 30 us with recording.
const TIMES: u64 = 300;

/// Packets of a run, singly and in bursts; a train, and the largest burst.
const PACKETS: usize = 300;
const IN_BURSTS: usize = 640;
const TRAIN: &str = "32";

/// Packets at the begin of a run, whose code and data are not in the caches.
const FIRST: u64 = 30;

const ROUNDS: usize = 5;

/// Larger intervals between samples, ns: they continue the curve.
const RARE: [u64; 2] = [400_000, 2_000_003];

/// Most that stages and waits may be off the latency outside.
const MOST_OFF: f64 = 0.02;

const SINGLY: [&str; 3] = [
    "receive_packet(id=*(arg1+298):u64)",
    "classify_one(id=*(arg1+298):u64)",
    "transmit_packet(id=*(arg1+298):u64)",
];

const BURSTS: [&str; 3] = [
    "receive_burst(ids=arg1[arg2]->298:u64)",
    "classify_burst(ids=arg1[arg2]->298:u64)",
    "transmit_burst(ids=arg1[arg2]->298:u64)",
];

/// Name of a missing prerequisite.
pub fn missing() -> Option<&'static str> {
    acl::missing().or_else(|| match installed::dpdk_ports() {
        Some(_) => None,
        None => Some("DPDK's software ports"),
    })
}

/// One recording.
struct Round {
    /// Part of the packets that came back that have all three stages.
    whole: f64,
    /// Latency of a packet outside by type, us: the median.
    outside: [f64; 3],
    /// Net time of a packet in the stage that classifies, by type, us: the median.
    classified: [f64; 3],
    /// Stages, waits between them and pebs-trace's own time, part of the latency outside: quantiles over packets.
    sum: [f64; 3],
    /// Part of the latency outside that is pebs-trace's own time in the stages: the median.
    own: f64,
    /// From sending to the first stage, and from arrival to the end of the last one, us: medians.
    before: f64,
    after: f64,
}

fn kind(id: u64) -> usize {
    (id as usize - 1) % 3
}

/// Times of packets outside by the tester: sent and received.
fn outside(truth: &Truth) -> HashMap<u64, (i64, i64)> {
    let calls = truth
        .calls
        .iter()
        .filter(|it| it.name == "outside" && it.item > FIRST);
    calls
        .map(|it| (it.item, (it.enter as i64, it.leave as i64)))
        .collect()
}

fn median(values: Vec<f64>) -> f64 {
    Spread::of(values).median
}

/// The median of values of packets of each type.
fn by_type(values: impl Iterator<Item = (u64, f64)>) -> [f64; 3] {
    let mut all = [const { Vec::new() }; 3];
    values.for_each(|(id, value)| all[kind(id)].push(value));
    all.map(median)
}

fn latencies(truth: &Truth) -> [f64; 3] {
    let all = outside(truth).into_iter();
    by_type(all.map(|(id, (sent, received))| (id, (received - sent) as f64 / 1e3)))
}

/// Each stage of each packet: probe, begin, duration and net time, ns. A visit of a burst is one of each of its packets.
fn visits_of_packets(lab: &Lab) -> Result<Vec<(u64, [i64; 4])>> {
    let trace = lab.trace();
    let has_bursts = trace.join("batch_items").exists();
    let items = match has_bursts {
        true => {
            "select v.*, coalesce(b.item_id, v.item_id) id from 'TRACE/visits/*.parquet' v
            left join 'TRACE/batch_items/*.parquet' b on b.visit_id = v.visit_id"
        }
        false => "select *, item_id id from 'TRACE/visits/*.parquet'",
    };
    let rows = query(
        &trace,
        &format!(
            "select id, probe_id, begin_ns, duration_ns, coalesce(net_ns, duration_ns) from ({items}) where id is not null"
        ),
    )?;
    let read = |row: Vec<String>| {
        let [id, rest @ ..] = &row[..] else {
            anyhow::bail!("an empty row");
        };
        let rest: Result<Vec<i64>, _> = rest.iter().map(|word| word.parse()).collect();
        let rest = rest.context("a visit without an end")?.try_into();
        Ok((id.parse()?, rest.ok().context("a short row")?))
    };
    rows.into_iter().map(read).collect()
}

impl Round {
    fn record(
        lab: &Lab,
        program: &Path,
        args: &[&str],
        stages: &[&str],
        reset: u64,
    ) -> Result<Self> {
        realtime::run(lab, program, args, stages, reset)?;
        let truth = lab.truth()?;
        let mut seen: HashMap<u64, Seen> = HashMap::new();
        for (id, visit) in visits_of_packets(lab)? {
            let [probe, begin, duration, net] = visit;
            let seen = seen.entry(id).or_default();
            seen.stages += 1;
            seen.begin = seen.begin.min(begin);
            seen.end = seen.end.max(begin + duration);
            seen.own += duration - net;
            if probe == 1 {
                seen.classified = net as f64 / 1e3;
            }
        }
        // The trace's clock begins elsewhere than the log's.
        let clock = lab.info()?["monotonic_ns"].as_i64().context("no clock")?;
        let (mut sum, mut own) = (Vec::new(), Vec::new());
        let (mut before, mut after, mut classified) = (Vec::new(), Vec::new(), Vec::new());
        for (id, (sent, received)) in outside(&truth) {
            let Some(seen) = seen.get(&id).filter(|it| it.stages == 3) else {
                continue;
            };
            let whole = (received - sent) as f64;
            sum.push((seen.end - seen.begin) as f64 / whole);
            own.push(seen.own as f64 / whole);
            before.push((seen.begin + clock - sent) as f64 / 1e3);
            after.push((seen.end + clock - received) as f64 / 1e3);
            classified.push((id, seen.classified));
        }
        Ok(Self {
            whole: sum.len() as f64 / outside(&truth).len() as f64,
            outside: latencies(&truth),
            classified: by_type(classified.into_iter()),
            sum: quantiles(sum, [0.16, 0.5, 0.84]),
            own: median(own),
            before: median(before),
            after: median(after),
        })
    }
}

/// A packet in a trace; times on its clock, ns.
struct Seen {
    stages: u32,
    begin: i64,
    end: i64,
    own: i64,
    /// Net time in the second stage, us.
    classified: f64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            stages: 0,
            begin: i64::MAX,
            end: i64::MIN,
            own: 0,
            classified: f64::NAN,
        }
    }
}

/// Median over rounds of a figure.
fn typical(rounds: &[Round], of: impl Fn(&Round) -> f64) -> Spread {
    Spread::of(rounds.iter().map(of).collect())
}

fn is_ordered([a, b, c]: [f64; 3]) -> bool {
    a > b && b > c
}

/// Rounds at one reset value.
struct Row {
    name: String,
    reset: u64,
    rounds: Vec<Round>,
    /// Mean latency of the types less that without recording in the same round, us.
    longer: Vec<f64>,
}

impl Row {
    fn new(name: String, reset: u64) -> Self {
        Self {
            name,
            reset,
            rounds: Vec::new(),
            longer: Vec::new(),
        }
    }

    fn add(&mut self, round: Round, alone: [f64; 3]) {
        self.longer.push(mean(&round.outside) - mean(&alone));
        self.rounds.push(round);
    }

    fn sum(&self) -> f64 {
        typical(&self.rounds, |it| it.sum[1]).median
    }

    fn cells(&self) -> String {
        let of = |of: &dyn Fn(&Round) -> f64| typical(&self.rounds, of).median;
        let [a, b, c] = [0, 1, 2].map(|t| typical(&self.rounds, |it| it.outside[t]));
        let [x, y, z] = [0, 1, 2].map(|t| of(&|it| it.classified[t]));
        let [low, middle, high] = [0, 1, 2].map(|at| 100.0 * of(&|it| it.sum[at]));
        format!(
            "{} | {} | {a:.0} | {b:.0} | {c:.0} | {x:.0} | {y:.0} | {z:.0} | {middle:.1} ({low:.1} .. {high:.1}) | {:.1} | {:.0} | {:.0} | {:+.0}",
            self.name,
            self.reset / 1000,
            100.0 * of(&|it| it.own),
            of(&|it| it.before),
            of(&|it| it.after),
            Spread::of(self.longer.clone()),
        )
    }
}

fn rows() -> Vec<Row> {
    let published = PUBLISHED.iter().enumerate().map(|(at, (reset, _))| {
        let ns = (published_us(at) * SLOWER).round() as u64 * 1000;
        Row::new(format!("{reset}"), ns)
    });
    let rare = RARE.iter().map(|ns| Row::new("none".to_owned(), *ns));
    published.chain(rare).collect()
}

pub fn measure(lab: &Lab) -> Result<Section> {
    let libraries = ["acl", "eal", "ethdev", "mbuf", "mempool", "ring"];
    let program = acl::build(lab, "firewall", &libraries)?;
    let short = |packets: usize| if lab.quick { packets / 5 } else { packets }.to_string();
    let (packets, many, times) = (short(PACKETS), short(IN_BURSTS), TIMES.to_string());
    let singly = [packets.as_str(), &times, "1", "1"];
    let in_bursts = [many.as_str(), &times, TRAIN, TRAIN];
    let mut rows = rows();
    let mut bursts = Row::new("bursts".to_owned(), RARE[1]);
    let mut alone = [const { Vec::new() }; 3];
    for _ in 0..lab.rounds(ROUNDS) {
        let log = latencies(&realtime::alone(lab, &program, &singly)?);
        for (all, us) in alone.iter_mut().zip(log) {
            all.push(us);
        }
        for row in &mut rows {
            row.add(
                Round::record(lab, &program, &singly, &SINGLY, row.reset)?,
                log,
            );
        }
        let log = latencies(&realtime::alone(lab, &program, &in_bursts)?);
        let round = Round::record(lab, &program, &in_bursts, &BURSTS, bursts.reset)?;
        bursts.add(round, log);
    }
    let alone = alone.map(Spread::of);
    Ok(Section {
        title: "Figures 9 and 10 from outside: the firewall as a pipeline, and a tester at its ports",
        published: "Three threads, two software queues, two NICs; latency by a hardware tester (GNET), packets sent so that none are \
                    batched. The figures are those of the section before."
            .to_owned(),
        ours: ours(&rows, &bursts, alone),
        differs: differs(&rows, &bursts),
        pictures: vec![("firewall.svg", picture(&rows, alone))],
        musts: musts(&rows, &bursts, alone),
    })
}

fn ours(rows: &[Row], bursts: &Row, [a, b, c]: [Spread; 3]) -> String {
    let mut table = Table::new(
        "R in the paper: | here, us: | A: | B: | C: | A, stage: | B, stage: | C, stage: | sum, % of outside: | own time, %: | before, us: | \
         after, us: | longer, us:",
    );
    table.row(format_args!(
        "without | | {a:.0} | {b:.0} | {c:.0} | | | | | | | | "
    ));
    for row in rows.iter().chain([bursts]) {
        table.row(row.cells());
    }
    format!(
        "`tests/workloads/firewall.c` on Debian's DPDK: RX, ACL and TX with two rte_rings between net_af_packet ports on veth pairs; \
         RX, TX and the tester share a CPU. A packet is classified {TIMES} times. A, B and C are latencies outside in us (sent to \
         received, by the tester): the median of {} rounds with its interval of 95 %, each round the median of its packets; *stage* \
         is the net time in the stage that classifies. *Sum* has all stages and the waits in the rings, with pebs-trace's own time, \
         as part of each packet's latency outside: the median and the middle 68 % of the packets of a round. *Before* is from \
         sending to the first stage, *after* from arrival at the tester to the end of the last one: neither is in a queue of the \
         pipeline, and they have opposite signs in the sum. *Longer* is Figure 10: mean latency of the types less that without \
         recording. The last row has trains of {TRAIN} packets, in bursts of as many at most.\n\n{table}",
        rows.first().map_or(0, |it| it.rounds.len()),
    )
}

fn differs(rows: &[Row], bursts: &Row) -> String {
    let first = rows
        .first()
        .map_or(f64::NAN, |it| typical(&it.rounds, |it| it.before).median);
    let burst = typical(&bursts.rounds, |it| it.before).median;
    format!(
        "*The port.* No function has the packet while it is in the port: {first:.0} us singly, {burst:.0} us in a train, which the tester \
         takes to send. It is part of the latency outside and of no stage. The last stage ends after the packet's arrival, as the \
         tester runs first on the CPU that it shares with TX. Both are little of a packet that is classified {TIMES} times; of one \
         that is classified once, 26 us outside on an idle machine, they are a third each. *In bursts* packets wait for all of their \
         burst, so that their types have the same latency."
    )
}

fn musts(rows: &[Row], bursts: &Row, alone: [Spread; 3]) -> Verdict {
    let mut musts = Verdict::default();
    let percent = 100.0 * MOST_OFF;
    let sums: Vec<f64> = rows.iter().map(Row::sum).collect();
    let is_near = |sum: &f64| (sum - 1.0).abs() <= MOST_OFF;
    musts.goal(
        format!(
            "stages and waits in queues, with pebs-trace's own time, are within {percent:.0} % of the latency outside at each R, singly"
        ),
        sums.iter().all(is_near),
    );
    musts.goal(
        format!("the same in bursts ({:.1} %)", 100.0 * bursts.sum()),
        is_near(&bursts.sum()),
    );
    let mut all = rows.iter().chain([bursts]).flat_map(|it| &it.rounds);
    musts.goal(
        "99 % of the packets at least have all three stages, in every round",
        all.all(|it| it.whole >= 0.99),
    );
    let outside = rows.iter().flat_map(|it| &it.rounds);
    musts.goal(
        "A above B above C outside, in every round at each R and without recording",
        outside.clone().all(|it| is_ordered(it.outside)) && is_ordered(alone.map(|it| it.median)),
    );
    musts.goal(
        "the same in the stage that classifies",
        outside.clone().all(|it| is_ordered(it.classified)),
    );
    let longer: Vec<Spread> = rows
        .iter()
        .map(|it| Spread::of(it.longer.clone()))
        .collect();
    let rises = longer.windows(2).any(|two| two[1].is_above(two[0]));
    let falls = matches!(&longer[..], [first, .., last] if first.median > last.median);
    musts.goal(
        "Figure 10's shape: recording adds less at the largest R than at the first, and rises with none",
        falls && !rises,
    );
    musts
}

fn picture(rows: &[Row], alone: [Spread; 3]) -> String {
    let at = |row: &Row| row.reset as f64 / 1e3;
    let published = &rows[..PUBLISHED.len()];
    let ends = [published.first(), published.last()].map(|it| it.map_or(0.0, at));
    let levels = alone.iter().zip(["without recording", "", ""]);
    let levels = levels.map(|(it, name)| line(name, ends.map(|x| (x, it.median)).to_vec()));
    let all = || {
        published
            .iter()
            .flat_map(|row| [0, 1, 2].map(|t| (at(row), typical(&row.rounds, |it| it.outside[t]))))
    };
    let latency = levels
        .chain(intervals(all()))
        .chain([pictures::medians("A above B above C", all())]);
    let longer = || {
        let rows = rows.iter();
        rows.map(|row| (at(row), Spread::of(row.longer.clone())))
    };
    let added = intervals(longer()).chain([pictures::medians("measured", longer())]);
    let panels = [
        pictures::panel(
            "latency outside (Figure 9)",
            "R, us",
            "us",
            latency.collect(),
        ),
        pictures::panel(
            "longer than without (Figure 10)",
            "R, us",
            "us longer",
            added.collect(),
        ),
    ];
    draw(
        "Packets through the firewall, by the tester outside",
        &panels,
    )
}
