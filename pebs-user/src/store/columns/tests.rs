use std::fmt::Debug;
use std::fs::File;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_schema::Schema;
use arrow_select::concat::concat;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;

use super::super::files::Owner;
use super::super::pages::coded::{Code, Halves, Rounded, Small};
use super::super::segment::OpenSegment;
use super::super::segment_files::open_path;
use super::*;
use crate::rng::SplitMix64;

/// Writes a row group for each slice and reads the file with the standard reader.
fn through_a_file<C: Column, V: Copy>(
    column: &mut C,
    groups: &[&[V]],
    extend: impl Fn(&mut C, &[V]),
) -> (ArrayRef, Vec<Statistics>) {
    let dir = tempfile::tempdir().unwrap();
    let schema = Arc::new(Schema::new(vec![C::field("n")]));
    let owner = Owner::default();
    let mut segment = OpenSegment::create(dir.path(), 0, &schema, owner).unwrap();
    for group in groups {
        // A few rows at a time, as in a recording.
        group.chunks(37).for_each(|rows| extend(column, rows));
        segment.append(&[column.end()], group.len() as u64).unwrap();
        column.clear();
    }
    let file = File::open(open_path(dir.path(), 0)).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(reader.schema().fields(), schema.fields());
    let groups = reader.metadata().row_groups().iter();
    let statistics = groups.map(|g| g.column(0).statistics().unwrap().clone());
    let statistics = statistics.collect();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let arrays: Vec<&dyn Array> = batches.iter().map(|b| b.column(0).as_ref()).collect();
    (concat(&arrays).unwrap(), statistics)
}

/// Numbers of a type survive, with and without null, in pages and row groups of any length.
fn numbers_survive<T: IntegerType<Native: Debug>>(values: &[T::Native], cut: usize) {
    let (a, b) = values.split_at(cut % values.len());
    let groups: Vec<&[T::Native]> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
    let (read, found) = through_a_file(&mut Required::<T>::default(), &groups, |column, rows| {
        column.extend(rows, |it| *it);
    });
    let read: &PrimitiveArray<T> = read.as_primitive();
    assert_eq!(read.values(), values);
    let repeated = through_a_file(&mut Required::<T>::default(), &groups, |column, rows| {
        for run in rows.chunk_by(|a, b| a == b) {
            column.repeat(run[0], run.len());
        }
    });
    assert_eq!(repeated.0.as_primitive::<T>(), read);
    assert_eq!(repeated.1, found);
    let range = |group: &&[T::Native]| {
        let values = || group.iter().copied();
        T::statistics(values().min().zip(values().max()), 0)
    };
    assert_eq!(found, groups.iter().map(range).collect::<Vec<_>>());

    let with_nulls = |n: &usize| (n % 3 != 1 && n % 50 > 9).then(|| values[*n]);
    let nullable: Vec<Option<T::Native>> = (0..values.len()).map(|n| with_nulls(&n)).collect();
    let (a, b) = nullable.split_at(cut % values.len());
    let groups: Vec<_> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
    let (read, _) = through_a_file(&mut Nullable::<T>::default(), &groups, |column, rows| {
        column.extend(rows, |it| *it);
    });
    let read: &PrimitiveArray<T> = read.as_primitive();
    assert_eq!(read.iter().collect::<Vec<_>>(), nullable);
    let mut column = Nullable::<T>::default();
    let (repeated, _) = through_a_file(&mut column, &groups, |column, rows| {
        for run in rows.chunk_by(|a, b| a == b) {
            column.repeat(run[0], run.len());
        }
    });
    assert_eq!(repeated.as_primitive::<T>(), read);
}

