//! Names in a lake.

use std::fmt::{self, Display};
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use ring::digest::{SHA256, digest};

use super::error::LakeError;
use crate::store::table::Table;

/// Folder of the manifests.
pub(super) const MANIFESTS: &str = "traces";

/// Form of the time in an id.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// Bytes of the digest in an id.
const DIGEST: usize = 8;

/// Longest name of a host, as of DNS.
const LONGEST: usize = 253;

/// The id of a trace: when it began, and a digest of its `trace.json`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(String);

impl TraceId {
    /// The id of a trace that began then, ns since 1970.
    pub(super) fn of(wall_clock_ns: i64, info: &[u8]) -> Self {
        let begin = DateTime::from_timestamp_nanos(wall_clock_ns).format(TIME);
        let digest = hex(&digest(&SHA256, info).as_ref()[..DIGEST]);
        Self(format!("{begin}-{digest}"))
    }

    /// The day on which it began, in UTC.
    pub(super) fn date(&self) -> NaiveDate {
        let time = self.0.split('-').next().unwrap_or_default();
        let time = NaiveDateTime::parse_from_str(time, TIME);
        time.map_or_else(|_| DateTime::<Utc>::UNIX_EPOCH.date_naive(), |it| it.date())
    }
}

impl Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TraceId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (time, digest) = text.split_once('-').ok_or(())?;
        let is_hex = |it: char| matches!(it, '0'..='9' | 'a'..='f');
        let is_digest = digest.len() == 2 * DIGEST && digest.chars().all(is_hex);
        let is_time = NaiveDateTime::parse_from_str(time, TIME).is_ok();
        match is_digest && is_time {
            true => Ok(Self(text.to_owned())),
            false => Err(()),
        }
    }
}

/// The name of a host, which is part of names of objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(String);

impl FromStr for Host {
    type Err = LakeError;

    fn from_str(text: &str) -> Result<Self, LakeError> {
        let plain = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        let is_name = text.starts_with(|it: char| it.is_ascii_alphanumeric());
        match is_name && text.len() <= LONGEST && text.chars().all(plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(LakeError::Name {
                text: text.to_owned(),
                what: "the name of a host",
            }),
        }
    }
}

impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of an object with rows of a table; parts are numbered from 1.
pub(super) fn table_object(table: Table, host: &Host, id: &TraceId, part: usize) -> String {
    let number = match part {
        1 => String::new(),
        part => format!("-{part}"),
    };
    format!(
        "{}/date={}/host={host}/{id}{number}.parquet",
        table.name(),
        id.date()
    )
}

/// Name of the manifest.
pub(super) fn manifest_object(host: &Host, id: &TraceId) -> String {
    format!("{MANIFESTS}/date={}/host={host}/{id}.parquet", id.date())
}

/// A digest in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id says when, is the same for the same trace, and is read back; nothing else is one.
    #[test]
    fn ids() {
        let begin = 1_772_334_000_123_456_789;
        let id = TraceId::of(begin, b"{}");
        assert_eq!(id, TraceId::of(begin, b"{}"));
        assert_ne!(id, TraceId::of(begin, b"{ }"));
        assert!(id.to_string().starts_with("20260301T030000Z-"), "{id}");
        assert_eq!(id.date().to_string(), "2026-03-01");
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        for text in [
            "",
            "x-0123456789abcdef",
            "20260301T030000Z",
            "20260301T030000Z-0123456789ABCDEF",
            "20260301T030000Z-01",
        ] {
            assert!(text.parse::<TraceId>().is_err(), "{text}");
        }
    }

    /// Names of objects.
    #[test]
    fn names() {
        let id = TraceId::of(0, b"");
        let host: Host = "web-1.example".parse().unwrap();
        let at = "date=1970-01-01/host=web-1.example/19700101T000000Z-e3b0c44298fc1c14";
        assert_eq!(
            table_object(Table::Visits, &host, &id, 1),
            format!("visits/{at}.parquet")
        );
        assert_eq!(
            table_object(Table::Visits, &host, &id, 2),
            format!("visits/{at}-2.parquet")
        );
        assert_eq!(manifest_object(&host, &id), format!("traces/{at}.parquet"));
    }

    /// A host that would lead elsewhere is refused.
    #[test]
    fn hosts() {
        for text in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "a%2fb",
            "é",
            "-x",
            &"a".repeat(254),
        ] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }
}
