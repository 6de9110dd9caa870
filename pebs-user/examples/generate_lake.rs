//! Makes the lake of a fleet out of a few recordings, for experiments: `generate_lake PLAN.json` ([`Plan`] has the keys).
//!
//! An hour of a host is a trace, as an agent makes it: its ranges of `range-s` are drawn among the recorded ones, so that
//! they vary as those do. Each host runs one service. A range
//! stands for some recorded ones, as many as the time of day says, and sums of several are sums (`function_stats` says how
//! rows merge). Then all its times are multiplied by a factor: that of the host (3 %) x of the hour on this host (1 %) x of
//! the hour everywhere (up to 4 %). Samples are in proportion to time.
//!
//! A fault makes a function or a wait take `factor` times as long. What items do beside stays as it was, so they get longer
//! by that, each by the same share: how it goes together with their length is not in the sums.
//!
//! Traces are written and pushed as any other; the lake differs from a real one in that they do not overlap. The same plan gives
//! the same rows. Memory: the recordings, and a trace's columns for each thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use pebs_stats::rng::Rng;
use pebs_user::estimate::sketch::{Sketch, bucket, lowest, middle};
use pebs_user::failure::{Context as _, Failure, Result};
use pebs_user::lake::{Address, Host, Lake, Tags, Window, push};
use pebs_user::ledger::{Account, CpuLedger, Ledger, Reason};
use pebs_user::store::options::WriterOptions;
use pebs_user::store::reader::Trace;
use pebs_user::store::run::RunInfo;
use pebs_user::store::schema::{
    FunctionRow, FunctionStatRow, OWN_MODULE, function_stats, functions, measure,
};
use pebs_user::store::writer::TraceWriter;
use pebs_user::units::{FunctionId, TraceNs};
use pebs_user::watch::Watch;
use serde::{Deserialize, Serialize};

/// Seconds of a trace.
const HOUR_S: u64 = 3600;

/// Spread of the factors of hosts, and of the hours of a host.
const HOSTS: f64 = 0.03;
const HOURS: f64 = 0.01;

/// How much longer all times are at the busiest time of day, and shorter at the quietest.
const BUSY: f64 = 0.04;

/// Repeats at the quietest time of day, as a share of those at the busiest.
const QUIET: f64 = 0.25;

/// Share of the hosts that have the second version.
const SECOND: f64 = 0.5;
const VERSIONS: [&str; 2] = ["1.0", "2.0"];
const ZONES: [&str; 3] = ["a", "b", "c"];

/// What to make.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Plan {
    /// Address of the lake.
    lake: String,
    /// By name, its recordings: traces with the same SPECs that kept the details of no item (`--keep none`).
    services: BTreeMap<String, Vec<PathBuf>>,
    hosts: u64,
    hours: u64,
    /// Begin of the first hour.
    begin: DateTime<Utc>,
    /// Length of a range of `function_stats`, as the recorder has 10 s.
    range_s: u64,
    /// Recorded ranges that one stands for, at the busiest time of day.
    repeats: f64,
    seed: u64,
    threads: u64,
    faults: Vec<Fault>,
    /// File for [`Truth`], as JSON.
    truth: PathBuf,
}

/// What some hosts of a service are slow by.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Fault {
    service: String,
    who: Who,
    /// Name of the function that takes longer, or waits longer.
    function: String,
    /// State of the wait; without it the function takes longer on the CPU.
    wait: Option<String>,
    factor: f64,
    /// Hour from which on it does.
    from_hour: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    /// All hosts with this version.
    Version(String),
    /// So many hosts, drawn.
    Hosts(u64),
}

/// What was made.
#[derive(Default, Serialize)]
struct Truth {
    hosts: BTreeMap<String, Made>,
    faults: Vec<Fault>,
    traces: u64,
    /// Items in the sums.
    items: u64,
    /// Rows of `function_stats`.
    rows: u64,
    objects: u64,
    bytes: u64,
}

/// A host of the fleet.
#[derive(Clone, Default, Serialize)]
struct Made {
    service: String,
    labels: BTreeMap<&'static str, &'static str>,
    /// Numbers of the faults that it has.
    faults: BTreeSet<usize>,
    /// Sums of all its hours.
    items: u64,
    duration_ns: f64,
}

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        if let Some(hint) = error.hint() {
            eprintln!("hint: {hint}");
        }
        std::process::exit(2);
    }
}

