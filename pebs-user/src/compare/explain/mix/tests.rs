use pebs_stats::rng::Rng;

use super::fit::{self, Fit};
use super::*;
use crate::compare::explain::explain;
use crate::compare::report::{ReportOptions, build};
use crate::out::{explain as explained, report as reported};
use crate::store::fixtures::Did::{Ran, Waited};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};

/// Simulated batches of three kinds.
struct Scene {
    batches: usize,
    /// Costs by kind, ns.
    costs: [f64; 3],
    /// Relative standard deviation of what single items take, lognormal.
    spread: f64,
    /// The same of all that happens at a time, which is correlated with what happens before.
    drift: f64,
    /// One in so many batches is interrupted for 5 us; 0: none.
    interrupted: usize,
}

/// Fixed part of a batch, ns.
const FIXED: f64 = 2_000.0;

const SCENE: Scene = Scene {
    batches: 400,
    costs: [310.0, 620.0, 1_900.0],
    spread: 0.2,
    drift: 0.02,
    interrupted: 0,
};

/// Correlation of the drift from one batch to the next: about ten batches.
const CORRELATED: f64 = 0.9;

fn simulate(scene: &Scene, rng: &mut Rng) -> fit::Batches {
    let mut batches = fit::Batches {
        kinds: 3,
        fixed: true,
        ..fit::Batches::default()
    };
    let mut drift = scene.drift * rng.normal();
    for at in 0..scene.batches {
        let mut counts = [0.0; 3];
        let about = |rng: &mut Rng, ns: f64| {
            let spread = scene.spread;
            ns * (spread * rng.normal() - spread * spread / 2.0).exp()
        };
        let mut ns = about(rng, FIXED);
        for _ in 0..rng.below(65) {
            let kind = rng.below(3);
            counts[kind] += 1.0;
            ns += about(rng, scene.costs[kind]);
        }
        let fresh = (1.0 - CORRELATED * CORRELATED).sqrt() * scene.drift;
        drift = CORRELATED * drift + fresh * rng.normal();
        ns *= 1.0 + drift;
        if scene.interrupted > 0 && at % scene.interrupted == 0 {
            ns += 5_000.0;
        }
        batches.ns.push(ns);
        batches.error_ns.push(0.0);
        batches.counts.extend(counts);
    }
    batches
}

/// Dear batches of a fit.
fn named(fit: &Fit) -> Vec<usize> {
    let tail = fit.tail();
    let dear = |at: &usize| tail.chance(fit.residuals[*at] / fit.scales[*at]) < DEAR;
    (0..fit.residuals.len()).filter(dear).collect()
}

/// Over simulated runs, in which one batch in a hundred is interrupted, the 95 % intervals of all costs contain the truth
/// in 95 %, whether or not times drift, and the costs have no bias.
#[test]
fn intervals_cover() {
    for drift in [0.0, 0.03] {
        let scene = Scene {
            drift,
            interrupted: 100,
            ..SCENE
        };
        let mut rng = Rng::new(7);
        let [a, b, c] = scene.costs;
        let truths = [a, b, c, FIXED];
        let (mut covered, mut sums) = ([0.0; 4], [0.0; 4]);
        for _ in 0..250 {
            let fit = Fit::of(&simulate(&scene, &mut rng)).unwrap();
            let found = (0..3).map(|kind| fit.kind(kind)).chain(fit.fixed());
            for (at, (found, truth)) in found.zip(truths).enumerate() {
                let off = found.value - truth;
                covered[at] += f64::from(u8::from(off.abs() <= fit.width() * found.error));
                sums[at] += off / truth;
            }
        }
        let [covered, biases] = [covered, sums].map(|of| of.map(|it| it / 250.0));
        let mean = covered.iter().sum::<f64>() / 4.0;
        println!("covered {covered:?}, biases {biases:?} with drift {drift}");
        assert!(
            (0.93..0.98).contains(&mean),
            "{covered:?} with drift {drift}"
        );
        assert!(
            covered.iter().all(|it| *it > 0.91),
            "{covered:?} with drift {drift}"
        );
        assert!(
            biases.iter().all(|it| it.abs() < 0.02),
            "{biases:?} with drift {drift}"
        );
    }
}

