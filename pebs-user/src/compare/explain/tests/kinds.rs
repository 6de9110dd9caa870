//! Kinds of slow items in synthetic traces with known truth.

use super::FUNCTIONS;
use crate::compare::explain::model::{Group, Kind, Only};
use crate::compare::explain::request::ExplainOptions;
use crate::compare::explain::{explain, with_only};
use crate::estimate::baseline::Rule;
use crate::out::explain::text;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{self, Ran, Waited};
use crate::store::fixtures::{Maker, VisitFixture, info};

const SPEC: &str = "/usr/bin/server:handle(n=arg2, key=str(arg1))";

/// Items of 40 to 60 us with some samples each; `slow` adds to them.
fn served(
    items: u64,
    seed: u64,
    slow: impl Fn(u64, &mut SplitMix64) -> Vec<Did>,
) -> (Group, String) {
    served_by((items, None), seed, slow)
}

fn served_by(
    (items, rule): (u64, Option<Rule>),
    seed: u64,
    slow: impl Fn(u64, &mut SplitMix64) -> Vec<Did>,
) -> (Group, String) {
    let mut random = SplitMix64::new(seed);
    let mut maker = Maker::new(info(&[SPEC]));
    for i in 0..items {
        let parse = Ran(1, 20_000 + i64::from(random.below(20_000)));
        let clear = Ran(3, 15_000 + i64::from(random.below(10_000)));
        let mut did = vec![parse, clear];
        did.append(&mut slow(i, &mut random));
        maker.visit(&VisitFixture::new(i % 4, &format!("k:{i}"), &did));
    }
    let trace = maker.finish(&FUNCTIONS);
    let options = ExplainOptions {
        slow: rule.map(|it| it.to_string().parse().unwrap()),
        ..ExplainOptions::default()
    };
    let explained = explain(&trace, &options).unwrap();
    let text = text::render(&explained);
    (explained.probes[0].whole.clone().unwrap(), text)
}

fn between(random: &mut SplitMix64, from: i64, to: i64) -> i64 {
    from + i64::from(random.below((to - from) as u32))
}

fn first(kind: &Kind) -> Option<u32> {
    kind.causes.first()?.function.function_id
}

/// Two causes: both are listed, each with its range and cause, also where one kind is far below the limit.
#[test]
fn two_kinds() {
    let slow = |i: u64, random: &mut SplitMix64| match i {
        i if i % 250 == 100 => vec![Ran(2, between(random, 32_000_000, 43_000_000))],
        i if i % 250 == 7 => vec![Waited(
            4,
            "uninterruptible",
            between(random, 1_500_000, 5_000_000),
        )],
        _ => Vec::new(),
    };
    for (rule, items) in [(None, 48), (Some(Rule::Absolute(20_000_000)), 24)] {
        let (group, text) = served_by((6_000, rule), 1, slow);
        assert_eq!(group.slow.as_ref().unwrap().items, items, "{text}");
        let [long, short] = &group.kinds[..] else {
            panic!("{:#?}\n{text}", group.kinds);
        };
        assert_eq!(
            (long.items, long.slow_items, first(long)),
            (24, 24, Some(2))
        );
        assert_eq!(
            (short.items, short.slow_items, first(short)),
            (24, items - 24, Some(4))
        );
        assert!(
            short.from_ns > 1_500_000 && short.to_ns < 5_100_000,
            "{short:?}"
        );
        assert!(short.causes[0].figures.share > 0.9 && !short.ordinary);
        assert!(long.causes[0].figures.share > 0.9 && !long.ordinary);
        let shown = match rule {
            None => ["  kinds     24 items of 32", "\n            24 items of 1."],
            // One kind is what was said of all slow items.
            Some(_) => ["  slow      24 of 6,000", "  not slow  24 items of 1."],
        };
        assert!(shown.iter().all(|it| text.contains(it)), "{text}");
    }
}

