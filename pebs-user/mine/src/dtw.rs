//! Distance between two series of the same event, which may differ in length (dynamic time warping).

use augurs_dtw::Dtw;

/// Distance by dynamic time warping (equation 1): the least sum of differences over all ways to stretch both.
#[must_use]
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    Dtw::manhattan().distance(a, b)
}

/// The error of a measured series (equation 4), from its distance to an exact one and that between two exact ones.
///
/// `None` if both distances are 0. 1.0 if only the exact runs do not differ.
#[must_use]
pub fn error(reference: f64, measured: f64) -> Option<f64> {
    if measured > 0.0 {
        Some((1.0 - reference / measured).abs())
    } else {
        (reference > 0.0).then_some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stretched series is at no distance from itself; one that is higher is.
    #[test]
    fn stretched() {
        let a = [0.0, 1.0, 5.0, 1.0];
        assert_eq!(distance(&a, &[0.0, 0.0, 1.0, 5.0, 5.0, 1.0, 1.0]), 0.0);
        assert_eq!(distance(&a, &[0.0, 1.0, 7.0, 1.0]), 2.0);
        assert_eq!(distance(&a, &[]), 0.0);
    }

    /// As in the paper: the error grows as the exact runs differ less from each other than from the measured one.
    #[test]
    fn errors() {
        assert_eq!(error(3.0, 4.0), Some(0.25));
        assert_eq!(error(4.0, 4.0), Some(0.0));
        assert_eq!(error(0.0, 0.0), None);
    }
}