/// The same for numbers with a dictionary that the row groups share.
fn coded_whole_numbers_survive<C>(values: &[C::Number], cut: usize)
where
    C: Code<Number: Codable + Debug + PartialEq + Ord>,
{
    let (a, b) = values.split_at(cut % values.len());
    let groups: Vec<_> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
    let (read, found) = through_a_file(
        &mut RequiredCoded::<C>::default(),
        &groups,
        |column, rows| {
            column.extend(rows, |it| *it);
        },
    );
    let read: &PrimitiveArray<<C::Number as Codable>::Arrow> = read.as_primitive();
    assert!(read.iter().flatten().eq(values.iter().copied()));
    let range = |group: &&[C::Number]| {
        let values = || group.iter().copied();
        C::Number::statistics(values().min().zip(values().max()), 0)
    };
    assert_eq!(found, groups.iter().map(range).collect::<Vec<_>>());

    let nullable: Vec<_> = (0..)
        .zip(values)
        .map(|(n, it)| (n % 3 != 1).then_some(*it))
        .collect();
    let mut column = NullableCoded::<C>::default();
    let (read, _) = through_a_file(&mut column, &[&nullable[..]], |column, rows| {
        for run in rows.chunk_by(|a, b| a == b) {
            column.repeat(run[0], run.len());
        }
    });
    let read: &PrimitiveArray<<C::Number as Codable>::Arrow> = read.as_primitive();
    assert_eq!(read.iter().collect::<Vec<_>>(), nullable);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Lists of any length survive, including empty ones, across pages and row groups.
    #[test]
    fn lists_survive(
        lists in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..40), 1..60),
        cut: usize,
    ) {
        // A list that does not fit a page.
        let mut lists = lists;
        lists.push((0..70_000).collect());
        lists.extend([vec![], vec![7]]);
        let slices: Vec<&[u64]> = lists.iter().map(Vec::as_slice).collect();
        let (a, b) = slices.split_at(cut % slices.len());
        let groups: Vec<_> = [a, b].into_iter().filter(|g| !g.is_empty()).collect();
        let mut column = Lists::<UInt64Type>::default();
        let (read, _) = through_a_file(&mut column, &groups, |column, rows| { column.extend(rows, |it| *it); });
        let read = read.as_list::<i32>();
        for (row, list) in lists.iter().enumerate() {
            let values = read.value(row);
            prop_assert_eq!(values.as_primitive::<UInt64Type>().values(), list.as_slice());
        }
        prop_assert_eq!(read.len(), lists.len());
    }

    // Any numbers, of few bits or of all, across block ends.
    #[test]
    fn whole_numbers_survive(
        values in prop::collection::vec(any::<u64>(), 1..400),
        shift in 0_u32..64,
        cut: usize,
    ) {
        let values: Vec<u64> = values.iter().map(|value| value >> shift).collect();
        // Runs of the same number, too: some of them longer than a block.
        let lengths = (0..).map(|n| if n % 3 == 0 { 1 } else { (cut >> (n % 40)) % 200 });
        let repeated = values.iter().zip(lengths).flat_map(|(value, times)| vec![*value; times]);
        let repeated: Vec<u64> = repeated.chain([7]).collect();
        numbers_survive::<UInt64Type>(&repeated, cut);
        numbers_survive::<UInt32Type>(&repeated.iter().map(|v| *v as u32).collect::<Vec<_>>(), cut);
        let signed: Vec<i64> = values.iter().map(|value| *value as i64).collect();
        numbers_survive::<UInt64Type>(&values, cut);
        numbers_survive::<Int64Type>(&signed, cut);
        numbers_survive::<UInt32Type>(&values.iter().map(|v| *v as u32).collect::<Vec<_>>(), cut);
        numbers_survive::<UInt16Type>(&values.iter().map(|v| *v as u16).collect::<Vec<_>>(), cut);
        numbers_survive::<UInt8Type>(&values.iter().map(|v| *v as u8).collect::<Vec<_>>(), cut);
        coded_whole_numbers_survive::<Small<u64>>(&repeated, cut);
        coded_whole_numbers_survive::<Small<u32>>(&repeated.iter().map(|v| *v as u32).collect::<Vec<_>>(), cut);
        coded_whole_numbers_survive::<Small<i64>>(&signed, cut);
    }

    // Addresses of any number of distinct values.
    #[test]
    fn addresses_survive(values in prop::collection::vec(any::<u64>(), 1..300), repeat in 1_usize..40) {
        let values: Vec<u64> = (0..values.len() * repeat).map(|n| values[n * n % values.len()]).collect();
        let half = values.split_at(values.len() / 2);
        let groups: Vec<&[u64]> = [half.0, half.1].into_iter().filter(|g| !g.is_empty()).collect();
        let (read, _) = through_a_file(&mut Addresses::default(), &groups, |column, rows| { column.extend(rows, |it| *it); });
        prop_assert_eq!(read.as_primitive::<UInt64Type>().values(), &values[..]);
    }
}

