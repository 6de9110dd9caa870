//! Parameters generated from a seed: a server, its load, and the hidden cause.

use serde::{Deserialize, Serialize};

use super::names::Names;
use crate::frame::random::Random;

/// Concurrency of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Shape {
    Threads,
    /// Threads that take them from a queue.
    Pool,
    /// One thread that takes them as its sockets are readable, one after the other.
    Loop,
    /// One thread that continues each of them in turns.
    Turns,
    /// Processes.
    Forked,
}

/// Language of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Language {
    C,
    Cpp,
    Rust,
    Go,
}

/// Cause of slow items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// A function does more for one kind of request.
    Cpu,
    /// Another item holds the lock.
    Lock,
    /// Many blocks are allocated and freed.
    Allocator,
    /// Memory is touched for the first time.
    PageFaults,
    /// A file is not in the page cache.
    ColdRead,
    /// Another process takes the CPU.
    Neighbour,
    /// Another process answers late.
    Dependency,
    /// Many items come at once.
    Queue,
    /// Data lies far apart.
    CacheMisses,
    /// A function that other items do not call.
    Callee,
    /// No cause: items differ by chance alone.
    Nothing,
}

/// All causes, by their numbers in the sources.
pub const CAUSES: [Cause; 11] = [
    Cause::Cpu,
    Cause::Lock,
    Cause::Allocator,
    Cause::PageFaults,
    Cause::ColdRead,
    Cause::Neighbour,
    Cause::Dependency,
    Cause::Queue,
    Cause::CacheMisses,
    Cause::Callee,
    Cause::Nothing,
];

/// All shapes, by their numbers in the sources.
pub const SHAPES: [Shape; 5] = [
    Shape::Threads,
    Shape::Pool,
    Shape::Loop,
    Shape::Turns,
    Shape::Forked,
];

/// Work of 100 ns or so.
const UNITS_PER_US: f64 = 10.0;

/// Least number of slow items in a run.
const MIN_SLOW: f64 = 50.0;

impl Cause {
    /// Shapes that it can strike.
    fn shapes(self) -> &'static [Shape] {
        match self {
            Self::Lock => &[Shape::Threads, Shape::Pool],
            Self::Neighbour => &[Shape::Pool, Shape::Loop],
            Self::Queue => &[Shape::Pool],
            Self::Dependency | Self::ColdRead => {
                &[Shape::Threads, Shape::Pool, Shape::Loop, Shape::Forked]
            }
            _ => &SHAPES,
        }
    }
}

/// One function of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub body: Body,
}

/// Body of a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Work of one of four sorts.
    Leaf { sort: usize },
    /// Such work, and the hidden cause.
    Culprit { sort: usize },
    /// Calls of functions defined before it.
    Node { calls: Vec<Call> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Number of the function.
    pub function: usize,
    /// Work, in units; of a leaf.
    pub units: u64,
    /// Range by which the work differs between items, percent.
    pub spread: u64,
}

/// Load on the machine, by a process that takes a CPU now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// CPU on which it runs, with the priority of others; `None`: any idle one.
    pub cpu: Option<usize>,
    pub run_us: u64,
    pub gap_us: u64,
}

/// One server with one hidden cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Mystery {
    pub seed: u64,
    pub cause: Cause,
    pub shape: Shape,
    pub language: Language,
    pub seconds: f64,
    pub workers: u64,
    pub period_ns: u64,
    pub slow_ppm: u64,
    /// The kind of request that is slow.
    pub kind: u64,
    /// Amount of the cause, in its own unit.
    pub extra: u64,
    /// Items that come at once; 0: no bursts.
    pub burst: u64,
    /// Lengths that items have in turn, at equal times; 0: lengths and times are by chance.
    pub lengths: u64,
    /// The CPU that the server keeps to.
    pub pinned: Option<usize>,
    /// Of two kinds of file reads, whether it is the one that drops pages from the page cache.
    pub drops: bool,
    pub load: Option<Bursts>,
    pub space: &'static str,
    pub handler: String,
    pub submit: String,
    pub accept: String,
    pub finish: String,
    /// In the order of their definition.
    pub functions: Vec<Function>,
    /// Functions that the handler calls in this order.
    pub steps: Vec<usize>,
    /// The function with the cause.
    pub culprit: String,
    /// The function that only slow items call, or that holds the lock.
    pub callee: String,
}

