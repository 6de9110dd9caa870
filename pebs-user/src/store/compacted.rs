//! Writes compacted segments: row groups whose columns are encoded each in its own way.

mod chunk;
mod differences;
mod digits;
mod indices;
mod repeats;
mod streams;

use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use super::encodings::{Encoded, encoded, properties};
use chunk::Writer;
use repeats::Repeats;

/// Rows of a Parquet row group at most, unless a batch alone has more.
const GROUP_ROWS: usize = 1 << 20;

/// A compacted segment being written.
pub(super) struct CompactedWriter<'a> {
    file: SerializedFileWriter<&'a File>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    group: Group,
}

/// The row group at hand.
#[derive(Default)]
struct Group {
    /// None: it has not begun.
    columns: Vec<Column>,
    rows: usize,
}

/// A leaf of the schema.
enum Column {
    /// Numbers that repeat.
    Repeats(Box<Repeats>),
    /// Times, which mostly rise.
    Times(Box<Writer>),
    /// All else, as [`properties`] says.
    Other(Box<ArrowColumnWriter>),
}

impl<'a> CompactedWriter<'a> {
    pub(super) fn new(file: &'a File, schema: &SchemaRef) -> Result<Self, ParquetError> {
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties(schema)?))?;
        let (file, factory) = writer.into_serialized_writer()?;
        Ok(Self {
            file,
            factory,
            schema: Arc::clone(schema),
            group: Group::default(),
        })
    }

    /// Appends rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        if self.group.rows > 0 && self.group.rows + batch.num_rows() > GROUP_ROWS {
            self.end_group()?;
        }
        if self.group.columns.is_empty() {
            self.group.columns = self.columns()?;
        }
        let mut columns = self.group.columns.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            if encoded(field) != Encoded::Generally {
                match columns.next() {
                    Some(Column::Repeats(column)) => column.write(array)?,
                    Some(Column::Times(column)) => column.write(array)?,
                    Some(Column::Other(_)) | None => {}
                }
                continue;
            }
            for (leaf, column) in compute_leaves(field, array)?.iter().zip(&mut columns) {
                if let Column::Other(column) = column {
                    column.write(leaf)?;
                }
            }
        }
        self.group.rows += batch.num_rows();
        Ok(())
    }

    /// Columns of a row group.
    fn columns(&self) -> Result<Vec<Column>, ParquetError> {
        let group = self.file.flushed_row_groups().len();
        let writers = self.factory.create_column_writers(group)?;
        let leaves = self.file.schema_descr().columns();
        let columns = writers.into_iter().zip(leaves).map(|(writer, leaf)| {
            let field = match leaf.path().parts() {
                [name] => self.schema.field_with_name(name).ok(),
                _ => None,
            };
            Ok(match field.map_or(Encoded::Generally, encoded) {
                Encoded::AsRepeats => Column::Repeats(Box::new(Repeats::new(leaf)?)),
                Encoded::AsTimes => Column::Times(Box::new(Writer::times(leaf)?)),
                Encoded::Generally => Column::Other(Box::new(writer)),
            })
        });
        columns.collect()
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let group = std::mem::take(&mut self.group);
        if group.rows == 0 {
            return Ok(());
        }
        let mut writer = self.file.next_row_group()?;
        for column in group.columns {
            let (bytes, close) = match column {
                Column::Repeats(column) => column.close()?,
                Column::Times(column) => column.chunk()?,
                Column::Other(column) => {
                    column.close()?.append_to_row_group(&mut writer)?;
                    continue;
                }
            };
            writer.append_column(&bytes, close)?;
        }
        writer.close()?;
        Ok(())
    }

    /// Writes what is left and the footer.
    pub(super) fn close(mut self) -> Result<(), ParquetError> {
        self.end_group()?;
        self.file.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, AsArray as _, Float64Array, Int64Array, UInt16Array, UInt32Array, UInt64Array,
    };
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Float64Type, Schema};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::basic::Encoding;
    use parquet::file::metadata::RowGroupMetaData;

    use super::*;
    use crate::pipeline::synthetic::Random;

    /// Writes batches to a file; returns what it holds, and its first row group.
    fn written(batches: &[RecordBatch]) -> (RecordBatch, RowGroupMetaData) {
        let schema = batches[0].schema();
        let file = tempfile::tempfile().unwrap();
        let mut writer = CompactedWriter::new(&file, &schema).unwrap();
        for batch in batches {
            writer.write(batch).unwrap();
        }
        writer.close().unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let group = reader.metadata().row_group(0).clone();
        let reader = reader.build().unwrap();
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        (concat_batches(&schema, &batches).unwrap(), group)
    }

    /// A batch with every type of whole number: the `n`th has numbers below the `n`th limit, null where they divide by 7.
    fn numbers(rows: u64, limits: [u64; 4], random: &mut Random) -> RecordBatch {
        let mut column = |limit: u64| -> Vec<Option<u64>> {
            let number = (0..rows).map(|_| Some(random.below(limit)));
            number.map(|it| it.filter(|it| it % 7 != 0)).collect()
        };
        let [a, b, c, d] = limits.map(&mut column);
        let narrow = a.into_iter().map(|it| it.map(|it| it as u16));
        let functions = b
            .into_iter()
            .map(|it| it.map(|it| (it as u32).wrapping_mul(0x0101_0101)));
        let signed = d.iter().map(|it| it.map(|it| -(it as i64) << 40));
        let times: Int64Array = (0..rows as i64).map(|it| Some(it * it)).collect();
        let errors: Float64Array = d.iter().map(|it| it.map(|it| it as f64)).collect();
        let columns: [ArrayRef; 6] = [
            Arc::new(narrow.collect::<UInt16Array>()),
            Arc::new(functions.collect::<UInt32Array>()),
            Arc::new(signed.collect::<Int64Array>()),
            Arc::new(
                c.into_iter()
                    .map(|it| it.map(|it| u64::MAX - it))
                    .collect::<UInt64Array>(),
            ),
            Arc::new(times),
            Arc::new(errors),
        ];
        let names = ["cpu", "function_id", "span_ns", "ip", "time_ns", "self_ns"];
        RecordBatch::try_from_iter_with_nullable(
            names
                .into_iter()
                .zip(columns)
                .map(|(name, column)| (name, column, name != "time_ns")),
        )
        .unwrap()
    }

    /// Whatever numbers there are, and however few of them: they come back, and so does what is null. Dictionaries of
    /// up to 16 entries, up to 256, up to 65,536, more, and too many.
    #[test]
    fn numbers_come_back() {
        let mut random = Random::new(3);
        for limits in [
            [1, 16, 17, 256],
            [257, 300, 65_536, 70_000],
            [5, 131_000, 1 << 50, 1 << 20],
        ] {
            for rows in [1, 9, 1000, 200_000] {
                let batch = numbers(rows, limits, &mut random);
                let (found, _) = written(&[batch.slice(0, batch.num_rows() / 2), batch.clone()]);
                let half = found.num_rows() - batch.num_rows();
                assert_eq!(
                    found.slice(half, batch.num_rows()),
                    batch,
                    "{limits:?} {rows}"
                );
                assert_eq!(
                    found.slice(0, half),
                    batch.slice(0, half),
                    "{limits:?} {rows}"
                );
            }
        }
    }

    /// A row group holds so many rows and no more; no rows make a file too.
    #[test]
    fn groups_end() {
        let batch = numbers(300_000, [2; 4], &mut Random::new(1));
        let (found, first) = written(&vec![batch.clone(); 4]);
        assert_eq!((found.num_rows(), first.num_rows()), (1_200_000, 900_000));
        let file = tempfile::tempfile().unwrap();
        CompactedWriter::new(&file, &batch.schema())
            .unwrap()
            .close()
            .unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        assert_eq!(reader.schema().fields(), batch.schema().fields());
    }

    /// Real numbers come back to the bit, whatever they are, and a page of all of them is what they take: those of few
    /// kinds have a dictionary, all others are written byte by byte, each byte of those that are alike for nothing.
    #[test]
    fn real_numbers_come_back() {
        let mut random = Random::new(5);
        let schema = Schema::new(vec![
            Field::new("self_ns", DataType::Float64, true),
            Field::new("share", DataType::Float64, false),
        ]);
        let odd = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::MIN_POSITIVE];
        for rows in [1, 100, 150_000] {
            let few: Vec<_> = (0..rows)
                .map(|row| (row % 3 > 0).then(|| odd[random.below(5) as usize]))
                .collect();
            let many: Vec<_> = (0..rows)
                .map(|_| (random.below(1 << 24) << 8) as f64)
                .collect();
            let columns: [ArrayRef; 2] = [
                Arc::new(Float64Array::from(few)),
                Arc::new(Float64Array::from(many)),
            ];
            let schema = Arc::new(schema.clone());
            let batch = RecordBatch::try_new(schema, columns.to_vec()).unwrap();
            let (found, group) = written(std::slice::from_ref(&batch));
            let bits = |batch: &RecordBatch, column: usize| -> Vec<Option<u64>> {
                let column = batch.column(column).as_primitive::<Float64Type>();
                column.iter().map(|it| it.map(f64::to_bits)).collect()
            };
            assert_eq!(
                [0, 1].map(|n| bits(&found, n)),
                [0, 1].map(|n| bits(&batch, n))
            );
            if rows == 150_000 {
                let [few, many] = [0, 1].map(|n| group.column(n).clone());
                assert!(few.dictionary_page_offset().is_some());
                let mut encodings = many.encodings();
                assert!(encodings.any(|it| it == Encoding::BYTE_STREAM_SPLIT));
                // 24 bits of number, and the exponent.
                let bits = many.compressed_size() * 8 / rows;
                assert!((24..27).contains(&bits), "{bits}");
            }
        }
    }

    /// Of entries of a dictionary that are as likely, an index takes what it must, and a reader finds them.
    #[test]
    fn indices_are_as_small_as_their_entropy() {
        for (entries, bits) in [(300_u64, 8.23), (4800, 12.23)] {
            let mut random = Random::new(entries);
            let (_, group) = addresses(|_| random.below(entries) * 0x1_0001);
            let chunk = group.column(0);
            assert!(chunk.dictionary_page_offset().is_some());
            // Beside them, codes of whole bits, and a dictionary of 3 bytes an entry.
            let most = 200_000.0 * (bits + 0.25) / 8.0 + 3.0 * entries as f64;
            assert!(
                (chunk.compressed_size() as f64) < most,
                "{entries} {}",
                chunk.compressed_size()
            );
        }
    }

    /// The chunk of addresses in a file of nothing else.
    fn addresses(address: impl FnMut(u64) -> u64) -> (RecordBatch, RowGroupMetaData) {
        let ips: UInt64Array = (0..200_000).map(address).map(Some).collect();
        let schema = Schema::new(vec![Field::new("ip", DataType::UInt64, false)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ips)]).unwrap();
        let (found, group) = written(std::slice::from_ref(&batch));
        assert_eq!(found, batch);
        (batch, group)
    }

    /// Times come back, regular or not, some of them null or all; and those of a timer, of which some came late,
    /// take little more than how they differ.
    #[test]
    fn times_come_back() {
        let mut random = Random::new(11);
        let schema = Arc::new(Schema::new(vec![
            Field::new("time_ns", DataType::Int64, false),
            Field::new("begin_ns", DataType::Int64, true),
            Field::new("end_ns", DataType::Int64, true),
        ]));
        for rows in [1, 130, 300_000] {
            let mut time = 0;
            let timer: Int64Array = (0..rows)
                .map(|_| {
                    let late = random.below(24) == 0;
                    time += 10_000 + random.below(64) + u64::from(late) * random.below(100_000);
                    Some(time as i64)
                })
                .collect();
            let any: Int64Array = (0..rows)
                .map(|row| (row % 3 > 0).then(|| random.below(u64::MAX) as i64))
                .collect();
            let unknown = Int64Array::new_null(rows);
            let columns: [ArrayRef; 3] = [Arc::new(timer), Arc::new(any), Arc::new(unknown)];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec()).unwrap();
            let (found, group) = written(std::slice::from_ref(&batch));
            assert_eq!(found, batch);
            for chunk in group.columns() {
                let mut encodings = chunk.encodings();
                assert!(encodings.any(|it| it == Encoding::DELTA_BINARY_PACKED));
            }
            if rows == 300_000 {
                // Packed, three groups in four take some 16 bits for the latest of them.
                let bits = group.column(0).compressed_size() * 8 / rows as i64;
                assert!((7..12).contains(&bits), "{bits}");
            }
        }
    }

    /// Addresses all over the place have a dictionary, addresses near the one before them none; what a footer says
    /// about their chunks is true.
    #[test]
    fn the_smaller_encoding_wins() {
        let mut random = Random::new(7);
        let (mut place, mut from) = (0, Random::new(9));
        let far = addresses(|_| 0x5555_5555_0000 + random.below(300) * 0x1_3577).1;
        let near = addresses(|row| {
            if row % 8 == 0 {
                place = from.below(5000) << 12;
            }
            0x5555_5555_0000 + place + from.below(16) * 4
        });
        let near = near.1;
        let [far, near] = [&far, &near].map(|group| group.column(0));
        assert!(far.encodings().any(|it| it == Encoding::RLE_DICTIONARY));
        assert!(far.dictionary_page_offset().is_some());
        assert!(near.dictionary_page_offset().is_none());
        for chunk in [far, near] {
            assert_eq!(chunk.num_values(), 200_000);
            assert!(
                chunk.compressed_size() < 400_000,
                "{}",
                chunk.compressed_size()
            );
            assert!(chunk.uncompressed_size() >= 200_000);
            let statistics = chunk.statistics().unwrap();
            assert!(statistics.min_bytes_opt() < statistics.max_bytes_opt());
            assert!(chunk.column_index_offset().is_some() && chunk.offset_index_offset().is_some());
        }
    }
}
