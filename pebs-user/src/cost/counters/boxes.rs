//! Box plots, as text and as SVG: box, median, one standard deviation, outliers; on a logarithmic axis.

use std::fmt::Write as _;

use super::Spread;
use crate::cost::plot::{STYLE, escaped};
use crate::present::human::time;

/// A box and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Label of the row.
    pub name: &'a str,
    /// The costs to draw.
    pub spread: &'a Spread,
}

/// Columns of text for the boxes at least, however narrow the terminal.
const LEAST_COLUMNS: usize = 20;

/// A logarithmic axis of ns that covers all values.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// Starts at 1 ns or more: smaller costs are not measurable.
    fn over(rows: &[Row<'_>]) -> Self {
        let lowest = rows
            .iter()
            .map(|row| row.spread.min)
            .fold(f64::MAX, f64::min);
        let highest = rows.iter().map(|row| row.spread.max).fold(0.0, f64::max);
        let from = lowest.max(1.0).log10();
        Self {
            from,
            to: highest.max(1.0).log10().max(from + 0.1),
        }
    }

    /// Position of a value, 0..=1.
    fn place(&self, ns: f64) -> f64 {
        ((ns.max(1.0).log10() - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Tick values and labels: 1, 2 and 5 times each power of ten, or both ends if there are fewer than two.
    fn ticks(&self) -> Vec<(f64, String)> {
        let powers = self.from.floor() as i32..=self.to.ceil() as i32;
        let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|times| times * 10_f64.powi(power)));
        let within = all.filter(|ns| (self.from..=self.to).contains(&ns.log10()));
        let round: Vec<_> = within.map(|ns| (ns, tick(ns))).collect();
        if round.len() > 1 {
            return round;
        }
        [self.from, self.to]
            .map(|end| 10_f64.powf(end))
            .map(|ns| (ns, time(ns)))
            .into()
    }
}

/// `20 ns`, `5 us`: without digits that a round number does not have.
fn tick(ns: f64) -> String {
    match ns {
        ns if ns >= 1e6 => format!("{:.0} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.0} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

/// Rows of text, `width` columns wide, with the axis below: `├` and `┤` end the error bars, `▒` is the box, `│` the
/// median, `×` an outlier.
#[must_use]
pub(crate) fn text(rows: &[Row<'_>], width: usize) -> String {
    let names = rows.iter().map(|row| row.name.chars().count()).max();
    let names = names.unwrap_or_default() + 2;
    let columns = width.saturating_sub(names).max(LEAST_COLUMNS);
    let axis = Axis::over(rows);
    let at = |ns: f64| (axis.place(ns) * (columns - 1) as f64).round() as usize;
    let mut text = String::new();
    for Row { name, spread } in rows {
        let mut line = vec![' '; columns];
        for outlier in &spread.outliers {
            line[at(*outlier)] = '×';
        }
        let (low, high) = spread.error_bars();
        line[at(low)..=at(high)].fill('─');
        line[at(low)] = '├';
        line[at(high)] = '┤';
        line[at(spread.p25)..=at(spread.p75)].fill('▒');
        line[at(spread.median)] = '│';
        let line: String = line.into_iter().collect();
        let pad = names - 2;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<pad$}  {}", line.trim_end());
    }
    let (mut marks, mut labels) = (vec!['─'; columns], String::new());
    for (ns, label) in axis.ticks() {
        let column = at(ns);
        let begin = column
            .saturating_sub(label.len() / 2)
            .min(columns.saturating_sub(label.len()));
        let used = labels.chars().count();
        if used == 0 || begin > used + 1 {
            labels.extend(std::iter::repeat_n(' ', begin - used));
            labels += &label;
            marks[column] = '┴';
        }
    }
    let marks: String = marks.into_iter().collect();
    let _ = writeln!(text, "{:names$}{marks}\n{:names$}{labels}", "", "");
    text
}

/// Room for labels, left of the boxes.
const LEFT: f64 = 190.0;
/// Width of the boxes.
const WIDTH: f64 = 640.0;
/// Height of a row.
const ROW: f64 = 22.0;
/// Room above a panel's rows, for its title.
const ABOVE: f64 = 34.0;
/// Room below, for its axis.
const BELOW: f64 = 40.0;
/// Maximum number of outliers drawn for each box, the furthest ones.
const OUTLIERS: usize = 60;

/// Size of the panels drawn by [`svg`].
#[must_use]
pub(crate) fn size(panels: &[(&str, Vec<Row<'_>>)]) -> (f64, f64) {
    let height = |rows: &Vec<Row<'_>>| ABOVE + BELOW + ROW * rows.len() as f64;
    let height: f64 = panels.iter().map(|(_, rows)| height(rows)).sum();
    (LEFT + WIDTH + 24.0, height)
}

/// SVG elements of panels below each other, each with its title.
#[must_use]
pub(crate) fn svg(panels: &[(&str, Vec<Row<'_>>)]) -> String {
    let mut svg = format!(
        "<style>{STYLE} .box {{ fill: #0969da; fill-opacity: 0.35; stroke: #0969da; }} .bar {{ stroke: #0969da; }} \
         .far {{ stroke: #bc4c00; }}</style>\n"
    );
    let mut top = 0.0;
    for (title, rows) in panels {
        top += ABOVE;
        // Writing to a string does not fail.
        let _ = writeln!(svg, "<g transform=\"translate({LEFT} {top})\">");
        draw_panel(&mut svg, title, rows);
        svg += "</g>\n";
        top += BELOW + ROW * rows.len() as f64;
    }
    svg
}

fn draw_panel(svg: &mut String, title: &str, rows: &[Row<'_>]) {
    let axis = Axis::over(rows);
    let height = ROW * rows.len() as f64;
    let x = |ns: f64| WIDTH * axis.place(ns);
    let _ = writeln!(
        svg,
        "<text class=\"panel\" y=\"-10\" x=\"{}\">{}</text>",
        16.0 - LEFT,
        escaped(title)
    );
    for (ns, label) in axis.ticks() {
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y2=\"{height}\"/>\
             <text class=\"weak\" text-anchor=\"middle\" x=\"{0:.1}\" y=\"{1}\">{2}</text>",
            x(ns),
            height + 16.0,
            label
        );
    }
    for (n, Row { name, spread }) in rows.iter().enumerate() {
        let (middle, top) = (ROW * (n as f64 + 0.5), ROW * n as f64 + 4.0);
        let (low, high) = spread.error_bars();
        let _ = writeln!(
            svg,
            "<text text-anchor=\"end\" x=\"-8\" y=\"{:.1}\">{}</text>\
             <line class=\"bar\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
             <rect class=\"box\" x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\"/>\
             <line class=\"line\" x1=\"{m:.1}\" x2=\"{m:.1}\" y1=\"{top}\" y2=\"{}\"/>",
            middle + 4.0,
            escaped(name),
            x(low),
            x(high),
            x(spread.p25),
            (x(spread.p75) - x(spread.p25)).max(1.0),
            ROW - 8.0,
            top + ROW - 8.0,
            m = x(spread.median),
        );
        let beyond = spread
            .outliers
            .iter()
            .filter(|ns| !(low..=high).contains(*ns));
        for outlier in beyond.rev().take(OUTLIERS) {
            let x = x(*outlier);
            let _ = writeln!(
                svg,
                "<path class=\"far\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\"/>",
                x - 3.0,
                middle - 3.0
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes are at their values on the axis.
    #[test]
    fn drawn_as_text() {
        let fast = Spread::of((1..=99).map(|n| 100.0 + f64::from(n))).unwrap();
        let slow = Spread::of([1_000.0, 1_000.0, 1_000.0, 1_000.0, 10_000.0]).unwrap();
        let rows = [
            Row {
                name: "fast",
                spread: &fast,
            },
            Row {
                name: "slower",
                spread: &slow,
            },
        ];
        let drawn = text(&rows, 60);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 4, "{drawn}");
        assert!(lines[0].starts_with("fast    "), "{drawn}");
        // The error bars end at the box, within a column's width; the other box is only as wide as its median.
        assert!(lines[0].contains("▒▒│▒▒"), "{drawn}");
        assert!(
            lines[1].contains("│──") && lines[1].contains("─┤ "),
            "{drawn}"
        );
        assert!(lines[1].ends_with('×'), "{drawn}");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{drawn}"
        );
        let place = |line: &str, what: char| line.chars().position(|c| c == what);
        // 150 ns is left of the tick of 200 ns, 1 us at its own.
        assert!(
            lines[3].contains("200 ns") && lines[3].contains("1 us"),
            "{drawn}"
        );
        let median = place(lines[1], '│').unwrap();
        assert_eq!(lines[2].chars().nth(median), Some('┴'), "{drawn}");
    }

    /// Every box of every panel is drawn within the picture.
    #[test]
    fn drawn_as_svg() {
        let spread = Spread::of([0.0, 5.0, 6.0, 7.0, 900.0]).unwrap();
        let rows = vec![
            Row {
                name: "a<b",
                spread: &spread,
            },
            Row {
                name: "b",
                spread: &spread,
            },
        ];
        let panels = [("start", rows.clone()), ("stop", rows)];
        let drawn = svg(&panels);
        assert_eq!(drawn.matches("<rect class=\"box\"").count(), 4);
        assert!(drawn.contains("a&lt;b") && !drawn.contains("NaN") && !drawn.contains("inf"));
        let (_, height) = size(&panels);
        assert_eq!(height, 2.0 * (ABOVE + BELOW + 2.0 * ROW));
        // One outlier each, beyond the error bars.
        assert_eq!(drawn.matches("<path class=\"far\"").count(), 4, "{drawn}");
    }
}
