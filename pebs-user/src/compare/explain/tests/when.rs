//! Tests of changes over time.

use super::*;
use crate::compare::explain::model::{Change, ChangeShape};

const MS: i64 = 1_000_000;

/// Explains items that begin at these times, each with what it does.
fn changes(
    mut items: impl Iterator<Item = (i64, Vec<crate::store::fixtures::Did>)>,
) -> Vec<Change> {
    let mut maker = Maker::new(info(&[SPEC]));
    items.by_ref().for_each(|(begin, did)| {
        maker.at(begin, &VisitFixture::new(0, "k", &did));
    });
    let trace = maker.finish(&FUNCTIONS);
    let options = ExplainOptions {
        when: true,
        ..ExplainOptions::default()
    };
    let mut explanation = explain(&trace, &options).unwrap();
    let text = text::render(&explanation);
    let changes = explanation.probes.remove(0).changes.unwrap();
    let said = text
        .lines()
        .filter(|it| it.trim_start().starts_with("when "));
    assert_eq!(said.count(), 1, "{text}");
    changes
}

/// From an item on, all take longer, by one function; later no more.
#[test]
fn steps() {
    let mut random = SplitMix64::new(3);
    let found = changes((0..4_000).map(|i| {
        let mut did = vec![Ran(1, 50_000 + i64::from(random.below(60_000)))];
        if (1_000..3_000).contains(&i) {
            did.push(Ran(2, 40_000));
        }
        (i * MS, did)
    }));
    let [up, down] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!([up.kind, down.kind], [ChangeShape::Step; 2]);
    // To a block of items.
    assert!((up.from_ns - 1_000 * MS).abs() <= 20 * MS, "{up:?}");
    assert!((down.from_ns - 3_000 * MS).abs() <= 20 * MS, "{down:?}");
    assert!(
        (up.after_ns - up.before_ns - 40_000.0).abs() < 4_000.0,
        "{up:?}"
    );
    for change in [up, down] {
        let cause = &change.gap.as_ref().unwrap().causes[0];
        assert_eq!(cause.function.name.as_deref(), Some("rehash"));
    }
}

/// Items take longer and longer.
#[test]
fn drift() {
    let mut random = SplitMix64::new(4);
    let found = changes((0..4_000).map(|i| {
        let usual = Ran(1, 50_000 + i64::from(random.below(60_000)));
        (i * MS, vec![usual, Waited(4, "sleeping", 1_000 + i * 20)])
    }));
    let [change] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(change.kind, ChangeShape::Drift);
    assert!((change.after_ns - change.before_ns - 60_000.0).abs() < 4_000.0);
    let cause = &change.gap.as_ref().unwrap().causes[0];
    assert_eq!(cause.function.name.as_deref(), Some("fdatasync"));
}

/// Every 250 ms some items wait, but for one time.
#[test]
fn period() {
    let mut random = SplitMix64::new(5);
    let found = changes((0..5_000).map(|i| {
        let begin = i * MS + i64::from(random.below(900_000));
        let mut did = vec![Ran(1, 20_000 + i64::from(random.below(20_000)))];
        let (at, burst) = (begin % (250 * MS), begin / (250 * MS));
        if at < 5 * MS && burst != 7 {
            did.push(Waited(4, "sleeping", 300_000));
        }
        (begin, did)
    }));
    let [change] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!((change.kind, change.bursts), (ChangeShape::Period, 19));
    let every = change.every_ns.unwrap();
    assert!((every - 250e6).abs() < 2e6, "{change:?}");
    assert!(
        (3 * MS..7 * MS).contains(&change.for_ns.unwrap()),
        "{change:?}"
    );
    assert_eq!(change.others, 0);
}

/// Without a change nothing is reported: durations by chance, those of neighbours alike, slow ones at any time, and
/// items at equal distances.
#[test]
fn nothing() {
    for seed in 0..40_u64 {
        let mut random = SplitMix64::new(seed);
        let (mut level, mut begin) = (0.0_f64, 0);
        let found = changes((0..1_500).map(|_| {
            level = 0.9 * level + f64::from(random.below(20_000)) - 10_000.0;
            begin += match seed % 2 {
                0 => MS,
                _ => i64::from(random.below(2_000_000)),
            };
            let slow = random.below(100) < 3;
            let ns = 200_000 + level as i64 + i64::from(slow) * 900_000;
            (begin, vec![Ran(1, ns)])
        }));
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
    }
}