fn generate() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    let plan = words.next().map(PathBuf::from);
    let plan = plan.ok_or_else(|| Failure::bare("give a file with a plan"))?;
    let file = File::open(&plan).with_context(|| format!("cannot read {}", plan.display()))?;
    let plan: Plan = serde_json::from_reader(file).context("not a plan")?;
    let mut services: Vec<Service> = Vec::new();
    for (name, recordings) in &plan.services {
        let recordings = recordings.iter().map(|it| Recorded::read(it));
        services.push(Service {
            name: name.clone(),
            recordings: recordings.collect::<Result<_>>()?,
        });
    }
    let hosts = hosts(&plan, &services)?;
    let address: Address = plan.lake.parse()?;
    let truth = Mutex::new(Truth {
        faults: plan.faults.clone(),
        ..Truth::default()
    });
    let next = Mutex::new(hosts.iter().enumerate());
    let work = || -> Result<()> {
        let lake = Lake::open_or_make(&address)?;
        let place = tempfile::tempdir().context("no temporary directory")?;
        loop {
            let taken = locked(&next).next();
            let Some((number, (name, made))) = taken else {
                return Ok(());
            };
            let Some(service) = services.iter().find(|it| it.name == made.service) else {
                continue;
            };
            let mut made = made.clone();
            let mut rng = Rng::new(plan.seed ^ ((number as u64 + 1) << 32));
            let own = (HOSTS * rng.normal()).exp();
            for hour in 0..plan.hours {
                let made_hour = Hour {
                    plan: &plan,
                    service,
                    faults: made.faults.iter().map(|at| &plan.faults[*at]).collect(),
                    hour,
                    factor: own * (HOURS * rng.normal()).exp(),
                };
                let dir = place.path().join("trace");
                let sums = made_hour.write(&dir, name, &mut rng)?;
                let pushed = bring(&lake, &dir, (name, &made), sums.items)?;
                made.items += sums.items;
                made.duration_ns += sums.duration_ns;
                let mut truth = locked(&truth);
                truth.traces += 1;
                truth.items += sums.items;
                truth.rows += sums.rows;
                truth.objects += pushed.0;
                truth.bytes += pushed.1;
            }
            locked(&truth).hosts.insert(name.clone(), made);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        let ended = threads.into_iter().map(|it| it.join());
        ended
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|it| it.unwrap_or_else(|_| Err(Failure::bare("a thread panicked"))))
    })?;
    let truth = locked(&truth);
    let file = File::create(&plan.truth);
    let file = file.with_context(|| format!("cannot write {}", plan.truth.display()))?;
    serde_json::to_writer_pretty(file, &*truth).context("cannot write the truth")?;
    println!(
        "{} traces: {} items in {} rows, {} objects of {} bytes",
        truth.traces, truth.items, truth.rows, truth.objects, truth.bytes
    );
    Ok(())
}

fn locked<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The hosts with their labels and faults: they are dealt to the services in turn.
fn hosts(plan: &Plan, services: &[Service]) -> Result<Vec<(String, Made)>> {
    let mut rng = Rng::new(plan.seed);
    let mut hosts = Vec::new();
    for (at, service) in services.iter().enumerate() {
        let of_service = (0..plan.hosts).filter(|it| *it as usize % services.len() == at);
        let mut numbers: Vec<u64> = of_service.collect();
        rng.shuffle(&mut numbers);
        let second = (numbers.len() as f64 * SECOND).round() as usize;
        for (n, number) in numbers.iter().enumerate() {
            let version = VERSIONS[usize::from(n < second)];
            let zone = ZONES[rng.below(ZONES.len())];
            let made = Made {
                service: service.name.clone(),
                labels: [("version", version), ("zone", zone)].into(),
                ..Made::default()
            };
            hosts.push((format!("{}-{number:05}", service.name), made));
        }
    }
    for (number, fault) in plan.faults.iter().enumerate() {
        let known = services.iter().find(|it| it.name == fault.service);
        if known.is_none_or(|it| !it.recordings.iter().all(|it| it.has(fault))) {
            let hint = "they have to be in each of the service's recordings";
            return Err(Failure::new(
                format!("no such service or rows: {fault:?}"),
                hint,
            ));
        }
        let mut of_service: Vec<&mut Made> = (hosts.iter_mut().map(|it| &mut it.1))
            .filter(|it| it.service == fault.service)
            .collect();
        rng.shuffle(&mut of_service);
        let mut left = match fault.who {
            Who::Hosts(hosts) => hosts,
            Who::Version(_) => u64::MAX,
        };
        for host in of_service {
            let is_it = match &fault.who {
                Who::Version(version) => host.labels["version"] == version,
                Who::Hosts(_) => host.faults.is_empty(),
            };
            if is_it && left > 0 {
                host.faults.insert(number);
                left -= 1;
            }
        }
    }
    hosts.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(hosts)
}

