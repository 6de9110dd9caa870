//! Groups of equivalent events.

use crate::series::Series;
use pebs_stats::summary::{correlation, ranks};

/// Events that rank the rows in nearly the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alike {
    /// Their numbers.
    pub events: Vec<usize>,
}

/// Smallest rank correlation of any two events of a group.
pub const LEAST: f64 = 0.95;

/// Rows that are compared.
const MOST: usize = 4_000;

/// Groups events whose ranks over these rows correlate pairwise by at least [`LEAST`].
#[must_use]
pub fn alike(series: &Series, events: &[usize], rows: &[usize]) -> Vec<Alike> {
    let step = rows.len().div_ceil(MOST).max(1);
    let ranks: Vec<Vec<f64>> = events
        .iter()
        .map(|&event| {
            let counts = &series.events[event].counts;
            let values: Vec<f64> = rows.iter().step_by(step).map(|&row| counts[row]).collect();
            ranks(&values)
        })
        .collect();
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for a in 0..events.len() {
        for b in 0..a {
            pairs.push((correlation(&ranks[a], &ranks[b]).abs(), b, a));
        }
    }
    let close = |a: usize, b: usize| correlation(&ranks[a], &ranks[b]).abs() >= LEAST;
    pairs.retain(|pair| pair.0 >= LEAST);
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut groups: Vec<Vec<usize>> = (0..events.len()).map(|it| vec![it]).collect();
    for (_, a, b) in pairs {
        let of = |it: usize| groups.iter().position(|group| group.contains(&it));
        let (Some(a), Some(b)) = (of(a), of(b)) else {
            continue;
        };
        if a != b
            && groups[a]
                .iter()
                .all(|&x| groups[b].iter().all(|&y| close(x, y)))
        {
            let joined = groups.remove(a.max(b));
            groups[a.min(b)].extend(joined);
        }
    }
    groups
        .into_iter()
        .map(|group| Alike {
            events: group.into_iter().map(|it| events[it]).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Event;
    use pebs_stats::rng::Rng;

    /// A function of another event is grouped with it, also a decreasing one; an event that is merely correlated is
    /// not.
    #[test]
    fn dependent_events_are_grouped() {
        let mut rng = Rng::new(1);
        let a: Vec<f64> = (0..500).map(|_| rng.unit()).collect();
        let noise: Vec<f64> = (0..500).map(|_| rng.unit()).collect();
        let both = a.iter().zip(&noise).map(|(a, n)| a + n).collect();
        let columns = [
            a.clone(),
            noise,
            a.iter().map(|it| 1e6 * it.exp()).collect(),
            both,
            a.iter().map(|it| -it).collect(),
        ];
        let events = columns.into_iter().map(|counts| Event {
            counts,
            ..Event::default()
        });
        let series = Series::of(events.collect());
        let mut groups = alike(&series, &[0, 1, 2, 3, 4], &(0..500).collect::<Vec<_>>());
        groups.iter_mut().for_each(|it| it.events.sort_unstable());
        let groups: Vec<Vec<usize>> = groups.into_iter().map(|it| it.events).collect();
        assert_eq!(groups, [vec![0, 2, 4], vec![1], vec![3]]);
    }
}
