//! Ring contents as text.
//!
//! ```text
//! # comment
//! cpu 0                                  the lines below go into this CPU's ring
//!   begin 100 7/71 p0 sp=1000 id=5 kind=3 key=a
//!   end 200 7/71 p1 id=5                 also: ret, next
//!   sample 120 7/71 ip=1234 sp=900       also: event=1 exact kernel perf (time of the perf clock)
//!   out 130 7/71 run ip=1234             also: sleep, disk
//!   in 140 7/71
//!   fork 150 7/71 child=8/81
//!   exec 160 7/71 old=72
//!   exit 170 7/71 last
//!   throttle 175 7/71                    also: event=1
//!   clock 180 perf=80
//!   discard 4                            a record of 4 words that its program gave up
//!   words f 1 2                          a record of these words (hex)
//!   bytes 0a 0b                          loose bytes without a frame
//! drain 500                              the rings are taken; the frontier is 500
//! drain                                  the rings are taken; the frontier stays
//! workload cpus=2 threads=5 records=400 seed=1    all steps of a synthetic workload
//! brief                                  only sums are wanted
//! hold 50                                samples held for open visits at most
//! ```
//!
//! Times are ns on the trace clock, addresses are hex. Probes: p0 is a call with the arguments
//! `kind` (number) and `key` (string of 8 bytes at most), p1 by thread, p2 by id, p3 until the next.

use pebs_common::record::{Head, Kind, Role, TaskKind, mark_flag, sample_flag, switch_flag};
use pebs_user::pipeline::synthetic::{self, Workload, frame, frame_words};
use pebs_user::probe::set::{ArgField, Probe, ProbeSet};
use pebs_user::store::run::VisitRule;
use pebs_user::store::schema::{ArgColumn, ArgType};
use pebs_user::units::ProbeId;

/// `CLOCK_MONOTONIC` of ns 0.
pub const ORIGIN: u64 = synthetic::START_NS;

/// A drain of the rings.
#[derive(Debug, Default)]
pub struct Step {
    /// Bytes by CPU.
    pub streams: Vec<(u16, Vec<u8>)>,
    /// Frontier, ns on the trace clock; `None`: no more records will come.
    pub frontier: Option<i64>,
}

impl Step {
    fn ring(&mut self, cpu: u16) -> &mut Vec<u8> {
        let index = self
            .streams
            .iter()
            .position(|(c, _)| *c == cpu)
            .unwrap_or_else(|| {
                self.streams.push((cpu, Vec::new()));
                self.streams.len() - 1
            });
        &mut self.streams[index].1
    }
}

/// The probes that scripts refer to.
pub fn probes() -> ProbeSet {
    let rules = [
        VisitRule::Call,
        VisitRule::ByThread,
        VisitRule::ById,
        VisitRule::UntilNext,
    ];
    let probes = rules.into_iter().zip(0u16..).map(|(rule, n)| Probe {
        id: ProbeId(n),
        begin_fields: if n == 0 { fields() } else { Vec::new() },
        ..Probe::without_sites(String::new(), rule)
    });
    let column = |name: &str, kind| ArgColumn {
        name: name.to_owned(),
        r#type: kind,
    };
    ProbeSet {
        probes: probes.collect(),
        columns: vec![column("kind", ArgType::U64), column("key", ArgType::Str)],
        ..ProbeSet::default()
    }
}

fn fields() -> Vec<ArgField> {
    vec![
        ArgField {
            column: 0,
            bit: 0,
            offset: 0,
            r#type: ArgType::U64,
            names: None,
            redact: None,
        },
        ArgField {
            column: 1,
            bit: 1,
            offset: 8,
            r#type: ArgType::Str,
            names: None,
            redact: None,
        },
    ]
}

#[derive(Debug, Default)]
pub struct Script {
    /// The drains, in order.
    pub steps: Vec<Step>,
    /// Only sums are printed.
    pub brief: bool,
    /// Maximum number of samples held for open visits.
    pub hold: usize,
}

impl Script {
    /// The same script with a single drain.
    pub fn in_one_drain(&self) -> Self {
        let mut all = Step::default();
        for (cpu, bytes) in self.steps.iter().flat_map(|step| &step.streams) {
            all.ring(*cpu).extend(bytes);
        }
        Self {
            steps: vec![all],
            brief: self.brief,
            hold: self.hold,
        }
    }
}

/// Parses a script. Panics if it is invalid.
pub fn parse(text: &str) -> Script {
    let (mut steps, mut step, mut cpu) = (Vec::new(), Step::default(), 0);
    let (mut brief, mut hold) = (false, 1000);
    let mut frontier = i64::MIN;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().take_while(|w| *w != "#").collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["cpu", number] => cpu = number.parse().unwrap(),
            ["drain", ref time @ ..] => {
                frontier = time.first().map_or(frontier, |time| time.parse().unwrap());
                step.frontier = Some(frontier);
                steps.push(std::mem::take(&mut step));
            }
            ["brief"] => brief = true,
            ["hold", number] => hold = number.parse().unwrap(),
            ["workload", ..] => steps.extend(workload(&Line(&words))),
            _ => record(step.ring(cpu), &Line(&words)),
        }
    }
    assert!(step.streams.is_empty(), "no drain after the last record");
    Script { steps, brief, hold }
}

fn workload(line: &Line<'_>) -> Vec<Step> {
    let number = |name| line.value(name).unwrap().parse::<u32>().unwrap();
    let workload = Workload {
        cpus: number("cpus") as u16,
        threads: number("threads"),
        records: number("records") as usize,
        seed: number("seed").into(),
        ..Workload::default()
    };
    let steps = synthetic::batches(&workload).into_iter().map(|batch| Step {
        streams: batch
            .streams
            .into_iter()
            .map(|(cpu, bytes)| (cpu.0, bytes))
            .collect(),
        frontier: Some((batch.frontier.0 - ORIGIN) as i64),
    });
    steps.collect()
}

