use super::*;
use crate::present::Page;
use crate::present::counted::table;
use crate::rng::SplitMix64;
use crate::units::CountUnit;
use pebs_stats::blocks::block_of;

fn info(name: &str) -> CountedInfo {
    CountedInfo {
        name: name.to_owned(),
        unit: CountUnit::Events,
        ..CountedInfo::default()
    }
}

/// Slow items with 10 events and 0..=9 more in 20 us, typical ones with 1 in 10 us.
fn sums() -> CountedSums {
    let mut sums = CountedSums::default();
    let mut rng = SplitMix64::new(1);
    for item in 0..2000 {
        let slow = item % 10 == 0;
        let class = if slow { Class::Slow } else { Class::Typical };
        let more = f64::from(rng.below(10));
        let counted = if slow {
            (10.0 + more, 20_000.0)
        } else {
            (1.0, 10_000.0)
        };
        sums.add(0, (class, block_of(item)), counted);
        sums.add_state(0, "exact");
    }
    sums
}

/// Means, rates and differences are those of the items, and their intervals contain them.
#[test]
fn slow_and_typical() {
    let rows = sums().rows(&[info("page-faults")]);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let (slow, typical) = (row.slow.unwrap(), row.typical.unwrap());
    assert_eq!((slow.items, typical.items), (200, 1800));
    assert!((14.0..15.0).contains(&slow.per_item), "{slow:?}");
    assert_eq!((typical.per_item, typical.per_us), (1.0, Some(0.1)));
    let rate = slow.per_us.unwrap();
    assert!((rate - slow.per_item / 20.0).abs() < 1e-9);
    let excess = row.excess.unwrap();
    assert!((excess.value - (slow.per_item - 1.0)).abs() < 1e-9);
    let (low, high) = (excess.low.unwrap(), excess.high.unwrap());
    assert!(low < 13.5 && 13.5 < high && high - low < 1.2, "{excess:?}");
    let rates = row.rate_excess.unwrap();
    assert!(rates.low.unwrap() < rates.value && rates.value < rates.high.unwrap());
}

/// Unknown counts are in no mean and are reported; if all are unknown the figure is null, not 0.
#[test]
fn unknown() {
    let mut sums = sums();
    (0..500).for_each(|_| sums.add_state(0, "no turn"));
    (0..500).for_each(|_| sums.add_state(0, "scaled"));
    sums.add_state(1, "unknown");
    let rows = sums.rows(&[info("cycles"), info("branches"), info("never")]);
    assert_eq!(rows.len(), 2);
    let visits = rows[0].visits;
    assert_eq!(
        (visits.exact, visits.scaled, visits.no_turn),
        (2000, 500, 500)
    );
    assert_eq!((rows[1].all, rows[1].excess), (None, None));
    let mut page = Page::new(100);
    table(&mut page, &rows, "item");
    let text = page.plain();
    assert!(text.contains("17 % scaled, 17 % had no turn"), "{text}");
    assert!(
        text.lines()
            .any(|it| it.contains("branches") && it.contains("100 % unknown")),
        "{text}"
    );
}

/// If no item is slow, the figures are those of all items.
#[test]
fn none_is_slow() {
    let mut sums = CountedSums::default();
    (0..20).for_each(|item| sums.add(0, (Class::Between, block_of(item)), (3.0, 1_000.0)));
    let rows = sums.rows(&[info("faults")]);
    assert_eq!(
        rows[0].all.map(|it| (it.items, it.per_item, it.per_us)),
        Some((20, 3.0, Some(3.0)))
    );
    assert_eq!((rows[0].slow, rows[0].excess), (None, None));
    let mut page = Page::new(100);
    table(&mut page, &rows, "item");
    assert!(page.plain().contains("3.00"), "{}", page.plain());
}
