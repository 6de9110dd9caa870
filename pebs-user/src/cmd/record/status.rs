//! The live status line: on a terminal only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::pipeline::Progress;

/// Updates a second.
const PERIOD: Duration = Duration::from_millis(250);

/// One line on stderr that changes. A pipe gets none.
pub(super) struct StatusLine {
    bar: ProgressBar,
    progress: Arc<Progress>,
    last: (Instant, u64, u64),
}

impl StatusLine {
    pub fn new(progress: Arc<Progress>) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            progress,
            last: (Instant::now(), 0, 0),
        }
    }

    /// How often to call [`StatusLine::update`].
    pub const fn period(&self) -> Duration {
        PERIOD
    }

    /// Redraws. `costs` are those of a mark and of a sample, ns.
    pub fn update(&mut self, costs: (Option<f64>, Option<f64>)) {
        if self.bar.is_hidden() {
            return;
        }
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (visits, samples) = (get(&self.progress.visits), get(&self.progress.samples));
        let (then, visits_before, samples_before) = self.last;
        let seconds = then.elapsed().as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| ((now - before) as f64 / seconds).round();
        self.last = (Instant::now(), visits, samples);
        let oncpu_ns = get(&self.progress.oncpu_ns) as f64;
        let overhead = match costs {
            (Some(mark_ns), Some(sample_ns)) if oncpu_ns > 0.0 => {
                let marks_ns = get(&self.progress.marks) as f64 * mark_ns;
                let share = (marks_ns + samples as f64 * sample_ns) / oncpu_ns;
                format!("{:.1} %", share * 100.0)
            }
            _ => "-".to_owned(),
        };
        self.bar.set_message(format!(
            "{} items/s  {} samples/s  lost {}  {:.1} MB written  overhead about {overhead}  (Ctrl-C ends)",
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