/// The words of a line.
struct Line<'a>(&'a [&'a str]);

impl<'a> Line<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name).map(|value| value.parse().unwrap())
    }

    fn hex(&self, name: &str) -> u64 {
        self.value(name)
            .map_or(0, |value| u64::from_str_radix(value, 16).unwrap())
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn time(&self) -> u64 {
        ORIGIN.wrapping_add_signed(self.0[1].parse().unwrap())
    }

    fn head(&self, kind: Kind, flags: u8, index: u8) -> u64 {
        let (pid, tid) = pid_tid(self.0[2]);
        Head::new(kind, flags, index, pid, tid).0
    }

    fn hex_words(&self) -> impl Iterator<Item = u64> {
        self.0[1..]
            .iter()
            .map(|word| u64::from_str_radix(word, 16).unwrap())
    }
}

fn pid_tid(text: &str) -> (u32, u32) {
    let (pid, tid) = text.split_once('/').unwrap();
    (pid.parse().unwrap(), tid.parse().unwrap())
}

fn record(ring: &mut Vec<u8>, line: &Line<'_>) {
    match line.0[0] {
        "begin" => mark(ring, line, Role::Begin),
        "end" => mark(ring, line, Role::End),
        "ret" => mark(ring, line, Role::Return),
        "next" => mark(ring, line, Role::Next),
        "sample" => sample(ring, line),
        "out" => switch_out(ring, line),
        "in" => frame_words(ring, &[line.head(Kind::SwitchIn, 0, 0), line.time(), 0, 0]),
        "fork" => {
            let (pid, tid) = pid_tid(line.value("child").unwrap());
            let child = u64::from(pid) | u64::from(tid) << 32;
            frame_words(
                ring,
                &[
                    line.head(Kind::Task, TaskKind::Fork as u8, 0),
                    line.time(),
                    child,
                ],
            );
        }
        "exec" => {
            let old = line.number("old").unwrap();
            frame_words(
                ring,
                &[
                    line.head(Kind::Task, TaskKind::Exec as u8, 0),
                    line.time(),
                    old,
                ],
            );
        }
        "exit" => {
            let last = line.has("last").into();
            frame_words(
                ring,
                &[
                    line.head(Kind::Task, TaskKind::Exit as u8, 0),
                    line.time(),
                    last,
                ],
            );
        }
        "throttle" => {
            let event = line.number("event").unwrap_or(0) as u8;
            let head = line.head(Kind::Task, TaskKind::Throttle as u8, event);
            frame_words(ring, &[head, line.time(), 0]);
        }
        "clock" => {
            let head = Head::new(Kind::Clock, 0, 0, 0, 0).0;
            frame_words(ring, &[head, line.time(), line.number("perf").unwrap()]);
        }
        "discard" => frame(
            ring,
            &vec![0xff; line.0[1].parse::<usize>().unwrap() * 8],
            true,
        ),
        "words" => frame_words(ring, &line.hex_words().collect::<Vec<u64>>()),
        "bytes" => ring.extend(line.hex_words().map(|byte| byte as u8)),
        other => panic!("no such line: {other}"),
    }
}

fn mark(ring: &mut Vec<u8>, line: &Line<'_>, role: Role) {
    let probe = line.0[3].strip_prefix('p').unwrap().parse().unwrap();
    let id = line.number("id");
    let flags = role as u8 | if id.is_some() { mark_flag::ID_VALID } else { 0 };
    let (kind, key) = (line.number("kind"), line.value("key"));
    let with_args = kind.is_some() || key.is_some();
    let head = line.head(
        if with_args {
            Kind::MarkArgs
        } else {
            Kind::Mark
        },
        flags,
        probe,
    );
    let mark = [head, line.time(), line.hex("sp"), id.unwrap_or(0)];
    if !with_args {
        return frame_words(ring, &mark);
    }
    let text = key.unwrap_or("").as_bytes();
    let mut bytes = [0; 8];
    bytes[..text.len()].copy_from_slice(text);
    let valid = u64::from(kind.is_some()) | u64::from(key.is_some()) << 1;
    let args = [
        valid,
        kind.unwrap_or(0),
        text.len() as u64,
        u64::from_ne_bytes(bytes),
    ];
    frame_words(ring, &[mark, args].concat());
}

fn sample(ring: &mut Vec<u8>, line: &Line<'_>) {
    let flags = [
        ("exact", sample_flag::EXACT_IP),
        ("kernel", sample_flag::KERNEL),
        ("perf", sample_flag::PERF_CLOCK),
    ];
    let flags = flags
        .iter()
        .filter(|(word, _)| line.has(word))
        .fold(0, |all, (_, bit)| all | bit);
    let event = line.number("event").unwrap_or(0) as u8;
    let time = if line.has("perf") {
        line.time() - ORIGIN
    } else {
        line.time()
    };
    let head = line.head(Kind::Sample, flags, event);
    frame_words(ring, &[head, time, line.hex("ip"), line.hex("sp")]);
}

fn switch_out(ring: &mut Vec<u8>, line: &Line<'_>) {
    let (flags, state) = match line.0[3] {
        "run" => (switch_flag::PREEMPTED, 0),
        "sleep" => (0, 1),
        "disk" => (0, 2),
        other => panic!("no such state: {other}"),
    };
    let head = line.head(Kind::SwitchOut, flags, 0);
    frame_words(ring, &[head, line.time(), line.hex("ip"), state]);
}
