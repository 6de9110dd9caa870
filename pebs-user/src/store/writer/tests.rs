use crate::failure::Hint as _;
use std::os::unix::fs::PermissionsExt as _;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::super::args::{ArgRef, ArgView};
use super::super::fixtures::rows::{self, complete, info};
use super::super::output::SEGMENT_GROUPS;
use super::super::reader::{Trace, TraceState};
use super::super::samples::SamplesOf;
use super::super::schema::{visit_flag, visits};
use super::super::segment_files::open_path;
use super::super::tables::{check_all, write_all};
use super::super::view::{Select as _, View as _, columns};
use super::super::visit_block::VisitKey;
use super::*;
use crate::stream::sample::{BareSample, SampleKind};
use crate::stream::samples::SampleBuf;
use crate::units::{Cpu, EventId, Ip, Tid, TraceNs};

/// Segments are closed and rows flushed only by the tests' own ticks.
const OPTIONS: WriterOptions = WriterOptions {
    segment: Duration::from_secs(10),
    flush: Duration::from_secs(1),
    compact: true,
    compact_all: false,
};

fn create(dir: &Path) -> TraceWriter {
    TraceWriter::create(dir, &info(), OPTIONS).unwrap()
}

// Rows written over several segments and flushes are read back, nulls included; in order if not compacted.
#[test]
fn rows_come_back() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let options = WriterOptions {
        compact: false,
        ..OPTIONS
    };
    let mut writer = TraceWriter::create(&dir, &info(), options).unwrap();
    for second in 0..25 {
        rows::write(&mut writer, second * 100, (second + 1) * 100).unwrap();
        writer.tick(Duration::from_secs(second)).unwrap();
    }
    assert_eq!(writer.rows(Table::Samples), 25_000);
    let finished = writer.finish(&complete()).unwrap();
    let written = Table::ALL.map(|table| (table.name(), finished.rows[table as usize]));
    let written = written.into_iter().filter(|(_, rows)| *rows > 0);
    assert_eq!(
        written.collect::<Vec<_>>(),
        [
            ("visits", 2500),
            ("visit_functions", 2500),
            ("samples", 25_000),
            ("waits", 2500),
            ("function_stats", 2500),
            ("functions", 300),
            ("memory", 2500),
        ]
    );

    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Complete);
    assert_eq!(trace.info, complete());
    assert_eq!(trace.segments(Table::Visits).len(), 3);
    for table in Table::ALL {
        assert_eq!(trace.rows(table).unwrap(), finished.rows[table as usize]);
    }
    let mut n = 0;
    columns! {
        struct Ends of visits { item_id, end_ns }
    }
    for batch in trace.scan_with_args(Ends::NAMES).unwrap() {
        let batch = batch.unwrap();
        let columns = Ends::of(&batch).unwrap();
        let args = ArgView::all(&batch, &trace.info.columns).unwrap();
        for row in 0..batch.num_rows() {
            let visit = rows::visit(n);
            assert_eq!(columns.item_id[row], visit.item_id);
            let end = visit.end_ns.map(|time| time.0);
            assert_eq!(columns.end_ns.get(row), end);
            let read = args.iter().map(|arg| arg.get(row).map(ArgRef::to_value));
            assert!(read.eq(rows::args(n)));
            n += 1;
        }
    }
    assert_eq!(n, 2500);
}

// Every column of every table is read back.
#[test]
fn all_columns_come_back() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let options = WriterOptions {
        compact: false,
        ..OPTIONS
    };
    let mut writer = TraceWriter::create(&dir, &info(), options).unwrap();
    write_all(&mut writer, 100);
    writer.finish(&complete()).unwrap();
    check_all(&Trace::open(&dir).unwrap(), 100);
}

