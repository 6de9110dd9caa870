//! Robust regression of the times of batches on what they hold. Pure.
//!
//! # Model
//!
//! A batch takes a + n1 c1 + n2 c2 + ..: a fixed part, and a cost for each item of a kind. What it takes beyond that, its
//! *residual*, has a scale that depends on the fitted time, as more items vary more: 1.48 times the median size of the
//! residuals of batches with like fitted times, plus the error of the batch's own net time.
//!
//! # Estimate
//!
//! The sum of absolute residuals is minimised first, then that of Tukey's biweight of the residuals over their scale: what
//! is more than 4.7 scales away has no weight, so a few dear items, interrupted or preempted batches do not move costs.
//!
//! # Intervals
//!
//! Batches near in time are slower or faster together. So the variance of the costs is a sandwich over blocks of
//! consecutive batches, at most `BLOCKS` of them, and the quantiles are Student's t, with one degree of freedom less.
//! Whether several costs are equal is tested by Hotelling's T² with the same variance.
//!
//! # Dearer than the mix
//!
//! Times have longer tails than the normal distribution. From the 75th to the 90th percentile of the residuals over their
//! scale an exponential tail is fitted, no shorter than that of the normal distribution; the chance of a residual is that
//! of this tail, times the number of batches (Bonferroni). *Worked number*: normal residuals, 1,000 batches: a chance of
//! 0.01 is 1.28 + 0.66 ln(0.1 x 1,000 / 0.01) = 7.4 scales.
//!
//! Assumption: a tenth of the batches at most are dearer than their mix, or interrupted.
//! Source: Huber and Ronchetti, "Robust Statistics", 7; Beaton and Tukey, Technometrics 16 (1974); Zeger and Liang,
//! Biometrics 42 (1986), for the sandwich over blocks.

use crate::summary::{f_tail, median, quantile};

/// Blocks of consecutive batches, at most.
const BLOCKS: usize = 16;

/// Batches of a block, at least.
const LEAST_BLOCK: usize = 8;

/// Batches, at least, and those for each cost.
const FEWEST: usize = 40;
const FEWEST_EACH: usize = 8;

/// Residuals over their scale from which on a batch has no weight: 95 % of the efficiency of least squares where these
/// are normal.
const BIWEIGHT: f64 = 4.685;

/// Rounds of reweighting, at most, and the relative change of costs that ends them: by absolute residuals, and by the
/// biweight.
const ABSOLUTE: (usize, f64) = (20, 1e-3);
const BY_BIWEIGHT: (usize, f64) = (40, 1e-7);

/// Standard deviation of normal residuals over the median of their sizes.
const OF_MEDIAN: f64 = 1.4826;

/// Least scale of residuals: the resolution of clocks, ns.
const LEAST_SCALE: f64 = 1.0;

/// Ranges of fitted times with a scale of their own, and batches in each, at least.
const RANGES: usize = 16;
const LEAST_RANGE: usize = 25;

/// Of a normal distribution, in standard deviations: the 90th percentile, and the mean length of the exponential tail
/// from the 75th to it.
const NORMAL_TAIL: (f64, f64) = (1.282, 0.663);

/// Part of the batches beyond the 90th percentile.
const TAIL: f64 = 0.1;

/// Least part of a column that the columns before it do not explain, or its cost can't be told apart.
const LEAST_OWN: f64 = 1e-6;

/// Batches in order of time.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    /// Duration of each, ns.
    pub ns: Vec<f64>,
    /// Standard errors of that, ns.
    pub error_ns: Vec<f64>,
    /// Items by kind, batch after batch.
    pub counts: Vec<f64>,
    pub kinds: usize,
    /// Whether a fixed part is fitted: it can't be told from the items' costs where all batches hold equally many.
    pub fixed: bool,
}

