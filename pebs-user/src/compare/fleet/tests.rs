//! Fleets that are made up: sums drawn by chance, and traces of fixtures.

use std::path::Path;

use super::*;
use crate::compare::explain::model::CauseType;
use crate::compare::fleet::read::Spent;
use crate::rng::SplitMix64;
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, VisitFixture, info};

const STEP: i64 = 60_000_000_000;

/// About the logarithm's normal distribution: the sum of twelve.
fn normal(random: &mut SplitMix64) -> f64 {
    (0..12)
        .map(|_| f64::from(random.below(1 << 20)) / f64::from(1 << 20))
        .sum::<f64>()
        - 6.0
}

fn function(name: &str) -> Name {
    Name {
        kind: CauseType::Function,
        module: Some("app".to_owned()),
        name: Some(name.to_owned()),
        state: None,
        kernel: false,
    }
}

/// Items of a host over 24 steps of time: 20 us in `parse`, 60 in `find`, each with the host's own factor; `more` in
/// `rehash` from a step on.
fn host_sums(random: &mut SplitMix64, more: f64, from: i64) -> Sums {
    let mut sums = Sums::default();
    let factors = [0.03 * normal(random), 0.03 * normal(random)].map(f64::exp);
    for at in 0..24 {
        for _ in 0..20 {
            let rehash = if at >= from { more } else { 0.0 };
            let parts = [20e3 * factors[0], 60e3 * factors[1], rehash];
            let item = (0.1 * normal(random)).exp();
            let ns: f64 = parts.iter().map(|it| it * item).sum();
            sums.items += 1;
            sums.sampled_items += 1;
            sums.duration_ns += ns;
            sums.squared += ns * ns;
            sums.active_ns += ns;
            sums.lengths.add(ns as u64);
            let step = sums.series.entry(at).or_default();
            step.0 += 1;
            step.1 += ns;
            for (name, ns) in ["parse", "find", "rehash"].iter().zip(parts) {
                let spent = sums.spent.entry(function(name)).or_default();
                *spent = Spent {
                    ns: spent.ns + ns * item,
                    samples: spent.samples + 1,
                };
            }
        }
    }
    sums
}

/// 30 hosts, each fifth of version 2, whose items take `more` from a step on.
fn drawn(seed: u64, more: f64, from: i64, by: &str) -> ProbeFleet {
    let mut random = SplitMix64::new(seed);
    let mut units: BTreeMap<Unit, Sums> = BTreeMap::new();
    let names: Vec<String> = (0..30).map(|n| format!("web-{n:02}")).collect();
    let mut properties: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for (n, name) in names.iter().enumerate() {
        let is_new = n % 5 == 0;
        let version = if is_new { "2" } else { "1" };
        let rack = ["a", "b", "c"][n % 3];
        properties.insert(name, [("version", version), ("rack", rack)].into());
        let value = match by {
            HOST => name.clone(),
            "rack" => rack.to_owned(),
            _ => version.to_owned(),
        };
        let sums = host_sums(&mut random, if is_new { more } else { 0.0 }, from);
        units.insert((Some(value), name.clone(), 0), sums);
    }
    let options = FleetOptions {
        by: by.to_owned(),
        top: 15,
        ..FleetOptions::default()
    };
    let comparison = Comparison::new(&units, &BTreeMap::new(), &options, Units::Hosts);
    comparison.probe("app:f".to_owned(), &properties, STEP)
}

/// Of fleets without a difference few have a slow group or a slow host: the intervals' 5 % for all groups at once.
#[test]
fn chance_names_nothing() {
    for by in ["version", "rack", HOST] {
        let named = (0..200).filter(|seed| !drawn(*seed, 0.0, 0, by).slower.is_empty());
        // 16 of 200 with a chance of 5 % each: less than 5 in 100 times by chance.
        let named = named.count();
        assert!(named <= 16, "{by}: {named} of 200");
    }
}

/// The version that takes longer is named with its function, the time and an interval that holds it; by host those
/// hosts are the slow ones, and their version is what they have in common.
#[test]
fn version_that_is_slower() {
    let (mut held, mut began_at, mut hosts_found) = (0, 0, 0);
    for seed in 0..40 {
        let found = drawn(seed, 16e3, 12, "version");
        let [slower] = &found.slower[..] else {
            panic!("{seed}: {:?}", found.slower)
        };
        assert_eq!(slower.values, [Some("2".to_owned())]);
        let first = &slower.causes[0];
        assert_eq!(first.name.as_deref(), Some("rehash"), "{seed}");
        assert!((first.time.change / 8e3 - 1.0).abs() < 0.02, "{first:?}");
        // Half of the time, of items whose factors have this mean.
        let truth = 8e3 * 0.005_f64.exp();
        held += u32::from(first.time.low < Some(truth) && first.time.high > Some(truth));
        began_at += u32::from(slower.since_ns == Some(12 * STEP));

        let hosts = drawn(seed, 30e3, 12, HOST);
        let [slower] = &hosts.slower[..] else {
            panic!("{seed}: no slow host")
        };
        hosts_found += slower.hosts;
        let common = &slower.common[0];
        assert_eq!((&*common.property, &*common.value), ("version", "2"));
        // A host that is quick by itself may not be found; no other one is.
        assert_eq!((common.slow, common.of_slow), (slower.hosts, slower.hosts));
        assert_eq!(slower.causes[0].name.as_deref(), Some("rehash"));
    }
    assert!(held >= 37, "{held} of 40 intervals");
    assert!(hosts_found >= 234, "{hosts_found} of 240 hosts");
    assert!(began_at >= 38, "{began_at} of 40 begins");
    // It was so all the time.
    let found = drawn(1, 16e3, 0, "version");
    assert_eq!(found.slower[0].since_ns, None);
}

