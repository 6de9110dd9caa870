//! Column metadata of a compacted segment: units, and in a table's first segment descriptions.
//!
//! Both are metadata of the Arrow fields (pyarrow: `read_schema(file).field(column).metadata`). The descriptions
//! are also key-value metadata of the file, one per column (DuckDB: `parquet_kv_metadata(file)`). They take 28 kB
//! of a trace, so later segments have none; the units take 0.1 to 0.7 kB per segment.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_schema::{Field, Metadata, Schema, SchemaRef};
use parquet::file::metadata::KeyValue;

const UNIT: &str = "unit";
const DESCRIPTION: &str = "description";

/// Description of a column.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Description of its values, from the declaration's comment.
    pub words: &'static str,
}

impl Described {
    /// Unit of a column's values, by the end of its name.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        match self.name.rsplit('_').next() {
            Some("ns") => Some("ns"),
            Some("bytes") => Some("bytes"),
            Some("cycles") => Some("cycles"),
            Some("khz") => Some("kHz"),
            _ => None,
        }
    }

    /// The description on one line, without links to other items of the code.
    #[must_use]
    pub fn plain(&self) -> String {
        plain(self.words)
    }

    /// The first sentence, with the bits where it names a list of these.
    fn summary(&self, lists: &[(&str, &[Described])]) -> String {
        let plain = self.plain();
        let first = plain.split(". ").next().unwrap_or_default();
        let first = first.trim_end_matches('.');
        lists.iter().fold(first.to_owned(), |text, (name, flags)| {
            text.replace(&format!("`{name}`"), &bits(flags))
        })
    }
}

/// Bits of a column with their names, lowest first.
fn bits(flags: &[Described]) -> String {
    let flags = flags.iter().enumerate();
    let flags: Vec<String> = flags
        .map(|(place, flag)| format!("{} {}", 1_u64 << place, flag.name))
        .collect();
    flags.join(", ")
}

/// The text of a comment without links to other items of the code, with constants as reports show them.
#[must_use]
pub fn plain(comment: &str) -> String {
    let text: Vec<&str> = comment.lines().map(str::trim).collect();
    let text = text.join(" ");
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
    plain.trim().to_owned()
}

/// Adds a column's description and unit to its field. `lists` are those of bits, by the names that comments have.
pub(super) fn described(field: Field, column: &Described, lists: &[(&str, &[Described])]) -> Field {
    let unit = column.unit().map(|unit| (UNIT.to_owned(), unit.to_owned()));
    let words = (DESCRIPTION.to_owned(), column.summary(lists));
    field.with_metadata([words].into_iter().chain(unit).collect::<Metadata>())
}

/// The schema that a segment of this number has.
pub(super) fn of_segment(schema: &SchemaRef, number: u32) -> SchemaRef {
    if number == 0 {
        return Arc::clone(schema);
    }
    let brief = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        metadata.remove(DESCRIPTION);
        Field::clone(field).with_metadata(metadata)
    });
    Arc::new(Schema::new(brief.collect::<Vec<_>>()))
}

/// The descriptions as the file's own metadata, with units in parentheses.
pub(super) fn key_values(schema: &Schema) -> Option<Vec<KeyValue>> {
    let of_field = |field: &Arc<Field>| {
        let mut value = field.metadata().get(DESCRIPTION)?.clone();
        if let Some(unit) = field.metadata().get(UNIT) {
            let _ = write!(value, " ({unit})");
        }
        Some(KeyValue::new(field.name().clone(), value))
    };
    let found: Vec<_> = schema.fields().iter().filter_map(of_field).collect();
    (!found.is_empty()).then_some(found)
}
