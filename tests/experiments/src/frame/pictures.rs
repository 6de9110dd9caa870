//! Pictures of measured and expected values: panels with lines and dots, as SVG.

#[path = "../../../../pebs-user/src/cost/plot.rs"]
mod plot;

use super::statistics::Spread;
use plot::Look;
pub(crate) use plot::{Panel, Series, draw};

/// Points over two axes.
pub(crate) type Points = Vec<(f64, f64)>;

/// A line, for expected values; without a name it is not in the legend.
#[must_use]
pub(crate) fn line(name: &str, points: Points) -> Series {
    series(name, Look::Line, points)
}

/// Dots, for measured values.
#[must_use]
pub(crate) fn dots(name: &str, points: Points) -> Series {
    series(name, Look::Dots, points)
}

/// Intervals as upright lines.
pub(crate) fn intervals(
    all: impl IntoIterator<Item = (f64, Spread)>,
) -> impl Iterator<Item = Series> {
    let all = all.into_iter();
    all.map(|(at, it)| line("", vec![(at, it.low), (at, it.high)]))
}

/// Medians as dots.
#[must_use]
pub(crate) fn medians(name: &str, all: impl IntoIterator<Item = (f64, Spread)>) -> Series {
    let points = all.into_iter().map(|(at, it)| (at, it.median));
    dots(name, points.collect())
}

fn series(name: &str, look: Look, points: Points) -> Series {
    Series {
        name: name.to_owned(),
        look,
        points,
    }
}

/// A panel: its title, and the axes to the right and upwards.
#[must_use]
pub(crate) fn panel(title: &str, across: &str, up: &str, series: Vec<Series>) -> Panel {
    Panel {
        title: title.to_owned(),
        across: across.to_owned(),
        up: up.to_owned(),
        series,
    }
}
