//! The live status line: on a terminal only.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::cost::Prices;
use crate::pipeline::{Load, Progress};

/// Updates a second.
const PERIOD: Duration = Duration::from_millis(250);

/// One line on stderr that is redrawn. Not shown on a pipe.
pub(super) struct StatusLine {
    bar: ProgressBar,
    progress: Arc<Progress>,
    last: (Instant, u64, u64),
    load: Load,
    overhead: Option<f64>,
}

impl StatusLine {
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            progress,
            last: (Instant::now(), 0, 0),
            load: Load::default(),
            overhead: None,
        }
    }

    /// Interval at which to call [`StatusLine::update`].
    pub(super) const fn period(&self) -> Duration {
        PERIOD
    }

    /// Redraws the line. `reset` is the current reset value, if it may change.
    pub(super) fn update(&mut self, prices: &Prices<'_>, reset: Option<String>) {
        if self.bar.is_hidden() {
            return;
        }
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (visits, samples) = (get(&self.progress.visits), get(&self.progress.samples));
        let (then, visits_before, samples_before) = self.last;
        let seconds = then.elapsed().as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| ((now - before) as f64 / seconds).round();
        self.last = (Instant::now(), visits, samples);
        let load = self.progress.load.lock();
        let load = load.unwrap_or_else(PoisonError::into_inner).clone();
        if load.until > self.load.until {
            let window = prices.window(&self.load, &load);
            self.overhead = window.and_then(|window| window.overhead());
            self.load = load;
        }
        let overhead = self.overhead;
        let overhead = overhead.map_or_else(|| "-".to_owned(), |it| format!("{:.1} %", it * 100.0));
        let reset = reset.map_or_else(String::new, |reset| format!(" at {reset}"));
        self.bar.set_message(format!(
            "{} items/s  {} samples/s  lost {}  {:.1} MB written  slow-down of items {overhead}{reset}  (Ctrl-C ends)",
            rate(visits, visits_before),
            rate(samples, samples_before),
            get(&self.progress.lost),
            get(&self.progress.bytes) as f64 / 1e6,
        ));
        self.bar.tick();
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