/// Equal costs are called equal: the chance that they differ is uniform, so that few are below any bound.
#[test]
fn equal_kinds_are_equal() {
    let scene = Scene {
        costs: [620.0; 3],
        ..SCENE
    };
    let mut rng = Rng::new(11);
    let chances = (0..400).map(|_| Fit::of(&simulate(&scene, &mut rng)).unwrap().equal());
    let chances: Vec<f64> = chances.collect();
    for (bound, most) in [(0.01, 0.025), (0.05, 0.08), (0.5, 0.57)] {
        let below = chances.iter().filter(|it| **it < bound).count() as f64 / 400.0;
        println!("{below} below {bound}");
        assert!(below <= most, "{below} below {bound}");
    }
    let differ = Scene {
        costs: [500.0, 620.0, 800.0],
        ..SCENE
    };
    let fit = Fit::of(&simulate(&differ, &mut rng)).unwrap();
    assert!(fit.equal() < 1e-4, "{}", fit.equal());
}

/// No batch is named where none is dear, in 95 % of runs at least, however long the tails of the items' times; one that
/// is dear is.
#[test]
fn dear_batches_are_named() {
    for spread in [0.05, 0.3, 0.5] {
        let scene = Scene {
            spread,
            batches: 1_000,
            ..SCENE
        };
        let mut rng = Rng::new(13);
        let (mut wrong, runs) = (0, 60);
        for run in 0..runs {
            let mut batches = simulate(&scene, &mut rng);
            wrong += u32::from(!named(&Fit::of(&batches).unwrap()).is_empty());
            batches.ns[run * 16] += 84_000.0;
            let found = named(&Fit::of(&batches).unwrap());
            assert!(found.contains(&(run * 16)), "{found:?} in run {run}");
        }
        println!("{wrong} of {runs} runs with spread {spread}");
        assert!(wrong <= 3, "{wrong} of {runs} runs with spread {spread}");
    }
}

/// Batches that hold equally many items have no fixed part; kinds in the same proportions have no costs, and nor have too
/// few batches.
#[test]
fn what_cannot_be_told_apart() {
    let of = |counts: [f64; 2], fixed: bool| {
        let batch = |at: usize| counts.map(|n| n * (1 + at % 7) as f64);
        let times = (0..100).map(|at| batch(at)[0] * 300.0 + 1_000.0 + (at * 37 % 101) as f64);
        fit::Batches {
            ns: times.collect(),
            error_ns: vec![0.0; 100],
            counts: (0..100).flat_map(batch).collect(),
            kinds: 2,
            fixed,
        }
    };
    assert_eq!(Fit::of(&of([2.0, 4.0], true)).err(), Some(NoFit::Alike));
    assert_eq!(Fit::of(&of([2.0, 0.0], true)).err(), Some(NoFit::Alike));
    let few = fit::Batches {
        ns: vec![1.0; 10],
        error_ns: vec![0.0; 10],
        counts: vec![1.0; 10],
        kinds: 1,
        fixed: true,
    };
    assert_eq!(Fit::of(&few).err(), Some(NoFit::TooFew));
}

const SPECS: [&str; 3] = [
    "/bin/app:admit(id=arg1, n=arg2:u32)",
    "/bin/app:serve(ids=arg1[arg2]:u64)",
    "/bin/app:one(id=arg1)",
];

/// Returns the time of an item of kind 1, 2 or 3, ns.
fn cost(kind: u64) -> i64 {
    [310, 620, 1_900][kind as usize - 1]
}

