//! Compares an explanation with the truth that a server logged.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mystery::{Cause, Language, Mystery};

/// Least share of a gap for a false cause to count as named: its interval must lie above.
const NAMED: f64 = 0.5;

/// Least number of items that a cause has to affect, and its least part of their excess: otherwise it is not the cause.
const MIN_STRUCK: usize = 20;
const MAIN: f64 = 0.5;

/// Tolerance of an interval against the truth, ns and share: the truth is read from the thread's CPU clock around the
/// cause, and includes the samples taken meanwhile.
const SLACK: (f64, f64) = (1000.0, 0.06);

/// A server's log entry of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The hidden cause struck.
    pub slow: bool,
    /// Time of the cause, ns; 0: unknown.
    pub cause_ns: u64,
    /// Duration measured around it by its caller.
    pub duration_ns: u64,
}

/// All items of a run, the longest first.
pub struct Truth(Vec<Entry>);

impl Truth {
    /// Reads a log.
    pub fn read(text: &str) -> Result<Self> {
        let mut all = Vec::new();
        for line in text.lines() {
            let words: Vec<u64> = line.split(' ').filter_map(|it| it.parse().ok()).collect();
            let [_, slow, cause_ns, duration_ns] = words[..] else {
                bail!("not an item: '{line}'");
            };
            all.push(Entry {
                slow: slow == 1,
                cause_ns,
                duration_ns,
            });
        }
        all.sort_by_key(|it| std::cmp::Reverse(it.duration_ns));
        Ok(Self(all))
    }

    /// Items that the cause struck.
    fn slow(&self) -> usize {
        self.0.iter().filter(|it| it.slow).count()
    }

    /// Why this run can't be judged: the cause affected too few items, or is less than half of the excess of the
    /// longest ones, mostly because they had no CPU. That does not depend on the tool's answer.
    fn unclear(&self) -> Option<String> {
        let slow = self.slow();
        if slow < MIN_STRUCK {
            return Some(format!("it struck {slow} of {} items", self.0.len()));
        }
        let gap = self.excess_ns(slow, |it| it.duration_ns)?;
        let share = self.excess_ns(slow, |it| it.cause_ns)? / gap;
        (share < MAIN).then(|| {
            format!(
                "it is {:.0} % of what the {slow} longest take longer",
                share * 100.0
            )
        })
    }

    /// Mean of something over the longest items less that over the middle half.
    fn excess_ns(&self, longest: usize, of: impl Fn(&Entry) -> u64) -> Option<f64> {
        let n = self.0.len();
        let mean = |entries: &[Entry]| {
            let sum: u64 = entries.iter().map(&of).sum();
            (!entries.is_empty()).then(|| sum as f64 / entries.len() as f64)
        };
        Some(mean(self.0.get(..longest)?)? - mean(self.0.get(n / 4..n * 3 / 4)?)?)
    }
}

/// One cause, as the tool ranks it.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    kind: String,
    name: String,
    kernel: bool,
    /// Whether it ran in page faults.
    in_faults: bool,
    /// System call in which it ran; empty: none.
    system_call: String,
    share: f64,
    share_low: Option<f64>,
    /// Lower and upper end.
    excess_ns: Option<(f64, f64)>,
    /// For several functions of a module: the largest of them.
    functions: Vec<Self>,
}

impl Row {
    fn of(cause: &Value) -> Result<Self> {
        let number = |key: &str| cause[key].as_f64();
        Ok(Self {
            kind: cause["kind"]
                .as_str()
                .context("a cause without its kind")?
                .to_owned(),
            name: cause["function"]["name"].as_str().unwrap_or("").to_owned(),
            kernel: cause["function"]["kernel"] == true,
            in_faults: cause["function"]["kernel_entry"] == "page fault",
            system_call: cause["function"]["system_call"]
                .as_str()
                .unwrap_or("")
                .to_owned(),
            share: number("share").context("a cause without its share")?,
            share_low: number("share_low"),
            excess_ns: number("excess_low_ns").zip(number("excess_high_ns")),
            functions: rows(&cause["functions"])?,
        })
    }

    /// Its function's name without namespaces, parameters and suffixes of compilers, for functions of the program.
    fn bare(&self) -> &str {
        let name = self.name.split(['(', '<']).next().unwrap_or("");
        let name = name.rsplit("::").next().unwrap_or("");
        let name = name.strip_prefix("main.").unwrap_or(name);
        let name = name.split('.').next().unwrap_or("");
        name.trim()
    }

