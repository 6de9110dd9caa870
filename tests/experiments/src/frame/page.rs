//! A page of results: a section for each group of figures, replaced one by one.

use std::fmt::Write as _;

use super::table::Table;
use super::verdict::Verdict;

/// One group of figures.
pub struct Section {
    pub title: &'static str,
    /// Published results.
    pub published: String,
    /// Measured results: text and tables.
    pub ours: String,
    /// Differences, and the experiment that explains them.
    pub differs: String,
    /// File names and pictures.
    pub pictures: Vec<(&'static str, String)>,
    pub musts: Verdict,
}

impl Section {
    /// The section of the page; `measured` is the place and time of the measurement.
    pub fn markdown(&self, measured: &str) -> String {
        let mut text = format!("## {}\n\n{measured}\n\n", self.title);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "**Published.** {}\n\n**Here.** {}",
            self.published.trim(),
            self.ours.trim()
        );
        for (file, _) in &self.pictures {
            let _ = writeln!(text, "\n![{}]({file})", self.title);
        }
        let _ = writeln!(text, "\n**What differs, and why.** {}", self.differs.trim());
        let goals = self.musts.goals();
        if !goals.is_empty() {
            let mut table = Table::new("has to hold | ");
            for (what, holds) in goals {
                let verdict = if *holds { "holds" } else { "**missed**" };
                table.row(format_args!("{what} | {verdict}"));
            }
            let _ = write!(text, "\n{table}");
        }
        text
    }
}

fn marks(name: &str) -> (String, String) {
    (
        format!("<!-- begin {name} -->\n"),
        format!("<!-- end {name} -->\n"),
    )
}

/// The section of a page, with its marks.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (begin, end) = marks(name);
    let from = page.find(&begin)?;
    let to = from + page[from..].find(&end)? + end.len();
    Some(&page[from..to])
}

/// The page with new sections; others are copied from the page before.
pub fn assemble(head: &str, before: &str, names: &[&str], new: &[(&str, String)]) -> String {
    let mut page = head.to_owned();
    for name in names {
        let (begin, end) = marks(name);
        let text = match new.iter().find(|it| it.0 == *name) {
            Some((_, text)) => format!("{begin}{}\n{end}", text.trim_end()),
            None => match section(before, name) {
                Some(text) => text.to_owned(),
                None => continue,
            },
        };
        page.push('\n');
        page += &text;
    }
    page
}

/// A page's tables and text with headings two levels lower and without the first, to be part of this one.
pub fn included(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(_) => {}
            None if line.starts_with('#') => lines.push(format!("#{line}")),
            None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One section is replaced, the other stays, and their order is the table's.
    #[test]
    fn sections_are_replaced_one_by_one() {
        let of = |title| Section {
            title,
            published: "12 us".to_owned(),
            ours: "13 us".to_owned(),
            differs: "nothing".to_owned(),
            pictures: vec![("acl.svg", String::new())],
            musts: vec![("A above B".to_owned(), true), ("order".to_owned(), false)].into(),
        };
        let names = ["query", "acl"];
        let first = assemble(
            "# Page\n",
            "",
            &names,
            &[("acl", of("Old").markdown("then"))],
        );
        assert!(
            first.starts_with("# ") && first.contains("## Old\n\nthen\n"),
            "{first}"
        );
        let second = assemble(
            "# Page\n",
            &first,
            &names,
            &[("query", of("Query").markdown("now"))],
        );
        let (query, acl) = (second.find("## Query"), second.find("## Old"));
        assert!(query.is_some() && query < acl, "{second}");
        assert!(second.contains("| order | **missed** |") && second.contains("](acl.svg)"));
        let third = assemble(
            "# Page\n",
            &second,
            &names,
            &[("acl", of("New").markdown("now"))],
        );
        assert!(
            !third.contains("## Old") && third.contains("## Query"),
            "{third}"
        );
        assert!(of("x").musts.missed().eq(["order"]));
    }

    /// Headings go below the section's own.
    #[test]
    fn parts_of_other_pages() {
        assert_eq!(included("# Title\n\ntext\n## Rings\n"), "text\n### Rings");
    }
}
