use std::path::{Path, PathBuf};

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/perf-data/stat")
        .join(name)
}

fn table(path: &Path) -> Table {
    read(&mut PerfData::open(path).unwrap()).unwrap()
}

/// Output of `perf stat report` for the same file: row, event, count; `None`: not counted or not supported.
fn reported(text: &str, has_parts: bool) -> Vec<(String, String, Option<f64>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &str| {
        let line = line.split('#').next().unwrap();
        let line = line
            .replace("<not counted>", "-")
            .replace("<not supported>", "-");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, rest @ ..] = &words[..] else {
            return None;
        };
        let time: f64 = time.parse().ok()?;
        let (row, rest) = match rest {
            [part, rest @ ..] if has_parts => (format!("{part} {time}"), rest),
            rest => (time.to_string(), rest),
        };
        let [count, .., event] = rest else {
            return None;
        };
        Some((row, (*event).to_owned(), count.parse().ok()))
    };
    lines.filter_map(of).collect()
}

/// The counts equal those that perf reports for the same recording: of a command, of all CPUs together and
/// individually, of threads, and of a recording piped into a file.
#[test]
fn as_perf_reports_them() {
    for (name, has_parts, intervals) in [
        ("run", false, 10),
        ("pipe", false, 10),
        ("sum", false, 6),
        ("cpus", true, 6),
        ("threads", true, 6),
    ] {
        let table = table(&fixture(&format!("{name}.data")));
        let text = std::fs::read_to_string(fixture(&format!("{name}.txt"))).unwrap();
        let reported = reported(&text, has_parts);
        let cells = table.series.events.len() * table.series.rows();
        assert!(cells > intervals && cells == reported.len(), "{name}");
        for (row, event, count) in reported {
            let what = format!("{name}: {event} of {row}");
            let labels = &table.series.labels;
            let row = labels.iter().position(|it| *it == row).expect(&what);
            let event = &table.series.events[table.series.find(&event).expect(&what)];
            match count {
                // perf shows times with two digits.
                Some(count) => assert!((event.counts[row] - count).abs() <= 0.006, "{what}"),
                // Nothing ran, so nothing happened; or the event can't be counted on this machine.
                None => {
                    let is_zero = [0.0].contains(&event.counts[row]);
                    assert!(is_zero || event.share(row) == Some(0.0), "{what}");
                }
            }
        }
        assert!(table.is_timed && table.series.rows() >= intervals, "{name}");
    }
    let threads = table(&fixture("threads.data")).series.segments;
    assert!(threads.len() == 3 && threads.iter().all(|it| it.name.starts_with("python3-")));
    let notes = table(&fixture("run.data")).notes;
    assert_eq!(notes, ["not supported where it was counted: cycles"]);
}

/// Without `-I` the whole run is one row.
#[test]
fn whole_run() {
    let table = table(&fixture("whole.data"));
    let faults = &table.series.events[table.series.find("page-faults").unwrap()];
    assert_eq!(faults.counts, [33_471.0]);
}

/// Records of a test file.
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, kind: u32, words: &[u64]) {
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(0_u16.to_ne_bytes());
        self.0.extend((8 + 8 * words.len() as u16).to_ne_bytes());
        words.iter().for_each(|it| self.0.extend(it.to_ne_bytes()));
    }

    /// Adds an event by its software number.
    fn event(&mut self, config: u64, id: u64) {
        let kind = u64::from(perf_event_open_sys::bindings::PERF_TYPE_SOFTWARE);
        let mut words = [0; 9];
        (words[0], words[1], words[8]) = (kind | 64 << 32, config, id);
        self.add(user::ATTR, &words);
    }

    /// Adds a counter's totals: id, CPU, thread, count, enabled, running.
    fn stat(&mut self, [id, cpu, thread, count, enabled, running]: [u64; 6]) {
        let place = cpu | thread << 32;
        self.add(user::STAT, &[id, place, count, enabled, running]);
    }

    fn read(&self, dir: &Path) -> Result<Table, StatError> {
        let path = dir.join("f");
        std::fs::write(&path, &self.0).unwrap();
        read(&mut PerfData::open(&path).unwrap())
    }
}

fn piped() -> Records {
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(16_u64.to_ne_bytes());
    Records(bytes)
}

/// Counters are totals; a multiplexed event is scaled, one that never ran is missing, one that was never enabled is 0,
/// and CPUs are summed before they are scaled.
#[test]
fn scaled_by_its_share() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = piped();
    records.event(2, 7);
    records.event(3, 8);
    // Aggregated over CPUs.
    records.add(user::STAT_CONFIG, &[1, AGGR_MODE, AGGR_GLOBAL]);
    for (time_ns, counters) in [
        (1_000, [[7, 0, 0, 10, 100, 50], [7, 1, 0, 30, 100, 100]]),
        (2_000, [[7, 0, 0, 10, 200, 50], [7, 1, 0, 30, 200, 100]]),
        (3_000, [[7, 0, 0, 10, 200, 50], [7, 1, 0, 30, 200, 100]]),
        (4_000, [[7, 0, 0, 13, 300, 150], [7, 1, 0, 34, 300, 200]]),
    ] {
        counters.into_iter().for_each(|it| records.stat(it));
        records.add(user::STAT_ROUND, &[0, time_ns]);
    }
    // A counter of no event, and a truncated record.
    records.stat([99, 0, 0, 1, 1, 1]);
    records.add(user::STAT, &[7]);
    let table = records.read(dir.path()).unwrap();
    let faults = &table.series.events[table.series.find("page-faults").unwrap()];
    assert!((faults.counts[0] - 40.0 / 0.75).abs() < 1e-9);
    assert!(faults.counts[1].is_nan());
    assert_eq!(faults.counts[2..], [0.0, 7.0]);
    assert_eq!(faults.running, [0.75, 0.0, 1.0, 1.0]);
    assert!(table.notes[0].contains("context-switches"));
    assert_eq!(table.series.labels[3], "0.000004");
}

/// A recording of samples, and one cut before its first interval, are refused with a hint.
#[test]
fn refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = piped();
    records.event(2, 7);
    let error = records.read(dir.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("has no counts of 'perf stat record'")
    );
    assert!(error.hint().unwrap().contains("pebs-trace import"));
    records.stat([7, 0, 0, 1, 1, 1]);
    let error = records.read(dir.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("ends before its first interval does")
    );
    // Counts before the damage are read.
    records.add(user::STAT_ROUND, &[0, 10]);
    records.0.extend([1, 2, 3]);
    let table = records.read(dir.path()).unwrap();
    assert_eq!(table.series.rows(), 1);
    assert!(table.notes[0].contains("damaged"), "{:?}", table.notes);
}
