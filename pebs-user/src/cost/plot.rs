//! Plots lines and points over two axes from 0, as SVG for light and dark pages.
//!
//! Has no dependencies: the development tasks use the same file.

use std::fmt::Write as _;

pub(crate) struct Panel {
    /// Title above the plot.
    pub title: String,
    /// Name of the axis to the right.
    pub across: String,
    /// Name of the axis upwards.
    pub up: String,
    /// Series, in drawing order.
    pub series: Vec<Series>,
}

/// Elements of one colour.
pub(crate) struct Series {
    /// Text in the legend; no entry if empty.
    pub name: String,
    /// Style of the series.
    pub look: Look,
    /// Coordinates.
    pub points: Vec<(f64, f64)>,
}

/// Style of a series.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Dots, for measured values.
    Dots,
    /// A line, for expected values.
    Line,
}

/// Width of a panel's plot.
const WIDTH: f64 = 270.0;
/// Height of a panel's plot.
const HEIGHT: f64 = 170.0;
/// Room for numbers, left of the plot.
const LEFT: f64 = 66.0;
/// Room above a plot, for its title and legend.
const ABOVE: f64 = 48.0;
/// Room below a plot, for its numbers and the axis's name.
const BELOW: f64 = 46.0;
/// Panels in a row.
const COLUMNS: usize = 3;
/// Room for the title at the top.
const HEAD: f64 = 36.0;
/// Fraction of the vertical axis left free above the highest value.
const FREE: f64 = 0.05;