    fn says(&self) -> String {
        let first = self.functions.first();
        let name = first.map_or_else(|| self.name.clone(), |it| format!("of {}", it.name));
        let name = format!("{name} {}", self.system_call);
        format!("{} {name} {:.0} %", self.kind, self.share * 100.0)
    }

    /// Whether this is the true cause; for several functions, whether most of their listed share is.
    fn is_right(&self, it: &Mystery) -> bool {
        if !self.functions.is_empty() {
            let share = |row: &&Self| row.share.max(0.0);
            let all: f64 = self.functions.iter().map(|row| share(&row)).sum();
            let right = self.functions.iter().filter(|row| row.is_right(it));
            return right.map(|row| share(&row)).sum::<f64>() >= MAIN * all && all > 0.0;
        }
        let has = |words: &[&str]| {
            words
                .iter()
                .any(|word| self.name.to_lowercase().contains(word))
        };
        let culprit = !self.kernel && self.bare() == it.culprit;
        let callee = !self.kernel && self.bare() == it.callee;
        let (function, waits) = (self.kind == "function", self.kind == "wait");
        match it.cause {
            Cause::Cpu | Cause::CacheMisses => function && culprit,
            Cause::Callee => function && callee,
            Cause::Lock => waits && has(&["lll_lock", "mutex", "futex", "syscall"]),
            Cause::Allocator => {
                function
                    && (culprit
                        || !self.kernel && has(ALLOCATOR)
                        || it.language == Language::Go && self.name.starts_with("runtime."))
            }
            // Threads of a process wait for each other's changes of its memory.
            Cause::PageFaults => {
                self.in_faults
                    || function && (culprit || self.kernel && has(FAULTS))
                    || waits && has(&["map", "madvise"])
            }
            Cause::ColdRead => {
                let call = if it.language == Language::Go {
                    "syscall6"
                } else {
                    "read"
                };
                // The kernel's work for a read, and the wait for the disk.
                waits && has(&[call, "fadvise"]) || self.system_call.contains("read")
            }
            Cause::Neighbour => self.kind == "preempted",
            Cause::Dependency => {
                let call = if it.language == Language::Go {
                    "syscall"
                } else {
                    "read"
                };
                waits && has(&[call, "recv"])
            }
            Cause::Queue => self.kind == "handover",
            Cause::Nothing => false,
        }
    }

    /// Whether its time is the logged time of the cause, so that intervals can be compared.
    fn is_measured(&self, it: &Mystery) -> bool {
        self.is_right(it)
            && matches!(
                it.cause,
                Cause::Cpu | Cause::Callee | Cause::CacheMisses | Cause::Queue
            )
    }
}

/// Parts of the names of functions that allocate and free memory.
const ALLOCATOR: &[&str] = &[
    "alloc",
    "free",
    "operator new",
    "operator delete",
    "unlink_chunk",
    "consolidate",
    "_int_",
    "brk",
    "trim",
];

/// Parts of the names of the kernel's functions for a page, from the fault to its release.
const FAULTS: &[&str] = &[
    "page",
    "fault",
    "mm",
    "zap",
    "folio",
    "pte",
    "pmd",
    "pud",
    "unmap",
    "lru",
    "alloc",
    "free",
    "rmqueue",
    "clear",
    "memcg",
    "cgroup",
    "charge",
    "tlb",
    "vma",
    "mas_",
    "rmap",
    "pcp",
    "madvise",
    "zero",
    "obj_cgroup",
    "vm_",
    "swap",
];

/// Result of a mystery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The true cause is at this place, from 1.
    Found(usize),
    /// It is not among the causes.
    Missed,
    /// There was no cause, and none was named.
    Quiet,
    /// There was no cause, and one was named.
    Named,
    /// The run can't be judged.
    Unclear(String),
    /// The tool gave no explanation.
    Failed(String),
}

/// Verdict of the judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub outcome: Outcome,
    /// Whether the interval of the true cause contains its true time; `None`: unknown or no interval.
    pub covered: Option<bool>,
    /// Whether the first line of `explain` begins with the true cause, for any run with one: nothing is set aside by what
    /// is true, as a reader can't either.
    #[serde(default)]
    pub read_first: bool,
    /// The first ranked cause, and the truth.
    pub ranked: String,
}