/// A trace of 600 batches; `inside`: with a visit for each item in them. Item 5,000 is dear, batch 300 only waited for a
/// CPU.
fn trace(specs: usize, is_equal: bool, inside: bool) -> TestTrace {
    let mut maker = Maker::new(info(&SPECS[..specs]));
    let (mut rng, mut next) = (Rng::new(3), 1);
    for batch in 0..600 {
        let number = rng.below(33) as u64;
        let ids: Vec<u64> = (next..next + number).collect();
        next += number;
        let mut did = vec![Ran(2, 2_000 + rng.below(60) as i64)];
        let kinds: Vec<u64> = ids.iter().map(|_| 1 + rng.below(3) as u64).collect();
        for (id, kind) in ids.iter().zip(&kinds) {
            maker.visit(&VisitFixture::new(*kind, "k", &[Ran(1, 200)]).item(*id));
            let dear = if *id == 5_000 { 84_000 } else { 0 };
            let base = if is_equal { 620 } else { cost(*kind) };
            did.push(Ran(2, base + rng.below(20) as i64 + dear));
        }
        if batch == 300 {
            did.push(Waited(2, "runnable", 4_000_000));
        }
        let begin = maker.now;
        let serve = VisitFixture::with([None, None], &did).probe(1);
        let serve = serve.item(batch).batch(ids.clone());
        maker.at(begin, &serve);
        let end = maker.now;
        if inside {
            let mut at = begin + 2_000;
            for (id, did) in ids.iter().zip(&did[1..]) {
                let one = VisitFixture::with([None, None], &[*did]).probe(2);
                maker.at(at, &one.item(*id));
                at = maker.now;
            }
        }
        maker.now = end + 500;
    }
    maker.finish(&[(1, "admit", "app"), (2, "serve", "app")])
}

/// Costs by kind, the dear batch, and the batch that waited, in the report and in the explanation.
#[test]
fn costs_of_a_trace() {
    let trace = trace(2, false, false);
    let mixes = read(&trace, LossVisits::LeaveOut, None, None).unwrap();
    let [mix] = &mixes[..] else {
        panic!("{mixes:?}")
    };
    let costs = mix.costs.as_ref().unwrap();
    assert_eq!(
        (mix.batches, mix.left_out, &costs.arguments[..]),
        (600, 0, &["n".to_owned()][..])
    );
    for (kind, found) in (1..).zip(&costs.kinds) {
        let off = found.cost.ns / (cost(kind) as f64 + 10.0) - 1.0;
        assert!(off.abs() < 0.02, "{kind}: {found:?}");
    }
    assert_eq!((mix.dear_batches, mix.waited), (1, 1));
    assert!(
        (mix.dear[0].beyond_ns - 84_000.0).abs() < 1_000.0,
        "{mix:?}"
    );
    let explained = explained::text::render(&explain(&trace, &ExplainOptions::default()).unwrap());
    let reported = reported::text::render(&build(&trace, &ReportOptions::default()).unwrap());
    for text in [explained, reported] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "for each n=1, ",
            "costs a batch costs 2.03 us",
            "slow for what they hold: 1 batch of 600, visit",
            "only a mark inside tells which of its items it was: --uprobe 'app:FUNC(id=EXPR)'",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}

/// Equal kinds have one cost.
#[test]
fn equal_costs_of_a_trace() {
    let trace = trace(2, true, false);
    let mixes = read(&trace, LossVisits::LeaveOut, None, None).unwrap();
    let costs = mixes[0].costs.as_ref().unwrap();
    let [one] = &costs.kinds[..] else {
        panic!("{costs:?}")
    };
    assert!(
        one.labels.is_empty() && (one.cost.ns - 630.0).abs() < 5.0,
        "{one:?}"
    );
    let text = explained::text::render(&explain(&trace, &ExplainOptions::default()).unwrap());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("for each item, whatever its n"), "{text}");
}