impl Batches {
    fn row(&self, batch: usize) -> impl Iterator<Item = f64> + Clone + '_ {
        let counts = &self.counts[batch * self.kinds..][..self.kinds];
        let fixed = self.fixed.then_some(1.0).into_iter();
        fixed.chain(counts.iter().copied())
    }

    /// Number of columns.
    fn side(&self) -> usize {
        self.kinds + usize::from(self.fixed)
    }

    fn fitted(&self, batch: usize, costs: &[f64]) -> f64 {
        self.row(batch).zip(costs).map(|(n, cost)| n * cost).sum()
    }

    /// Weighted sums of squares and products of the columns, and of these with `values`.
    fn sums(&self, weights: &[f64], values: &[f64]) -> (Square, Vec<f64>) {
        let side = self.side();
        let (mut squares, mut products) = (Square::zero(side), vec![0.0; side]);
        for (batch, (weight, value)) in weights.iter().zip(values).enumerate() {
            for (at, x) in self.row(batch).enumerate().filter(|it| it.1 != 0.0) {
                products[at] += weight * x * value;
                let row = &mut squares.values[at * side..][..side];
                row.iter_mut()
                    .zip(self.row(batch))
                    .for_each(|(sum, y)| *sum += weight * x * y);
            }
        }
        (squares, products)
    }

    fn weighted(&self, weights: &[f64]) -> Option<Vec<f64>> {
        let (squares, products) = self.sums(weights, &self.ns);
        Some(squares.inverse()?.times(&products))
    }

    fn residuals(&self, costs: &[f64]) -> Vec<f64> {
        let of = |(batch, ns): (usize, &f64)| ns - self.fitted(batch, costs);
        self.ns.iter().enumerate().map(of).collect()
    }

    /// Scales of the residuals.
    fn scales(&self, costs: &[f64], residuals: &[f64]) -> Vec<f64> {
        let fitted: Vec<f64> = (0..self.ns.len())
            .map(|it| self.fitted(it, costs))
            .collect();
        let mut order: Vec<usize> = (0..fitted.len()).collect();
        order.sort_by(|&a, &b| fitted[a].total_cmp(&fitted[b]));
        let ranges = (order.len() / LEAST_RANGE).clamp(1, RANGES);
        let mut known: Vec<(f64, f64)> = Vec::with_capacity(ranges);
        for range in 0..ranges {
            let of = &order[order.len() * range / ranges..order.len() * (range + 1) / ranges];
            // Where the net time of most is exact, the others show their own errors.
            let exact = of.iter().filter(|&&it| self.error_ns[it] == 0.0);
            let sizes = exact.map(|&it| residuals[it].abs());
            let mut sizes: Vec<f64> = sizes.collect();
            if sizes.len() * 2 < of.len() {
                sizes = of.iter().map(|&it| residuals[it].abs()).collect();
            }
            let middle = median(of.iter().map(|&it| fitted[it]).collect());
            known.push((middle, (OF_MEDIAN * median(sizes)).max(LEAST_SCALE)));
        }
        let scale = |at: f64| {
            let next = known.partition_point(|it| it.0 < at);
            let (Some(above), Some(below)) = (
                known.get(next),
                next.checked_sub(1).and_then(|it| known.get(it)),
            ) else {
                return known[next.min(known.len() - 1)].1;
            };
            let part = (at - below.0) / (above.0 - below.0);
            below.1 + part * (above.1 - below.1)
        };
        let each = fitted.iter().zip(&self.error_ns);
        each.map(|(at, error)| scale(*at).hypot(*error)).collect()
    }
}

/// An estimate with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub error: f64,
}

/// Costs of the kinds of items of batches.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The fixed part, if there is one, then by kind, ns.
    costs: Vec<f64>,
    /// Place of the first kind.
    first: usize,
    variance: Square,
    blocks: usize,
    /// By batch, ns.
    pub residuals: Vec<f64>,
    /// By batch, ns.
    pub scales: Vec<f64>,
}

/// Why there are no costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFit {
    TooFew,
    /// Batches hold the kinds in the same proportions.
    Alike,
}