/// Pushes a trace and removes it; returns objects and bytes.
fn bring(lake: &Lake, dir: &Path, (name, made): (&str, &Made), items: u64) -> Result<(u64, u64)> {
    let mut tags = Tags {
        host: Some(name.parse::<Host>()?),
        target: Some(made.service.clone()),
        window: Some(Window {
            items,
            ..Window::default()
        }),
        ..Tags::default()
    };
    for (key, value) in &made.labels {
        tags.label(&format!("{key}={value}"))?;
    }
    let pushed = push(lake, dir, &tags, &Watch::default())?;
    std::fs::remove_dir_all(dir).context("cannot remove a trace")?;
    Ok((pushed.objects, pushed.bytes))
}

/// Recordings of one program.
struct Service {
    name: String,
    recordings: Vec<Recorded>,
}

type Row = FunctionStatRow<'static>;

/// What is taken from a recording.
struct Recorded {
    info: RunInfo,
    functions: Vec<FunctionRow>,
    /// pebs-trace's own work, which is no time of an item.
    own: Option<FunctionId>,
    /// Rows of `function_stats`, by range.
    ranges: Vec<Vec<Row>>,
}

impl Recorded {
    fn read(dir: &Path) -> Result<Self> {
        let trace = Trace::open(dir)?;
        let mut all = Vec::new();
        functions::each(&trace, |row| all.push(row))?;
        let mut measures: Vec<&'static str> = Vec::new();
        let mut ranges: BTreeMap<(i64, i64), Vec<Row>> = BTreeMap::new();
        function_stats::each(&trace, |row| {
            let known = measures.iter().find(|it| **it == row.measure).copied();
            let measure = known.unwrap_or_else(|| {
                // One for each state of a wait, which are a handful.
                let word: &'static str = String::leak(row.measure.to_owned());
                measures.push(word);
                word
            });
            let range = ranges.entry((row.begin_ns.0, row.end_ns.0)).or_default();
            range.push(FunctionStatRow { measure, ..row });
        })?;
        // The last one is cut off by the end.
        let longest = ranges.keys().map(|it| it.1 - it.0).max().unwrap_or(0);
        ranges.retain(|range, _| 2 * (range.1 - range.0) > longest);
        if ranges.is_empty() {
            let hint = "record with '--keep none', for some times ten seconds";
            return Err(Failure::new(format!("no sums in {}", dir.display()), hint));
        }
        let own = all
            .iter()
            .find(|it| it.module.as_deref() == Some(OWN_MODULE));
        Ok(Self {
            info: trace.info,
            own: own.map(|it| it.function_id),
            functions: all,
            ranges: ranges.into_values().collect(),
        })
    }

    /// The functions of a fault.
    fn ids(&self, fault: &Fault) -> BTreeSet<FunctionId> {
        let named = |it: &&FunctionRow| it.name.as_ref() == Some(&fault.function);
        self.functions
            .iter()
            .filter(named)
            .map(|it| it.function_id)
            .collect()
    }

    fn has(&self, fault: &Fault) -> bool {
        let ids = self.ids(fault);
        let mut rows = self.ranges.iter().flatten();
        rows.any(|it| is_of(it, fault, &ids))
    }
}

/// Whether a row is of the function or the wait of a fault.
fn is_of(row: &Row, fault: &Fault, ids: &BTreeSet<FunctionId>) -> bool {
    let measure = fault.wait.as_deref().unwrap_or(measure::SELF);
    row.measure == measure && row.function_id.is_some_and(|it| ids.contains(&it))
}

/// An hour of a host.
struct Hour<'a> {
    plan: &'a Plan,
    service: &'a Service,
    /// Of the host.
    faults: Vec<&'a Fault>,
    hour: u64,
    /// Of all times.
    factor: f64,
}

/// Sums of a trace.
#[derive(Default)]
struct Sums {
    items: u64,
    samples: u64,
    duration_ns: f64,
    rows: u64,
}

