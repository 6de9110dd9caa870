//! Progress of a long command: one line on stderr if it is a terminal, else nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::watch::Watch;

/// Work that takes less shows no bar.
const DELAY: Duration = Duration::from_millis(500);

/// Between two turns of the spinner.
const PERIOD: Duration = Duration::from_millis(150);

/// Template of the line.
const STYLE: &str = "{spinner} {elapsed} {msg} [{bar:30}] {percent} %";

/// A progress line. Dropping it clears the line, so drop it before printing a result.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A line on stderr; hidden if that is no terminal.
    pub(super) fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    /// Shows nothing for output that programs read (JSON).
    pub(super) fn unless(is_for_programs: bool) -> Self {
        if is_for_programs {
            Self::on(ProgressDrawTarget::hidden())
        } else {
            Self::new()
        }
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template(STYLE) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Shows progress once the command has taken long.
    pub(super) fn watch(&self) -> Watch {
        self.watch_after(DELAY)
    }

    fn watch_after(&self, delay: Duration) -> Watch {
        if self.0.is_hidden() {
            return Watch::default();
        }
        // The thread that updates the bar also draws it.
        let (bar, begun) = (self.0.clone(), Instant::now());
        Watch::new(move |what, done, of| {
            if begun.elapsed() >= delay {
                if bar.message() != what {
                    bar.set_message(what.to_owned());
                    bar.enable_steady_tick(PERIOD);
                }
                bar.set_length(of);
                bar.set_position(done);
            }
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that stores what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn put(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.put(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.put(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.put("<clear>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(delay: Duration) -> String {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let progress = Progress::on(target);
        let watch = progress.watch_after(delay);
        watch.report("reading visits", 250, 1_000);
        watch.report("reading samples", 750, 1_000);
        drop(progress);
        terminal.0.lock().unwrap().clone()
    }

    /// The current step and its progress are shown, and the line is cleared at the end.
    #[test]
    fn shown_and_gone() {
        let output = shown(Duration::ZERO);
        assert!(
            output.contains("reading visits") && output.contains("reading samples"),
            "{output}"
        );
        assert!(output.contains("[==="), "{output}");
        assert!(output.ends_with("<clear>"), "{output}");
    }

    /// A short command shows no line.
    #[test]
    fn not_for_short_work() {
        assert!(!shown(Duration::from_secs(3600)).contains("reading"));
    }

    /// Output for programs shows no line, whatever stderr is.
    #[test]
    fn not_for_programs() {
        assert!(Progress::unless(true).0.is_hidden());
    }
}
