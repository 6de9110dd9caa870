//! Likeness of a function to one that handles an item. Pure.
//!
//! Each term is a function of the facts: points, and the reason in words where it is one that people want to know.

use pebs_stats::summary::exact_quantile;

use super::calls::Channel;
use super::entries::{Argument, Calls, is_pointer};
use super::profile::{Rates, Seen};

/// Points from which a function is suggested.
pub(crate) const SENSIBLE: f64 = 4.0;

/// Points of what lies between reads and writes of sockets: fewer than a function has that is called as often, with most of
/// the CPU time. `ratio`: reads for each write.
pub(crate) fn of_exchange(ratio: f64) -> f64 {
    6.0 + rate_points(ratio)
}

/// Words in names of functions that handle items.
const WORDS: [&str; 17] = [
    "request",
    "query",
    "command",
    "process",
    "handle",
    "dispatch",
    "serve",
    "execute",
    "exec",
    "item",
    "transaction",
    "packet",
    "message",
    "stream",
    "session",
    "job",
    "step",
];

/// Facts about a function.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub name: &'a str,
    pub seen: &'a Seen,
    /// `None`: its calls could not be watched.
    pub calls: Option<&'a Calls>,
    /// Calls per second on all threads; `None`: unknown.
    pub rate: Option<f64>,
    pub rates: &'a Rates,
    /// Number of frames from it up to the loop, which is not entered again; `None`: none is known.
    pub below_loop: Option<usize>,
    /// Cost of both of its marks, ns.
    pub marks_ns: f64,
    /// Whether it is of the program, not of a library.
    pub is_program: bool,
}

/// Points, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Term {
    pub points: f64,
    pub reason: Option<String>,
}

impl Term {
    fn new(points: f64, reason: impl Into<String>) -> Self {
        Self {
            points,
            reason: Some(reason.into()),
        }
    }

    fn silent(points: f64) -> Self {
        Self {
            points,
            reason: None,
        }
    }
}

