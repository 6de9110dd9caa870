//! Lines of comma-separated values, quoted where necessary (RFC 4180). Control characters are escaped (`\u{1b}`),
//! except for line ends and tabs, as a terminal would obey them.

use crate::terminal::shown_field;

/// A line being built.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: String,
    begun: bool,
}

impl Line {
    /// Adds text.
    pub(crate) fn text(&mut self, text: &str) {
        if std::mem::replace(&mut self.begun, true) {
            self.text.push(',');
        }
        let text = &*shown_field(text);
        if text.contains([',', '"', '\n', '\r']) {
            self.text.push('"');
            self.text.push_str(&text.replace('"', "\"\""));
            self.text.push('"');
        } else {
            self.text.push_str(text);
        }
    }

    /// Adds a value; an unknown one is empty.
    pub(crate) fn maybe<T: ToString>(&mut self, value: Option<T>) {
        self.text(&value.map_or_else(String::new, |value| value.to_string()));
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, value: impl ToString) {
        self.text(&value.to_string());
    }

    /// The whole line, its end included.
    pub(crate) fn end(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Empty fields keep their comma, also the first; a field that contains a separator is quoted.
    #[test]
    fn fields() {
        let mut line = Line::default();
        line.maybe(None::<u32>);
        line.number(7);
        line.text("a,b");
        line.text("say \"x\"");
        line.text("a\x1b[2J\tb\u{9b}");
        line.text("two\nlines");
        assert_eq!(
            line.end(),
            ",7,\"a,b\",\"say \"\"x\"\"\",a\\u{1b}[2J\tb\\u{9b},\"two\nlines\"\n"
        );
    }
}
