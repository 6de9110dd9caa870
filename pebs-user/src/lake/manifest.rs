//! The manifest of a trace: the one row that says that a lake has it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder, StructBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampMicrosecondType, UInt32Type};
use arrow_array::{
    Array as _, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::error::LakeError;
use super::layout::TraceId;
use crate::store::run::{KeptVisits, RunInfo};
use crate::store::scan::rows_of;
use crate::store::table::Table;

/// Description of a trace in a lake.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub trace_id: TraceId,
    /// Of the tables.
    pub schema_version: u32,
    pub tool_version: String,
    /// Name of the target in the agent's configuration; null: a person pushed it.
    pub target: Option<String>,
    pub begin: DateTime<Utc>,
    /// Null: the recording was cut off.
    pub end: Option<DateTime<Utc>>,
    pub labels: BTreeMap<String, String>,
    /// SPECs.
    pub probes: Vec<String>,
    /// Those that began in the window.
    pub items: i64,
    pub samples: i64,
    /// Records that are missing.
    pub lost: i64,
    /// Slow items with details; null: all items have them.
    pub slow: Option<i64>,
    /// Begin of the window whose items count: an agent's traces overlap. ns of the trace.
    pub from_ns: i64,
    /// End of the window; null: it has none.
    pub until_ns: Option<i64>,
    /// Bytes of all objects.
    pub bytes: i64,
    pub objects: Vec<Object>,
    /// `trace.json`.
    pub info: String,
}

/// An object with rows of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub table: Table,
    /// Its name below the lake.
    pub name: String,
    pub rows: i64,
    pub bytes: i64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// Names of an object's fields.
const OBJECT: [&str; 5] = ["table", "name", "rows", "bytes", "sha256"];

impl Manifest {
    /// Makes one from `trace.json`; the rest is empty.
    pub(super) fn of(trace_id: TraceId, info: &RunInfo, text: String) -> Self {
        let time = DateTime::from_timestamp_nanos;
        let end = info
            .duration_ns
            .map(|it| time(info.wall_clock_ns.saturating_add(it)));
        let totals = info.ledger.as_ref().map(|it| it.totals());
        let missing = totals.as_ref().map_or(0, |it| {
            let accounts = [&it.samples, &it.marks, &it.tasks];
            accounts
                .into_iter()
                .flat_map(|it| it.losses())
                .map(|it| it.1)
                .sum()
        });
        let slow = info.keep.as_ref().and_then(|it| it.visits);
        Self {
            trace_id,
            schema_version: info.schema_version,
            tool_version: info.tool_version.clone(),
            target: None,
            begin: time(info.wall_clock_ns),
            end,
            labels: BTreeMap::new(),
            probes: info.probes.iter().map(|it| it.spec.to_string()).collect(),
            items: 0,
            samples: 0,
            lost: count(missing),
            slow: slow.map(|it| count(slow_ones(it))),
            from_ns: 0,
            until_ns: None,
            bytes: 0,
            objects: Vec::new(),
            info: text,
        }
    }

    /// The file.
    pub(super) fn to_parquet(&self) -> Result<Vec<u8>, LakeError> {
        self.written().map_err(|error| LakeError::Damaged {
            object: format!("the manifest of {}", self.trace_id),
            why: error.to_string(),
        })
    }