/// Three kinds of overlapping durations, with few samples each.
#[test]
fn three_kinds_in_one_range() {
    let (group, text) = served(6_000, 2, |i, random| match i % 200 {
        9 => vec![Ran(2, between(random, 250_000, 450_000))],
        70 => vec![Ran(5, between(random, 250_000, 450_000))],
        130 => vec![Waited(4, "sleeping", between(random, 250_000, 450_000))],
        _ => Vec::new(),
    });
    let mut causes: Vec<Option<u32>> = group.kinds.iter().map(first).collect();
    causes.sort_unstable();
    assert_eq!(causes, [Some(2), Some(4), Some(5)], "{text}");
    assert!(group.kinds.iter().all(|it| it.items == 30), "{text}");
}

/// One cause is one kind, whatever the mixture in single items.
#[test]
fn one_kind() {
    for seed in 0..4 {
        let (group, text) = served(4_000, seed, |i, random| {
            if i % 100 != 50 {
                return Vec::new();
            }
            vec![
                Ran(2, between(random, 100_000, 300_000)),
                Ran(5, between(random, 100_000, 300_000)),
            ]
        });
        assert_eq!(group.kinds.len(), 1, "{text}");
        assert_eq!((group.kinds[0].items, group.kinds[0].slow_items), (40, 40));
        assert!(!text.contains("  kinds "), "{text}");
    }
}

/// Among similar items the slowest 1 % are no kinds but the tail of all.
#[test]
fn no_slow_items() {
    for seed in 10..13 {
        let (group, text) = served(4_000, seed, |_, _| Vec::new());
        assert!(group.kinds.len() <= 1, "{text}");
        assert!(group.kinds.iter().all(|it| it.causes.len() < 4), "{text}");
        assert!(group.only_slow.is_empty(), "{text}");
    }
}

/// The 99th percentile takes 60 items where 20 are truly slow: these are a kind of their own.
#[test]
fn tail_apart_from_the_slow() {
    let (group, text) = served(6_000, 5, |i, random| {
        // A tail without a gap, with the composition of all items.
        let tail = 10_000.0 / (f64::from(random.below(1_000) + 1) / 1_000.0).sqrt();
        let mut did = vec![Ran(1, (0.6 * tail) as i64), Ran(3, (0.4 * tail) as i64)];
        if i % 300 == 50 {
            did.push(Waited(
                4,
                "uninterruptible",
                between(random, 200_000, 400_000),
            ));
        }
        did
    });
    assert_eq!(group.slow.as_ref().unwrap().rule, "p99", "{text}");
    let slow: Vec<&Kind> = group.kinds.iter().filter(|it| !it.ordinary).collect();
    let of_disk: Vec<&&Kind> = slow.iter().filter(|it| first(it) == Some(4)).collect();
    assert_eq!(of_disk.len(), 1, "{text}");
    assert_eq!(of_disk[0].items, 20, "{text}");
    assert!(group.kinds.iter().any(|it| it.ordinary), "{text}");
}

/// A function that is most of every item may also be what slow items take longer for: these are not ordinary.
#[test]
fn main_function_is_the_cause() {
    let (group, text) = served(4_000, 7, |i, random| {
        let more = if i % 100 == 50 { 300_000 } else { 0 };
        vec![Ran(1, 40_000 + more + between(random, 0, 5_000))]
    });
    let [kind] = &group.kinds[..] else {
        panic!("{:#?}\n{text}", group.kinds);
    };
    assert_eq!(
        (kind.items, kind.ordinary, first(kind)),
        (40, false, Some(1))
    );
}

