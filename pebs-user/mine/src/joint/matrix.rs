//! Square matrices of a few dozen rows.

/// A square matrix, row after row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    side: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// Returns a matrix with `value` along its diagonal.
    pub(super) fn diagonal(side: usize, value: f64) -> Self {
        let mut it = Self {
            side,
            values: vec![0.0; side * side],
        };
        (0..side).for_each(|at| *it.at_mut(at, at) = value);
        it
    }

    pub(super) const fn side(&self) -> usize {
        self.side
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.side + column]
    }

    pub(super) fn at_mut(&mut self, row: usize, column: usize) -> &mut f64 {
        &mut self.values[row * self.side + column]
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.side)
    }

    pub(super) fn transposed(&self) -> Self {
        let mut it = self.clone();
        for row in 0..self.side {
            for column in 0..self.side {
                *it.at_mut(column, row) = self.at(row, column);
            }
        }
        it
    }

    pub(super) fn times_vector(&self, vector: &[f64]) -> Vec<f64> {
        self.rows().map(|row| dot(row, vector)).collect()
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let mut it = Self::diagonal(self.side, 0.0);
        for (row, sums) in self.rows().zip(it.values.chunks_exact_mut(self.side)) {
            for (value, others) in row.iter().zip(other.rows()) {
                sums.iter_mut()
                    .zip(others)
                    .for_each(|(sum, other)| *sum += value * other);
            }
        }
        it
    }

    /// `self` times the transpose of `other`.
    pub(super) fn times_transposed(&self, other: &Self) -> Self {
        let values = self
            .rows()
            .flat_map(|row| other.rows().map(move |it| dot(row, it)));
        Self {
            side: self.side,
            values: values.collect(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let pairs = self.values.iter_mut().zip(&other.values);
        pairs.for_each(|(it, other)| *it += other);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        let pairs = self.values.iter_mut().zip(&other.values);
        pairs.for_each(|(it, other)| *it -= other);
    }

    /// Largest absolute eigenvalue, somewhat overestimated: the root of a high power's norm.
    pub(super) fn radius(&self) -> f64 {
        const SQUARINGS: i32 = 6;
        let mut power = self.clone();
        let mut log = 0.0;
        for _ in 0..SQUARINGS {
            let norm = dot(&power.values, &power.values).sqrt();
            if norm == 0.0 {
                return 0.0;
            }
            // Else it would overflow.
            power.scale(1.0 / norm);
            log = 2.0 * (log + norm.ln());
            power = power.times(&power);
        }
        let norm = dot(&power.values, &power.values).sqrt();
        ((log + norm.max(f64::MIN_POSITIVE).ln()) / f64::from(1 << SQUARINGS)).exp()
    }

    pub(super) fn scale(&mut self, factor: f64) {
        self.values.iter_mut().for_each(|it| *it *= factor);
    }

    /// Adds the product of a column and a row.
    pub(super) fn add_product(&mut self, column: &[f64], row: &[f64]) {
        for (x, sums) in column.iter().zip(self.values.chunks_exact_mut(self.side)) {
            sums.iter_mut().zip(row).for_each(|(sum, y)| *sum += x * y);
        }
    }

    /// Solves `self` X = `right` by Cholesky; `self` is symmetric and not negative, and `ridge` times its diagonal is
    /// added to it.
    pub(super) fn solve(&self, right: &Self, ridge: f64) -> Self {
        let side = self.side;
        let mut lower = Self::diagonal(side, 0.0);
        for row in 0..side {
            for column in 0..=row {
                let before = dot(
                    &lower.values[row * side..row * side + column],
                    &lower.values[column * side..column * side + column],
                );
                let rest = self.at(row, column) - before;
                *lower.at_mut(row, column) = if row == column {
                    let least = ridge * self.at(row, row).max(ridge);
                    (rest + least).max(least).sqrt()
                } else {
                    rest / lower.at(column, column)
                };
            }
        }
        let mut found = right.clone();
        for row in 0..side {
            for before in 0..row {
                found.less(row, before, lower.at(row, before));
            }
            found.divide(row, lower.at(row, row));
        }
        for row in (0..side).rev() {
            for after in row + 1..side {
                found.less(row, after, lower.at(after, row));
            }
            found.divide(row, lower.at(row, row));
        }
        found
    }

    /// Subtracts `factor` times another row from a row.
    fn less(&mut self, row: usize, other: usize, factor: f64) {
        for column in 0..self.side {
            *self.at_mut(row, column) -= factor * self.at(other, column);
        }
    }

    fn divide(&mut self, row: usize, by: f64) {
        let side = self.side;
        self.values[row * side..(row + 1) * side]
            .iter_mut()
            .for_each(|it| *it /= by);
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: [f64; 4]) -> Matrix {
        Matrix {
            side: 2,
            values: values.to_vec(),
        }
    }

    /// Worked by hand.
    #[test]
    fn by_hand() {
        let (a, b) = (of([4.0, 2.0, 2.0, 3.0]), of([1.0, 2.0, 3.0, 4.0]));
        assert_eq!(a.times(&b), of([10.0, 16.0, 11.0, 16.0]));
        assert_eq!(a.times_transposed(&b), of([8.0, 20.0, 8.0, 18.0]));
        assert_eq!(b.transposed(), of([1.0, 3.0, 2.0, 4.0]));
        assert_eq!(b.times_vector(&[1.0, 1.0]), [3.0, 7.0]);
        let radius = of([0.5, 0.0, 3.0, -0.25]).radius();
        assert!((0.5..0.55).contains(&radius), "{radius}");
        assert_eq!(of([0.0; 4]).radius(), 0.0);
        let solved = a.times(&a.solve(&b, 0.0));
        let pairs = solved.values.iter().zip(&b.values);
        assert!(
            pairs.into_iter().all(|(x, y)| (x - y).abs() < 1e-12),
            "{solved:?}"
        );
    }
}
