use std::path::Path;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;

use super::*;
use crate::store::fields::table_schema;
use crate::store::files::Owner;
use crate::store::net::SampleCosts;
use crate::store::schema::{SampleRow, Table};
use crate::store::segment::{OpenSegment, close, compact};
use crate::store::segment_files::{closed_path, open_path};
use crate::store::tables::{Columns, Row as _};
use crate::units::{FunctionId, TraceNs};

fn read(path: &Path) -> (RecordBatch, ParquetMetaData) {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
    let metadata = reader.metadata().as_ref().clone();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let schema = table_schema(Table::Samples, &[]);
    let batches = batches.iter().map(|it| {
        let columns = it.columns().to_vec();
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    });
    let batches: Vec<_> = batches.collect();
    (concat_batches(&schema, &batches).unwrap(), metadata)
}

/// A segment with row groups of these sizes, before and after it is compacted. `share`: whether row groups share their
/// dictionaries.
fn compacted(groups: &[u64], share: bool) -> [(RecordBatch, ParquetMetaData); 2] {
    let dir = tempfile::tempdir().unwrap();
    let (schema, owner) = (table_schema(Table::Samples, &[]), Owner::default());
    let mut segment = OpenSegment::create(dir.path(), 0, &schema, owner).unwrap();
    let mut columns = Columns::new(&[]);
    let mut n = 0;
    for rows in groups {
        let batch: Vec<_> = (n..n + rows).map(row).collect();
        SampleRow::write(&batch, &mut columns);
        let table = columns.of_mut(Table::Samples);
        segment.append(&table.end(), *rows).unwrap();
        table.clear();
        if !share {
            table.end_segment();
        }
        n += rows;
    }
    let before = read(&open_path(dir.path(), 0));
    close(dir.path(), 0, n).unwrap();
    let path = closed_path(dir.path(), 0);
    let bytes = compact(&path, &schema, owner, n, &SampleCosts::default()).unwrap();
    assert_eq!(bytes, path.metadata().unwrap().len());
    [before, read(&path)]
}

/// More and more functions and addresses, some visits null, times that decrease.
fn row(n: u64) -> SampleRow {
    SampleRow {
        time_ns: TraceNs((n * 1000 + n % 7 - n % 5000 * 900) as i64),
        visit_id: (!(n / 20).is_multiple_of(5)).then_some(n / 20),
        function_id: FunctionId((n * n % (7 + n / 100)) as u32),
        ip: 0x40_0000 + n * n % (70 + n / 10) * 16,
        ..SampleRow::numbered(n)
    }
}

/// Rows are unchanged; row groups are joined; statistics and page index are right.
#[test]
fn pages_are_kept() {
    for share in [true, false] {
        let [(before, of_open), (after, joined)] = compacted(&[20_000, 1, 70_000, 40_000], share);
        assert_eq!(before, after);
        assert_eq!(of_open.num_row_groups(), 4);
        // Without a common dictionary, only the single row finds its numbers in another group's dictionary.
        let groups = joined.num_row_groups();
        assert_eq!(groups == 1, share, "{groups}");
        let mut from = 0;
        for group in 0..groups {
            let rows = joined.row_group(group).num_rows() as usize;
            check_group(&joined, group, &after.slice(from, rows));
            from += rows;
        }
    }
}

/// Compares a row group's footer entry with its rows.
fn check_group(metadata: &ParquetMetaData, group: usize, rows: &RecordBatch) {
    let chunks = metadata.row_group(group);
    let statistics = |at: usize| chunks.column(at).statistics().unwrap();
    let Statistics::Int64(times) = statistics(0) else {
        panic!("times have 64 bits");
    };
    let column = rows.column(0).as_primitive::<Int64Type>();
    assert_eq!(
        (times.min_opt().copied(), times.max_opt().copied()),
        (column.iter().flatten().min(), column.iter().flatten().max())
    );
    let visits = rows.column(1).as_primitive::<UInt64Type>();
    let nulls = statistics(1).null_count_opt();
    assert_eq!(nulls, Some(visits.null_count() as u64));
    let Statistics::Int32(functions) = statistics(2) else {
        panic!("functions have 32 bits");
    };
    let column = rows.column(2).as_primitive::<UInt32Type>();
    let most = functions.max_opt().map(|it| it.cast_unsigned());
    assert_eq!(most, column.iter().flatten().max());
    let Statistics::Int64(ips) = statistics(3) else {
        panic!("addresses have 64 bits");
    };
    let column = rows.column(3).as_primitive::<UInt64Type>();
    let range = (ips.min_opt(), ips.max_opt());
    let range = (
        range.0.map(|it| it.cast_unsigned()),
        range.1.map(|it| it.cast_unsigned()),
    );
    assert_eq!(
        range,
        (column.iter().flatten().min(), column.iter().flatten().max())
    );
    check_pages(metadata, group, rows);
}

/// Checks the page index of times.
fn check_pages(metadata: &ParquetMetaData, group: usize, rows: &RecordBatch) {
    let times = rows.column(0).as_primitive::<Int64Type>();
    let offsets = metadata.page_index_for_row_group(group);
    let pages = offsets.offset_index(0).unwrap().page_locations();
    let Some(ColumnIndexMetaData::INT64(index)) = offsets.column_index(0) else {
        panic!("times have an index");
    };
    let starts = pages.iter().map(|page| page.first_row_index as usize);
    let ends = starts.clone().skip(1).chain([times.len()]);
    for (page, (start, end)) in starts.zip(ends).enumerate() {
        let values = times.slice(start, end - start);
        assert_eq!(
            index.min_value(page).copied(),
            values.iter().flatten().min()
        );
        assert_eq!(
            index.max_value(page).copied(),
            values.iter().flatten().max()
        );
    }
}