/// Visits within the batches tell which item was dear, and are its share.
#[test]
fn marks_inside() {
    let trace = trace(3, false, true);
    let mixes = read(&trace, LossVisits::LeaveOut, None, None).unwrap();
    let mix = &mixes[0];
    for (kind, found) in (1..).zip(&mix.inside) {
        let off = found.cost.ns - cost(kind) as f64 - 10.0;
        assert!(off.abs() < 1.0, "{found:?}");
    }
    let item = mix.dear[0].item.unwrap();
    assert_eq!(item.item_id, 5_000);
    let batches = Batches::read(&trace).unwrap();
    let batch = batches.of_visit(mix.dear[0].visit_id);
    let member = batch.known.iter().find(|it| it.item_id == 5_000).unwrap();
    assert!(member.share.of_whole() > 0.5, "{member:?}");
    let inside = batch.inside_ns().find(|it| it.0.item_id == 5_000);
    assert_eq!(inside.unwrap().1, Some((item.net_ns, 0.0)));
    let shares: f64 = batch.known.iter().map(|it| it.share.of_whole()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}

/// Without an argument of the items one line says so, and nothing is estimated.
#[test]
fn no_kinds() {
    let mut maker = Maker::new(info(&["/bin/app:serve(ids=arg1[arg2]:u64)"]));
    for batch in 0..200 {
        let ids = (batch * 10..batch * 10 + batch % 7).collect();
        let serve = VisitFixture::new(1, "k", &[Ran(2, 1_000)]);
        maker.visit(&serve.item(batch).batch(ids));
    }
    let trace = maker.finish(&[(2, "serve", "app")]);
    let mixes = read(&trace, LossVisits::LeaveOut, None, None).unwrap();
    assert_eq!(mixes[0].unknown, Some(NoCosts::NoArgument));
    assert_eq!((&mixes[0].costs, mixes[0].dear_batches), (&None, 0));
    let text = reported::text::render(&build(&trace, &ReportOptions::default()).unwrap());
    let lines = text.lines().filter(|it| it.contains("unknown by kind"));
    assert_eq!(lines.count(), 1, "{text}");
}

/// A number with many values makes kinds by its ranges; batches that all hold equally many have no fixed part of their
/// own.
#[test]
fn ranges_and_equal_sizes() {
    let mut maker = Maker::new(info(&SPECS[..2]));
    let mut rng = Rng::new(5);
    for batch in 0..500 {
        let ids: Vec<u64> = (batch * 8..batch * 8 + 8).collect();
        let mut took = 800;
        for id in &ids {
            let n = rng.below(1_000) as u64;
            maker.visit(&VisitFixture::new(n, "k", &[Ran(1, 200)]).item(*id));
            took += 100 + n as i64;
        }
        let serve = VisitFixture::with([None, None], &[Ran(2, took)]).probe(1);
        maker.visit(&serve.item(batch).batch(ids));
    }
    let trace = maker.finish(&[(1, "admit", "app"), (2, "serve", "app")]);
    let mixes = read(&trace, LossVisits::LeaveOut, None, None).unwrap();
    let costs = mixes[0].costs.as_ref().unwrap();
    assert_eq!(
        (costs.fixed, &costs.arguments[..]),
        (None, &["n".to_owned()][..])
    );
    assert!(costs.kinds.len() > 2, "{costs:?}");
    assert!(
        costs
            .kinds
            .is_sorted_by(|a, b| a.cost.high_ns < b.cost.low_ns),
        "{costs:?}"
    );
    let text = reported::text::render(&build(&trace, &ReportOptions::default()).unwrap());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("as all hold equally many"), "{text}");
}

/// The dearest are listed, whether they lost the CPU or not; those that did come last.
#[test]
fn dearest_are_listed() {
    let all = (0..300).map(|at: u64| DearBatch {
        item_id: at,
        beyond_ns: at as f64,
        waited_ns: i64::from(at.is_multiple_of(50)),
        ..DearBatch::default()
    });
    let ids: Vec<u64> = listed(all.collect()).iter().map(|it| it.item_id).collect();
    assert_eq!(ids.len(), MOST_DEAR);
    assert_eq!((ids[0], ids[97]), (299, 201));
    assert_eq!(ids[98..], [250, 200]);
}