impl Fit {
    /// Fits the costs.
    ///
    /// Cost: O(n k² + n log n), some fifty times.
    pub fn of(batches: &Batches) -> Result<Self, NoFit> {
        let (number, side) = (batches.ns.len(), batches.side());
        if number < FEWEST.max(side * FEWEST_EACH) {
            return Err(NoFit::TooFew);
        }
        let mut weights = vec![1.0; number];
        let mut costs = batches.weighted(&weights).ok_or(NoFit::Alike)?;
        for _ in 0..ABSOLUTE.0 {
            let sizes = batches.residuals(&costs).into_iter().map(f64::abs);
            let sizes: Vec<f64> = sizes.collect();
            let least = (median(sizes.clone()) * 1e-3).max(LEAST_SCALE * 1e-3);
            weights = sizes.iter().map(|it| it.max(least).recip()).collect();
            let next = batches.weighted(&weights).ok_or(NoFit::Alike)?;
            let is_done = is_near(&costs, &next, ABSOLUTE.1);
            costs = next;
            if is_done {
                break;
            }
        }
        let mut scales = Vec::new();
        for _ in 0..BY_BIWEIGHT.0 {
            let residuals = batches.residuals(&costs);
            scales = batches.scales(&costs, &residuals);
            let each = residuals.iter().zip(&scales);
            weights = each
                .map(|(r, s)| biweight(r / s).weight / (s * s))
                .collect();
            let next = batches.weighted(&weights).ok_or(NoFit::Alike)?;
            let is_done = is_near(&costs, &next, BY_BIWEIGHT.1);
            costs = next;
            if is_done {
                break;
            }
        }
        let residuals = batches.residuals(&costs);
        let each = residuals.iter().zip(&scales);
        let slopes = each.map(|(r, s)| biweight(r / s).slope / (s * s));
        let slopes: Vec<f64> = slopes.collect();
        let bread = batches.sums(&slopes, &residuals).0;
        let bread = bread.inverse().ok_or(NoFit::Alike)?;
        let blocks = (number / LEAST_BLOCK).min(BLOCKS);
        let mut meat = Square::zero(side);
        for block in 0..blocks {
            let mut sums = vec![0.0; side];
            for batch in number * block / blocks..number * (block + 1) / blocks {
                let (r, s) = (residuals[batch], scales[batch]);
                let pull = biweight(r / s).weight * r / (s * s);
                let row = sums.iter_mut().zip(batches.row(batch));
                row.for_each(|(sum, x)| *sum += pull * x);
            }
            meat.add_square(&sums);
        }
        let of_few = blocks as f64 / (blocks as f64 - 1.0);
        let mut variance = bread.times_square(&meat).times_square(&bread);
        variance.values.iter_mut().for_each(|it| *it *= of_few);
        Ok(Self {
            costs,
            first: usize::from(batches.fixed),
            variance,
            blocks,
            residuals,
            scales,
        })
    }

    /// The fixed part of a batch, ns; `None`: not fitted.
    pub fn fixed(&self) -> Option<Estimate> {
        (self.first > 0).then(|| self.estimate(0))
    }

    /// The cost of an item of a kind, ns.
    pub fn kind(&self, kind: usize) -> Estimate {
        self.estimate(self.first + kind)
    }

    fn estimate(&self, at: usize) -> Estimate {
        Estimate {
            value: self.costs[at],
            error: self.variance.at(at, at).max(0.0).sqrt(),
        }
    }

    /// Half the width of a 95 % interval, in standard errors.
    pub fn width(&self) -> f64 {
        t_quantile(self.blocks as f64 - 1.0)
    }

    /// Chance that the costs of all kinds are equal and differ as much; 1 of a single kind.
    pub fn equal(&self) -> f64 {
        let first = self.first;
        let contrasts = self.costs.len().saturating_sub(first + 1);
        let freedom = self.blocks as f64 - contrasts as f64;
        if contrasts == 0 || freedom < 1.0 {
            return 1.0;
        }
        // Each kind less the first.
        let others = self.costs[first + 1..].iter();
        let differences: Vec<f64> = others.map(|it| it - self.costs[first]).collect();
        let mut variance = Square::zero(contrasts);
        let of = |a: usize, b: usize| self.variance.at(a, b);
        for row in 0..contrasts {
            for column in 0..contrasts {
                let (a, b) = (first + 1 + row, first + 1 + column);
                variance.values[row * contrasts + column] =
                    of(a, b) - of(a, first) - of(first, b) + of(first, first);
            }
        }
        let Some(inverse) = variance.inverse() else {
            return 1.0;
        };
        let pulled = inverse.times(&differences);
        let squares: f64 = pulled.iter().zip(&differences).map(|(a, b)| a * b).sum();
        let q = contrasts as f64;
        f_tail(
            squares * freedom / (q * (self.blocks as f64 - 1.0)),
            q,
            freedom,
        )
    }

    /// The Bayesian information criterion per batch, from the mean loss of the biweight at these scales: the lower, the
    /// better the costs explain the times for their number.
    pub fn criterion(&self, scales: &[f64]) -> f64 {
        let each = self.residuals.iter().zip(scales);
        let loss = each.map(|(r, s)| {
            let rest = 1.0 - (r / s / BIWEIGHT).powi(2).min(1.0);
            1.0 - rest.powi(3)
        });
        let number = self.residuals.len() as f64;
        let mean = loss.sum::<f64>() / number;
        mean.max(f64::MIN_POSITIVE).ln() + self.costs.len() as f64 * number.ln() / number
    }

