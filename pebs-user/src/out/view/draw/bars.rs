//! The histogram of durations of an item's group.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, SparklineBar};

use super::{bold, dim, selected};
use crate::out::view::data::{Data, Item};
use crate::present::human::time;
use crate::present::items::{heading, noun};

/// Lines that it takes, its legend included.
pub(super) const LINES: u16 = 7;

/// Draws the durations of the group on a log scale, the item's column marked.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &Data, item: &Item) {
    let parts = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(1),
    ];
    let [title, plot, marks, axis] = Layout::vertical(parts).areas(area);
    let group = data.group(item);
    let Some(bars) = group.durations.bars(plot.width).filter(|_| plot.height > 0) else {
        return;
    };
    let noun = noun(&group.report);
    let marked = group.durations.column(&bars, item.ranked_ns);
    let columns = bars.eighths(plot.height).into_iter().enumerate();
    let columns = columns.map(|(column, height)| {
        let style = (column == marked).then(bold);
        SparklineBar::from(height).style(style)
    });
    let plotted = Sparkline::default()
        .data(columns)
        .max(u64::from(plot.height) * 8);
    frame.render_widget(plotted, plot);
    let text = format!(
        " {noun}s of probe {} by {} (log scale), '^' this one, 'm' the median",
        group.report.probe_id,
        heading(data.by)
    );
    frame.render_widget(Line::styled(text, dim()), title);
    let mut line = vec![' '; bars.counts.len()];
    if let Some(all) = group.report.duration {
        line[group.durations.column(&bars, all.p50_ns)] = 'm';
    }
    line[marked] = '^';
    frame.render_widget(Line::raw(line.into_iter().collect::<String>()), marks);
    if let Some(cell) = frame
        .buffer_mut()
        .cell_mut((marks.x + marked as u16, marks.y))
    {
        cell.set_style(selected());
    }
    let (low, high) = (time(bars.range.0 as f64), time(bars.range.1 as f64));
    let room = usize::from(axis.width).saturating_sub(low.chars().count());
    frame.render_widget(Line::styled(format!("{low}{high:>room$}"), dim()), axis);
}
