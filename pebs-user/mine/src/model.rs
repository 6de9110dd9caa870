//! Boosted trees that predict an outcome from counts (section III-C of the paper).

use forust_ml::gradientbooster::ContributionsMethod;
use forust_ml::objective::ObjectiveType;
use forust_ml::sampler::SampleMethod;
use forust_ml::{GradientBooster, Matrix};

/// Values of several events in some rows, one event after the other.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    data: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Frame {
    /// Returns the values of these columns, of equal length, in these rows.
    #[must_use]
    pub fn of(columns: &[&[f64]], rows: &[usize]) -> Self {
        let mut data = Vec::with_capacity(columns.len() * rows.len());
        for column in columns {
            data.extend(rows.iter().map(|&row| column[row]));
        }
        Self {
            data,
            rows: rows.len(),
            columns: columns.len(),
        }
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// The values of a column.
    #[must_use]
    pub fn column(&self, column: usize) -> &[f64] {
        &self.data[column * self.rows..(column + 1) * self.rows]
    }

    /// The values of a column, to be changed.
    pub fn column_mut(&mut self, column: usize) -> &mut [f64] {
        &mut self.data[column * self.rows..(column + 1) * self.rows]
    }

    fn matrix(&self) -> Matrix<'_, f64> {
        Matrix::new(&self.data, self.rows, self.columns)
    }
}

/// Parameters of gradient-boosted trees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Number of trees.
    pub trees: usize,
    /// Learning rate: share of each tree's correction that is applied.
    pub rate: f32,
    /// Most splits from the root to a leaf; 1: no interactions.
    pub depth: usize,
    /// Share of rows that a tree sees, drawn separately for each tree.
    pub subsample: f32,
    /// Number of ranges of values between which splits lie.
    pub bins: u16,
    /// Seed of the random draws.
    pub seed: u64,
}

/// Bins of models that are only compared with each other: a third of the time, with an error larger by 3 %.
pub const COARSE: u16 = 64;

impl Default for Params {
    fn default() -> Self {
        Self {
            trees: 150,
            rate: 0.1,
            depth: 4,
            subsample: 0.6,
            bins: 255,
            seed: 1,
        }
    }
}

/// Fewest rows in a leaf.
const LEAST_LEAF: f32 = 5.0;

/// A fitted model.
pub struct Model {
    booster: GradientBooster,
    columns: usize,
}

/// The trees could not be grown.
#[derive(Debug, thiserror::Error)]
#[error("cannot fit a model to {rows} rows of {columns} events: {reason}")]
pub struct ModelError {
    rows: usize,
    columns: usize,
    reason: String,
}

impl Model {
    /// Fits trees to outcomes, one a row.
    ///
    /// # Errors
    /// If an outcome is not a number.
    pub fn fit(frame: &Frame, outcomes: &[f64], params: &Params) -> Result<Self, ModelError> {
        // Without the sample method the subsample is ignored.
        let mut booster = GradientBooster::default()
            .set_objective_type(ObjectiveType::SquaredLoss)
            .set_iterations(params.trees)
            .set_learning_rate(params.rate)
            .set_max_depth(params.depth)
            .set_nbins(params.bins)
            .set_min_leaf_weight(LEAST_LEAF.min(frame.rows as f32 / 10.0))
            .set_sample_method(SampleMethod::Random)
            .set_subsample(params.subsample)
            .set_seed(params.seed)
            .set_initialize_base_score(true)
            .set_parallel(frame.rows * frame.columns > 100_000);
        booster
            .fit_unweighted(&frame.matrix(), outcomes, None)
            .map_err(|error| ModelError {
                rows: frame.rows,
                columns: frame.columns,
                reason: error.to_string(),
            })?;
        Ok(Self {
            booster,
            columns: frame.columns,
        })
    }

    /// Predicts the outcome of each row.
    #[must_use]
    pub fn predict(&self, frame: &Frame) -> Vec<f64> {
        self.booster.predict(&frame.matrix(), frame.rows > 10_000)
    }