/// Judges an explanation.
pub fn judge(it: &Mystery, truth: &Truth, explanation: &Value) -> Result<Verdict> {
    let whole = whole(explanation)?;
    let all = rows(&whole["gap"]["causes"])?;
    let answers = answers(it, whole)?;
    let longest = whole["slow"]["items"].as_u64().unwrap_or(0) as usize;
    let says = |rows: &Vec<Row>| {
        rows.iter()
            .take(4)
            .map(Row::says)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let causes: Vec<String> = answers.iter().map(says).collect();
    let ranked = format!(
        "{longest} slow by {}, {} true of {}: {}",
        whole["slow"]["rule"].as_str().unwrap_or("-"),
        truth.slow(),
        truth.0.len(),
        if causes.is_empty() {
            "no cause".to_owned()
        } else {
            causes.join("; ")
        }
    );
    let verdict = |outcome, covered| Verdict {
        outcome,
        covered,
        read_first: all.first().is_some_and(|row| row.is_right(it)),
        ranked,
    };
    if it.cause == Cause::Nothing {
        let named = answers.iter().filter_map(|rows| rows.first()).any(is_named)
            || on_cpu(explanation)?.first().is_some_and(is_named);
        return Ok(verdict(
            if named {
                Outcome::Named
            } else {
                Outcome::Quiet
            },
            None,
        ));
    }
    if let Some(why) = truth.unclear() {
        return Ok(verdict(Outcome::Unclear(why), None));
    }
    let Some(place) = place(it, &answers) else {
        return Ok(verdict(Outcome::Missed, None));
    };
    let mut measured = all.iter().filter(|row| row.is_measured(it));
    let covered = match (measured.next(), measured.next()) {
        (Some(row), None) => row
            .excess_ns
            .zip(truth.excess_ns(longest, |it| it.cause_ns)),
        _ => None,
    };
    let covered = covered.map(|(interval, truth)| holds(interval, truth));
    Ok(verdict(Outcome::Found(place), covered))
}

fn rows(causes: &Value) -> Result<Vec<Row>> {
    let causes = causes.as_array().map_or(&[][..], Vec::as_slice);
    causes.iter().map(Row::of).collect()
}

/// Causes by kind of slow items, as shown; without kinds, those of all slow items. If others remain, kinds with the
/// composition of typical items and kinds that had no CPU are left out: they occur on any machine.
fn answers(it: &Mystery, whole: &Value) -> Result<Vec<Vec<Row>>> {
    let kinds = whole["kinds"].as_array().map_or(&[][..], Vec::as_slice);
    if kinds.is_empty() {
        let all = rows(&whole["gap"]["causes"])?;
        return Ok(if all.is_empty() {
            Vec::new()
        } else {
            vec![all]
        });
    }
    let is_ordinary = |it: &&Value| it["ordinary"] == true;
    if it.cause != Cause::Nothing && kinds.iter().all(|it| is_ordinary(&it)) {
        // All kinds are the tail of the whole distribution: the first line has the overall causes.
        return Ok(vec![rows(&whole["gap"]["causes"])?]);
    }
    let named = kinds.iter().filter(|it| !is_ordinary(it));
    let mut answers: Vec<Vec<Row>> = named.map(|it| rows(&it["causes"])).collect::<Result<_>>()?;
    answers.retain(|rows| !rows.is_empty());
    let of_machine = |rows: &Vec<Row>| rows.first().is_some_and(|row| row.kind == "preempted");
    if it.cause != Cause::Neighbour && !answers.iter().all(of_machine) {
        answers.retain(|rows| !of_machine(rows));
    }
    Ok(answers)
}

/// The place of the true cause, from 1: in the first kind, or as the first cause of a later one.
fn place(it: &Mystery, answers: &[Vec<Row>]) -> Option<usize> {
    let within = answers.first()?.iter().position(|row| row.is_right(it));
    let first = |rows: &Vec<Row>| rows.first().is_some_and(|row| row.is_right(it));
    let across = answers.iter().position(first);
    within.into_iter().chain(across).min().map(|at| at + 1)
}

/// All items of the probe that has most.
fn whole(explanation: &Value) -> Result<&Value> {
    Ok(&largest(explanation)?["whole"])
}

/// The causes in its second sentence: of the items that are slow on the CPU; empty if it has none.
fn on_cpu(explanation: &Value) -> Result<Vec<Row>> {
    rows(&largest(explanation)?["slow_on_cpu"]["gap"]["causes"])
}

/// The probe that has most items.
fn largest(explanation: &Value) -> Result<&Value> {
    let probes = explanation["probes"]
        .as_array()
        .context("an explanation without probes")?;
    let most = probes.iter().max_by_key(|it| it["items"].as_u64());
    most.context("an explanation of no probe")
}

/// Whether a reader would take this for the cause. That a thread had no CPU, or was interrupted, is true on any machine.
fn is_named(row: &Row) -> bool {
    let of_program = matches!(row.kind.as_str(), "function" | "wait" | "handover") && !row.kernel;
    of_program && row.share_low.unwrap_or(row.share) > NAMED
}

fn holds((low, high): (f64, f64), truth: f64) -> bool {
    let slack = SLACK.0 + SLACK.1 * truth.abs();
    (low - slack..=high + slack).contains(&truth)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mystery(cause: Cause) -> Mystery {
        let mut it = (0..).map(|seed| Mystery::new(seed, 4.0));
        it.find(|it| it.cause == cause && it.language != Language::Go)
            .unwrap()
    }

    fn cause(kind: &str, name: &str, kernel: bool, share: f64, excess: f64) -> Value {
        json!({"kind": kind, "function": {"name": name, "kernel": kernel}, "share": share, "share_low": share - 0.1,
            "share_high": share + 0.1, "excess_ns": excess, "excess_low_ns": excess * 0.9, "excess_high_ns": excess * 1.1})
    }

    fn explanation(causes: &[Value]) -> Value {
        json!({"probes": [{"items": 1000, "whole": {"slow": {"items": 50, "rule": "gap"}, "gap": {"causes": causes}}}]})
    }

    /// 1,000 items of 100 us, 50 of which take 200 us more.
    fn truth() -> Truth {
        let line = |id: u64| match id % 20 {
            0 => format!("{id} 1 200000 300000\n"),
            _ => format!("{id} 0 0 {}\n", 100_000 + id),
        };
        Truth::read(&(0..1000).map(line).collect::<String>()).unwrap()
    }

    fn outcome(it: &Mystery, causes: &[Value]) -> Outcome {
        judge(it, &truth(), &explanation(causes)).unwrap().outcome
    }

    /// The place of the true cause counts, whatever the language adds to its name.
    #[test]
    fn right_answers() {
        let it = mystery(Cause::Cpu);
        let right = |name: &str| cause("function", name, false, 0.9, 200_000.0);
        let wrong = cause("function", "other", false, 0.05, 10_000.0);
        assert_eq!(
            outcome(&it, &[right(&it.culprit), wrong.clone()]),
            Outcome::Found(1)
        );
        assert_eq!(
            outcome(&it, &[wrong, right(&it.culprit)]),
            Outcome::Found(2)
        );
        for name in [
            format!("app::{}(request*, unsigned long)", it.culprit),
            format!("{}.isra.0", it.culprit),
            format!("main.{}", it.culprit),
        ] {
            assert_eq!(outcome(&it, &[right(&name)]), Outcome::Found(1), "{name}");
        }
    }

    /// A wrong answer is a miss, for each cause: another function, its caller, the right name of the wrong kind, no
    /// name.
    #[test]
    fn planted_wrong_answers() {
        use super::super::mystery::CAUSES;
        for of in CAUSES.into_iter().filter(|it| *it != Cause::Nothing) {
            let it = mystery(of);
            let none: [Value; 0] = [];
            assert_eq!(outcome(&it, &none), Outcome::Missed, "{of:?}");
            let wrong = [
                cause("function", &it.handler, false, 0.9, 2e5),
                cause("function", "irqentry_exit_to_user_mode", true, 0.9, 2e5),
                cause("function", "perf_swevent_event", true, 0.9, 2e5),
                cause("function", "bpf_prog_a1b2_mark", true, 0.9, 2e5),
                cause("wait", "clock_nanosleep", false, 0.9, 2e5),
                cause("wait", &it.culprit, false, 0.9, 2e5),
                cause("module", &it.culprit, false, 0.9, 2e5),
                cause("elsewhere", "", false, 0.9, 2e5),
            ];
            for row in wrong {
                assert_eq!(
                    outcome(&it, std::slice::from_ref(&row)),
                    Outcome::Missed,
                    "{of:?}: {row}"
                );
            }
        }
    }

    /// An interval beside the truth does not cover it, even if another row has part of the time.
    #[test]
    fn intervals() {
        let it = mystery(Cause::Callee);
        let judged = |excess: f64| {
            let causes = [cause("function", &it.callee, false, 0.9, excess)];
            judge(&it, &truth(), &explanation(&causes)).unwrap().covered
        };
        assert_eq!(judged(200_000.0), Some(true));
        assert_eq!(judged(215_000.0), Some(true));
        assert_eq!(judged(150_000.0), Some(false));
        assert_eq!(judged(260_000.0), Some(false));
    }

    /// Without a cause, a function with most of the gap is a false cause; noise of the machine and small parts are not.
    #[test]
    fn null_cases() {
        let it = mystery(Cause::Nothing);
        let function = |share| cause("function", &it.culprit, false, share, 1e4);
        assert_eq!(outcome(&it, &[function(0.9)]), Outcome::Named);
        assert_eq!(outcome(&it, &[function(0.3)]), Outcome::Quiet);
        assert_eq!(
            outcome(&it, &[cause("wait", "read", false, 0.9, 1e4)]),
            Outcome::Named
        );
        assert_eq!(
            outcome(&it, &[cause("preempted", &it.culprit, false, 0.9, 1e4)]),
            Outcome::Quiet
        );
        assert_eq!(outcome(&it, &[]), Outcome::Quiet);
        let mut second = explanation(&[]);
        second["probes"][0]["slow_on_cpu"]["gap"]["causes"] = json!([function(0.9)]);
        let judged = judge(&it, &truth(), &second).unwrap().outcome;
        assert_eq!(judged, Outcome::Named);
    }

    /// With several kinds of slow items, the first cause of each is an answer: a kind that had no CPU needs no answer,
    /// and a kind with the composition of typical items names nothing.
    #[test]
    fn kinds() {
        let it = mystery(Cause::Cpu);
        let right = cause("function", &it.culprit, false, 0.9, 2e5);
        let wrong = cause("function", "other", false, 0.9, 2e5);
        let preempted = cause("preempted", "", false, 0.9, 2e5);
        let kind =
            |causes: &[&Value], ordinary: bool| json!({"ordinary": ordinary, "causes": causes});
        let judged = |it: &Mystery, kinds: &[Value]| {
            let mut all = explanation(std::slice::from_ref(&wrong));
            all["probes"][0]["whole"]["kinds"] = json!(kinds);
            judge(it, &truth(), &all).unwrap().outcome
        };
        assert_eq!(
            judged(&it, &[kind(&[&preempted], false), kind(&[&right], false)]),
            Outcome::Found(1)
        );
        assert_eq!(
            judged(&it, &[kind(&[&wrong], true), kind(&[&right], false)]),
            Outcome::Found(1)
        );
        assert_eq!(
            judged(&it, &[kind(&[&wrong], false), kind(&[&right], false)]),
            Outcome::Found(2)
        );
        assert_eq!(
            judged(&it, &[kind(&[&wrong, &wrong, &right], false)]),
            Outcome::Found(3)
        );
        assert_eq!(
            judged(
                &it,
                &[kind(&[&wrong], false), kind(&[&wrong, &right], false)]
            ),
            Outcome::Missed
        );
        assert_eq!(judged(&it, &[kind(&[&right], true)]), Outcome::Missed);
        assert_eq!(judged(&it, &[kind(&[&preempted], false)]), Outcome::Missed);
        let null = mystery(Cause::Nothing);
        assert_eq!(judged(&null, &[kind(&[&wrong], true)]), Outcome::Quiet);
        assert_eq!(
            judged(&null, &[kind(&[&preempted], false), kind(&[&wrong], false)]),
            Outcome::Named
        );
    }

    /// A run in which the cause affected hardly any item can't be judged, nor one in which others take longer for other
    /// reasons.
    #[test]
    fn unclear_runs() {
        let few: String = (0..1000)
            .map(|id| format!("{id} {} 0 100\n", u8::from(id < 5)))
            .collect();
        let few = Truth::read(&few).unwrap();
        let verdict = judge(&mystery(Cause::Cpu), &few, &explanation(&[])).unwrap();
        assert!(
            matches!(verdict.outcome, Outcome::Unclear(_)),
            "{verdict:?}"
        );
        assert!(!verdict.read_first);
        let line = |id: u64| match id % 40 {
            0 => format!("{id} 1 50000 150000\n"),
            1 => format!("{id} 0 0 3000000\n"),
            _ => format!("{id} 0 0 {}\n", 100_000 + id),
        };
        let disturbed = Truth::read(&(0..1000).map(line).collect::<String>()).unwrap();
        let it = mystery(Cause::Cpu);
        let right = cause("function", &it.culprit, false, 0.9, 50_000.0);
        let verdict = judge(&it, &disturbed, &explanation(&[right])).unwrap();
        assert!(
            matches!(verdict.outcome, Outcome::Unclear(_)),
            "{verdict:?}"
        );
        assert!(verdict.read_first, "all runs are read");
        assert!(Truth::read("1 2 3\n").is_err());
    }
}