/// All terms, the most telling first.
pub(crate) fn terms(facts: &Facts<'_>) -> Vec<Term> {
    let terms: [fn(&Facts<'_>) -> Term; 10] = [
        at_the_rate_of_work,
        takes_cpu_time,
        longer_than_marks,
        contains_waiting,
        below_the_loop,
        between_input_and_output,
        few_callers,
        by_itself,
        differing_arguments,
        known_name,
    ];
    let mut terms: Vec<Term> = terms.iter().map(|term| term(facts)).collect();
    terms.push(Term::silent(if facts.is_program { 0.5 } else { 0.0 }));
    terms.push(Term::silent(if has_name(facts.name) { 0.3 } else { 0.0 }));
    terms
}

/// The median of sorted durations, and the one that 99 of 100 do not exceed; `None` without any.
pub(crate) fn quantiles(sorted: &[u64]) -> Option<[u64; 2]> {
    Some([exact_quantile(sorted, 0.5)?, exact_quantile(sorted, 0.99)?])
}

/// The work's rate that is nearest to a rate: the ratio, and what it is.
fn nearest(rate: f64, rates: &Rates) -> Option<(f64, String)> {
    let of = |list: &std::collections::BTreeMap<Channel, f64>, verb: &str| {
        let sockets = list.contains_key(&Channel::Socket);
        let counted = list
            .iter()
            .filter(|(channel, _)| !sockets || **channel == Channel::Socket);
        let named = counted.map(|(channel, per_s)| {
            (
                rate / per_s.max(1e-9),
                format!("{verb} of a {}", channel.name()),
            )
        });
        named.collect::<Vec<_>>()
    };
    let mut all = of(&rates.outputs, "write");
    all.extend(of(&rates.inputs, "read"));
    all.into_iter()
        .min_by(|a, b| a.0.ln().abs().total_cmp(&b.0.ln().abs()))
}

/// Points for a ratio of two rates: full within a quarter, none from a factor of 5 on.
fn rate_points(ratio: f64) -> f64 {
    let beyond = (ratio.ln().abs() - 1.25_f64.ln()).max(0.0);
    3.0 * (1.0 - beyond / (5.0_f64.ln() - 1.25_f64.ln())).max(0.0)
}

/// Called about as often as something is read or written: an item comes in and goes out.
fn at_the_rate_of_work(facts: &Facts<'_>) -> Term {
    let Some(rate) = facts.rate.filter(|it| *it > 0.0) else {
        return Term::silent(0.0);
    };
    let Some((ratio, what)) = nearest(rate, facts.rates) else {
        // It neither reads nor writes: all rates are alike.
        return Term::silent(1.5);
    };
    let points = rate_points(ratio);
    match ratio.ln().abs() <= 1.6_f64.ln() {
        true => Term::new(points, format!("called about once per {what}")),
        false => Term::silent(points),
    }
}

/// Much of the CPU time outside of the kernel is in it: what only sends answers has little.
fn takes_cpu_time(facts: &Facts<'_>) -> Term {
    let share = facts.seen.work;
    let points = 3.0 * (share / 0.6).min(1.0);
    match share >= 0.2 {
        true => Term::new(
            points,
            format!(
                "{:.0} % of the program's own CPU time is in it",
                share * 100.0
            ),
        ),
        false => Term::silent(points),
    }
}

/// Long enough for its two marks.
fn longer_than_marks(facts: &Facts<'_>) -> Term {
    let Some([median, _]) = facts.calls.and_then(|it| quantiles(&it.durations)) else {
        return Term::silent(0.0);
    };
    let ratio = median as f64 / facts.marks_ns.max(1.0);
    match ratio {
        _ if ratio >= 10.0 => Term::new(1.5, "much longer than its marks take"),
        _ if ratio >= 2.0 => Term::silent(1.5 * (ratio / 10.0)),
        _ => Term::new(-2.0, "hardly longer than its marks take"),
    }
}

/// It waits for the next item itself.
fn contains_waiting(facts: &Facts<'_>) -> Term {
    let Some(rate) = facts.rate.filter(|it| *it > 0.0) else {
        return Term::silent(if facts.seen.waits > 0.0 { -1.5 } else { 0.0 });
    };
    let waits = facts.seen.waits / rate;
    if waits >= 0.3 {
        return Term::new(-3.0, "it contains the wait for the next event");
    }
    let sum: u64 = facts.calls.map_or(0, |it| it.durations.iter().sum());
    let number = facts.calls.map_or(0, |it| it.durations.len());
    let threads = facts.seen.threads.len().max(1) as f64;
    let busy = match number {
        0 => 0.0,
        _ => rate * sum as f64 / number as f64 / 1e9 / threads,
    };
    match busy > 0.9 && facts.seen.inputs / rate >= 0.5 {
        true => Term::new(-1.5, "its time includes waiting for its input"),
        false => Term::silent(0.0),
    }
}

/// Near the loop that fetches items.
fn below_the_loop(facts: &Facts<'_>) -> Term {
    match facts.below_loop {
        Some(1) => Term::new(1.2, "called by the loop"),
        Some(levels @ 2..=6) => Term::silent(1.2 - 0.2 * (levels - 1) as f64),
        _ => Term::silent(0.0),
    }
}

/// Input or output is done within it.
fn between_input_and_output(facts: &Facts<'_>) -> Term {
    let Some(rate) = facts.rate.filter(|it| *it > 0.0) else {
        return Term::silent(0.0);
    };
    let does = |calls: f64| calls / rate >= 0.3;
    match (does(facts.seen.inputs), does(facts.seen.outputs)) {
        (true, true) => Term::new(1.2, "reads and writes"),
        (false, true) => Term::new(0.8, "writes"),
        (true, false) => Term::new(0.8, "reads"),
        (false, false) => Term::silent(0.0),
    }
}

fn few_callers(facts: &Facts<'_>) -> Term {
    Term::silent(match facts.seen.callers {
        0 | 1 => 0.5,
        2 | 3 => 0.2,
        _ => -0.5,
    })
}

/// Not called within itself.
fn by_itself(facts: &Facts<'_>) -> Term {
    let Some(calls) = facts.calls.filter(|it| it.entries > 0) else {
        return Term::silent(0.0);
    };
    match calls.nested as f64 / calls.entries as f64 {
        0.0 => Term::silent(0.5),
        part if part > 0.1 => Term::new(-2.0, "it calls itself"),
        _ => Term::silent(-0.5),
    }
}

/// Arguments tell items apart.
fn differing_arguments(facts: &Facts<'_>) -> Term {
    let Some(calls) = facts.calls else {
        return Term::silent(0.0);
    };
    match (text(calls), id(calls)) {
        (Some(text), _) => Term::new(0.6, format!("arg{} points at text", text.argument)),
        (None, Some(number)) => Term::new(0.2, format!("arg{number} differs between calls")),
        (None, None) => Term::silent(0.0),
    }
}

/// Whether it is not just an address.
fn has_name(name: &str) -> bool {
    !name.contains("fn@0x")
}

fn known_name(facts: &Facts<'_>) -> Term {
    if !has_name(facts.name) {
        return Term::silent(0.0);
    }
    let name = facts.name.to_ascii_lowercase();
    match WORDS.iter().find(|word| name.contains(**word)) {
        Some(word) => Term::new(0.5, format!("its name has '{word}'")),
        None => Term::silent(0.0),
    }
}

/// An argument with text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Number, from 1.
    pub argument: usize,
    /// The text is behind the pointer at this offset; `None`: the argument points at it.
    pub offset: Option<u64>,
    /// The text of one call.
    pub example: String,
    /// Whether calls had different texts.
    pub differs: bool,
}

