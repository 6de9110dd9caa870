//! Output for people: numbers, names, lines and tables that fit the terminal, and the words for what was compared that
//! several renderers use.
//!
//! Renderers write to a [`Page`] of a given width. Foreign text goes through `human::safe`, `brief` or
//! [`crate::terminal::shown`], which leave no control character in it; so the control characters that mark a [`Tone`]
//! within a page are the renderer's own.

pub(crate) mod account;
pub(crate) mod brief;
pub(crate) mod callers;
pub(crate) mod causes;
pub(crate) mod chain;
pub(crate) mod counted;
pub(crate) mod csv;
mod errors;
pub(crate) mod functions;
pub(crate) mod further;
pub(crate) mod human;
pub(crate) mod items;
pub(crate) mod json;
mod labels;
pub(crate) mod mix;
pub(crate) mod moment;
pub(crate) mod remarks;
pub(crate) mod striking;
pub(crate) mod table;
pub(crate) mod words;

use std::fmt::{self, Write};
use std::io::{self, Write as _};

use self::human::columns;
use self::table::Table;

/// Fewest columns that are laid out for.
const LEAST_WIDTH: usize = 40;

/// Columns of a heading in front of a line, with the blanks around it.
const HEADING: usize = 12;

/// Emphasis of a piece of text, where the terminal shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// The main statement.
    Strong,
    Slow,
    /// A warning.
    Warning,
    /// Details that can be skipped.
    Faint,
}

impl Tone {
    const ALL: [Self; 4] = [Self::Strong, Self::Slow, Self::Warning, Self::Faint];

    /// The control character that begins it within a page.
    const fn mark(self) -> char {
        match self {
            Self::Strong => '\u{1}',
            Self::Slow => '\u{2}',
            Self::Warning => '\u{3}',
            Self::Faint => '\u{4}',
        }
    }

    /// The sequence that begins it on a terminal.
    ///
    /// Source: ECMA-48, 8.3.117 (SGR).
    const fn sequence(self) -> &'static str {
        match self {
            Self::Strong => "\x1b[1m",
            Self::Slow => "\x1b[31m",
            Self::Warning => "\x1b[33m",
            Self::Faint => "\x1b[2m",
        }
    }
}

/// Ends a tone within a page.
const END: char = '\u{5}';

/// The text in a tone; empty text has none.
pub(crate) fn toned(tone: Tone, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{}{text}{END}", tone.mark())
}

fn is_mark(c: char) -> bool {
    ('\u{1}'..=END).contains(&c)
}

/// Columns of a text without its marks.
fn width_of(text: &str) -> usize {
    if text.contains(is_mark) {
        columns(&text.replace(is_mark, ""))
    } else {
        columns(text)
    }
}

/// Text laid out for a width.
#[derive(Clone, Debug)]
pub struct Page {
    text: String,
    width: usize,
}

impl Page {
    /// An empty page of this width.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self {
            text: String::new(),
            width: width.max(LEAST_WIDTH),
        }
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A paragraph; lines after its first are indented by two.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.hanging("", 2, text);
    }

    /// Adds a line with its heading in a separate column; nothing if the text is empty.
    pub(crate) fn line(&mut self, heading: &str, text: &str) {
        if !text.is_empty() {
            self.hanging(&format!("  {heading:<9} "), HEADING, text);
        }
    }

    /// A paragraph that begins with `first`, its other lines indented by `indent` columns. A word that is longer than
    /// the page, as a path may be, is not cut: it can be copied.
    fn hanging(&mut self, first: &str, indent: usize, text: &str) {
        let mut column = columns(first);
        self.text.push_str(first);
        let mut is_first = true;
        for word in unbreakable(text) {
            let width = width_of(&word);
            if is_first {
                is_first = false;
            } else if column + 1 + width > self.width {
                self.text.push('\n');
                self.text.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            } else {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(&word);
            column += width;
        }
        let end = self.text.trim_end_matches(' ').len();
        self.text.truncate(end);
        self.text.push('\n');
    }

    /// Adds a table under its title, unless it has no rows.
    pub(crate) fn table(&mut self, title: &str, table: &Table) {
        if table.is_empty() {
            return;
        }
        self.gap();
        if !title.is_empty() {
            self.paragraph(title);
        }
        self.rows(table);
    }

    /// A table without a title.
    pub(crate) fn rows(&mut self, table: &Table) {
        for line in table.lines(self.width) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    /// The text without tones.
    #[must_use]
    pub fn plain(&self) -> String {
        self.text.replace(is_mark, "")
    }

    /// The text with the sequences that colour a terminal.
    #[must_use]
    pub fn painted(&self) -> String {
        let mut text = String::with_capacity(self.text.len() + 256);
        for c in self.text.chars() {
            match Tone::ALL.into_iter().find(|tone| tone.mark() == c) {
                Some(tone) => text.push_str(tone.sequence()),
                None if c == END => text.push_str("\x1b[0m"),
                None => text.push(c),
            }
        }
        text
    }

    /// Writes it to stdout, in colour where that is wanted.
    ///
    /// Foreign text in it is safe by the page's contract: on a terminal only the page's own sequences act.
    ///
    /// # Errors
    /// Those of stdout.
    pub fn print(&self) -> io::Result<()> {
        let out = io::stdout();
        let colored = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
        let text = if colored {
            self.painted()
        } else {
            self.plain()
        };
        out.lock().write_all(text.as_bytes())
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

/// Units that stay on the line of their number.
const UNITS: [&str; 8] = ["%", "ns", "us", "ms", "s", "k", "M", "G"];

/// The words of a text; a number and its unit are one word.
fn unbreakable(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare: &str = word.trim_matches(|c: char| is_mark(c) || ",;:()".contains(c));
        match words.last_mut() {
            Some(last) if UNITS.contains(&bare) && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines break between words, not between a number and its unit, and marks take no room.
    #[test]
    fn paragraphs() {
        let mut page = Page::new(40);
        let long = format!(
            "{} 12.5 ms (of 40 items), and so on until here",
            toned(Tone::Strong, "waited")
        );
        page.line("slow", &format!("{long} 3 %, then"));
        assert_eq!(
            page.plain(),
            "  slow      waited 12.5 ms (of 40\n            items), and so on until here\n            3 %, then\n"
        );
        assert!(
            page.painted()
                .starts_with("  slow      \x1b[1mwaited\x1b[0m 12.5 ms")
        );
        page.line("note", "");
        let path = "/a/very/long/path/that/nobody/can/break/into/two/parts";
        page.line("trace", path);
        assert!(page.plain().ends_with(&format!("  trace     {path}\n")));
    }
}
