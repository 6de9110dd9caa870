//! Least squares by orthogonalisation, for a few columns.

/// Least share of a column that earlier ones do not explain, for it to add anything.
const LEAST_NEW: f64 = 1e-9;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// An orthogonal basis of the space that some columns span.
#[derive(Clone, Debug, Default)]
pub(super) struct Basis {
    columns: Vec<Vec<f64>>,
}

impl Basis {
    /// Adds a column; returns whether it is no combination of those before.
    pub(super) fn add(&mut self, column: &[f64]) -> bool {
        let size = dot(column, column);
        let new = self.rest(column);
        let is_new = size > 0.0 && dot(&new, &new) > LEAST_NEW * size;
        if is_new {
            self.columns.push(new);
        }
        is_new
    }

    /// Number of independent columns.
    pub(super) fn rank(&self) -> usize {
        self.columns.len()
    }

    /// Returns the part of a vector that the columns do not explain.
    pub(super) fn rest(&self, of: &[f64]) -> Vec<f64> {
        let mut rest = of.to_vec();
        // Twice: once would leave what rounding did.
        for _ in 0..2 {
            for column in &self.columns {
                let share = dot(&rest, column) / dot(column, column);
                rest.iter_mut()
                    .zip(column)
                    .for_each(|(rest, it)| *rest -= share * it);
            }
        }
        rest
    }

    /// Sum of the squares of what is not explained.
    pub(super) fn squares(&self, of: &[f64]) -> f64 {
        let rest = self.rest(of);
        dot(&rest, &rest)
    }
}

/// Slope of `of` over `column`, with the others held, and its standard error; `None` if it can't be told.
pub(super) fn slope(column: &[f64], others: &Basis, of: &[f64]) -> Option<(f64, f64)> {
    let new = others.rest(column);
    let size = dot(&new, &new);
    let freedom = of.len().checked_sub(others.rank() + 1)?;
    if freedom == 0 || size <= LEAST_NEW * dot(column, column) || size <= 0.0 {
        return None;
    }
    let slope = dot(&new, of) / size;
    let rest = others.rest(of);
    let squares = (dot(&rest, &rest) - slope * slope * size).max(0.0);
    Some((slope, (squares / freedom as f64 / size).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plane through points is found, a dependent column adds nothing, and errors are those of the textbook.
    #[test]
    fn plane() {
        let one = vec![1.0; 5];
        let x = [0.0, 1.0, 2.0, 3.0, 4.0];
        let z = [1.0, 0.0, 1.0, 0.0, 2.0];
        let twice: Vec<f64> = x.iter().map(|x| 2.0 * x + 3.0).collect();
        let mut basis = Basis::default();
        assert!(basis.add(&one) && basis.add(&x) && !basis.add(&twice));
        let y: Vec<f64> = x.iter().zip(&z).map(|(x, z)| 1.0 + x - 3.0 * z).collect();
        let (slope_z, error) = slope(&z, &basis, &y).unwrap();
        assert!((slope_z + 3.0).abs() < 1e-9 && error < 1e-6);
        assert!(slope(&twice, &basis, &y).is_none());
        // y = 1, 3, 2, 5 over x = 0 .. 3: slope 1.1, residual squares 2.7, error sqrt(2.7 / 2 / 5).
        let mut basis = Basis::default();
        basis.add(&one[..4]);
        let (found, error) = slope(&x[..4], &basis, &[1.0, 3.0, 2.0, 5.0]).unwrap();
        assert!((found - 1.1).abs() < 1e-9, "{found}");
        assert!(
            (error - (2.7_f64 / 2.0 / 5.0).sqrt()).abs() < 1e-9,
            "{error}"
        );
    }
}