impl Hour<'_> {
    /// Writes the trace.
    fn write(&self, dir: &Path, host: &str, rng: &mut Rng) -> Result<Sums> {
        let recordings = &self.service.recordings;
        let recorded = &recordings[rng.below(recordings.len())];
        let begin = self.plan.begin + TimeDelta::hours(i64::try_from(self.hour).unwrap_or(0));
        let mut info = recorded.info.clone();
        host.clone_into(&mut info.host.name);
        info.wall_clock_ns = begin.timestamp_nanos_opt().unwrap_or(0);
        info.duration_ns = Some((HOUR_S * 1_000_000_000).cast_signed());
        // Of the recording's time.
        (info.pauses, info.moments, info.resets) = Default::default();
        let options = WriterOptions {
            segment: Duration::from_secs(self.plan.range_s),
            compact_all: true,
            ..WriterOptions::default()
        };
        let mut writer = TraceWriter::create(dir, &info, options)?;
        writer.extend(&recorded.functions)?;
        let ends: Vec<(FaultRows<'_>, f64)> = (self.faults.iter())
            .filter(|it| it.from_hour <= self.hour)
            .map(|it| ((*it, recorded.ids(it)), it.factor))
            .collect();
        // The busiest time is 15:00.
        let time = (begin.timestamp().rem_euclid(86_400) as f64 / 3600.0 - 15.0) / 24.0;
        let busy = (time * std::f64::consts::TAU).cos();
        let repeats = self.plan.repeats * (1.0 + QUIET + (1.0 - QUIET) * busy) / 2.0;
        let factor = self.factor * (1.0 + BUSY * busy);
        let mut sums = Sums::default();
        for at in 0..HOUR_S / self.plan.range_s {
            let from = Duration::from_secs(at * self.plan.range_s);
            let to = from + Duration::from_secs(self.plan.range_s);
            let range = &recorded.ranges[rng.below(recorded.ranges.len())];
            let change = Change {
                recorded,
                faults: &ends,
                repeats: rounded(repeats, rng).max(1),
                factor,
            };
            let mut rows = change.of(range, rng);
            for row in &mut rows {
                let ns = |it: Duration| TraceNs(i64::try_from(it.as_nanos()).unwrap_or(0));
                (row.begin_ns, row.end_ns) = (ns(from), ns(to));
                sums.samples += row.samples.filter(|_| row.event.is_some()).unwrap_or(0);
                if row.measure == measure::DURATION {
                    sums.items += row.visits_with;
                    sums.duration_ns += row.sum_ns.unwrap_or(0.0);
                }
            }
            sums.rows += rows.len() as u64;
            writer.extend(&rows)?;
            writer.tick(to)?;
        }
        info.ledger = Some(ledger(&sums));
        writer.finish(&info)?;
        Ok(sums)
    }
}

/// As the recorder books them where no details are kept.
fn ledger(sums: &Sums) -> Ledger {
    let account = |records| Account {
        seen: records,
        written: 0,
        reasons: [(Reason::NotKept, records)].into(),
    };
    Ledger {
        cpus: vec![CpuLedger {
            samples: account(sums.samples),
            marks: account(2 * sums.items),
            ..CpuLedger::default()
        }],
        ..Ledger::default()
    }
}

/// A fault, and the functions of the recording that it is of.
type FaultRows<'a> = (&'a Fault, BTreeSet<FunctionId>);

/// What is done to a range.
struct Change<'a> {
    recorded: &'a Recorded,
    /// With their factors.
    faults: &'a [(FaultRows<'a>, f64)],
    repeats: u64,
    factor: f64,
}

/// Sums of the items of a probe, in a loss or not, by which faults make them longer.
#[derive(Clone, Copy, Default)]
struct Whole {
    duration_ns: f64,
    active_ns: f64,
    /// Events of the first event, which is a clock: of functions, and those that faults add.
    events: f64,
    more_events: f64,
    /// Waiting that faults add.
    more_waits_ns: f64,
}

impl Whole {
    /// Time on the CPU that faults add.
    fn more_active(&self) -> f64 {
        match self.events > 0.0 {
            true => self.more_events / self.events * self.active_ns,
            false => 0.0,
        }
    }

    /// How many times as long durations and times on the CPU are.
    fn stretched(&self) -> (f64, f64) {
        let ratio = |more: f64, of: f64| if of > 0.0 { 1.0 + more / of } else { 1.0 };
        let active = self.more_active();
        (
            ratio(active + self.more_waits_ns, self.duration_ns),
            ratio(active, self.active_ns),
        )
    }
}