// Every segment has the units of its columns, and the first of a table their descriptions, also as file metadata.
#[test]
fn columns_are_described() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    rows::write(&mut writer, 0, 10).unwrap();
    writer.tick(Duration::from_secs(10)).unwrap();
    rows::write(&mut writer, 10, 20).unwrap();
    writer.finish(&complete()).unwrap();
    let trace = Trace::open(&dir).unwrap();
    for table in Table::ALL {
        for (number, segment) in trace.segments(table).iter().enumerate() {
            let file = fs::File::open(segment).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let metadata = reader.metadata().file_metadata().key_value_metadata();
            let metadata: Vec<_> = metadata.into_iter().flatten().collect();
            for (field, column) in reader.schema().fields().iter().zip(table.columns()) {
                let of = |key: &str| field.metadata().get(key).map(String::as_str);
                assert_eq!(of("unit"), column.unit(), "{}", column.name);
                assert_eq!(of("description").is_some(), number == 0, "{}", column.name);
                let own = metadata.iter().filter(|it| it.key == column.name);
                assert_eq!(own.count(), usize::from(number == 0), "{}", column.name);
            }
        }
    }
    assert_eq!(trace.segments(Table::Visits).len(), 2);
}

// Other users can't read a trace, and only the tables and trace.json are left in it.
#[test]
fn directory_is_private_and_tidy() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    create(&dir).finish(&complete()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("trace.json")), 0o600);
    assert_eq!(mode(&dir.join("visits/000000.parquet")), 0o600);
    let mut names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let tables = Table::ALL.iter().map(|table| table.name());
    let mut expected: Vec<_> = tables.chain(["trace.json"]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

// Flushed rows are on disk before the segment is closed, and the trace is marked as live and not complete.
#[test]
fn flushed_rows_are_on_disk() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    rows::write(&mut writer, 0, 10).unwrap();
    assert_eq!(writer.bytes_written(), 0);
    writer.tick(Duration::from_millis(1001)).unwrap();
    let path = open_path(&dir.join("visits"), 0);
    assert!(fs::metadata(path).unwrap().len() > 1000);
    assert!(writer.bytes_written() > 1000);
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Live);
    assert!(!trace.info.complete);
    assert_eq!(trace.open_segments().len(), 7);
    drop(writer);
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Unfinished);
    let (remark, hint) = trace.remark().unwrap();
    assert!(remark.contains("7 open segments"), "{remark}");
    assert!(hint.starts_with("pebs-trace recover "), "{hint}");
}

// A segment is also closed when it has many row groups, so that footers stay few without a tick.
#[test]
fn groups_bound_a_segment() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    let rows = SEGMENT_GROUPS as u64 + 5;
    for n in 0..rows {
        writer.add(&rows::sample(n)).unwrap();
        writer.flush_all().unwrap();
    }
    writer.finish(&complete()).unwrap();
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.segments(Table::Samples).len(), 2);
    assert_eq!(trace.rows(Table::Samples).unwrap(), rows);
}

// A segment that can't be closed is reported, stays open on disk, and is closed by `finish` if possible by then.
#[test]
fn failure_to_close_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    let obstacle = dir.join("visits/000000.parquet");
    fs::create_dir(&obstacle).unwrap();
    rows::write(&mut writer, 0, 10).unwrap();
    let _ = writer.tick(Duration::from_secs(10));
    let error = writer.tick(Duration::from_secs(10)).unwrap_err();
    assert!(matches!(error, WriteError::Io { .. }), "{error}");
    writer.add(&rows::sample(0)).unwrap();
    assert!(writer.flush_all().is_err());
    assert_eq!(writer.rows(Table::Samples), 100);
    assert_eq!(writer.lost_rows(Table::Samples), 1);
    fs::remove_dir(&obstacle).unwrap();
    assert!(writer.finish(&complete()).is_err());
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Unfinished);
    assert_eq!(trace.rows(Table::Visits).unwrap(), 10);
    assert_eq!(trace.open_segments(), []);
    assert!(trace.info.notes[0].starts_with("writing stopped: "));
}

