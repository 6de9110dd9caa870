//! A flame graph as an SVG picture.
//!
//! Weight: as [`super::folded`]. For slow visits the width is the mean per visit of the events or time that samples
//! stand for ([`Weight::mean_words`](crate::compare::load::Weight::mean_words)), and the colour shows the difference to typical
//! visits: red where the slow ones take more, blue where they take less.

use std::io::Write;

use inferno::flamegraph::{Options, from_lines};

use super::Input;
use super::folded::{Measure, Sums, sums};
use crate::compare::select::Selection;
use crate::compare::select::error::ExportError;

/// Writes the picture.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let measure = match input.selection {
        Selection::Slow(_) => Measure::Counted,
        Selection::All | Selection::Item(_) => Measure::Own,
    };
    let slow = sums(input, &input.chosen.visits, measure)?;
    let typical = match input.selection {
        Selection::Slow(_) => Some(sums(input, &input.chosen.typical, measure)?),
        Selection::All | Selection::Item(_) => None,
    };
    let mut options = Options::default();
    options.title = "pebs-trace".to_owned();
    options.subtitle = Some(input.note.clone());
    options.count_name = input.weight.unit().to_owned();
    // No frame is wider than its window, whatever was measured.
    options.min_width = 0.05;
    let lines = match typical {
        Some(typical) if typical.all_visits() > 0 => {
            options.title = format!(
                "pebs-trace: {} slow visits against {} typical ones",
                slow.all_visits(),
                typical.all_visits()
            );
            options.count_name += " per visit";
            against(&slow, &typical)
        }
        _ => plain(&slow),
    };
    if lines.is_empty() {
        return Err(ExportError::Empty {
            trace: input.trace.dir.display().to_string(),
        });
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out)?;
    Ok(())
}

fn plain(sums: &Sums) -> Vec<String> {
    let lines = sums.stacks.iter().map(|(stack, sum)| (stack, sum.1));
    let most = most(sums.stacks.len());
    lines
        .filter(|(_, weight)| weight.round() >= 1.0)
        .map(|(stack, weight)| format!("{stack} {:.0}", weight.min(most)))
        .collect()
}

/// Largest weight such that the sum of this many stacks fits in 64 bits, the number type of flame graphs.
fn most(stacks: usize) -> f64 {
    (1_u64 << 62) as f64 / (stacks + 1) as f64
}

/// Lines of a differential flame graph: weight per typical visit, weight per slow visit.
///
/// The mix of probes is made equal: among the typical visits each probe has the weight that it has among the slow.
fn against(slow: &Sums, typical: &Sums) -> Vec<String> {
    let visits = |sums: &Sums, probe| sums.visits.get(&probe).copied().unwrap_or(0) as f64;
    let all = slow.all_visits().max(1) as f64;
    let before = |(probe, weight): (u16, f64)| {
        let mean = weight / visits(typical, probe).max(1.0);
        mean * visits(slow, probe) / all
    };
    let both = slow.stacks.iter().map(|(stack, sum)| {
        let usual = typical.stacks.get(stack).copied();
        (stack, usual.map_or(0.0, before), sum.1 / all)
    });
    let only_typical = typical
        .stacks
        .iter()
        .filter(|(stack, _)| !slow.stacks.contains_key(*stack))
        .map(|(stack, sum)| (stack, before(*sum), 0.0));
    let most = most(slow.stacks.len() + typical.stacks.len());
    let lines = both.chain(only_typical);
    lines
        .filter(|(_, before, after)| before.round() + after.round() >= 1.0)
        .map(|(stack, before, after)| {
            format!("{stack} {:.0} {:.0}", before.min(most), after.min(most))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(visits: &[(u16, u64)], stacks: &[(&str, u16, f64)]) -> Sums {
        let stacks = stacks.iter();
        Sums {
            stacks: stacks
                .map(|(name, probe, n)| ((*name).to_owned(), (*probe, *n)))
                .collect(),
            visits: visits.iter().copied().collect(),
        }
    }

    /// Each side is a mean over its own visits, and a stack of only one side is 0 on the other.
    #[test]
    fn differential() {
        let slow = made(&[(0, 2)], &[("p;f", 0, 300.0), ("p;g", 0, 40.0)]);
        let typical = made(
            &[(0, 100)],
            &[("p;f", 0, 1_000.0), ("p;h", 0, 500.0), ("p;tiny", 0, 1.0)],
        );
        assert_eq!(
            against(&slow, &typical),
            ["p;f 10 150", "p;g 0 20", "p;h 5 0"]
        );
    }

    /// A probe counts among the typical visits as it does among the slow ones.
    #[test]
    fn like_with_like() {
        let slow = made(&[(0, 1), (1, 3)], &[("p;f", 0, 80.0), ("q;g", 1, 240.0)]);
        let typical = made(
            &[(0, 50), (1, 10), (2, 7)],
            &[("p;f", 0, 2_000.0), ("q;g", 1, 200.0), ("r;h", 2, 9_000.0)],
        );
        // 40 per visit of the one, a quarter; 20 of the other, three quarters.
        assert_eq!(against(&slow, &typical), ["p;f 10 20", "q;g 15 60"]);
    }
}