    fn written(&self) -> Result<Vec<u8>, ParquetError> {
        let batch = self.batch()?;
        let level = ZstdLevel::try_new(3)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build()))?;
        writer.write(&batch)?;
        writer.into_inner()
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let Self {
            trace_id,
            schema_version,
            tool_version,
            target,
            begin,
            end,
            labels,
            probes,
            items,
            samples,
            lost,
            slow,
            from_ns,
            until_ns,
            bytes,
            objects,
            info,
        } = self;
        let text = |it: &str| Arc::new(StringArray::from(vec![it])) as ArrayRef;
        let number = |it: i64| Arc::new(Int64Array::from(vec![it])) as ArrayRef;
        let perhaps = |it: Option<i64>| Arc::new(Int64Array::from(vec![it])) as ArrayRef;
        let time = |it: Option<DateTime<Utc>>| {
            let times = TimestampMicrosecondArray::from(vec![it.map(|it| it.timestamp_micros())]);
            Arc::new(times.with_timezone("UTC")) as ArrayRef
        };
        let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
        for (key, value) in labels {
            map.keys().append_value(key);
            map.values().append_value(value);
        }
        map.append(true)?;
        let mut specs = ListBuilder::new(StringBuilder::new());
        specs.append_value(probes.iter().map(Some));
        RecordBatch::try_from_iter_with_nullable([
            ("trace_id", text(&trace_id.to_string()), false),
            (
                "schema_version",
                Arc::new(UInt32Array::from(vec![*schema_version])),
                false,
            ),
            ("tool_version", text(tool_version), false),
            (
                "target",
                Arc::new(StringArray::from(vec![target.as_deref()])),
                true,
            ),
            ("begin", time(Some(*begin)), false),
            ("end", time(*end), true),
            ("labels", Arc::new(map.finish()), false),
            ("probes", Arc::new(specs.finish()), false),
            ("items", number(*items), false),
            ("samples", number(*samples), false),
            ("lost", number(*lost), false),
            ("slow", perhaps(*slow), true),
            ("from_ns", number(*from_ns), false),
            ("until_ns", perhaps(*until_ns), true),
            ("bytes", number(*bytes), false),
            ("objects", listed(objects), false),
            ("info", text(info), false),
        ])
    }

    /// Reads the file, which may be anything.
    pub(super) fn from_parquet(name: &str, file: Bytes) -> Result<Self, LakeError> {
        let damaged = || LakeError::Damaged {
            object: name.to_owned(),
            why: "it is no manifest".to_owned(),
        };
        let batches = rows_of(Path::new(name), file)?;
        let row = batches.first().filter(|it| it.num_rows() == 1);
        Self::read(row.ok_or_else(damaged)?).ok_or_else(damaged)
    }

    fn read(row: &RecordBatch) -> Option<Self> {
        let text = |name: &str| {
            let column = row.column_by_name(name)?.as_string_opt::<i32>()?;
            column.is_valid(0).then(|| column.value(0).to_owned())
        };
        let number = |name: &str| {
            let column = row.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
            column.is_valid(0).then(|| column.value(0))
        };
        let time = |name: &str| {
            let column = row
                .column_by_name(name)?
                .as_primitive_opt::<TimestampMicrosecondType>()?;
            let is_there = column.is_valid(0);
            is_there
                .then(|| DateTime::from_timestamp_micros(column.value(0)))
                .flatten()
        };
        let version = row
            .column_by_name("schema_version")?
            .as_primitive_opt::<UInt32Type>()?;
        let labels = row.column_by_name("labels")?.as_map_opt()?;
        let (keys, values) = (
            labels.keys().as_string_opt::<i32>()?,
            labels.values().as_string_opt::<i32>()?,
        );
        let labels = keys.iter().flatten().zip(values.iter().flatten());
        let probes = row.column_by_name("probes")?.as_list_opt::<i32>()?.values();
        let probes = probes.as_string_opt::<i32>()?.iter().flatten();
        Some(Self {
            trace_id: text("trace_id")?.parse().ok()?,
            schema_version: version.value(0),
            tool_version: text("tool_version")?,
            target: text("target"),
            begin: time("begin")?,
            end: time("end"),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            probes: probes.map(str::to_owned).collect(),
            items: number("items")?,
            samples: number("samples")?,
            lost: number("lost")?,
            slow: number("slow"),
            from_ns: number("from_ns")?,
            until_ns: number("until_ns"),
            bytes: number("bytes")?,
            objects: read_objects(row)?,
            info: text("info")?,
        })
    }
}