    /// The importance of each event, summing to 1 (equations 10 and 11); all 0 if nothing was split.
    ///
    /// The squared improvement of a split is its gain, the reduction of the squared error; in each tree the sum is
    /// weighted by the number of splits. The mean is over all trees: over only those that use an event, one lucky split
    /// would count as much as a hundred good ones.
    #[must_use]
    pub fn importance(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.columns];
        let mut of_tree = vec![(0.0, 0.0); self.columns];
        for tree in &self.booster.trees {
            of_tree.fill((0.0, 0.0));
            for node in tree.nodes.iter().filter(|node| !node.is_leaf) {
                of_tree[node.split_feature].0 += 1.0;
                of_tree[node.split_feature].1 += f64::from(node.split_gain);
            }
            for (sum, (splits, gain)) in sums.iter_mut().zip(&of_tree) {
                *sum += splits * gain;
            }
        }
        let all: f64 = sums.iter().sum();
        if all > 0.0 {
            sums.iter_mut().for_each(|sum| *sum /= all);
        }
        sums
    }

    /// Contribution of each event to the prediction of each row (SHAP), row after row; the last value of each row is
    /// the expectation without any event.
    #[must_use]
    pub fn contributions(&self, frame: &Frame) -> Vec<f64> {
        self.booster
            .predict_contributions(&frame.matrix(), ContributionsMethod::Shapley, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pebs_stats::rng::Rng;
    use pebs_stats::summary::{mean, moments};

    fn friedman(rows: usize, seed: u64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mut rng = Rng::new(seed);
        let columns: Vec<Vec<f64>> = (0..8)
            .map(|_| (0..rows).map(|_| rng.unit()).collect())
            .collect();
        let outcome = (0..rows)
            .map(|row| {
                let x = |column: usize| columns[column][row];
                10.0 * (std::f64::consts::PI * x(0) * x(1)).sin()
                    + 20.0 * (x(2) - 0.5).powi(2)
                    + 10.0 * x(3)
                    + 5.0 * x(4)
                    + rng.normal()
            })
            .collect();
        (columns, outcome)
    }

    fn frame(columns: &[Vec<f64>]) -> Frame {
        let all: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        Frame::of(&all, &(0..columns[0].len()).collect::<Vec<_>>())
    }

    /// Friedman's first function: most of its explainable variance is explained, and contributions sum to the
    /// predictions.
    #[test]
    fn known_function() {
        let (train, outcomes) = friedman(3_000, 1);
        let (test, truth) = friedman(1_000, 2);
        let model = Model::fit(&frame(&train), &outcomes, &Params::default()).unwrap();
        let test = frame(&test);
        let predicted = model.predict(&test);
        let squares: Vec<f64> = predicted
            .iter()
            .zip(&truth)
            .map(|(p, t)| (p - t).powi(2))
            .collect();
        let explained = 1.0 - mean(&squares) / moments(&truth).1.powi(2);
        assert!(explained > 0.92, "{explained}");
        let importance = model.importance();
        assert!((importance.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(
            importance[5..].iter().all(|&it| it < 0.01),
            "{importance:?}"
        );
        for (row, parts) in model.contributions(&test).chunks(9).enumerate() {
            assert!((parts.iter().sum::<f64>() - predicted[row]).abs() < 1e-3);
        }
    }

    /// Each tree sees a part of the rows: else the subsample would change nothing.
    #[test]
    fn subsampling_takes_effect() {
        let (train, outcomes) = friedman(500, 3);
        let frame = frame(&train);
        let whole = Params {
            subsample: 1.0,
            ..Params::default()
        };
        let predict = |params: &Params| {
            Model::fit(&frame, &outcomes, params)
                .unwrap()
                .predict(&frame)
        };
        assert_ne!(predict(&whole), predict(&Params::default()));
        assert_eq!(predict(&Params::default()), predict(&Params::default()));
    }
}
