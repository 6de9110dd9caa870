//! The live status line: on a terminal only.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::record::{Event, Status};

/// One line on stderr that is redrawn. Not shown on a pipe.
#[derive(Default)]
pub(super) struct StatusLine(Option<Drawn>);

struct Drawn {
    bar: ProgressBar,
    /// Time of the last drawing, with visits and samples then.
    last: (Instant, u64, u64),
}

impl StatusLine {
    /// Follows the progress among all that happens.
    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Status(status) => self.update(status),
            Event::Ending => self.clear(),
            _ => {}
        }
    }

    /// Redraws the line, from the first call on.
    fn update(&mut self, status: &Status) {
        self.0.get_or_insert_with(Drawn::new).update(status);
    }

    /// Takes the line away.
    fn clear(&mut self) {
        self.0 = None;
    }
}

impl Drawn {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            last: (Instant::now(), 0, 0),
        }
    }

    fn update(&mut self, status: &Status) {
        if self.bar.is_hidden() {
            return;
        }
        let (visits, samples) = (status.visits, status.samples);
        let (then, visits_before, samples_before) = self.last;
        let seconds = then.elapsed().as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| ((now - before) as f64 / seconds).round();
        self.last = (Instant::now(), visits, samples);
        let overhead = status.last_slowdown;
        let overhead = overhead.map_or_else(|| "-".to_owned(), |it| format!("{:.1} %", it * 100.0));
        let reset = status.reset.map_or_else(String::new, |(reset, unit)| {
            format!(" at --reset {reset} {unit}")
        });
        let growth = status.growth.map_or_else(String::new, |it| {
            format!(" ({:.1} MB an hour)", it.an_hour / 1e6)
        });
        self.bar.set_message(format!(
            "{} items/s  {} samples/s  lost {}  {:.1} MB written{growth}  slow-down of items {overhead}{reset}  (Ctrl-C ends)",
            rate(visits, visits_before),
            rate(samples, samples_before),
            status.lost,
            status.bytes as f64 / 1e6,
        ));
        self.bar.tick();
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