/// Colours are literal, as some viewers do not support variables.
pub(crate) const STYLE: &str = "
  text { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .panel { font-weight: 600; }
  .weak { fill: #59636e; }
  .paper { fill: #ffffff; }
  .grid { stroke: #d8dee4; }
  .dots { fill: #0969da; }
  .line { stroke: #bc4c00; stroke-width: 1.6; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .weak { fill: #9198a1; }
    .paper { fill: #0d1117; }
    .grid { stroke: #30363d; }
    .dots { fill: #58a6ff; }
    .line { stroke: #f0883e; }
  }
";

fn columns(panels: usize) -> usize {
    panels.clamp(1, COLUMNS)
}

/// Width and height of a picture with this number of panels.
#[must_use]
pub(crate) fn size(panels: usize) -> (f64, f64) {
    let columns = columns(panels);
    let rows = panels.div_ceil(columns);
    (
        columns as f64 * (LEFT + WIDTH) + 24.0,
        HEAD + rows as f64 * (ABOVE + HEIGHT + BELOW) + 8.0,
    )
}

/// Draws the panels under a title.
#[must_use]
pub(crate) fn draw(title: &str, panels: &[Panel]) -> String {
    let columns = columns(panels.len());
    let (width, height) = size(panels.len());
    let title = escaped(title);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n"
    );
    for (n, panel) in panels.iter().enumerate() {
        let x = (n % columns) as f64 * (LEFT + WIDTH) + LEFT;
        let y = HEAD + (n / columns) as f64 * (ABOVE + HEIGHT + BELOW) + ABOVE;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(&mut svg, panel);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

/// Text that is no markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// An axis from 0, or from below it where values are.
struct Axis {
    from: f64,
    to: f64,
    step: f64,
}

impl Axis {
    /// Holds the values, with numbers at round steps: 1, 2 or 5 times a power of ten.
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to) = (0.0f64, 0.0f64);
        for value in values.filter(|value| value.is_finite()) {
            from = from.min(value);
            to = to.max(value);
        }
        if from == to {
            to = 1.0;
        }
        let free = FREE * (to - from);
        to += free;
        if from < 0.0 {
            from -= free;
        }
        let rough = (to - from) / 5.0;
        let size = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|times| times * size)
            .find(|step| *step >= rough);
        Self {
            from,
            to,
            step: step.unwrap_or(rough),
        }
    }

    /// Position of a value, 0..=1.
    fn place(&self, value: f64) -> f64 {
        (value - self.from) / (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let first = (self.from / self.step).ceil() as i64;
        let last = (self.to / self.step).floor() as i64;
        (first..=last).map(|n| n as f64 * self.step)
    }

    fn number(&self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        match value {
            v if v.abs() >= 1e6 => format!("{}M", v / 1e6),
            v if v.abs() >= 1e4 => format!("{}k", v / 1e3),
            v => format!("{v:.digits$}"),
        }
    }
}

fn draw_panel(svg: &mut String, panel: &Panel) {
    let all = || panel.series.iter().flat_map(|series| &series.points);
    let across = Axis::over(all().map(|point| point.0));
    let up = Axis::over(all().map(|point| point.1));
    let title = escaped(&panel.title);
    let _ = writeln!(svg, "<text class=\"panel\" y=\"-28\">{title}</text>");
    for value in up.ticks() {
        let y = HEIGHT * (1.0 - up.place(value));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"weak\" text-anchor=\"end\" x=\"-6\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            up.number(value)
        );
    }
    for value in across.ticks() {
        let x = WIDTH * across.place(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEIGHT}\" y2=\"{}\"/>\
             <text class=\"weak\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            HEIGHT + 4.0,
            HEIGHT + 18.0,
            across.number(value)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"weak\" text-anchor=\"end\" x=\"{WIDTH}\" y=\"{}\">{}</text>\
         <text class=\"weak\" transform=\"translate(-50 {HEIGHT}) rotate(-90)\">{}</text>",
        HEIGHT + 34.0,
        escaped(&panel.across),
        escaped(&panel.up)
    );
    let mut x = 0.0;
    for series in &panel.series {
        x += legend(svg, series, x);
        let at = |&(a, b): &(f64, f64)| (WIDTH * across.place(a), HEIGHT * (1.0 - up.place(b)));
        let finite = series
            .points
            .iter()
            .filter(|(a, b)| a.is_finite() && b.is_finite());
        draw_series(svg, series.look, finite.map(at));
    }
}

fn draw_series(svg: &mut String, look: Look, points: impl Iterator<Item = (f64, f64)>) {
    match look {
        Look::Dots => {
            for (x, y) in points {
                let _ = writeln!(
                    svg,
                    "<circle class=\"dots\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                );
            }
        }
        Look::Line => {
            let line: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline class=\"line\" points=\"{}\"/>",
                line.join(" ")
            );
        }
    }
}

/// Draws an entry and returns its width.
fn legend(svg: &mut String, series: &Series, x: f64) -> f64 {
    if series.name.is_empty() {
        return 0.0;
    }
    let _ = match series.look {
        Look::Dots => write!(
            svg,
            "<circle class=\"dots\" cx=\"{}\" cy=\"-12\" r=\"3\"/>",
            x + 6.0
        ),
        Look::Line => write!(
            svg,
            "<line class=\"line\" x1=\"{x}\" x2=\"{}\" y1=\"-12\" y2=\"-12\"/>",
            x + 12.0
        ),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"-8\">{}</text>",
        x + 17.0,
        escaped(&series.name)
    );
    // Letters are about that wide.
    30.0 + 6.6 * series.name.chars().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round steps, also below zero and for an empty range.
    #[test]
    fn axes() {
        let of = |values: &[f64]| Axis::over(values.iter().copied());
        let axis = of(&[0.0, 4_000.0]);
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [0.0, 1e3, 2e3, 3e3, 4e3]);
        assert!(of(&[-0.02, 0.01]).ticks().any(|tick| tick < 0.0));
        assert_eq!(of(&[]).ticks().last(), Some(1.0));
        assert_eq!(of(&[0.0, 0.1]).number(0.04), "0.04");
        assert_eq!(of(&[0.0, 40_000.0]).number(20_000.0), "20k");
    }

    /// Every point is drawn within its panel, and text is no markup.
    #[test]
    fn points_are_in_place() {
        let series = |look, name: &str| Series {
            name: name.to_owned(),
            look,
            points: vec![(0.0, 1.0), (5.0, 2.0), (f64::NAN, 1.0)],
        };
        let panel = Panel {
            title: "a<b & c".to_owned(),
            across: "samples".to_owned(),
            up: "s".to_owned(),
            series: vec![series(Look::Line, ""), series(Look::Dots, "measured")],
        };
        let svg = draw("cost", &[panel]);
        // One is in the legend.
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(
            svg.contains("a&lt;b &amp; c") && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(draw("none", &[]).ends_with("</svg>\n"));
    }
}
