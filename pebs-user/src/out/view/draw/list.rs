//! The list of items.

use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{bold, dim, selected};
use crate::compare::report::model::FlagCount;
use crate::out::view::data::{Data, Group, Item};
use crate::out::view::state::State;
use crate::present::brief;
use crate::present::human::{UNKNOWN, count, maybe_time, percent, plural, safe, time};
use crate::present::items::{NO_MARKS, noun};
use crate::store::schema::{is_own_flag, visit_flag};

/// Width of a SPEC in the heading of the list.
const SPEC_WIDTH: usize = 60;

/// The heading, and as many items around the selected one as fit.
pub(super) fn lines(data: &Data, state: &State, area: Rect) -> Vec<Line<'static>> {
    let mut lines = vec![
        Line::raw(what(data, state)),
        Line::styled(which(data), dim()),
    ];
    if let Some(remark) = &data.remark {
        lines.push(Line::raw(format!(" {remark}")));
    }
    let widths = Widths::of(data);
    let probe = if widths.several { " probe" } else { "" };
    let (item, begin) = (widths.item, widths.begin);
    let header = format!(
        " {:>8} {:>8} {:>5} {:>item$} {:>begin$} {:>7}{probe} arguments, flags",
        "took", "on CPU", "", "item", "begin", "samples"
    );
    lines.push(Line::styled(header, bold()));
    let room = usize::from(area.height).saturating_sub(lines.len());
    // The selected row is in the middle, but for the ends of the list.
    let last = state.rows.len().saturating_sub(room);
    let first = state.selected.saturating_sub(room / 2).min(last);
    let rows = state.rows.iter().enumerate().skip(first).take(room);
    lines.extend(rows.map(|(place, index)| {
        let text = widths.row(data, &data.items[*index]);
        if place == state.selected {
            Line::styled(format!("{text:<0$}", usize::from(area.width)), selected())
        } else {
            Line::raw(text)
        }
    }));
    if state.rows.is_empty() {
        lines.push(Line::raw(nothing(data, state)));
    }
    lines
}

/// The order and the filters.
fn what(data: &Data, state: &State) -> String {
    let turned = if state.is_reversed { ", reversed" } else { "" };
    let mut text = format!(" by {}{turned}", state.sort.name());
    if let Some(group) = state.group {
        let spec = data.groups[group].report.spec.as_deref();
        text += &format!("; probe {}", data.groups[group].report.probe_id);
        text += &spec.map_or_else(String::new, |spec| {
            format!(" {}", brief::spec(spec, SPEC_WIDTH))
        });
    }
    if state.is_typing || !state.text.is_empty() {
        let cursor = if state.is_typing { "_" } else { "" };
        text += &format!("; with '{}{cursor}'", safe(&state.text, SPEC_WIDTH));
    }
    let listed = count(state.rows.len() as u64);
    format!("{text}; {listed} of {}", count(data.items.len() as u64))
}

/// The items left out of the list.
fn which(data: &Data) -> String {
    let several = data.groups.len() > 1;
    let texts = data.groups.iter().map(|group| {
        let probe = several.then(|| format!("probe {}: ", group.report.probe_id));
        format!("{}{}", probe.unwrap_or_default(), left_out(group))
    });
    format!(" {}", texts.collect::<Vec<_>>().join("; "))
}

fn left_out(group: &Group) -> String {
    let report = &group.report;
    let noun = noun(report);
    let all = plural(report.counted, noun);
    let mut text = if (group.listed as u64) < report.counted {
        let listed = count(group.listed as u64);
        format!("the slowest {listed} of {all} (--slowest)")
    } else {
        format!("all {all}")
    };
    if report.left_out_loss > 0 {
        let lost = count(report.left_out_loss);
        text += &format!(", without {lost} overlapping a loss (--all)");
    }
    let has_no_marks = |it: &FlagCount| it.flag == visit_flag::name(visit_flag::SAMPLED_BOUNDS);
    if report.flags.iter().any(has_no_marks) {
        text += &format!("; {NO_MARKS}");
    }
    if report.left_out_open > 0 {
        text += &format!(", without {} that have no end", count(report.left_out_open));
    }
    text
}

/// Widths that depend on the trace.
struct Widths {
    item: usize,
    begin: usize,
    several: bool,
}

impl Widths {
    fn of(data: &Data) -> Self {
        let visits = data.items.iter().map(|item| &item.visit);
        let item = visits.clone().map(|visit| visit.item_id).max().unwrap_or(0);
        let begin = visits.map(|visit| visit.begin_ns.0).max().unwrap_or(0);
        Self {
            item: item.to_string().len().max("item".len()),
            begin: seconds(begin).len(),
            several: data.groups.len() > 1,
        }
    }

    fn row(&self, data: &Data, item: &Item) -> String {
        let visit = &item.visit;
        let oncpu = visit.took_on_cpu_ns().filter(|_| visit.took_ns() > 0);
        let share = oncpu.map(|ns| percent(ns as f64 / visit.took_ns() as f64));
        let probe = if self.several {
            format!(" {:>5}", data.group(item).report.probe_id)
        } else {
            String::new()
        };
        format!(
            " {:>8} {:>8} {:>5} {:>6$} {:>7$} {:>7}{probe}",
            time(visit.took_ns() as f64),
            maybe_time(visit.oncpu_ns.map(|ns| ns as f64)),
            share.unwrap_or_else(|| UNKNOWN.to_owned()),
            visit.item_id,
            seconds(visit.begin_ns.0),
            count(visit.samples.into()),
            self.item,
            self.begin,
        ) + " "
            + &marks(item)
    }
}

/// A time since the trace began, to the us.
pub(super) fn seconds(ns: i64) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}

fn marks(item: &Item) -> String {
    let names = item.visit.flag_names();
    let flags = names.iter();
    let flags = flags.filter(|flag| is_own_flag(flag));
    let flags = flags.map(|flag| format!("[{flag}]"));
    let args = std::iter::once(item.args.clone()).filter(|args| !args.is_empty());
    args.chain(flags).collect::<Vec<_>>().join(" ")
}

fn nothing(data: &Data, state: &State) -> String {
    if data.items.is_empty() {
        " there are no items that ended".to_owned()
    } else if state.text.is_empty() {
        " the probe has no items that ended".to_owned()
    } else {
        format!(
            " no item listed has '{}' in its arguments (esc drops the filters)",
            safe(&state.text, SPEC_WIDTH)
        )
    }
}
