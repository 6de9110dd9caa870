//! Checks `guide/trace.md`: tables, columns and flags as declared in the schema.
//!
//! `PEBS_BLESS=1 cargo test -p pebs-trace --test guide` rewrites the generated part.

use std::fmt::Write as _;

use pebs_user::store::descriptions::plain;
use pebs_user::store::fields::table_schema;
use pebs_user::store::schema::{Table, sample_flag, visit_flag};

/// Begin of the generated part.
const MARK: &str = "<!-- generated from pebs-user/src/store/declaration.rs: PEBS_BLESS=1 cargo test -p pebs-trace --test guide -->\n";

/// The words of a comment in a table.
fn words(comment: &str) -> String {
    let plain = plain(comment).replace("`visit_flag`", "see below");
    plain
        .replace("`sample_flag`", "see below")
        .replace('|', "\\|")
}

/// The generated part.
fn generated() -> String {
    let mut text = MARK.to_owned();
    for table in Table::ALL {
        let _ = write!(text, "\n## {}\n", table.name());
        for paragraph in table.words().split("\n\n") {
            let _ = write!(text, "\n{}\n", words(paragraph));
        }
        let _ = write!(
            text,
            "\n| column | type | unit | meaning |\n|---|---|---|---|\n"
        );
        let schema = table_schema(table, &[]);
        for (field, column) in schema.fields().iter().zip(table.columns()) {
            assert_eq!(field.name(), column.name);
            let null = if field.is_nullable() { ", null" } else { "" };
            let r#type = field.data_type().to_string().replace("non-null ", "");
            let (name, meaning) = (column.name, words(column.words));
            let unit = column.unit().unwrap_or_default();
            let _ = writeln!(text, "| `{name}` | {type}{null} | {unit} | {meaning} |");
        }
        if table == Table::Visits {
            let _ = write!(
                text,
                "\nA column for every named argument follows: UInt64, Int64 or Utf8; null: not read.\n"
            );
        }
    }
    for (column, flags) in [
        ("visits.flags", visit_flag::ALL),
        ("samples.flags", sample_flag::ALL),
    ] {
        let _ = write!(
            text,
            "\n## Bits of {column}\n\n| bit | name | meaning |\n|--:|---|---|\n"
        );
        for (place, flag) in flags.iter().enumerate() {
            let (bit, name) = (1_u64 << place, flag.name);
            let _ = writeln!(text, "| {bit} | `{name}` | {} |", words(flag.words));
        }
    }
    text
}

/// The page has every table, column and flag of the schema.
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

/// Comments become cells of a table: links lose their brackets, flags get their names in reports.
#[test]
fn words_of_comments() {
    let doc = " See [`visit_flag::LOSS`] and\n `a|b`.\n";
    assert_eq!(words(doc), "See `loss` and `a\\|b`.");
}