impl Mystery {
    /// Generates a mystery from a seed. It is the same for every run time, except for the share of slow items,
    /// which is raised to give enough of them.
    pub fn new(seed: u64, seconds: f64) -> Self {
        let random = &mut Random::new(seed);
        let cause = random.one(&CAUSES);
        let shape = random.one(cause.shapes());
        let language = match shape {
            Shape::Threads | Shape::Pool => {
                random.one(&[Language::C, Language::Cpp, Language::Rust, Language::Go])
            }
            _ => random.one(&[Language::C, Language::Cpp, Language::Rust]),
        };
        let workers = match (cause, shape) {
            (Cause::Neighbour, _) => 1,
            (Cause::Lock, _) => 3,
            _ => random.within(2, 3),
        };
        let item_us = item_us(cause, shape, random);
        let share = random.log_uniform(0.01, 0.08);
        let bigger = random.log_uniform(1.5, 10.0);
        let extra_us = (item_us * bigger).max(40.0);
        // In CPUs of a machine of two.
        let busy = match (shape, cause) {
            // Rarely two at a time: else a slow item also slows those that alternate with it.
            (Shape::Turns, _) => random.uniform(0.04, 0.12),
            (Shape::Loop, _) | (_, Cause::Neighbour) => random.uniform(0.25, 0.6),
            (_, Cause::Lock) => random.uniform(0.6, 1.0),
            _ => random.uniform(0.2, 0.7),
        };
        let on_cpu = !matches!(
            cause,
            Cause::Lock
                | Cause::ColdRead
                | Cause::Neighbour
                | Cause::Dependency
                | Cause::Queue
                | Cause::Nothing
        );
        let mean_us = item_us + if on_cpu { extra_us * share } else { 0.0 };
        let period_ns = (mean_us / busy * 1e3) as u64;
        let items = seconds * 1e9 / period_ns as f64;
        let share = share.max(MIN_SLOW / items);
        let burst = if cause == Cause::Queue {
            random.within(12, 30)
        } else {
            0
        };
        let extra_us = if burst > 0 {
            item_us * burst as f64 / workers as f64
        } else {
            extra_us
        };
        let (extra, slow_ppm) = amount(cause, item_us, extra_us, share, random);
        let mut names = Names::new(language);
        let mut it = Self {
            seed,
            cause,
            shape,
            language,
            seconds,
            workers,
            period_ns,
            slow_ppm,
            kind: random.within(1, 6),
            extra,
            burst,
            lengths: if burst > 0 { 0 } else { lengths(seed) },
            pinned: (cause == Cause::Neighbour).then(|| random.below(2)),
            drops: random.below(2) == 0,
            load: None,
            space: Names::space(random),
            handler: names.handler(random),
            submit: names.function(random),
            accept: names.function(random),
            finish: names.function(random),
            functions: Vec::new(),
            steps: Vec::new(),
            culprit: names.function(random),
            callee: names.function(random),
        };
        it.load = load(&it, random);
        it.plant(item_us, &mut names, random);
        it
    }

    /// Grows the functions: leaves with work, nodes that call them, the culprit somewhere among them.
    fn plant(&mut self, item_us: f64, names: &mut Names, random: &mut Random) {
        let is_null = self.cause == Cause::Nothing;
        let leaves = random.within(5, 8) as usize;
        // In a null case no function varies by more than others.
        let spread = random.one(&[0, 20, 40]);
        let mut weights: Vec<u64> = (0..=leaves)
            .map(|_| {
                if is_null {
                    random.within(2, 3)
                } else {
                    random.within(1, 5)
                }
            })
            .collect();
        let all: u64 = weights.iter().sum();
        // Work that every item does with or without the lock.
        let held = if self.cause == Cause::Lock {
            self.extra as f64
        } else {
            0.0
        };
        let units = (item_us * UNITS_PER_US - held).max(20.0);
        for weight in &mut weights {
            *weight = (units * *weight as f64 / all as f64) as u64;
        }
        if matches!(self.cause, Cause::Callee | Cause::Lock) {
            let body = Body::Leaf {
                sort: random.below(4),
            };
            self.functions.push(Function {
                name: self.callee.clone(),
                body,
            });
        }
        let mut calls = Vec::new();
        for (at, weight) in weights.into_iter().enumerate() {
            let sort = random.below(4);
            let (name, body) = if at == 0 {
                (self.culprit.clone(), Body::Culprit { sort })
            } else {
                (names.function(random), Body::Leaf { sort })
            };
            let spread = if is_null {
                spread
            } else {
                random.within(5, 50)
            };
            calls.push(Call {
                function: self.functions.len(),
                units: weight,
                spread,
            });
            self.functions.push(Function { name, body });
        }
        random.shuffle(&mut calls);
        // Nodes of one to three calls, some of which another node calls.
        while !calls.is_empty() {
            let many = random.within(1, 3) as usize;
            let mut own: Vec<Call> = calls.drain(..many.min(calls.len())).collect();
            if self.steps.len() > 1 && random.below(3) == 0 {
                let function = self.steps.remove(random.below(self.steps.len()));
                own.push(Call {
                    function,
                    units: 0,
                    spread: 0,
                });
            }
            self.steps.push(self.functions.len());
            let name = names.function(random);
            self.functions.push(Function {
                name,
                body: Body::Node { calls: own },
            });
        }
    }

