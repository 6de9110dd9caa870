use proptest::prelude::*;

use super::*;

/// All fields at once; WEIGHT and WEIGHT_STRUCT exclude each other.
const ALL: u64 = (sys::PERF_SAMPLE_MAX as u64 - 1) & !(sys::PERF_SAMPLE_WEIGHT as u64);

const GROUP: u64 = (sys::PERF_FORMAT_GROUP
    | sys::PERF_FORMAT_ID
    | sys::PERF_FORMAT_LOST
    | sys::PERF_FORMAT_TOTAL_TIME_ENABLED
    | sys::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

const BRANCHES: u64 = (sys::PERF_SAMPLE_BRANCH_HW_INDEX | sys::PERF_SAMPLE_BRANCH_COUNTERS) as u64;

fn layout(sample_type: u64) -> Layout {
    Layout {
        sample_type,
        read_format: GROUP,
        branch_sample_type: BRANCHES,
        regs_user: 0b101,
        regs_intr: 0b11,
        sample_id_all: true,
    }
}

/// Words of the kernel for a field of [`layout`]: each is 100 times the field's bit plus its position.
fn field(bit: u32) -> Vec<u64> {
    let n = u64::from(bit.trailing_zeros()) * 100;
    let words = |count: u64| (0..count).map(move |word| n + word);
    match bit {
        // Two events: value, id, lost.
        sys::PERF_SAMPLE_READ => [2, n + 1, n + 2].into_iter().chain(words(6)).collect(),
        sys::PERF_SAMPLE_CALLCHAIN => [3].into_iter().chain(words(3)).collect(),
        // A length of 12 in the low half, 4 bytes of the data in the high one.
        sys::PERF_SAMPLE_RAW => vec![12 | 0xabcd << 32, n],
        sys::PERF_SAMPLE_BRANCH_STACK => [2, n + 9].into_iter().chain(words(8)).collect(),
        sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_REGS_INTR => {
            [2].into_iter().chain(words(2)).collect()
        }
        sys::PERF_SAMPLE_STACK_USER => [16].into_iter().chain(words(2)).chain([9]).collect(),
        sys::PERF_SAMPLE_AUX => vec![8, n],
        _ => vec![n],
    }
}

/// The order of `perf_output_sample()`, written down a second time.
const ORDER: [u32; 24] = [
    sys::PERF_SAMPLE_IDENTIFIER,
    sys::PERF_SAMPLE_IP,
    sys::PERF_SAMPLE_TID,
    sys::PERF_SAMPLE_TIME,
    sys::PERF_SAMPLE_ADDR,
    sys::PERF_SAMPLE_ID,
    sys::PERF_SAMPLE_STREAM_ID,
    sys::PERF_SAMPLE_CPU,
    sys::PERF_SAMPLE_PERIOD,
    sys::PERF_SAMPLE_READ,
    sys::PERF_SAMPLE_CALLCHAIN,
    sys::PERF_SAMPLE_RAW,
    sys::PERF_SAMPLE_BRANCH_STACK,
    sys::PERF_SAMPLE_REGS_USER,
    sys::PERF_SAMPLE_STACK_USER,
    sys::PERF_SAMPLE_WEIGHT_STRUCT,
    sys::PERF_SAMPLE_DATA_SRC,
    sys::PERF_SAMPLE_TRANSACTION,
    sys::PERF_SAMPLE_REGS_INTR,
    sys::PERF_SAMPLE_PHYS_ADDR,
    sys::PERF_SAMPLE_CGROUP,
    sys::PERF_SAMPLE_DATA_PAGE_SIZE,
    sys::PERF_SAMPLE_CODE_PAGE_SIZE,
    sys::PERF_SAMPLE_AUX,
];

fn body(sample_type: u64) -> Vec<u8> {
    let asked = ORDER
        .iter()
        .filter(|bit| sample_type & u64::from(**bit) != 0);
    let words = asked.flat_map(|bit| field(*bit));
    words.flat_map(u64::to_ne_bytes).collect()
}

fn words(sample: Words<'_>) -> Vec<u64> {
    sample.iter().collect()
}

/// With all fields, each has its own value.
#[test]
fn every_field() {
    let body = body(ALL);
    let sample = Sample::decode(&layout(ALL), &body).unwrap();
    assert_eq!((sample.id, sample.ip), (Some(1600), Some(0)));
    assert_eq!(sample.pid_tid, Some((100, 0)));
    assert_eq!((sample.time, sample.addr), (Some(200), Some(300)));
    assert_eq!((sample.stream_id, sample.cpu), (Some(900), Some(700)));
    assert_eq!(sample.period, Some(800));
    let rest = sample.rest();
    let read = rest.read.unwrap();
    assert_eq!((read.enabled, read.running), (Some(401), Some(402)));
    assert_eq!(words(read.values), [400, 401, 402, 403, 404, 405]);
    assert_eq!(words(rest.callchain.unwrap()), [500, 501, 502]);
    let raw = [&0xabcdu32.to_ne_bytes()[..], &1000u64.to_ne_bytes()].concat();
    assert_eq!(rest.raw, Some(&raw[..]));
    let branches = rest.branches.unwrap();
    assert_eq!(branches.hw_index, Some(1109));
    assert_eq!(
        words(branches.entries),
        [1100, 1101, 1102, 1103, 1104, 1105]
    );
    assert_eq!(branches.counters.map(words), Some(vec![1106, 1107]));
    let regs = rest.regs_user.unwrap();
    assert_eq!((regs.abi, words(regs.values)), (2, vec![1200, 1201]));
    let stack = rest.stack_user.unwrap();
    assert_eq!((stack.bytes.len(), stack.filled), (16, 9));
    let parts = Weight::Parts {
        var1: 2400,
        var2: 0,
        var3: 0,
    };
    assert_eq!(rest.weight, Some(parts));
    assert_eq!((rest.data_src, rest.transaction), (Some(1500), Some(1700)));
    assert_eq!(
        rest.regs_intr.map(|regs| words(regs.values)),
        Some(vec![1800, 1801])
    );
    assert_eq!((rest.phys_addr, rest.cgroup), (Some(1900), Some(2100)));
    assert_eq!(
        (rest.data_page_size, rest.code_page_size),
        (Some(2200), Some(2300))
    );
    assert_eq!(rest.aux, Some(&2000u64.to_ne_bytes()[..]));
}

/// Empty fields have the size that the kernel gives them.
#[test]
fn empty_fields() {
    let asked = u64::from(
        sys::PERF_SAMPLE_BRANCH_STACK
            | sys::PERF_SAMPLE_REGS_USER
            | sys::PERF_SAMPLE_STACK_USER
            | sys::PERF_SAMPLE_WEIGHT,
    );
    // Without branches the index may be missing, too; without registers and stack only their first word is there.
    for index in [&[][..], &[7]] {
        let words = [&[0], index, &[0, 0, 42]].concat();
        let body: Vec<u8> = words
            .iter()
            .flat_map(|word: &u64| word.to_ne_bytes())
            .collect();
        let sample = Sample::decode(&layout(asked), &body).unwrap().rest();
        assert_eq!(sample.weight, Some(Weight::Whole(42)));
        assert_eq!(sample.branches.unwrap().hw_index, index.first().copied());
        assert!(sample.regs_user.unwrap().values.is_empty());
        assert_eq!(sample.stack_user, Some(UserStack::default()));
    }
}

/// Counts of one event: the value, the times, then the other fields.
#[test]
fn single_read() {
    let mut layout = layout(sys::PERF_SAMPLE_READ.into());
    layout.read_format &= !u64::from(sys::PERF_FORMAT_GROUP);
    let body: Vec<u8> = [5u64, 6, 7, 8, 9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let read = Sample::decode(&layout, &body).unwrap().rest().read.unwrap();
    assert_eq!(
        (read.enabled, read.running, words(read.values)),
        (Some(6), Some(7), vec![5])
    );
}

/// A word too many and a byte too few are errors.
#[test]
fn ends_are_checked() {
    let mut bytes = body(ALL);
    bytes.extend([0; 8]);
    assert_eq!(
        Sample::decode(&layout(ALL), &bytes),
        Err(Malformed::LeftOver(8))
    );
    bytes.truncate(bytes.len() - 9);
    assert_eq!(Sample::decode(&layout(ALL), &bytes), Err(Malformed::Short));
}

proptest! {
    /// For any fields, the kernel's bytes are read to the last one, and the id is found without reading the rest.
    #[test]
    fn any_layout(asked in 0..u64::from(sys::PERF_SAMPLE_MAX)) {
        let asked = asked & ALL;
        let layout = layout(asked);
        let body = body(asked);
        let sample = Sample::decode(&layout, &body).unwrap();
        prop_assert_eq!(layout.id_of(sys::PERF_RECORD_SAMPLE, &body), sample.id);
    }

    /// Any bytes under any layout decode without a panic.
    #[test]
    fn any_bytes(
        asked: u64,
        read_format: u64,
        branch_sample_type: u64,
        regs: u64,
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let layout = Layout {
            sample_type: asked,
            read_format,
            branch_sample_type,
            regs_user: regs,
            regs_intr: !regs,
            sample_id_all: true,
        };
        let _ = Sample::decode(&layout, &body);
        let _ = layout.id_of(sys::PERF_RECORD_SAMPLE, &body);
        let _ = layout.id_of(sys::PERF_RECORD_LOST, &body);
    }
}