// If all segments are to be compacted, none is left out, however fast they come.
#[test]
fn compacting_is_waited_for() {
    const SEGMENTS: u64 = 100;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let options = WriterOptions {
        compact_all: true,
        ..OPTIONS
    };
    let mut writer = TraceWriter::create(&dir, &info(), options).unwrap();
    for segment in 0..SEGMENTS {
        rows::write(&mut writer, segment * 10, (segment + 1) * 10).unwrap();
        writer
            .tick(Duration::from_secs((segment + 1) * 10))
            .unwrap();
    }
    writer.finish(&complete()).unwrap();
    let trace = Trace::open(&dir).unwrap();
    let segments = trace.segments(Table::Samples);
    assert_eq!(segments.len() as u64, SEGMENTS);
    for segment in segments {
        let file = fs::File::open(segment).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let columns = file.metadata().row_group(0).columns();
        let is_compacted =
            |it: &ColumnChunkMetaData| matches!(it.compression(), Compression::ZSTD(_));
        assert!(columns.iter().any(is_compacted), "{}", segment.display());
    }
}

/// Rows of each table as text, segment after segment.
fn rows_of(dir: &Path) -> Vec<Vec<String>> {
    let trace = Trace::open(dir).unwrap();
    let rows = |path: &PathBuf| {
        let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        let rows = file.get_row_iter(None).unwrap();
        rows.map(|row| row.unwrap().to_string()).collect::<Vec<_>>()
    };
    let of_table = |table| trace.segments(table).iter().flat_map(rows).collect();
    Table::ALL.into_iter().map(of_table).collect()
}

// Compacted tables have the same rows.
#[test]
fn compacting_keeps_the_rows() {
    let parent = tempfile::tempdir().unwrap();
    let [written, compacted] = [false, true].map(|compact| {
        let dir = parent.path().join(compact.to_string());
        let options = WriterOptions { compact, ..OPTIONS };
        let mut writer = TraceWriter::create(&dir, &info(), options).unwrap();
        rows::write(&mut writer, 0, 1000).unwrap();
        writer.tick(Duration::from_secs(1)).unwrap();
        rows::write(&mut writer, 1000, 2000).unwrap();
        writer.finish(&complete()).unwrap();
        rows_of(&dir)
    });
    assert_eq!(written, compacted);
}

// Compaction updates net times with the last known cost of a sample, except of visits that overlap others, have no
// sample, or have no known net time.
#[test]
fn net_times_are_finished() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    let visit = |visit_id, samples, flags, net_ns| VisitRow {
        visit_id,
        samples,
        flags,
        net_ns,
        net_stderr_ns: net_ns.map(|_| 1),
        ..VisitRow::default()
    };
    let [before, after] = [100.0, 160.0].map(|ns| SampleCost::measured(ns, 1.0));
    writer.sample_cost(0, before);
    writer.sample_cost(5, after);
    let rows = [
        visit(1, 10, 0, Some(5000)),
        visit(2, 0, 0, Some(5000)),
        visit(3, 10, visit_flag::OVERLAPPED, Some(5000)),
        visit(4, 10, 0, None),
        visit(5, 10, 0, Some(5000)),
        visit(1, 10, 0, Some(500)),
    ];
    for row in &rows {
        writer.visit(row, &[]).unwrap();
    }
    writer.finish(&complete()).unwrap();
    let mut nets = Vec::new();
    visits::each(&Trace::open(&dir).unwrap(), |row| nets.push(row.net_ns)).unwrap();
    assert_eq!(
        nets,
        [
            Some(4400),
            Some(5000),
            Some(5000),
            None,
            Some(5000),
            Some(0)
        ]
    );
}