// More values than fit a page of any column, with runs of equal ones.
#[test]
fn many_pages_survive() {
    let values: Vec<u64> = (0..200_000).map(|n| n / 1000 * 7919 % 1_000_003).collect();
    numbers_survive::<UInt64Type>(&values, 150_000);
    let (read, _) = through_a_file(&mut Addresses::default(), &[&values[..]], |column, rows| {
        column.extend(rows, |it| *it);
    });
    assert_eq!(read.as_primitive::<UInt64Type>().values(), &values[..]);

    let reals: Vec<Option<f64>> = values
        .iter()
        .map(|n| (n % 5 > 0).then_some(*n as f64))
        .collect();
    let push = |column: &mut NullableReal, rows: &[_]| column.extend(rows, |it| *it);
    let (read, _) = through_a_file(&mut NullableReal::default(), &[&reals[..]], push);
    assert_eq!(
        read.as_primitive::<Float64Type>()
            .iter()
            .collect::<Vec<_>>(),
        reals
    );

    let truths: Vec<bool> = values.iter().map(|n| n % 4 == 0).collect();
    let (read, _) = through_a_file(&mut Truth::default(), &[&truths[..]], |column, rows| {
        column.extend(rows, |it| *it);
    });
    let read: Vec<_> = read.as_boolean().iter().flatten().collect();
    assert_eq!(read, truths);

    let truths: Vec<Option<bool>> = (0..200_000_u32)
        .map(|n| (n % 3 != 0 && n / 900 % 7 != 2).then_some(n % 4 == 0))
        .chain(vec![None; 80_000])
        .collect();
    let (read, _) = through_a_file(
        &mut NullableTruth::default(),
        &[&truths[..]],
        |column, rows| {
            column.extend(rows, |it| *it);
        },
    );
    assert_eq!(read.as_boolean().iter().collect::<Vec<_>>(), truths);

    let words = [Some("GET"), None, Some(""), Some("käse")];
    let texts: Vec<Option<&str>> = (0..200_000).map(|n| words[n / 7 % 4]).collect();
    let (read, _) = through_a_file(
        &mut NullableText::default(),
        &[&texts[..]],
        |column, rows| {
            column.extend(rows, |it| *it);
        },
    );
    assert_eq!(read.as_string::<i32>().iter().collect::<Vec<_>>(), texts);

    let texts: Vec<&str> = texts.iter().map(|text| text.unwrap_or("none")).collect();
    let (read, _) = through_a_file(&mut Text::default(), &[&texts[..]], |column, rows| {
        column.extend(rows, |it| *it);
    });
    assert_eq!(
        read.as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
        texts
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    // Numbers in the dictionary, numbers outside of it, and nulls survive bit for bit, across pages, row groups and
    // the end of the dictionary.
    #[test]
    fn coded_numbers_survive(seed: u64, kinds in 1_u64..7, spread in 1_u32..40, cut: usize) {
        let mut rng = SplitMix64::new(seed);
        let mut next = || match rng.next_u64() % kinds {
            0 => Some((rng.next_u64() % 5) as f64),
            1 => Some((rng.next_u64() % (1 << spread)) as f64 / 2.0),
            2 => None,
            3 => Some(f64::from_bits(rng.next_u64() & !((1 << 46) - 1))).filter(|it| !it.is_nan()),
            4 => Some(-1.5),
            _ => Some(f64::from_bits(rng.next_u64() >> 2)),
        };
        let rows: Vec<Option<f64>> = (0..100_000).map(|_| next()).collect();
        let (a, b) = rows.split_at(cut % rows.len());
        let groups = [a, b, a].into_iter().filter(|g| !g.is_empty());
        let groups: Vec<_> = groups.collect();
        let expected: Vec<Option<f64>> = groups.concat();
        let (read, found) = coded::<Halves>(&groups);
        prop_assert!(read.iter().eq(expected.iter().copied()));
        prop_assert_eq!(found.len(), groups.len());
        prop_assert!(coded::<Rounded>(&groups).0.iter().eq(expected));
    }
}

fn coded<C: Code<Number = f64>>(
    groups: &[&[Option<f64>]],
) -> (PrimitiveArray<Float64Type>, Vec<Statistics>) {
    let mut column = NullableCoded::<C>::default();
    let (read, found) = through_a_file(&mut column, groups, |column, rows| {
        column.extend(rows, |it| *it);
    });
    (read.as_primitive().clone(), found)
}

// The dictionary's room ends a row group before it ends the column.
#[test]
fn full_dictionary_is_reported() {
    let mut column = Addresses::default();
    let pushed = (0..u64::MAX).take_while(|n| {
        column.extend(&[n * 8], |it| *it);
        !column.is_full()
    });
    assert_eq!(pushed.count(), (1 << 17) - 1);
    column.clear();
    assert!(!column.is_full());
}
