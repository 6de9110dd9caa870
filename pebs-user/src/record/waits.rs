//! Whether a recording that was not asked for it records who ends waits.
//!
//! It does from the moment on at which slow items were seen to wait for more than a tenth of their time, the first second
//! past, if the records cost at most half of what the budget leaves beside marks. What a record costs was measured before
//! the start; the number of waits is known from switches, which are recorded anyway.
//!
//! Items that do little but wait have a slow-down of their time on the CPU that nobody feels, and marks alone may exceed the
//! bound there. As with samples, the default bound then allows a small part of a CPU, and of the items' whole time.

use super::cost::Prices;
use crate::cost::overhead::Bounds;
use crate::estimate::waiting::WaitedBy;
use crate::pipeline::Load;
use crate::present::human::{percent, time};
use crate::units::TraceNs;

/// Time before the first look, ns.
const FIRST_LOOK_NS: i64 = 1_000_000_000;

/// Items of a probe that say how much they wait.
const LEAST_ITEMS: u64 = 10;

/// Least share of items' time off the CPU.
const LEAST_SHARE: f64 = 0.1;

/// Most of what the bound on the slow-down leaves beside marks.
const MOST_OF_BUDGET: f64 = 0.5;

/// Part of a CPU, and of items' whole time, that is always paid unless a bound was asked for.
const MOST_OF_CPU: f64 = 0.005;

/// Decision, with its reason. Shares are of the time of items, costs of their time on the CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Too little was seen so far.
    TooEarly,
    /// Items wait for a share of their time, and the records cost this.
    Recorded { waiting: Share, cost: f64 },
    /// They wait too little.
    Seldom(Share),
    /// The records would cost this, and may cost that.
    Dear {
        waiting: Share,
        cost: f64,
        most: f64,
    },
    /// The cost of marks or records is not known.
    Unknown,
}

/// Share of items' time off the CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// Whether it is that of the slow ones.
    slow: bool,
    share: f64,
}

impl Share {
    fn text(self) -> String {
        let who = if self.slow { "slow items" } else { "items" };
        format!("{who} wait {} of their time", percent(self.share))
    }
}

impl Verdict {
    /// The line on it; `from`: since when they are recorded.
    pub(super) fn text(self, from: Option<TraceNs>) -> String {
        let why = match self {
            Self::Recorded { waiting, cost } => {
                let from = time(from.map_or(0.0, |it| it.0 as f64));
                return format!(
                    "waits: who ends them is recorded from {from} on, as {} (slows items down by {}); --with none: never",
                    waiting.text(),
                    percent(cost)
                );
            }
            Self::Seldom(waiting) => waiting.text(),
            Self::Dear {
                waiting,
                cost,
                most,
            } => format!(
                "that would slow items down by {}, and may by {}; {}",
                percent(cost),
                percent(most),
                waiting.text()
            ),
            Self::TooEarly => "too few items ended".to_owned(),
            Self::Unknown => "what that costs is not known".to_owned(),
        };
        format!("waits: who ends them is not recorded, as {why}; --with waits: from the start")
    }
}

/// Decides by the load up to now and the target's CPU time, ns.
pub(super) fn judge(load: &Load, cpu_ns: u64, (prices, bounds): (&Prices<'_>, &Bounds)) -> Verdict {
    if load.until.0 < FIRST_LOOK_NS {
        return Verdict::TooEarly;
    }
    let (Some(wake_ns), Some(window)) = (
        prices.costs().extras.encounter_ns,
        prices.window(&Load::default(), load),
    ) else {
        return Verdict::Unknown;
    };
    decide(&Seen {
        waited: &load.waited,
        wake_ns,
        // Marks that seem to take all of the time leave nothing.
        fixed: window.fixed().unwrap_or(bounds.overhead),
        switches: load.switches,
        time_ns: (load.until.0 as f64, cpu_ns as f64),
        bound: bounds.overhead,
        by_default: bounds.extra > 0.0,
    })
}

/// Observations on which the decision rests.
struct Seen<'a> {
    /// By probe.
    waited: &'a [WaitedBy],
    /// Cost of a record of who ended a wait, ns.
    wake_ns: f64,
    /// Slow-down of items by marks.
    fixed: f64,
    /// Switches of the target's threads, out and in.
    switches: u64,
    /// Time so far, and their CPU time, ns.
    time_ns: (f64, f64),
    /// Bound on the slow-down, and whether it is the default one.
    bound: f64,
    by_default: bool,
}