// A segment that can't be compacted stays readable.
#[test]
fn failure_to_compact_costs_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    let obstacle = dir.join("visits/000000.parquet.tmp");
    fs::create_dir(&obstacle).unwrap();
    rows::write(&mut writer, 0, 10).unwrap();
    writer.tick(Duration::from_secs(10)).unwrap();
    writer.finish(&complete()).unwrap();
    fs::remove_dir(&obstacle).unwrap();
    let trace = Trace::open(&dir).unwrap();
    assert_eq!(trace.state(), TraceState::Complete);
    assert_eq!(trace.rows(Table::Visits).unwrap(), 10);
}

/// A panic in a thread of the writer is an error; rows written before are kept.
#[test]
fn panics_are_errors() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    rows::write(&mut writer, 0, 10).unwrap();
    writer.flush_all().unwrap();
    writer.estimate_by(Box::new(|_, _| panic!("as asked for")));
    let mut block = VisitBlock::default();
    let sample = BareSample {
        time: TraceNs(5),
        ip: Ip(1),
        kind: SampleKind::new(Cpu(0), EventId(0), (false, false)),
    };
    let samples: SampleBuf = [sample].into_iter().collect();
    let key = VisitKey {
        visit_id: 1,
        item_id: 1,
        tid: Tid(1),
    };
    let alike = block.samples.name(samples.samples(), |_, _| {});
    block.visit(key, (TraceNs(0), None), &[], EventId(0));
    let of = SamplesOf {
        visit_id: Some(1),
        tid: key.tid,
        threads: &[],
        samples: samples.samples(),
        alike,
        near: None,
    };
    block.samples.keep(&of, &[]);
    writer.block(&mut block);
    assert!(writer.flush_all().is_err());
    let error = writer.finish(&complete()).unwrap_err();
    assert!(matches!(error, WriteError::Io { .. }), "{error}");
    let trace = Trace::open(&dir).unwrap();
    assert!(!trace.info.complete);
    assert!(
        trace.info.notes[0].contains("panicked"),
        "{:?}",
        trace.info.notes
    );
    assert_eq!(trace.rows(Table::Visits).unwrap(), 10);
}

// An argument of the wrong type is an error, and null in its column.
#[test]
fn wrong_argument_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    let mut writer = create(&dir);
    let row = rows::visit(2);
    let mut args = rows::args(2);
    args.swap(0, 1);
    let error = writer.visit(&row, &args).unwrap_err();
    assert!(matches!(error, WriteError::Argument { index: 0 }));
    writer.visit(&row, &[]).unwrap();
    let finished = writer.finish(&complete()).unwrap();
    assert_eq!(finished.rows[Table::Visits as usize], 2);
}

// An existing directory is not changed; one that can't be created gives the reason.
#[test]
fn bad_directories() {
    let parent = tempfile::tempdir().unwrap();
    let error = |dir: &Path| match TraceWriter::create(dir, &info(), OPTIONS) {
        Ok(_) => panic!("created {}", dir.display()),
        Err(error) => (error.to_string(), error.hint().unwrap()),
    };
    let at = parent.path().display().to_string();
    let (text, hint) = error(parent.path());
    assert_eq!(text, format!("cannot create trace {at}: it exists"));
    assert!(hint.contains("-o"), "{hint}");

    let (text, hint) = error(&parent.path().join("a/b"));
    assert_eq!(
        text,
        format!("cannot create trace {at}/a/b: no directory {at}/a")
    );
    assert_eq!(hint, format!("mkdir -p {at}/a"));

    fs::write(parent.path().join("file"), "").unwrap();
    let (text, _) = error(&parent.path().join("file/t"));
    assert_eq!(text, format!("cannot write to {at}/file/t"));

    let (text, _) = error(Path::new("/proc/t"));
    assert!(text.starts_with("cannot create trace /proc/t"), "{text}");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);

    let mut info = info();
    info.columns[0].name = "pid".to_owned();
    let dir = parent.path().join("t");
    let error = TraceWriter::create(&dir, &info, OPTIONS).err().unwrap();
    assert!(matches!(error, WriteError::Column(_)));
    assert!(!dir.exists());
}