    /// The tail of residuals over their scale.
    pub fn tail(&self) -> Tail {
        let each = self.residuals.iter().zip(&self.scales);
        let mut sorted: Vec<f64> = each.map(|(r, s)| r / s).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let [low, high] = [0.75, 1.0 - TAIL].map(|share| quantile(&sorted, share));
        let mean = (high - low) / (0.25 / TAIL).ln();
        Tail {
            from: high.max(NORMAL_TAIL.0),
            mean: mean.max(NORMAL_TAIL.1),
            batches: sorted.len() as f64,
        }
    }
}

/// Exponential tail of residuals over their scale.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    from: f64,
    mean: f64,
    batches: f64,
}

impl Tail {
    /// Chance that any batch has a residual of this many scales.
    pub fn chance(&self, scales: f64) -> f64 {
        let one = TAIL * ((self.from - scales) / self.mean).exp();
        (one * self.batches).min(1.0)
    }
}

fn is_near(a: &[f64], b: &[f64], part: f64) -> bool {
    let mut pairs = a.iter().zip(b);
    pairs.all(|(a, b)| (a - b).abs() <= part * b.abs().max(LEAST_SCALE))
}

/// Weight of a residual over its scale, and the slope of its pull.
struct Biweight {
    weight: f64,
    slope: f64,
}

fn biweight(scales: f64) -> Biweight {
    let square = (scales / BIWEIGHT).powi(2);
    let rest = (1.0 - square).max(0.0);
    Biweight {
        weight: rest * rest,
        slope: rest * (1.0 - 5.0 * square),
    }
}

/// The 97.5th percentile of Student's t distribution.
fn t_quantile(freedom: f64) -> f64 {
    let (mut low, mut high) = (1.0, 100.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        // Both tails.
        match f_tail(middle * middle, 1.0, freedom) > 0.05 {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// A symmetric matrix of a few rows, row after row.
#[derive(Clone, Debug)]
struct Square {
    side: usize,
    values: Vec<f64>,
}

impl Square {
    fn zero(side: usize) -> Self {
        Self {
            side,
            values: vec![0.0; side * side],
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.side + column]
    }

    fn add_square(&mut self, of: &[f64]) {
        let rows = self.values.chunks_exact_mut(self.side);
        for (x, row) in of.iter().zip(rows) {
            row.iter_mut().zip(of).for_each(|(sum, y)| *sum += x * y);
        }
    }

    fn times(&self, vector: &[f64]) -> Vec<f64> {
        let rows = self.values.chunks_exact(self.side);
        rows.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
            .collect()
    }

    fn times_square(&self, other: &Self) -> Self {
        let mut product = Self::zero(self.side);
        for row in 0..self.side {
            for column in 0..self.side {
                let sum = (0..self.side).map(|at| self.at(row, at) * other.at(at, column));
                product.values[row * self.side + column] = sum.sum();
            }
        }
        product
    }

    /// The inverse, by Gauss and Jordan without exchanges, as it is positive definite; `None`: it is not.
    fn inverse(&self) -> Option<Self> {
        let side = self.side;
        // Columns of like size, so that the pivots tell how much of each is its own.
        let sizes: Vec<f64> = (0..side).map(|it| self.at(it, it).sqrt()).collect();
        if sizes.iter().any(|it| !it.is_normal()) {
            return None;
        }
        let (mut left, mut right) = (self.clone(), Self::zero(side));
        for row in 0..side {
            for column in 0..side {
                left.values[row * side + column] /= sizes[row] * sizes[column];
            }
            right.values[row * side + row] = 1.0;
        }
        for pivot in 0..side {
            let own = left.at(pivot, pivot);
            if own.is_nan() || own < LEAST_OWN {
                return None;
            }
            for column in 0..side {
                left.values[pivot * side + column] /= own;
                right.values[pivot * side + column] /= own;
            }
            for row in (0..side).filter(|it| *it != pivot) {
                let factor = left.at(row, pivot);
                for column in 0..side {
                    left.values[row * side + column] -= factor * left.at(pivot, column);
                    right.values[row * side + column] -= factor * right.at(pivot, column);
                }
            }
        }
        for row in 0..side {
            for column in 0..side {
                right.values[row * side + column] /= sizes[row] * sizes[column];
            }
        }
        Some(right)
    }
}