fn decide(seen: &Seen<'_>) -> Verdict {
    let known = seen.waited.iter();
    let known = known.filter(|it| it.all.items >= LEAST_ITEMS);
    let share = |it: &WaitedBy| {
        Some(Share {
            slow: it.slow.is_some(),
            share: it.slow.unwrap_or(it.all).share()?,
        })
    };
    let most = known
        .filter_map(share)
        .max_by(|a, b| a.share.total_cmp(&b.share));
    let Some(waiting) = most else {
        return Verdict::TooEarly;
    };
    if waiting.share <= LEAST_SHARE {
        return Verdict::Seldom(waiting);
    }
    let (mut ns, mut off_ns, mut waits) = (0, 0, 0);
    for of_probe in seen.waited {
        ns += of_probe.all.ns;
        off_ns += of_probe.all.off_ns;
        waits += of_probe.all.waits;
    }
    let of_items_ns = waits as f64 * seen.wake_ns;
    // Of all that the target does: a wait is two switches.
    let of_target_ns = seen.switches as f64 / 2.0 * seen.wake_ns;
    let (elapsed_ns, cpu_ns) = seen.time_ns;
    let part = |cost_ns: f64, ns: f64| cost_ns / ns.max(1.0);
    let cost = part(of_items_ns, (ns - off_ns) as f64).max(part(of_target_ns, cpu_ns));
    let most = (seen.bound - seen.fixed).max(0.0) * MOST_OF_BUDGET;
    let felt = part(of_items_ns, ns as f64).max(part(of_target_ns, elapsed_ns));
    let is_small = seen.by_default && felt <= MOST_OF_CPU;
    match cost <= most || is_small {
        true => Verdict::Recorded { waiting, cost },
        false => Verdict::Dear {
            waiting,
            cost,
            most,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::waiting::Waited;

    /// Recorded where slow items wait for more than a tenth of their time, and at most half of what marks leave of the
    /// budget pays for it.
    #[test]
    fn decided() {
        let waited = |items, off_ns, waits| {
            let all = Waited {
                items,
                ns: 1_000_000_000,
                off_ns,
                waits,
            };
            [WaitedBy { all, slow: None }]
        };
        let decided = |waited: &[WaitedBy], switches, fixed, by_default| {
            decide(&Seen {
                waited,
                wake_ns: 500.0,
                fixed,
                switches,
                time_ns: (2e9, 1e9),
                bound: 0.05,
                by_default,
            })
        };
        let of = |waited: &[WaitedBy], switches, fixed| decided(waited, switches, fixed, true);
        assert_eq!(of(&[], 0, 0.0), Verdict::TooEarly);
        assert_eq!(of(&waited(9, 500_000_000, 9), 0, 0.0), Verdict::TooEarly);
        let seldom = of(&waited(100, 100_000_000, 100), 0, 0.0);
        assert_eq!(
            seldom.text(None),
            "waits: who ends them is not recorded, as items wait 10 % of their time; --with waits: from the start"
        );
        // 1,000 waits in 660 ms.
        let recorded = of(&waited(100, 340_000_000, 1_000), 2_000, 0.01);
        assert_eq!(
            recorded.text(Some(TraceNs(1_200_000_000))),
            "waits: who ends them is recorded from 1.20 s on, as items wait 34 % of their time (slows items down by <0.1 \
             %); --with none: never"
        );
        let dear = of(&waited(100, 340_000_000, 100_000), 200_000, 0.01);
        assert!(
            dear.text(None)
                .contains("would slow items down by 7.6 %, and may by 2.0 %; items wait 34 %"),
            "{dear:?}"
        );
        // Threads without items wait too often.
        let others = of(&waited(100, 340_000_000, 1_000), 200_000, 0.01);
        assert!(matches!(others, Verdict::Dear { .. }), "{others:?}");
        // Marks use up the bound, but nobody feels it; where a bound was asked for, that counts.
        let waiting = waited(100, 990_000_000, 200);
        for (by_default, is_recorded) in [(true, true), (false, false)] {
            let marks = decided(&waiting, 2_000, 0.2, by_default);
            let recorded = matches!(marks, Verdict::Recorded { .. });
            assert_eq!(recorded, is_recorded, "{marks:?}");
        }
        // The slowest count.
        let slow = Waited {
            items: 10,
            ns: 1_000_000,
            off_ns: 900_000,
            waits: 10,
        };
        let [few] = waited(1_000, 10_000_000, 1_000);
        let both = WaitedBy {
            slow: Some(slow),
            ..few
        };
        assert!(
            matches!(of(&[both], 2_000, 0.0), Verdict::Recorded { waiting, .. } if waiting.slow)
        );
    }
}
