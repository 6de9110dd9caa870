//! Safe output of foreign text to a terminal: names in a binary, paths and arguments are controlled by the target, and
//! a terminal obeys control characters.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// Width if the output is no terminal and `COLUMNS` is not set.
pub const PIPE_WIDTH: usize = 120;

/// Escapes everything that a terminal would obey: control characters, including line ends, and characters that reorder
/// or hide the text around them.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Like [`shown`], but keeps line ends and tabs.
#[must_use]
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// A field of a table for programs: control characters as escapes, but for line ends and tabs.
pub(crate) fn shown_field(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\r' | '\t') || is_deceptive(c))
}

/// Escapes the control characters that JSON may contain literally (from U+007F on); they occur in strings only.
pub(crate) fn shown_json(text: String) -> String {
    let acts = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !text.contains(acts) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

fn escaped(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| (c.is_control() || is_deceptive(c)) && !allowed(c);
    if !text.contains(acts) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Characters that change how the text around them is shown.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Prints lines to stderr. What `say!` calls.
pub fn print_message(text: &str) {
    // If it can't be written, there is nobody left to report to.
    let _ = writeln!(io::stderr(), "{}", shown_lines(text));
}

/// Prints lines to stderr like `eprintln!`, but escapes everything that a terminal would obey.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::terminal::print_message(&format!($($arg)*))
    };
}
pub(crate) use say;

/// Writes whole texts, escaped on a terminal, unchanged to a program.
pub struct Screen<W> {
    out: W,
    is_terminal: bool,
}

impl<W: Write + IsTerminal> Screen<W> {
    /// Escapes only if `out` is a terminal.
    pub fn new(out: W) -> Self {
        let is_terminal = out.is_terminal();
        Self { out, is_terminal }
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        // A character may be cut by the end of the bytes: it comes again, whole.
        let whole = match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                error.valid_up_to()
            }
            _ => bytes.len(),
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        self.out.write_all(shown_lines(&text).as_bytes())?;
        Ok(whole)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Width of stdout: `COLUMNS` if it is a number, else the terminal's, else [`PIPE_WIDTH`].
#[must_use]
pub fn width() -> usize {
    let wanted = std::env::var("COLUMNS").ok().and_then(|it| it.parse().ok());
    let wanted = wanted.filter(|columns: &usize| *columns > 0);
    let of_terminal =
        || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    wanted.or_else(of_terminal).unwrap_or(PIPE_WIDTH)
}

/// Use of colours in output for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Sets it for the whole program, help and errors included.
pub fn color(when: Color) {
    match when {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Standard output, for text that may go to a terminal or to a program.
#[must_use]
pub fn stdout() -> Screen<io::StdoutLock<'static>> {
    Screen::new(io::stdout().lock())
}

/// Standard error, escaped on a terminal.
#[must_use]
pub fn stderr() -> Screen<io::Stderr> {
    Screen::new(io::stderr())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target can't write to the user's terminal through its strings, and plain text is not copied.
    #[test]
    fn hostile_text() {
        assert_eq!(
            shown("a\x1b[2Jb\n\u{202e}c\u{9b}"),
            "a\\u{1b}[2Jb\\n\\u{202e}c\\u{9b}"
        );
        assert_eq!(shown_lines("a\n\tb\r"), "a\n\tb\\r");
        assert!(matches!(shown("größe"), Cow::Borrowed("größe")));
    }

    /// Escaped JSON has the same value.
    #[test]
    fn json() {
        let text = serde_json::to_string("a\x1b\u{9b}ü\x7f").unwrap();
        let shown = shown_json(text);
        assert_eq!(shown, "\"a\\u001b\\u009bü\\u007f\"");
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            "a\x1b\u{9b}ü\x7f"
        );
    }

    /// The output can be pasted into a shell.
    #[test]
    fn shell_words() {
        assert_eq!(quoted("./app:f"), "./app:f");
        assert_eq!(quoted("a:f(id=*(arg1):u64)"), "'a:f(id=*(arg1):u64)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    /// A terminal gets escapes, also where a character comes in two writes; a pipe gets the bytes.
    #[test]
    fn screens() {
        let text = "aö\x1bö\u{9b}\n";
        for (is_terminal, expect) in [(true, "aö\\u{1b}ö\\u{9b}\n"), (false, text)] {
            let mut out = Vec::new();
            let mut screen = Screen {
                out: &mut out,
                is_terminal,
            };
            // Cut within the first ö: the incomplete rest is offered again.
            let taken = screen.write(&text.as_bytes()[..2]).unwrap();
            screen.write_all(&text.as_bytes()[taken..]).unwrap();
            assert_eq!(out, expect.as_bytes());
        }
    }
}
