//! The picture of both estimates against the truth, as SVG that suits light and dark pages.

use std::fmt::Write as _;

/// Functions of about one length.
pub struct Point {
    /// Mean length in sample intervals, undisturbed.
    pub intervals: f64,
    /// `self_ns` over the truth: mean, and the root mean square of one visit's error.
    pub own: (f64, f64),
    /// The same for `span_ns`.
    pub span: (f64, f64),
}

/// One reset value.
pub struct Panel {
    /// Title.
    pub title: String,
    /// By length.
    pub points: Vec<Point>,
}

/// Width of a panel's plot.
const WIDTH: f64 = 250.0;
/// Height of a panel's plot.
const HEIGHT: f64 = 170.0;
/// Room left of a plot, for its numbers.
const LEFT: f64 = 52.0;
/// Room above a plot, for its title.
const ABOVE: f64 = 30.0;
/// Room below a plot, for its numbers.
const BELOW: f64 = 34.0;
/// Panels in a row.
const COLUMNS: usize = 3;
/// Room for title and legend at the top.
const HEAD: f64 = 78.0;
/// Room for the name of the axis at the bottom.
const FOOT: f64 = 30.0;

/// Lengths shown, in sample intervals.
const LENGTHS: (f64, f64) = (0.1, 12.0);
/// Numbers on the axis of lengths.
const LENGTH_TICKS: [f64; 5] = [0.1, 0.5, 1.0, 3.0, 10.0];
/// Highest ratio shown.
const MAX_RATIO: f64 = 1.6;
/// Numbers on the axis of ratios.
const RATIO_TICKS: [f64; 4] = [0.0, 0.5, 1.0, 1.5];

/// Colours are written out, not as variables, which some viewers don't support.
const STYLE: &str = "
  text { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .panel { font-weight: 600; }
  .weak { fill: #59636e; }
  .paper { fill: #ffffff; }
  .grid { stroke: #d8dee4; }
  .truth { stroke: #1f2328; stroke-dasharray: 4 3; }
  .own { stroke: #0969da; fill: #0969da; }
  .span { stroke: #bc4c00; fill: #bc4c00; }
  .bar { stroke-width: 1.2; opacity: 0.55; }
  polyline { stroke-width: 1.6; }
  polyline.own, polyline.span { fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .weak { fill: #9198a1; }
    .paper { fill: #0d1117; }
    .grid { stroke: #30363d; }
    .truth { stroke: #e6edf3; }
    .own { stroke: #58a6ff; fill: #58a6ff; }
    .span { stroke: #f0883e; fill: #f0883e; }
    polyline.own, polyline.span { fill: none; }
  }
";

/// Draws the panels. Lengths of functions run to the right on a logarithmic scale; upwards is the
/// estimate over the truth.
pub fn draw(panels: &[Panel]) -> String {
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns);
    let width = columns as f64 * (LEFT + WIDTH) + 20.0;
    let height = HEAD + rows as f64 * (ABOVE + HEIGHT + BELOW) + FOOT;
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>Estimated time of a function over the truth</title>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
    );
    legend(&mut svg);
    for (n, panel) in panels.iter().enumerate() {
        let x = (n % columns) as f64 * (LEFT + WIDTH) + LEFT;
        let y = HEAD + (n / columns) as f64 * (ABOVE + HEIGHT + BELOW) + ABOVE;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(&mut svg, panel);
        svg += "</g>\n";
    }
    let _ = writeln!(
        svg,
        "<text class=\"weak\" x=\"{LEFT}\" y=\"{}\">length of the function in sample intervals, by \
         its own log</text>\n</svg>",
        height - 10.0
    );
    svg
}

fn legend(svg: &mut String) {
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"16\" y=\"26\">Estimated time of a function over the truth</text>\n\
         <circle class=\"own\" cx=\"22\" cy=\"46\" r=\"4\"/>\
         <text x=\"32\" y=\"50\">self_ns: mean, and error of one visit (bar)</text>\n\
         <circle class=\"span\" cx=\"302\" cy=\"46\" r=\"4\"/>\
         <text x=\"312\" y=\"50\">span_ns, first to last sample: the same</text>\n\
         <line class=\"truth\" x1=\"560\" x2=\"584\" y1=\"46\" y2=\"46\"/>\
         <text x=\"590\" y=\"50\">truth</text>\n\
         <text class=\"weak\" x=\"16\" y=\"70\">Functions called once in their item; 0 where no \
         sample fell into one.</text>"
    );
}

fn across(intervals: f64) -> f64 {
    let (from, to) = LENGTHS;
    (intervals / from).ln() / (to / from).ln() * WIDTH
}

fn up(ratio: f64) -> f64 {
    HEIGHT * (1.0 - ratio.clamp(0.0, MAX_RATIO) / MAX_RATIO)
}

fn draw_panel(svg: &mut String, panel: &Panel) {
    let _ = writeln!(
        svg,
        "<text class=\"panel\" y=\"-10\">{}</text>",
        panel.title
    );
    for ratio in RATIO_TICKS {
        let y = up(ratio);
        let class = if ratio == 1.0 { "truth" } else { "grid" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"weak\" text-anchor=\"end\" x=\"-6\" y=\"{:.1}\">{ratio:.1}</text>",
            y + 4.0
        );
    }
    for length in LENGTH_TICKS {
        let x = across(length);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEIGHT}\" y2=\"{}\"/>\
             <text class=\"weak\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{length}</text>",
            HEIGHT + 4.0,
            HEIGHT + 18.0
        );
    }
    // A little apart, so that neither hides the other.
    series(
        svg,
        "span",
        panel
            .points
            .iter()
            .map(|p| (across(p.intervals) + 2.0, p.span)),
    );
    series(
        svg,
        "own",
        panel
            .points
            .iter()
            .map(|p| (across(p.intervals) - 2.0, p.own)),
    );
}

/// Bars, a line through the means, and the means.
fn series(svg: &mut String, class: &str, points: impl Iterator<Item = (f64, (f64, f64))>) {
    let points: Vec<_> = points.filter(|(x, _)| (0.0..=WIDTH).contains(x)).collect();
    for (x, (mean, error)) in &points {
        let (top, bottom) = (up(mean + error), up(mean - error));
        let _ = writeln!(
            svg,
            "<line class=\"{class} bar\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
        );
    }
    let line: Vec<String> = points
        .iter()
        .map(|(x, (mean, _))| format!("{x:.1},{:.1}", up(*mean)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"{class}\" points=\"{}\"/>",
        line.join(" ")
    );
    for (x, (mean, _)) in &points {
        let y = up(*mean);
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The truth is at its place, and lines beyond the picture are clipped.
    #[test]
    fn points_are_in_place() {
        assert_eq!(up(0.0), HEIGHT);
        assert_eq!(up(9.0), 0.0);
        assert!((up(0.8) - HEIGHT / 2.0).abs() < 1e-9);
        assert!(across(LENGTHS.0).abs() < 1e-9 && (across(LENGTHS.1) - WIDTH).abs() < 1e-9);
        let panel = |intervals| Panel {
            title: "a sample every 16 us".to_owned(),
            points: vec![Point {
                intervals,
                own: (1.0, 0.2),
                span: (0.5, 3.0),
            }],
        };
        let circles = |svg: &str| svg.matches("<circle").count();
        // Two are the legend's.
        assert_eq!(circles(&draw(&[panel(2.0)])), 4);
        assert_eq!(circles(&draw(&[panel(20.0)])), 2);
        assert_eq!(circles(&draw(&[])), 2);
    }
}
