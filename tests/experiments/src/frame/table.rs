//! A table in markdown.

use std::fmt;

/// Rows below names of columns.
pub struct Table {
    text: String,
}

impl Table {
    /// The columns, as `work | threads: | reset, ns:`. A colon, which is not shown, makes a column of numbers.
    #[must_use]
    pub fn new(columns: &str) -> Self {
        let columns: Vec<&str> = columns.split('|').map(str::trim).collect();
        let mut text = String::new();
        for name in &columns {
            let name = name.strip_suffix(':').unwrap_or(name);
            text += &match name {
                "" => "| ".to_owned(),
                _ => format!("| {name} "),
            };
        }
        text += "|\n";
        for name in &columns {
            text += if name.ends_with(':') { "|--:" } else { "|---" };
        }
        text += "|\n";
        Self { text }
    }

    /// A row: its cells, with ` | ` between them.
    pub fn row(&mut self, cells: impl fmt::Display) {
        self.text += &format!("| {cells} |\n");
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are to the right, and a column may have no name.
    #[test]
    fn columns() {
        let mut table = Table::new("work | E, %: | ");
        table.row(format_args!("{} | {:+.1} | {}", "chase", 1.25, ""));
        table.row("x | 2 | missed");
        let expected =
            "| work | E, % | |\n|---|--:|---|\n| chase | +1.2 |  |\n| x | 2 | missed |\n";
        assert_eq!(table.to_string(), expected);
    }
}