fn listed(objects: &[Object]) -> ArrayRef {
    let kind = |name: &str| match name {
        "rows" | "bytes" => DataType::Int64,
        _ => DataType::Utf8,
    };
    let fields: Fields = OBJECT
        .iter()
        .map(|name| Field::new(*name, kind(name), false))
        .collect();
    let mut list = ListBuilder::new(StructBuilder::from_fields(fields, objects.len()));
    for Object {
        table,
        name,
        rows,
        bytes,
        sha256,
    } in objects
    {
        let row = list.values();
        for (at, text) in [(0, table.name()), (1, name), (4, sha256)] {
            if let Some(column) = row.field_builder::<StringBuilder>(at) {
                column.append_value(text);
            }
        }
        for (at, number) in [(2, rows), (3, bytes)] {
            if let Some(column) = row.field_builder::<Int64Builder>(at) {
                column.append_value(*number);
            }
        }
        row.append(true);
    }
    list.append(true);
    Arc::new(list.finish())
}

fn read_objects(row: &RecordBatch) -> Option<Vec<Object>> {
    let objects = row
        .column_by_name("objects")?
        .as_list_opt::<i32>()?
        .values();
    let objects = objects.as_struct_opt()?;
    let text = |name| objects.column_by_name(name)?.as_string_opt::<i32>();
    let number = |name| {
        objects
            .column_by_name(name)?
            .as_primitive_opt::<Int64Type>()
    };
    let [table, name, sha256] = [text("table")?, text("name")?, text("sha256")?];
    let [rows, bytes] = [number("rows")?, number("bytes")?];
    let each = (0..objects.len()).map(|at| {
        let named = |it: &Table| it.name() == table.value(at);
        Some(Object {
            // One of a later version is not read.
            table: Table::ALL.into_iter().find(named)?,
            name: name.value(at).to_owned(),
            rows: rows.value(at),
            bytes: bytes.value(at),
            sha256: sha256.value(at).to_owned(),
        })
    });
    Some(each.flatten().collect())
}

/// Items whose details were kept as they, or what they did, were slow.
const fn slow_ones(kept: KeptVisits) -> u64 {
    let KeptVisits {
        slow,
        slow_function,
        slow_for_kind,
        warm_up: _,
        unknown: _,
    } = kept;
    slow + slow_function + slow_for_kind
}

/// A number as engines have it.
pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::info;

    /// A manifest is read as it was written, and something else is an error.
    #[test]
    fn round_trip() {
        let info = info(&["app:f", "app:g(id=arg1)"]);
        let id = TraceId::of(1_772_334_000_000_001_000, b"x");
        let mut manifest = Manifest::of(id, &info, "{\"a\": 1}".to_owned());
        let read =
            |it: &Manifest| Manifest::from_parquet("m", it.to_parquet().unwrap().into()).unwrap();
        manifest.begin = DateTime::from_timestamp_micros(1_772_334_000_000_001).unwrap();
        manifest.end = None;
        assert_eq!(read(&manifest), manifest);
        manifest.end = Some(manifest.begin);
        manifest.target = Some("shop".to_owned());
        manifest.labels = [("version".to_owned(), "1.2 é".to_owned())].into();
        manifest.slow = Some(3);
        manifest.until_ns = Some(7);
        manifest.objects = vec![Object {
            table: Table::Visits,
            name: "visits/x.parquet".to_owned(),
            rows: 5,
            bytes: 77,
            sha256: "ab".to_owned(),
        }];
        assert_eq!(manifest.probes.len(), 2);
        assert_eq!(read(&manifest), manifest);
        let file = manifest.to_parquet().unwrap();
        assert_eq!(file, manifest.to_parquet().unwrap());
        for cut in [0, 3, 8, 100, file.len() / 2] {
            assert!(Manifest::from_parquet("m", file[..cut].to_vec().into()).is_err());
        }
    }
}