/// Hosts of 1,000 items each, by their mean duration in us.
fn hosts<const N: usize>(means: [f64; N]) -> [Sums; N] {
    means.map(|us| Sums {
        items: 1_000,
        duration_ns: us * 1e6,
        ..Sums::default()
    })
}

/// Compares durations.
fn durations(here: &[&Sums], others: &[&Sums]) -> Contrast {
    contrast(here, others, |it| (it.duration_ns, it.items as f64), 1)
}

/// The worked number of `contrast`.
#[test]
fn worked_number() {
    let (here, others) = (hosts([100.0, 102.0, 98.0]), hosts([80.0, 82.0, 78.0]));
    let (here, others) = (here.each_ref(), others.each_ref());
    let found = durations(&here, &others);
    assert!((found.change - 20e3).abs() < 1e-6);
    let ends = [found.low, found.high].map(|it| (it.unwrap() / 100.0).round());
    assert_eq!(ends, [155.0, 245.0]);
    // A single host has the spread of the others; two hosts have no interval.
    let one = durations(&here[..1], &others);
    assert!(one.low.unwrap() < 15.5e3 && one.low.unwrap() > 0.0);
    let two = durations(&here[..1], &others[..1]);
    assert_eq!((two.change, two.low), (20e3, None));
}

/// A function that other hosts never had is as uncertain as its samples: 49 of them have an error of a seventh.
#[test]
fn few_samples() {
    let (here, others) = (hosts([0.7]), hosts([0.0, 0.0, 0.0]));
    let (here, others) = (here.each_ref(), others.each_ref());
    let found = durations(&here, &others);
    assert_eq!((found.low, found.high), (Some(700.0), Some(700.0)));
    let found = with_samples(found, 49, 0, 1);
    let ends = [found.low, found.high].map(|it| it.unwrap().round());
    assert_eq!(ends, [504.0, 896.0]);
    let two = with_samples(durations(&here, &others[..1]), 49, 0, 1);
    assert_eq!(two.low, None);
}

/// A trace of a host, with `more` ns in `rehash` and a wait in each item.
fn made(dir: &Path, seed: u64, more: i64, begin_ns: i64) {
    let mut described = info(&["/srv/app:handle"]);
    described.wall_clock_ns = begin_ns;
    let mut maker = Maker::within(dir, described);
    let mut random = SplitMix64::new(seed);
    for _ in 0..400 {
        let mut about = |mean: u32| i64::from(mean - mean / 4 + random.below(mean / 2));
        let mut did = vec![Ran(1, about(40_000)), Waited(2, "sleeping", about(20_000))];
        if more > 0 {
            did.push(Ran(3, more));
        }
        maker.visit(&VisitFixture::new(0, "k", &did));
    }
    drop(maker.finish(&[
        (1, "parse", "/srv/app"),
        (2, "read", "/srv/app"),
        (3, "rehash", "/srv/app"),
    ]));
}

fn member(dir: &Path, host: &str, version: &str) -> Member<'static> {
    let (trace, at) = (Trace::open(dir).unwrap(), dir.to_owned());
    let length = trace.info.duration_ns.unwrap_or(0);
    Member {
        name: dir.display().to_string(),
        properties: [("host", host), ("version", version)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        begin_ns: trace.info.wall_clock_ns,
        end_ns: trace.info.wall_clock_ns + length,
        twice_ns: length / 4,
        open: Box::new(move || Trace::open(&at).map_err(|error| error.to_string())),
    }
}

/// From the tables of traces: two of each of six hosts, two of which run the slower version. A time asked for leaves others
/// out; a property that is not there, and a time without traces, are refused.
#[test]
fn of_traces() {
    const HOUR: i64 = 3_600_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let mut members = Vec::new();
    for n in 0..12 {
        let (at, is_new) = (dir.path().join(format!("{n}")), n % 6 < 2);
        made(
            &at,
            n,
            if is_new { 15_000 } else { 0 },
            n.cast_signed() / 6 * HOUR,
        );
        let version = if is_new { "2" } else { "1" };
        members.push(member(&at, &format!("web-{}", n % 6), version));
    }
    let options = |by: &str, since| FleetOptions {
        by: by.to_owned(),
        since,
        top: 15,
        ..FleetOptions::default()
    };
    let found = fleet(&members, &options("version", None)).unwrap();
    assert_eq!((found.traces, found.hosts, found.unread.len()), (12, 6, 0));
    assert!((found.twice - 0.25).abs() < 1e-3, "{}", found.twice);
    let [probe] = &found.probes[..] else { panic!() };
    assert_eq!((&*probe.spec, probe.items), ("app:handle", 4_800));
    let slower = &probe.slower[0];
    assert_eq!((slower.hosts, slower.items), (2, 1_600));
    let first = &slower.causes[0];
    assert_eq!(first.name.as_deref(), Some("rehash"));
    assert!((first.time.change / 15e3 - 1.0).abs() < 0.1, "{first:?}");
    let waits = slower
        .causes
        .iter()
        .find(|it| it.kind == CauseType::Wait)
        .unwrap();
    assert_eq!(waits.name.as_deref(), Some("read"));
    assert!((waits.time.here / 20e3 - 1.0).abs() < 0.05, "{waits:?}");

    let later = fleet(&members, &options("version", Some(HOUR))).unwrap();
    assert_eq!((later.traces, later.probes[0].items), (6, 2_400));
    let error = fleet(&members, &options("rack", None)).unwrap_err();
    assert_eq!(error.to_string(), "no trace has 'rack'");
    let error = fleet(&members, &options("version", Some(9 * HOUR))).unwrap_err();
    assert!(matches!(error, FleetError::OtherTime));
}