/// A function that only slow items run is named, however small its share, with the chance of luck; one that others
/// have, too, is not.
#[test]
fn what_only_slow_items_do() {
    let (group, text) = served(4_000, 6, |i, random| {
        if i % 100 == 50 {
            let mut did = vec![Waited(4, "sleeping", between(random, 4_000_000, 5_000_000))];
            if i % 400 == 50 {
                did.push(Ran(5, 12_000));
            }
            did
        } else {
            Vec::new()
        }
    });
    let named: Vec<Option<u32>> = group
        .only_slow
        .iter()
        .map(|it| it.function.function_id)
        .collect();
    assert_eq!(named, [Some(4), Some(5)], "{text}");
    let rare = &group.only_slow[1];
    assert!(
        rare.items >= 8 && rare.chance < 1e-6 && rare.mean_ns < 10_000.0,
        "{rare:?}"
    );
    assert!(rare.mean_ns / group.gap.as_ref().unwrap().gap_ns < 0.002);
    assert!(
        text.contains("  only slow waited for the disk in fdatasync"),
        "{text}"
    );
    let (on, off) = (group.on_cpu.unwrap(), group.off_cpu.unwrap());
    assert!(off.share > 0.98 && on.share < 0.02, "{on:?} {off:?}");
    assert!((on.share + off.share - 1.0).abs() < 1e-9);
}

/// Kinds divide the slow items. Shorter ones that do the same are listed apart, and not counted in the kind.
#[test]
fn kinds_divide_the_slow_items() {
    let (group, text) = served(6_000, 8, |i, random| match i {
        i if i % 300 == 100 => vec![Ran(2, between(random, 80_000_000, 100_000_000))],
        // As long as the tail of the others.
        i if i % 30 == 7 => vec![Ran(2, between(random, 60_000, 110_000))],
        _ => Vec::new(),
    });
    let slow = group.slow.as_ref().unwrap();
    assert_eq!((slow.rule.as_str(), slow.items), ("gap", 20), "{text}");
    let of_slow: u64 = group.kinds.iter().map(|it| it.slow_items).sum();
    assert!(of_slow <= 20, "{text}");
    let mixed = |it: &Kind| it.to_ns > 10 * it.from_ns;
    assert!(!group.kinds.iter().any(mixed), "{:#?}\n{text}", group.kinds);
}

/// One sample in a kind that has one sample proves nothing: the chance is one among all samples, times all functions
/// looked at.
#[test]
fn one_sample_is_no_evidence() {
    let (group, text) = served(2_000, 9, |i, random| {
        if i % 100 != 50 {
            return Vec::new();
        }
        let mut did = vec![Waited(4, "sleeping", between(random, 400_000, 500_000))];
        if i == 50 {
            did.push(Ran(5, 10_000));
        }
        did
    });
    let named = |all: &[Only]| all.iter().any(|it| it.function.function_id == Some(5));
    assert!(!named(&group.only_slow), "{text}");
    assert!(!group.kinds.iter().any(|it| named(&it.only)), "{text}");
}

/// If slow items differ from the others by nothing but chance, at most 5 % of 1,000 servers are reported to have a
/// function or a wait that only slow items have.
#[test]
fn chance_names_nothing() {
    const TRACES: u64 = 50;
    const SERVERS: u16 = 20;
    let functions: Vec<(u32, String)> = (1..40).map(|id| (id, format!("f{id}"))).collect();
    let functions: Vec<(u32, &str, &str)> = functions
        .iter()
        .map(|(id, name)| (*id, name.as_str(), "/usr/bin/server"))
        .collect();
    let named = (0..TRACES).map(|seed| {
        let mut random = SplitMix64::new(seed);
        let mut maker = Maker::new(info(&[SPEC; SERVERS as usize]));
        for server in 0..SERVERS {
            let rare = 2 + random.below(30);
            for _ in 0..150 {
                // Longer or shorter as a whole, with a tail; most items have no sample.
                let whole = 3_000.0 / (f64::from(random.below(1_000) + 1) / 1_000.0).sqrt();
                let mut did = vec![Ran(1, whole as i64)];
                for _ in 0..2 {
                    did.push(Ran(2 + random.below(rare), (whole * 0.4) as i64));
                }
                if random.below(20) == 0 {
                    did.push(Waited(4 + random.below(rare), "sleeping", 1_000));
                }
                maker.visit(&VisitFixture::new(0, "k", &did).probe(server));
            }
        }
        with_only(&maker.finish(&functions))
    });
    let named: usize = named.sum();
    println!("{named} of 1,000");
    assert!(named <= 50, "{named} of 1,000");
}