    /// Name in a table: `pool, C++`.
    pub fn describe(&self) -> String {
        let regular = match self.lengths {
            0 => String::new(),
            1 => ", equal items".to_owned(),
            n => format!(", items of {n} lengths in turn"),
        };
        format!(
            "{}, {}, {}{regular}",
            self.cause.name(),
            self.shape.name(),
            self.language.name()
        )
    }
}

/// Lengths of the items of one mystery in four: equal ones, or a few. Drawn apart, so that all else is as it was.
fn lengths(seed: u64) -> u64 {
    let random = &mut Random::new(!seed);
    match random.below(4) {
        0 => random.one(&[1, 1, 2, 3, 5]),
        _ => 0,
    }
}

/// Mean time of an item without the cause.
fn item_us(cause: Cause, shape: Shape, random: &mut Random) -> f64 {
    match (cause, shape) {
        (Cause::Lock, _) => random.log_uniform(150.0, 500.0),
        (Cause::ColdRead, Shape::Threads) => random.log_uniform(80.0, 150.0),
        (Cause::ColdRead, _) => random.log_uniform(25.0, 120.0),
        (_, Shape::Threads) => random.log_uniform(80.0, 600.0),
        (Cause::Queue | Cause::Dependency, _) => random.log_uniform(50.0, 300.0),
        _ => random.log_uniform(25.0, 600.0),
    }
}

/// Amount of the cause, and its share of items (ppm).
fn amount(
    cause: Cause,
    item_us: f64,
    extra_us: f64,
    share: f64,
    random: &mut Random,
) -> (u64, u64) {
    let ppm = (share * 1e6) as u64;
    match cause {
        Cause::Cpu | Cause::Callee => ((extra_us * UNITS_PER_US) as u64, ppm),
        // Half the item's work or more, for some items under the lock.
        Cause::Lock => {
            let part = random.uniform(0.5, 0.8);
            let ppm = random.uniform(0.05, 0.15) * 1e6;
            ((item_us * UNITS_PER_US * part) as u64, ppm as u64)
        }
        // Rounds of 64 blocks, 4 us or so each.
        Cause::Allocator => ((extra_us / 4.0).ceil() as u64, ppm),
        // 0.5 us or so a page.
        Cause::PageFaults => ((extra_us / 0.5).ceil() as u64, ppm),
        Cause::ColdRead => (random.within(4, 48), ppm),
        // Microseconds.
        Cause::Dependency => (extra_us.max(200.0) as u64, ppm),
        // Some 90 ns a step.
        Cause::CacheMisses => ((extra_us / 0.09) as u64, ppm),
        // Items that wait for longer than this, ns, are slow: half of a burst.
        Cause::Queue => ((extra_us * 500.0) as u64, ppm * 2),
        Cause::Neighbour | Cause::Nothing => (0, ppm),
    }
}

/// A neighbour on the CPU of the server, or some load on any.
fn load(it: &Mystery, random: &mut Random) -> Option<Bursts> {
    if it.cause == Cause::Neighbour {
        return Some(Bursts {
            cpu: it.pinned,
            run_us: random.within(2000, 8000),
            gap_us: random.within(20_000, 60_000),
        });
    }
    let run_us = random.within(200, 2000);
    let gap_us = run_us * random.within(4, 12);
    (random.below(5) < 2).then_some(Bursts {
        cpu: None,
        run_us,
        gap_us,
    })
}

impl Cause {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU for one kind",
            Self::Lock => "lock of another item",
            Self::Allocator => "allocator",
            Self::PageFaults => "page faults",
            Self::ColdRead => "cold read",
            Self::Neighbour => "neighbour on the CPU",
            Self::Dependency => "slow dependency",
            Self::Queue => "queue",
            Self::CacheMisses => "cache misses",
            Self::Callee => "rare callee",
            Self::Nothing => "nothing",
        }
    }
}

impl Shape {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "thread per request",
            Self::Pool => "pool",
            Self::Loop => "event loop",
            Self::Turns => "event loop, in turns",
            Self::Forked => "forked workers",
        }
    }
}

impl Language {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Rust => "Rust",
            Self::Go => "Go",
        }
    }
}
