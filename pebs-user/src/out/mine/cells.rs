//! Cells that the tables of a run's events and of many runs' have in common.

use crate::present::human::{percent, safe};

/// Columns of a name.
pub(super) const NAME_WIDTH: usize = 48;

/// Width to which a name can be shortened.
pub(super) const LEAST_NAME: usize = 14;

/// Names of events that vary together.
pub(super) fn joined(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|it| safe(it, NAME_WIDTH)).collect();
    names.join(" = ")
}

/// Whether the outcome is higher or lower where there is more; empty if neither is clear. `direction`: -1 to 1.
pub(super) fn more_is(direction: f64) -> &'static str {
    match direction {
        d if d > 0.3 => "higher",
        d if d < -0.3 => "lower",
        _ => "",
    }
}

/// An interval of a share of the variance.
pub(super) fn share_range(low: f64, high: f64) -> String {
    format!("{} .. {}", percent(low), percent(high.min(1.0)))
}

/// A probability.
pub(super) fn chance(chance: f64) -> String {
    if chance < 1e-4 {
        "<1e-4".to_owned()
    } else {
        format!("{chance:.4}")
    }
}
