//! Layout of a tracepoint's fields in its raw data.

/// The `format` file of a tracepoint.
///
/// ```text
/// name: req_begin
/// ID: 2326
/// format:
///         field:unsigned short common_type;       offset:0;       size:2; signed:0;
///         field:u64 id;   offset:16;      size:8; signed:0;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Name without the system.
    pub name: String,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// C type, without the name.
    pub r#type: String,
    offset: usize,
    size: usize,
    signed: bool,
    is_array: bool,
}

/// Prefix of the fields that all tracepoints have.
const COMMON: &str = "common_";

impl Format {
    /// Parses a format file; returns the tracepoint's id and its format.
    #[must_use]
    pub fn parse(text: &str) -> Option<(u64, Self)> {
        let (mut id, mut format) = (None, Self::default());
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("name:") {
                name.trim().clone_into(&mut format.name);
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(field) = line.strip_prefix("field:") {
                format.fields.extend(Field::parse(field));
            }
        }
        Some((id?, format))
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Names of the numeric fields, without the common ones.
    pub fn numbers(&self) -> impl Iterator<Item = &str> {
        let own = |field: &&Field| field.is_number() && !field.name.starts_with(COMMON);
        self.fields
            .iter()
            .filter(own)
            .map(|field| field.name.as_str())
    }
}

impl Field {
    /// Parses `u64 id; offset:16; size:8; signed:0;`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let declared = parts.next()?;
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", number)) => offset = number.parse().ok(),
                Some(("size", number)) => size = number.parse().ok(),
                Some(("signed", number)) => signed = number == "1",
                _ => {}
            }
        }
        // `char comm[16]` and `__data_loc char[] text` are not numbers.
        let is_array = declared.contains('[');
        let declared = match declared.rsplit_once('[') {
            Some((before, _)) if declared.ends_with(']') => before.trim_end(),
            _ => declared,
        };
        let at = declared.rfind([' ', '*'])? + 1;
        Some(Self {
            name: declared[at..].to_owned(),
            r#type: declared[..at].trim_end().to_owned(),
            offset: offset?,
            size: size?,
            signed,
            is_array,
        })
    }

    /// Whether it is a single number.
    #[must_use]
    pub const fn is_number(&self) -> bool {
        !self.is_array && matches!(self.size, 1 | 2 | 4 | 8)
    }

    /// Its value in a sample's raw data, sign-extended if signed; `None` if it is not a number or is outside of
    /// the data.
    #[must_use]
    pub fn number(&self, raw: &[u8]) -> Option<u64> {
        if !self.is_number() {
            return None;
        }
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut wide = [0; 8];
        wide[..self.size].copy_from_slice(bytes);
        let value = u64::from_le_bytes(wide);
        let unused = 64 - 8 * self.size as u32;
        Some(if self.signed {
            ((value << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch
ID: 316
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:const char * name;\toffset:40;\tsize:8;\tsigned:0;
\tfield:__data_loc char[] text;\toffset:48;\tsize:4;\tsigned:0;

print fmt: \"prev_comm=%s\", REC->prev_comm
";

    /// Numbers are read from raw data with their sign; other fields are not.
    #[test]
    fn numbers() {
        let (id, format) = Format::parse(SWITCH).unwrap();
        assert_eq!((id, format.name.as_str()), (316, "sched_switch"));
        let mut raw = [0; 48];
        raw[24..28].copy_from_slice(&(-7i32).to_le_bytes());
        raw[32] = 2;
        let number = |name: &str| format.field(name).unwrap().number(&raw);
        assert_eq!(number("prev_pid").map(u64::cast_signed), Some(-7));
        assert_eq!(number("prev_state"), Some(2));
        assert_eq!(number("prev_comm"), None);
        assert_eq!(format.field("prev_pid").unwrap().number(&raw[..20]), None);
        assert_eq!(format.field("text").map(Field::is_number), Some(false));
        let names: Vec<&str> = format.numbers().collect();
        assert_eq!(names, ["prev_pid", "prev_state", "name"]);
    }
}