impl Change<'_> {
    fn of(&self, range: &[Row], rng: &mut Rng) -> Vec<Row> {
        let mut wholes: BTreeMap<(u16, bool), Whole> = BTreeMap::new();
        for row in range {
            let whole = wholes.entry((row.probe_id.0, row.loss)).or_default();
            let (sum, more) = (row.sum_ns.unwrap_or(0.0), self.of_faults(row) - 1.0);
            let is_clock = row.event == self.recorded.info.events.first().map(|it| it.id);
            match row.measure {
                measure::DURATION => whole.duration_ns += sum,
                measure::ONCPU => whole.active_ns += sum,
                measure::SELF if is_clock && row.function_id != self.recorded.own => {
                    let events = row.events.unwrap_or(0) as f64;
                    whole.events += events;
                    whole.more_events += events * more;
                }
                measure::SELF => {}
                _ => whole.more_waits_ns += sum * more,
            }
        }
        let changed = range.iter().filter_map(|row| {
            let whole = wholes.get(&(row.probe_id.0, row.loss))?;
            self.changed(row, whole, rng)
        });
        changed.collect()
    }

    /// Factor of the faults that a row has.
    fn of_faults(&self, row: &Row) -> f64 {
        let faults = self.faults.iter();
        let those = faults.filter(|((fault, ids), _)| is_of(row, fault, ids));
        those.map(|it| it.1).product()
    }

    /// `None`: it is left without a sample.
    fn changed(&self, row: &Row, whole: &Whole, rng: &mut Rng) -> Option<Row> {
        let (duration, active) = whole.stretched();
        let own = self.factor
            * match row.measure {
                measure::DURATION => duration,
                measure::ONCPU => active,
                _ => self.of_faults(row),
            };
        let times = self.repeats as f64;
        let mut row = row.clone();
        row.visits *= self.repeats;
        row.visits_with *= self.repeats;
        let (mut each, mut counts) = (own, times);
        let sampled = row.event.and(row.samples).filter(|it| *it > 0);
        row.samples = row.samples.map(|it| it * self.repeats);
        if let Some(before) = sampled {
            let samples = rounded(before as f64 * times * own, rng);
            if samples == 0 {
                return None;
            }
            // As many as there are, so that the sums fit them.
            let ratio = samples as f64 / (before as f64 * times);
            let most = samples.min(row.visits);
            let with = rounded(row.visits_with as f64 * ratio, rng).clamp(1, most);
            let more = with as f64 / row.visits_with as f64;
            (each, counts) = (own / more, times * more);
            let all = self.factor * active;
            row.samples = Some(samples);
            row.visits_with = with;
            row.events = row.events.map(|it| it / before * samples);
            for (sum, by) in [
                (&mut row.samples_squared, ratio * ratio),
                (&mut row.samples_product, ratio * all),
                (&mut row.samples_active_ns, ratio * all),
                (&mut row.events_squared, ratio * ratio),
                (&mut row.events_product, ratio * all),
                (&mut row.events_active_ns, ratio * all),
            ] {
                *sum = sum.map(|it| it * times * by);
            }
        }
        row.sum_ns = row.sum_ns.map(|it| it * counts * each);
        row.sum_squared = row.sum_squared.map(|it| it * counts * each * each);
        row.min_ns = row.min_ns.map(|it| it * each);
        row.max_ns = row.max_ns.map(|it| it * each);
        let sketch = stretched(&row, each, counts);
        let (middles, counts): (Vec<u64>, Vec<u64>) =
            sketch.buckets().map(|(at, n)| (middle(at), n)).unzip();
        row.bucket_ns = middles.into_iter().map(u64::cast_signed).collect();
        row.bucket_count = counts;
        Some(row)
    }
}

/// A whole number that is this one in the mean.
fn rounded(number: f64, rng: &mut Rng) -> u64 {
    (number + rng.unit()) as u64
}

/// The sketch of so many times as many values, each so many times as large: those of a bucket, evenly spread in it, go to
/// the buckets that they get to.
fn stretched(row: &Row, by: f64, counts: f64) -> Sketch {
    let mut sketch = Sketch::default();
    let (mut exact, mut done) = (0.0, 0);
    for (value, count) in row.bucket_ns.iter().zip(&row.bucket_count) {
        let at = bucket((*value).max(0).cast_unsigned());
        let (count, low) = (*count as f64 * counts, lowest(at) as f64 * by);
        let width = lowest(at + 1) as f64 * by - low;
        let mut to = bucket(low as u64);
        loop {
            let share = ((lowest(to + 1) as f64 - low) / width).min(1.0);
            let below = (exact + count * share).round() as u64;
            sketch.add_bucket(to, below - done);
            (done, to) = (below, to + 1);
            if share >= 1.0 {
                break;
            }
        }
        exact += count;
    }
    sketch
}
