//! `guide/trace.md`: the columns as `table_schema` has them, with the words of `schema.rs`.
//!
//! `PEBS_BLESS=1 cargo test -p pebs-user --test guide` writes the generated part anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pebs_user::store::schema::Table;
use pebs_user::store::tables::table_schema;

/// The source whose doc comments say what columns are.
const SCHEMA: &str = include_str!("../../src/store/schema.rs");

/// Where the generated part begins.
const MARK: &str = "<!-- generated from pebs-user/src/store/schema.rs: PEBS_BLESS=1 cargo test -p pebs-user --test guide -->\n";

/// A struct, enum or module of the schema.
#[derive(Default)]
struct Item {
    doc: Vec<String>,
    /// Name, type or value, and words of each field, variant or constant.
    parts: Vec<(String, String, String)>,
}

impl Item {
    fn part(&self, name: &str) -> Option<&(String, String, String)> {
        self.parts.iter().find(|(known, ..)| known == name)
    }
}

/// The items of the schema, by name. Its layout is that of rustfmt: an item begins and ends at the left edge.
fn items() -> BTreeMap<String, Item> {
    let mut items = BTreeMap::new();
    let mut open: Option<(String, Item)> = None;
    let mut doc: Vec<String> = Vec::new();
    for line in SCHEMA.lines() {
        let text = line.trim();
        if let Some(words) = text.strip_prefix("///") {
            doc.push(words.trim().to_owned());
        } else if text.starts_with("#[") {
            // Between a comment and what it is about.
        } else if let Some((name, mut item)) = open.take() {
            if line == "}" {
                items.insert(name, item);
            } else {
                let declared = text.trim_start_matches("pub ").trim_start_matches("const ");
                let (part, rest) = declared.split_once(':').unwrap_or((declared, ""));
                let part = part.trim_end_matches(',');
                item.parts
                    .push((part.to_owned(), rest.trim().to_owned(), words(&doc)));
                open = Some((name, item));
            }
            doc.clear();
        } else {
            let declared = ["pub struct ", "pub enum ", "pub mod "]
                .into_iter()
                .find_map(|start| line.strip_prefix(start)?.strip_suffix(" {"));
            if let Some(declared) = declared {
                let name = declared.split('<').next().unwrap_or_default().to_owned();
                let doc = std::mem::take(&mut doc);
                open = Some((
                    name,
                    Item {
                        doc,
                        ..Item::default()
                    },
                ));
            }
            doc.clear();
        }
    }
    items
}

/// The sentences of a comment, without what leads to other items of the code.
fn words(doc: &[String]) -> String {
    let text = doc.join(" ");
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        let is_code = index % 2 == 1;
        let part = if is_code {
            let last = part.rsplit("::").next().unwrap_or(part);
            if last.chars().all(|c| c.is_ascii_uppercase() || c == '_') && last.len() > 3 {
                last.to_lowercase()
            } else {
                last.to_owned()
            }
        } else {
            part.replace(['[', ']'], "")
        };
        let quote = if index == 0 { "" } else { "`" };
        let _ = write!(plain, "{quote}{part}");
    }
    let plain = plain.replace("`visit_flag`", "see below");
    let plain = plain.replace("`sample_flag`", "see below");
    plain.trim().replace('|', "\\|")
}

/// What a column is: the words of the field of its name, of a struct within the row, or of the thread that it belongs to.
fn meaning(items: &BTreeMap<String, Item>, row: &Item, column: &str) -> Option<String> {
    if let Some((_, _, words)) = row.part(column) {
        return Some(words.clone());
    }
    let mut within = row
        .parts
        .iter()
        .filter_map(|(_, r#type, _)| items.get(r#type.trim_end_matches(',')));
    if let Some((_, _, words)) = within.find_map(|item| item.part(column)) {
        return Some(words.clone());
    }
    let (thread, which) = column.rsplit_once('_')?;
    let what = match which {
        "pid" => "process",
        "tid" => "thread",
        _ => return None,
    };
    row.part(thread)
        .map(|_| format!("The {what} of `{thread}`; null likewise, and if it was no thread."))
}

/// The generated part.
fn generated() -> String {
    let items = items();
    let mut text = MARK.to_owned();
    for table in Table::ALL {
        let name = table.name();
        let start = format!("One row of `{name}`");
        let row = items
            .values()
            .find(|item| item.doc.first().is_some_and(|it| it.starts_with(&start)));
        let row = row.unwrap_or_else(|| panic!("no comment '{start}' in schema.rs"));
        let (_, _, about) = items["Table"].part(&format!("{table:?}")).unwrap();
        let _ = write!(text, "\n## {name}\n\n{about}\n");
        let more = row.doc.split(|line| line.is_empty()).skip(1);
        for paragraph in more {
            let _ = write!(text, "\n{}\n", words(paragraph));
        }
        let _ = write!(text, "\n| column | type | meaning |\n|---|---|---|\n");
        for field in table_schema(table, &[]).fields() {
            let column = field.name();
            let meaning = meaning(&items, row, column).filter(|words| !words.is_empty());
            let meaning = meaning.unwrap_or_else(|| panic!("nothing says what {name}.{column} is"));
            let null = if field.is_nullable() { ", null" } else { "" };
            let r#type = field.data_type().to_string().replace("non-null ", "");
            let _ = writeln!(text, "| `{column}` | {}{null} | {meaning} |", r#type);
        }
        if table == Table::Visits {
            let _ = write!(
                text,
                "\nA column for every named argument follows: UInt64, Int64 or Utf8; null: not read.\n"
            );
        }
    }
    for (module, column) in [
        ("visit_flag", "visits.flags"),
        ("sample_flag", "samples.flags"),
    ] {
        let _ = write!(
            text,
            "\n## Bits of {column}\n\n| bit | name | meaning |\n|--:|---|---|\n"
        );
        for (name, value, words) in &items[module].parts {
            let Some((_, shift)) = value.trim_end_matches(';').split_once("1 << ") else {
                continue;
            };
            let bit = 1_u64 << shift.parse::<u32>().unwrap();
            let _ = writeln!(text, "| {bit} | `{}` | {words} |", name.to_lowercase());
        }
    }
    text
}

/// The page has every table, column and flag, as the schema says them.
#[test]
fn columns_are_up_to_date() {
    let path = super::workspace().join("pebs-user/guide/trace.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let before = page.split(MARK).next().unwrap();
    let got = format!("{before}{}", generated());
    if std::env::var_os("PEBS_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &got).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept == got,
        "{} differs; PEBS_BLESS=1 accepts this:\n{got}",
        path.display()
    );
}

/// Comments become sentences of a table: links lose their brackets, flags get the names that reports show.
#[test]
fn words_of_comments() {
    let doc = [
        "See [`visit_flag::LOSS`] and".to_owned(),
        "`a|b`.".to_owned(),
    ];
    assert_eq!(words(&doc), "See `loss` and `a\\|b`.");
}
