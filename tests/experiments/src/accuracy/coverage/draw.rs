//! Parameters of a recording, drawn from a seed.

use serde::{Deserialize, Serialize};

use crate::frame::random::Random;

/// Reset values; `None`: pebs-trace chooses it.
pub(super) const RESETS: [Option<u32>; 11] = [
    Some(25_013),
    Some(50_021),
    Some(61_003),
    Some(75_011),
    Some(100_000),
    Some(100_003),
    Some(150_007),
    Some(200_000),
    Some(250_007),
    Some(500_009),
    None,
];

/// Time of an item, us: from, to.
const ITEM_US: (f64, f64) = (5.0, 5_000.0);

/// Longest item where some do more work, us: as many are slow as intervals need.
const MOST_WITH_SLOW_US: f64 = 500.0;

/// Time of the items and of what lies between them, us.
const RUN_US: f64 = 500_000.0;

/// Upper bound of the time that marks add to an item, as far as the number of items depends on it, us.
const MARKS_US: f64 = 25.0;

/// Order of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Order {
    /// All alike, one after the other.
    Equal,
    /// Of so many lengths in turn.
    Lengths(u32),
    /// All alike, in step with a timer of this many us.
    Timer(u32),
    /// One in so many does more, which is so many times ROUNDS.
    Slow { every: u32, extra: u32 },
}

impl Order {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Lengths(_) => "few lengths",
            Self::Timer(_) => "timer",
            Self::Slow { .. } => "one in N slow",
        }
    }
}

/// A recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Draw {
    /// Time of the shortest items, us, if a step takes 1 ns.
    pub item_us: f64,
    pub items: u32,
    pub order: Order,
    pub reset: Option<u32>,
    /// Whether the calls of a function are counted as well.
    pub counts: bool,
}

impl Draw {
    /// Draws the parameters: always the same for a seed.
    pub(super) fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let reset = random.one(&RESETS);
        let mut item_us = random.log_uniform(ITEM_US.0, ITEM_US.1);
        let order = match random.below(3 + 2) {
            0 => Order::Equal,
            1 => Order::Lengths(random.within(2, 5) as u32),
            2 => Order::Timer((item_us * 1.3 + 2.0 * MARKS_US) as u32),
            _ => Order::Slow {
                every: random.within(8, 40) as u32,
                extra: random.within(10, 60) as u32,
            },
        };
        if matches!(order, Order::Slow { .. }) {
            item_us = ITEM_US.0 + (item_us - ITEM_US.0) * MOST_WITH_SLOW_US / ITEM_US.1;
        }
        let every_us = match order {
            Order::Equal => item_us + MARKS_US,
            Order::Lengths(n) => item_us * f64::from(1 + n) / 2.0 + MARKS_US,
            Order::Timer(us) => f64::from(us),
            Order::Slow { every, extra } => {
                item_us * (1.0 + f64::from(extra) / 20.0 / f64::from(every)) + MARKS_US
            }
        };
        Self {
            item_us: (item_us * 1e3).round() / 1e3,
            items: (RUN_US / every_us) as u32,
            order,
            reset,
            counts: random.below(6) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed is a recording; every order and reset value comes up, and enough items for an interval.
    #[test]
    fn all_come_up() {
        let all: Vec<Draw> = (0..400).map(Draw::new).collect();
        assert_eq!(Draw::new(7), all[7]);
        for reset in RESETS {
            assert!(all.iter().any(|it| it.reset == reset), "{reset:?}");
        }
        for name in ["equal", "few lengths", "timer", "one in N slow"] {
            let of = all.iter().filter(|it| it.order.name() == name).count();
            assert!((40..240).contains(&of), "{name}: {of}");
        }
        for it in &all {
            assert!((5.0..=5_000.0).contains(&it.item_us), "{it:?}");
            let slow = match it.order {
                Order::Slow { every, .. } => it.items / every,
                _ => it.items / 4,
            };
            assert!(slow >= 8, "{it:?}");
        }
    }
}
