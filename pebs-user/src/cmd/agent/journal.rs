//! Messages on stderr: for the journal with their level, for people with a word.

use std::io;

use crate::agent::Level;
use crate::terminal::say;

/// Destination of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journal {
    /// Whether systemd reads them.
    has_levels: bool,
}

impl Journal {
    pub(super) fn new() -> Self {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let own = rustix::fs::fstat(io::stderr()).map(|it| format!("{}:{}", it.st_dev, it.st_ino));
        Self {
            has_levels: own.is_ok_and(|own| own == stream),
        }
    }

    pub(super) fn say(self, level: Level, text: &str) {
        say!("{}", self.line(level, text));
    }

    /// Source: sd-daemon(3), "the kernel's printk() style".
    fn line(self, level: Level, text: &str) -> String {
        match (self.has_levels, level) {
            (true, _) => format!("<{}>{}", level.number(), text.replace('\n', " ")),
            (false, Level::Error) => format!("error: {text}"),
            (false, Level::Warning) => format!("warning: {text}"),
            (false, Level::Info) => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message is one line of the journal, with its level.
    #[test]
    fn lines() {
        let of = |has_levels, level| Journal { has_levels }.line(level, "a\nb");
        assert_eq!(of(true, Level::Warning), "<4>a b");
        assert_eq!(of(true, Level::Error), "<3>a b");
        assert_eq!(of(false, Level::Error), "error: a\nb");
        assert_eq!(of(false, Level::Info), "a\nb");
    }
}