/// The argument whose text tells most: one that differs between calls rather than one that does not.
pub(crate) fn text(calls: &Calls) -> Option<Text> {
    let number = calls.arguments.iter().map(Vec::len).max()?;
    let found = (0..number).filter_map(|n| text_of(calls, n));
    // The first of equals.
    found.reduce(|best, next| {
        if next.differs && !best.differs {
            next
        } else {
            best
        }
    })
}

fn text_of(calls: &Calls, n: usize) -> Option<Text> {
    let of_call = |arguments: &Vec<Argument>| arguments.get(n)?.text.clone();
    let all: Vec<(Option<u64>, String)> = calls.arguments.iter().filter_map(of_call).collect();
    let (offset, example) = all.first()?.clone();
    let same: Vec<&String> = all
        .iter()
        .filter(|it| it.0 == offset)
        .map(|it| &it.1)
        .collect();
    let is_usual = same.len() * 3 >= calls.arguments.len() * 2;
    is_usual.then(|| Text {
        argument: n + 1,
        offset,
        differs: same.iter().any(|text| **text != example),
        example,
    })
}

/// The argument that looks like an item's number: a different small number in nearly each call.
pub(crate) fn id(calls: &Calls) -> Option<usize> {
    let number = calls.arguments.iter().map(Vec::len).max()?;
    let is_id = |n: &usize| {
        let mut values: Vec<u64> = calls
            .arguments
            .iter()
            .filter_map(|it| Some(it.get(*n)?.value))
            .collect();
        let all = values.len();
        let small = values.iter().all(|it| !is_pointer(*it) && *it < 1 << 47);
        values.sort_unstable();
        values.dedup();
        small && all >= 4 && values.len() * 10 >= all * 9
    };
    (0..number).find(is_id).map(|n| n + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: fn() -> Rates = || Rates {
        inputs: [(Channel::Socket, 2000.0), (Channel::File, 90.0)].into(),
        outputs: [(Channel::Socket, 1000.0)].into(),
        waits: 1000.0,
    };

    /// The points of a term for a function of these facts.
    fn points(
        term: fn(&Facts<'_>) -> Term,
        change: impl FnOnce(&mut Seen, &mut Calls, &mut Option<f64>),
    ) -> f64 {
        let (mut seen, mut calls, mut rate) = (Seen::default(), Calls::default(), Some(1000.0));
        change(&mut seen, &mut calls, &mut rate);
        let facts = Facts {
            name: "ngx_http_process_request",
            seen: &seen,
            calls: Some(&calls),
            rate,
            rates: &RATES(),
            below_loop: Some(1),
            marks_ns: 1000.0,
            is_program: true,
        };
        term(&facts).points
    }

    /// The rate of reads or writes of sockets counts, whichever is nearer; an unknown rate gives nothing.
    #[test]
    fn rates() {
        let of = |per_s| points(at_the_rate_of_work, |_, _, rate| *rate = per_s);
        assert_eq!(
            (of(Some(1000.0)), of(Some(1900.0)), of(Some(820.0))),
            (3.0, 3.0, 3.0)
        );
        assert!(of(Some(500.0)) > 1.0 && of(Some(500.0)) < 3.0);
        assert_eq!(
            (of(Some(90.0)), of(Some(50_000.0)), of(None)),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn cpu_time() {
        let of = |share| points(takes_cpu_time, |seen, _, _| seen.work = share);
        assert_eq!((of(1.0), of(0.6), of(0.0)), (3.0, 3.0, 0.0));
        assert!(of(0.1) > 0.0 && of(0.1) < 1.0);
    }

    #[test]
    fn durations() {
        let of = |ns| {
            points(longer_than_marks, |_, calls, _| {
                calls.durations = vec![ns; 3];
            })
        };
        assert_eq!((of(20_000), of(900)), (1.5, -2.0));
        assert!(of(5000) > 0.0 && of(5000) < 1.5);
        assert_eq!(points(longer_than_marks, |_, _, _| ()), 0.0);
        assert_eq!(quantiles(&[1, 2, 3, 100]), Some([2, 100]));
        assert_eq!(quantiles(&[]), None);
    }

    /// A function that polls once per call, or that is busy all the time and reads, waits for its items itself.
    #[test]
    fn waiting() {
        assert_eq!(
            points(contains_waiting, |seen, _, _| seen.waits = 900.0),
            -3.0
        );
        assert_eq!(
            points(contains_waiting, |seen, _, _| seen.waits = 10.0),
            0.0
        );
        let reads = |ns| {
            points(contains_waiting, |seen, calls, _| {
                seen.inputs = 1000.0;
                calls.durations = vec![ns; 4];
            })
        };
        assert_eq!((reads(990_000), reads(300_000)), (-1.5, 0.0));
    }

    #[test]
    fn other_terms() {
        assert_eq!(points(below_the_loop, |_, _, _| ()), 1.2);
        assert_eq!(
            points(between_input_and_output, |seen, _, _| seen.outputs = 1000.0),
            0.8
        );
        assert_eq!(points(few_callers, |seen, _, _| seen.callers = 9), -0.5);
        assert_eq!(points(known_name, |_, _, _| ()), 0.5);
        let nested = |nested| {
            points(by_itself, |_, calls, _| {
                calls.entries = 10;
                calls.nested = nested;
            })
        };
        assert_eq!((nested(0), nested(5)), (0.5, -2.0));
    }

    fn argument(value: u64, text: Option<&str>) -> Argument {
        Argument {
            value,
            text: text.map(|it| (Some(16), it.to_owned())),
        }
    }

    /// Text that differs is preferred, an id is a number that does.
    #[test]
    fn arguments() {
        let of = |n: u64| {
            let text = if n.is_multiple_of(2) {
                "GET /a"
            } else {
                "GET /b"
            };
            vec![
                argument(1 << 40, Some("same")),
                argument(n, None),
                argument(1 << 40, Some(text)),
            ]
        };
        let calls = Calls {
            arguments: (0..10).map(of).collect(),
            ..Calls::default()
        };
        let found = text(&calls).unwrap();
        assert_eq!(
            (found.argument, found.offset, &*found.example, found.differs),
            (3, Some(16), "GET /a", true)
        );
        assert_eq!(id(&calls), Some(2));
        assert_eq!(text(&Calls::default()), None);
    }
}
