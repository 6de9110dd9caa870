//! Begins and ends traces, so that each target that runs is recorded all the time.
//!
//! One thread does all of it, once a second and when something happens; recordings have threads of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::Event;
use super::account::{Account, Row};
use super::config::{Config, TargetConfig, TriggerConfig};
use super::disk::{self, LEFT_FREE, Room, Traces};
use super::health::{Disk, Health, State, TargetHealth, UploadHealth};
use super::memory;
use super::processes::{Found, Key, Processes};
use super::recent::Trigger;
use super::segment::{Ended, Phase, Said, Segment, lost};
use super::serve::{self, Shared, Socket};
use super::uploads::{self, Outcome, Settings, Uploads, Waiting};
use crate::binary::process;
use crate::failure::{Context as _, Failure, Hint as _, Result};
use crate::lake::Window;
use crate::record;
use crate::store::reader::read_info;
use crate::store::recover::{RecoverError, Recovered, recover};
use crate::units::Tid;

/// Between two looks at processes and traces.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after which the disk is looked at.
const DISK_LOOKS: u64 = 5;

/// Looks after which free memory is given back.
const MEMORY_LOOKS: u64 = 30;

/// Recordings that start at once: each takes most of a CPU for a moment.
const STARTING: usize = 2;

/// A trace that is shorter failed, as far as it matters for how soon the next one is tried.
const SHORT: Duration = Duration::from_secs(10);

/// Longest time until a recording that failed is tried again.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// Time after which it no longer matters that it failed.
const FORGET: Duration = Duration::from_mins(1);

/// Held as long as an agent uses a directory.
const LOCK_FILE: &str = "agent.lock";

/// Why a trace ends that the next one follows.
const FOLLOWED: &str = "the next trace goes on";

/// Order to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the configuration again.
    Reload,
    /// Write what was recorded so far as traces of their own.
    Snapshot,
    /// End, for this reason.
    End(&'static str),
}

/// Gives orders, from any thread.
#[derive(Clone, Debug)]
pub struct Orders(Sender<News>);

impl Orders {
    /// Gives an order.
    pub fn give(&self, order: Order) {
        // An agent that has ended obeys no more.
        let _ = self.0.send(News::Order(order));
    }
}

/// Message to the supervisor.
#[derive(Debug)]
enum News {
    Order(Order),
    /// Somebody wants a snapshot of this target.
    Snapshot(String),
    /// Of the recording that writes this trace.
    Recording(Key, PathBuf, Said),
    /// A trace of a killed agent was looked at.
    Recovered(PathBuf, Result<Recovered, RecoverError>),
    /// A trace was brought into the lake, or not.
    Brought(Outcome),
}

/// A service that records targets.
#[derive(Debug)]
pub struct Agent {
    file: PathBuf,
    config: Config,
    health: Shared,
    news: (Sender<News>, Receiver<News>),
    #[expect(dead_code, reason = "held, not read")]
    socket: Socket,
    #[expect(dead_code, reason = "held, not read")]
    lock: File,
}

impl Agent {
    /// Reads the configuration, and takes the directory and the socket.
    ///
    /// # Errors
    /// The configuration has a fault, or another agent uses these.
    pub fn new(file: &Path) -> Result<Self> {
        let config = Config::read(file)?;
        let lock = lock(&config.agent.directory)?;
        let health = Shared::default();
        let news = unbounded();
        let to = news.0.clone();
        let snapshot = move |name: &str| {
            // An agent that has ended makes none.
            let _ = to.send(News::Snapshot(name.to_owned()));
        };
        let socket = Socket::open(&config.agent.socket, &health, snapshot)?;
        if let Some(address) = config.agent.listen {
            serve::listen(address, &health)?;
        }
        Ok(Self {
            file: file.to_owned(),
            config,
            health,
            news,
            socket,
            lock,
        })
    }

    /// Gives it orders.
    #[must_use]
    pub fn orders(&self) -> Orders {
        Orders(self.news.0.clone())
    }

    /// Records until it is ordered to end.
    pub fn run(self, mut emit: impl FnMut(Event)) {
        memory::share();
        let directory = self.config.agent.directory.clone();
        let account = Account::new(&directory, &mut emit);
        let settings = Settings::of(&self.config.agent);
        let news = self.news.0.clone();
        let uploads = Uploads::start(settings.clone(), move |it| {
            // Nobody listens any more at the end.
            let _ = news.send(News::Brought(it));
        });
        let uploads = uploads.map_err(|error| tracing::warn!("{error}")).ok();
        let mut supervisor = Supervisor {
            processes: Processes::new(self.config.targets.clone()),
            recovering: recover_all(&directory, self.news.0.clone()),
            agent: &self,
            config: self.config.clone(),
            account,
            groups: BTreeMap::new(),
            totals: BTreeMap::new(),
            traces: Traces::default(),
            disk: Disk::default(),
            settings,
            uploads,
            upload: UploadHealth::default(),
            pushed: BTreeSet::new(),
            has_room: true,
            ending: None,
            started: Instant::now(),
            looks: 0,
        };
        supervisor.run();
        supervisor.end_uploads();
    }
}

/// Makes the directory, if there is none, and takes it for this agent.
fn lock(directory: &Path) -> Result<File> {
    let cannot = || format!("cannot use {}", directory.display());
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(directory);
    made.with_context(cannot)?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW);
    let file = file.open(directory.join(LOCK_FILE)).with_context(cannot)?;
    file.try_lock().map_err(|_| {
        Failure::new(
            format!("{}: another agent does", cannot()),
            "end it, or give this one another 'directory'",
        )
    })?;
    Ok(file)
}

/// Closes the traces of an agent that was killed, on a thread of its own.
fn recover_all(directory: &Path, news: Sender<News>) -> JoinHandle<()> {
    let traces = Traces::all(directory);
    thread::spawn(move || {
        for (path, _) in traces {
            if read_info(&path).is_ok_and(|info| info.is_closed()) {
                continue;
            }
            let recovered = recover(&path);
            if news.send(News::Recovered(path, recovered)).is_err() {
                return;
            }
        }
    })
}

/// Processes that are recorded together, and their traces that are being written.
#[derive(Debug, Default)]
struct Group {
    program: PathBuf,
    segments: Vec<Segment>,
    retry: Retry,
    /// The processes whose items no trace has yet.
    is_new: bool,
    triggers: Triggers,
}

/// State of the conditions for snapshots.
#[derive(Debug, Default)]
struct Triggers {
    p99: Trigger,
    file: Trigger,
}

impl Triggers {
    /// Why a snapshot of the trace is to be made now, if one is.
    fn pulled(&mut self, segment: &Segment, now: Instant) -> Option<String> {
        let TriggerConfig { p99, file, apart } = segment.options.trigger.as_ref()?;
        let at_most = |ns: u64, limit: &Duration| (ns as f64, limit.as_nanos() as f64);
        if let Some(limit) = p99
            && let Some(ns) = segment.recent.certain_p99()
            && self.p99.pull(at_most(ns, limit), now, *apart)
        {
            let time = |ns: u64| humantime::format_duration(Duration::from_micros(ns / 1_000));
            return Some(format!("p99 {}", time(ns)));
        }
        let file = file.as_ref()?;
        let is_there = f64::from(u8::from(fs::symlink_metadata(file).is_ok()));
        let pulls = self.file.pull((is_there, 0.5), now, *apart);
        pulls.then(|| format!("file {}", file.display()))
    }
}

/// Waiting time before a failed attempt is repeated.
#[derive(Debug, Default)]
struct Retry {
    failures: u32,
    after: Option<Instant>,
    /// The last error, which is reported once.
    error: Option<String>,
}

impl Retry {
    /// Waits longer each time; returns how long.
    fn fail(&mut self, now: Instant) -> Duration {
        let wait = LOOK * 2_u32.saturating_pow(self.failures.min(16));
        let wait = wait.min(LONGEST_WAIT);
        self.failures += 1;
        self.after = Some(now + wait);
        wait
    }

    fn is_due(&self, now: Instant) -> bool {
        self.after.is_none_or(|it| it <= now)
    }

    /// Whether a process that comes now is tried at once: not one that ends again and again.
    fn is_forgotten(&self, now: Instant) -> bool {
        self.after.is_none_or(|it| it + FORGET <= now)
    }
}

/// The work of an agent.
struct Supervisor<'a> {
    agent: &'a Agent,
    config: Config,
    account: Account<'a>,
    processes: Processes,
    groups: BTreeMap<Key, Group>,
    /// Sums over the recordings that ended, by target.
    totals: BTreeMap<String, TargetHealth>,
    traces: Traces,
    disk: Disk,
    /// Destination of closed traces.
    settings: Option<Settings>,
    uploads: Option<Uploads>,
    upload: UploadHealth,
    /// Traces that are known to be there.
    pushed: BTreeSet<PathBuf>,
    has_room: bool,
    recovering: JoinHandle<()>,
    /// Why to end, once it was asked for.
    ending: Option<&'static str>,
    started: Instant,
    looks: u64,
}

impl Supervisor<'_> {
    fn run(&mut self) {
        self.account.add(
            None,
            &Row::AgentStarted {
                version: env!("CARGO_PKG_VERSION"),
                targets: self.config.targets.len(),
            },
        );
        self.account.tell(Event::Ready);
        let mut next_look = Instant::now();
        loop {
            let wait = next_look.saturating_duration_since(Instant::now());
            let soon = match self.agent.news.1.recv_timeout(wait) {
                Ok(news) => self.hear(news),
                Err(_) => true,
            };
            if soon {
                self.look();
                next_look = Instant::now() + LOOK;
            }
            if let Some(why) = self.ending
                && self.groups.values().all(|it| it.segments.is_empty())
            {
                self.look_at_disk();
                self.account.add(None, &Row::AgentEnded { why });
                return;
            }
        }
    }

    /// Takes news in; returns whether to look at once.
    fn hear(&mut self, news: News) -> bool {
        match news {
            News::Order(Order::Reload) => self.reload(),
            News::Order(Order::Snapshot) => {
                self.snapshot(|_| true, "signal");
                return false;
            }
            News::Snapshot(name) => {
                self.snapshot(|key| key.0 == name, "POST /snapshot");
                return false;
            }
            News::Order(Order::End(why)) => {
                self.ending.get_or_insert(why);
                self.account.tell(Event::Ending);
                let segments = self.groups.values_mut().flat_map(|it| &mut it.segments);
                segments.for_each(|it| it.end(why));
            }
            News::Recording(key, trace, Said::Event(event)) => {
                return self.recording_says(&key, &trace, event);
            }
            News::Recording(key, trace, Said::Ended(ended)) => self.ended(&key, &trace, ended),
            News::Recovered(trace, recovered) => {
                self.recovered(trace, recovered);
                return false;
            }
            News::Brought(outcome) => {
                self.brought(outcome);
                return false;
            }
        }
        true
    }

    /// Has snapshots made of the traces of these targets.
    fn snapshot(&mut self, is_meant: impl Fn(&Key) -> bool, because: &str) {
        let meant = self.groups.iter_mut().filter(|(key, _)| is_meant(key));
        let segments = meant.flat_map(|(_, group)| &mut group.segments);
        segments
            .filter(|it| it.phase == Phase::Records)
            .for_each(|it| it.snapshot(because.to_owned()));
    }

    /// Looks at what the last minute was like, and makes the snapshots that are to be made upon it.
    fn look_at_triggers(&mut self, now: Instant) {
        for group in self.groups.values_mut() {
            for segment in &mut group.segments {
                if segment.phase == Phase::Records {
                    let durations = segment.remote.status().durations;
                    segment.recent.push(now, durations);
                    let pulled = group.triggers.pulled(segment, now);
                    pulled.into_iter().for_each(|it| segment.snapshot(it));
                }
            }
        }
    }

    /// Looks after everything.
    fn look(&mut self) {
        let now = Instant::now();
        if self.looks.is_multiple_of(DISK_LOOKS) {
            self.look_at_disk();
        }
        self.looks += 1;
        if self.looks.is_multiple_of(MEMORY_LOOKS) {
            memory::give_back();
        }
        let found = self.processes.look();
        if self.ending.is_none() {
            self.advance(&found, now);
        }
        self.look_at_triggers(now);
        self.account.write();
        self.report(&found);
    }

    /// Ends traces that are over, and begins those that are due.
    fn advance(&mut self, found: &BTreeMap<Key, Found>, now: Instant) {
        for (key, found) in found {
            self.groups.entry(key.clone()).or_insert_with(|| Group {
                program: found.program.clone(),
                is_new: true,
                ..Group::default()
            });
        }
        let starts = |it: &&Segment| it.phase == Phase::Starts;
        let segments = self.groups.values().flat_map(|it| &it.segments);
        let mut starting = segments.filter(starts).count();
        let keys: Vec<Key> = self.groups.keys().cloned().collect();
        for key in keys {
            let Some(group) = self.groups.get_mut(&key) else {
                continue;
            };
            for segment in &mut group.segments {
                if matches!(segment.phase, Phase::Overlaps(until) if until <= now) {
                    segment.end(FOLLOWED);
                }
            }
            let Some(found) = found.get(&key) else {
                let left = group.segments.iter_mut().filter(|it| it.goes_on());
                left.for_each(|it| it.end("no process of the target is left"));
                if group.segments.is_empty() && group.retry.is_forgotten(now) {
                    self.groups.remove(&key);
                }
                continue;
            };
            let mut going_on = group.segments.iter_mut().filter(|it| it.goes_on());
            let is_due = match going_on.next_back() {
                None => true,
                Some(segment) => is_over(segment, &key, found, &self.config, now),
            };
            let may = starting < STARTING && self.has_room && group.retry.is_due(now);
            if is_due && may {
                starting += 1;
                self.begin(&key, found, now);
            }
        }
    }

    /// Begins a trace.
    fn begin(&mut self, key: &Key, found: &Found, now: Instant) {
        let Some(options) = self.config.targets.iter().find(|it| it.name == key.0) else {
            return;
        };
        let folder = self.config.agent.directory.join(&key.0);
        let segments = self.groups.values().flat_map(|it| &it.segments);
        let open: BTreeSet<&Path> = segments.map(|it| &*it.trace).collect();
        let is_taken = |path: &Path| path.exists() || open.contains(path);
        let trace = disk::free_path(&folder, SystemTime::now(), is_taken);
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let memory = (self.config.memory_of_each(), self.config.ring_of_each(cpus));
        let recording = options.recording(found.roots.clone(), trace.clone(), memory);
        let group = self.groups.entry(key.clone()).or_default();
        let former = group.segments.iter().rfind(|it| it.goes_on());
        let former = former.map(|it| &it.window);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        let made = made.with_context(|| format!("cannot make {}", folder.display()));
        let (news, theirs) = (self.agent.news.0.clone(), (key.clone(), trace.clone()));
        let tell = move |said| {
            let (key, trace) = theirs.clone();
            // Nobody listens any more at the end.
            let _ = news.send(News::Recording(key, trace, said));
        };
        let options = Arc::new(options.clone());
        let covers = found.all.clone();
        let started = made.and_then(|()| Segment::start(recording, options, covers, former, tell));
        match started {
            Ok(segment) => group.segments.push(segment),
            Err(error) => self.failed(key, &error, now),
        }
    }

    /// A recording failed: each error is reported once, and the recording tried again later.
    fn failed(&mut self, key: &Key, error: &Failure, now: Instant) {
        self.total(key).failures += 1;
        let text = error.to_string();
        let group = self.groups.entry(key.clone()).or_default();
        let wait = group.retry.fail(now);
        if group.retry.error.as_ref() != Some(&text) {
            group.retry.error = Some(text.clone());
            let row = Row::Failed {
                error: text,
                hint: error.hint().map(str::to_owned),
                again_in_s: wait.as_secs(),
            };
            self.account.add(Some(&key.0), &row);
        }
    }

    fn total(&mut self, key: &Key) -> &mut TargetHealth {
        self.totals.entry(key.0.clone()).or_default()
    }

    /// A recording says something; returns whether to look at once.
    fn recording_says(&mut self, key: &Key, trace: &Path, event: record::Event) -> bool {
        let group = self.groups.get_mut(key);
        let segment = group.and_then(|it| it.segments.iter_mut().find(|it| it.trace == trace));
        let text = match event {
            record::Event::Snapshot(to) => {
                let row = segment.map(|it| Row::Snapshot {
                    trace: to,
                    of: it.trace.clone(),
                    because: it.why_snapshot(),
                });
                row.iter()
                    .for_each(|row| self.account.add(Some(&key.0), row));
                return false;
            }
            record::Event::Changed {
                event,
                old,
                new,
                overhead,
            } => {
                let changed = segment.and_then(|it| it.limits.changed(event, (old, new), overhead));
                let row = changed.map(Row::limited);
                row.iter()
                    .for_each(|row| self.account.add(Some(&key.0), row));
                return false;
            }
            record::Event::Started { .. } => {
                self.records(key, trace);
                return true;
            }
            record::Event::Warning(warning) => warning.text,
            record::Event::Problem(text) => text,
            // Notes are in the trace.
            _ => return false,
        };
        self.account.add(Some(&key.0), &Row::Warned { text });
        false
    }

    /// Everything of a recording is attached: the trace before it may end.
    fn records(&mut self, key: &Key, trace: &Path) {
        let overlap = self.config.agent.overlap;
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let (mine, others): (Vec<_>, Vec<_>) =
            group.segments.iter_mut().partition(|it| it.trace == trace);
        let Some(segment) = mine.into_iter().next() else {
            return;
        };
        if segment.phase == Phase::Starts {
            segment.phase = Phase::Records;
        }
        for former in others {
            if former.phase == Phase::Records {
                former.overlap(overlap);
            }
        }
        let oldest = segment
            .covers
            .iter()
            .filter_map(|pid| process::age(*pid, Tid(pid.0)));
        let unseen = oldest.max().map(|it| it.as_secs_f64());
        let row = Row::Started {
            trace: segment.trace.clone(),
            program: group.program.clone(),
            pids: segment.covers.iter().map(|it| it.0).collect(),
            unseen_s: unseen.filter(|_| group.is_new),
        };
        group.is_new = false;
        group.retry.error = None;
        self.total(key).traces += 1;
        self.account.add(Some(&key.0), &row);
    }

    /// A recording ended.
    fn ended(&mut self, key: &Key, trace: &Path, ended: Result<Ended>) {
        let now = Instant::now();
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let Some(at) = group.segments.iter().position(|it| it.trace == trace) else {
            return;
        };
        let segment = group.segments.remove(at);
        let lasted = now - segment.since;
        let was_told = matches!(segment.phase, Phase::Ends | Phase::Overlaps(_));
        // All its items are behind it, if nothing goes on.
        group.is_new |= !group.segments.iter().any(Segment::goes_on);
        let is_gone = !segment.covers.iter().any(|pid| process::exists(*pid));
        segment.join();
        match ended {
            // Whoever ends meanwhile can't be recorded, which is no failure.
            Err(_) if was_told || is_gone => {}
            Err(error) => self.failed(key, &error, now),
            Ok(ended) => {
                let cut = self.closed(key, trace.to_owned(), ended);
                match cut {
                    Some(error) => self.failed(key, &error, now),
                    None if was_told => {}
                    None if lasted < SHORT => {
                        let group = self.groups.entry(key.clone()).or_default();
                        group.retry.fail(now);
                    }
                    None => {
                        let group = self.groups.entry(key.clone()).or_default();
                        group.retry = Retry::default();
                    }
                }
            }
        }
    }

    /// Writes down what a closed trace has; returns why it is cut, if it is.
    fn closed(&mut self, key: &Key, trace: PathBuf, ended: Ended) -> Option<Failure> {
        let Ended {
            why,
            info,
            counts,
            warnings,
            cut,
        } = ended;
        let lost = info.ledger.as_ref().map(lost).unwrap_or_default();
        let totals = info.ledger.as_ref().map(|it| it.totals());
        let samples = totals.map_or(0, |it| it.samples.written);
        let total = self.total(key);
        total.items += counts.map_or(0, |it| it.items);
        let kept = info.keep.as_ref().and_then(|it| it.visits);
        total.slow += kept.map_or(0, |it| it.slow_ones());
        total.samples += samples;
        total.lost += lost.values().sum::<u64>();
        for (reason, records) in &lost {
            *total
                .lost_by_reason
                .entry((*reason).to_owned())
                .or_default() += records;
        }
        if let (Some(_), Some(counts)) = (&self.settings, counts) {
            let window = Window {
                from_ns: counts.from_ns,
                until_ns: counts.until_ns,
                items: counts.items,
            };
            if let Err(error) = uploads::note_window(&trace, window) {
                self.account.add(
                    Some(&key.0),
                    &Row::Warned {
                        text: error.to_string(),
                    },
                );
            }
        }
        let row = Row::Ended {
            trace,
            why: why.to_owned(),
            counts,
            samples,
            lost,
            kept: info.keep.as_ref().and_then(|it| Some(it.visits?.sum())),
            resets: info.resets.len() as u64,
            warnings,
        };
        self.account.add(Some(&key.0), &row);
        cut
    }

    /// A trace of a killed agent was looked at.
    fn recovered(&mut self, trace: PathBuf, recovered: Result<Recovered, RecoverError>) {
        let row = match recovered {
            // It was recovered before.
            Ok(done) if done.tables.is_empty() => return,
            Ok(done) => Row::Recovered {
                trace: trace.clone(),
                rows: done.rows(),
                lost_bytes: done.lost_bytes(),
            },
            Err(error) => Row::NotRecovered {
                trace: trace.clone(),
                error: error.to_string(),
            },
        };
        self.account.add(Some(&target_of(&trace)), &row);
    }

    /// A trace is in the lake, or not.
    fn brought(&mut self, outcome: Outcome) {
        let Outcome {
            waiting: (trace, target),
            result,
            again_in,
        } = outcome;
        match result {
            Ok(pushed) => {
                self.upload.pushed += 1;
                self.upload.bytes += pushed.bytes;
                self.upload.pending = self.upload.pending.saturating_sub(1);
                self.upload.error = None;
                self.pushed.insert(trace.clone());
                let row = Row::Pushed {
                    trace,
                    id: format!("{}/{}", pushed.host, pushed.id),
                    objects: pushed.objects,
                    bytes: pushed.bytes,
                    there: pushed.there,
                };
                self.account.add(Some(&target), &row);
            }
            Err(error) => {
                self.upload.failures += 1;
                let text = error.to_string();
                // Once for each error in turn.
                if self.upload.error.as_ref() != Some(&text) {
                    self.upload.error = Some(text.clone());
                    let row = Row::NotPushed {
                        trace,
                        error: text,
                        hint: error.hint(),
                        again_in_s: again_in.map(|it| it.as_secs()),
                    };
                    self.account.add(Some(&target), &row);
                }
            }
        }
    }

    /// Gives what waits some seconds.
    fn end_uploads(&mut self) {
        if let Some(uploads) = self.uploads.take() {
            uploads.end();
        }
        while let Ok(news) = self.agent.news.1.try_recv() {
            if let News::Brought(outcome) = news {
                self.brought(outcome);
            }
        }
        self.account.write();
    }

    /// Takes a new configuration; one with a fault changes nothing.
    fn reload(&mut self) {
        self.account.tell(Event::Reloading);
        match Config::read(&self.agent.file) {
            Err(error) => {
                let error = format!("{error}: the former configuration stays");
                self.account.add(None, &Row::NotReloaded { error });
            }
            Ok(mut config) => {
                let (new, old) = (&mut config.agent, &self.config.agent);
                let fixed = (&new.directory, &new.socket, new.listen);
                if fixed != (&old.directory, &old.socket, old.listen) {
                    let error = "directory, socket and listen change when the agent starts again";
                    self.account.add(
                        None,
                        &Row::NotReloaded {
                            error: error.to_owned(),
                        },
                    );
                    new.directory.clone_from(&old.directory);
                    new.socket.clone_from(&old.socket);
                    new.listen = old.listen;
                }
                self.processes = Processes::new(config.targets.clone());
                let settings = Settings::of(&config.agent);
                if settings != self.settings {
                    self.settings.clone_from(&settings);
                    self.pushed.clear();
                    self.upload.error = None;
                    if let Some(uploads) = &self.uploads {
                        uploads.set(settings);
                    }
                }
                self.config = config;
                for group in self.groups.values_mut() {
                    group.retry = Retry::default();
                }
                let targets = self.config.targets.len();
                self.account.add(None, &Row::Reloaded { targets });
            }
        }
        self.account.tell(Event::Ready);
    }

    /// Removes traces that have no room, and ends all recordings where the disk has none.
    fn look_at_disk(&mut self) {
        // A trace that is being recovered is not touched.
        if !self.recovering.is_finished() {
            return;
        }
        let agent = &self.config.agent;
        let open: BTreeSet<&Path> = self
            .groups
            .values()
            .flat_map(|it| it.segments.iter().map(|it| &*it.trace))
            .collect();
        let mut closed = self
            .traces
            .closed(&agent.directory, |path| open.contains(path));
        if let Some(settings) = &self.settings {
            self.pushed.retain(|it| it.exists());
            for it in &mut closed {
                if !self.pushed.contains(&it.path) && uploads::is_pushed(&it.path, settings) {
                    self.pushed.insert(it.path.clone());
                }
                it.waits = !self.pushed.contains(&it.path);
            }
        }
        let room = Room {
            now: SystemTime::now(),
            open: open.iter().map(|it| disk::size(it)).sum(),
            // Unknown is no reason to remove anything.
            free: disk::free(&agent.directory).unwrap_or(u64::MAX),
        };
        let mut rows = Vec::new();
        let mut bytes = room.open + closed.iter().map(|it| it.bytes).sum::<u64>();
        for (at, because) in disk::surplus(&closed, room, agent) {
            let it = &closed[at];
            if let Err(error) = fs::remove_dir_all(&it.path) {
                tracing::warn!("cannot remove {}: {error}", it.path.display());
                continue;
            }
            bytes -= it.bytes;
            self.disk.removed += 1;
            self.upload.lost += u64::from(it.waits);
            rows.push(Row::Removed {
                trace: it.path.clone(),
                because,
                bytes: it.bytes,
                slow: it.slow,
                age_s: disk::age(it, room.now).as_secs(),
                pushed: self.settings.as_ref().map(|_| !it.waits),
            });
        }
        self.disk = Disk {
            bytes,
            max_bytes: agent.max_disk,
            free_bytes: disk::free(&agent.directory).unwrap_or(room.free),
            traces: (closed.len() - rows.len()) as u64,
            removed: self.disk.removed,
        };
        rows.iter().for_each(|row| self.account.add(None, row));
        let waits = closed.iter().filter(|it| it.waits && it.path.exists());
        let waiting: Vec<Waiting> = waits
            .map(|it| (it.path.clone(), target_of(&it.path)))
            .collect();
        self.upload.pending = waiting.len() as u64;
        if let Some(uploads) = &self.uploads {
            uploads.bring(waiting);
        }
        self.heed_room();
    }

    /// Ends all recordings while the disk is full, so that their traces are whole.
    fn heed_room(&mut self) {
        let free = self.disk.free_bytes;
        // Twice as much to begin again: else it would go to and fro.
        let has_room = free >= LEFT_FREE * if self.has_room { 1 } else { 2 };
        if has_room == self.has_room {
            return;
        }
        self.has_room = has_room;
        if has_room {
            self.account.add(None, &Row::Room { free });
            return;
        }
        self.account.add(None, &Row::NoRoom { free });
        let segments = self.groups.values_mut().flat_map(|it| &mut it.segments);
        segments
            .filter(|it| it.goes_on())
            .for_each(|it| it.end("the disk is full"));
    }

    /// Says how it is.
    fn report(&mut self, found: &BTreeMap<Key, Found>) {
        let mut shared = self
            .agent
            .health
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let targets = self.config.targets.iter().map(|it| {
            let mut health = self.health_of(it, found);
            // While two traces have the same items it is not known how many: a counter never falls.
            if let Some(last) = shared.targets.iter().find(|last| last.name == it.name) {
                health.items = health.items.max(last.items);
                health.slow = health.slow.max(last.slow);
                health.samples = health.samples.max(last.samples);
                health.lost = health.lost.max(last.lost);
            }
            health
        });
        let targets: Vec<TargetHealth> = targets.collect();
        let is = |state| targets.iter().filter(|it| it.state == state).count();
        let (records, waits, failed) = (is(State::Records), is(State::Waits), is(State::Failed));
        let items: u64 = targets.iter().map(|it| it.items).sum();
        let text =
            format!("{records} recorded, {waits} waited for, {failed} failed; {items} items");
        *shared = Health {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            seconds: self.started.elapsed().as_secs_f64(),
            disk: self.disk,
            uploads: UploadHealth {
                to: self.settings.as_ref().map(Settings::lake),
                ..self.upload.clone()
            },
            rows_lost: self.account.lost,
            targets,
            ..Health::default()
        };
        drop(shared);
        self.account.tell(Event::Alive(text));
    }

    fn health_of(&self, target: &TargetConfig, found: &BTreeMap<Key, Found>) -> TargetHealth {
        let total = self.totals.get(&target.name);
        let mut health = TargetHealth {
            name: target.name.clone(),
            ..total.cloned().unwrap_or_default()
        };
        let of = |key: &Key| key.0 == target.name;
        let found = found.iter().filter(|(key, _)| of(key));
        health.processes = found.map(|(_, it)| it.roots.len() as u64).sum();
        for (_, group) in self.groups.iter().filter(|(key, _)| of(key)) {
            for segment in &group.segments {
                let status = segment.remote.status();
                health.samples += status.samples;
                health.lost += status.lost;
                // What the next trace has as well counts there.
                if !matches!(segment.phase, Phase::Overlaps(_)) {
                    health.items += status.visits;
                    health.slow += status.slow;
                }
                if segment.phase == Phase::Records {
                    health.state = State::Records;
                    health.p50_ns = segment.recent.quantile(0.5);
                    health.p99_ns = segment.recent.quantile(0.99);
                    health.slowdown = status.last_slowdown;
                    health.reset = status.reset.map(|it| it.0);
                    health.trace = Some(segment.trace.display().to_string());
                } else if segment.phase == Phase::Starts && health.state != State::Records {
                    health.state = State::Starts;
                }
            }
            if let Some(error) = &group.retry.error {
                health.error = Some(error.clone());
                if group.segments.is_empty() {
                    health.state = State::Failed;
                }
            }
        }
        health
    }
}

/// The target that a trace is of, by its folder.
fn target_of(trace: &Path) -> String {
    let folder = trace.parent().and_then(Path::file_name);
    folder.map_or_else(String::new, |it| it.to_string_lossy().into_owned())
}

/// Whether the next trace is due.
fn is_over(segment: &mut Segment, key: &Key, found: &Found, config: &Config, now: Instant) -> bool {
    // The kernel follows those that descend from recorded ones.
    let is_covered = found.roots.iter().all(|it| segment.covers.contains(it));
    if is_covered {
        segment.covers.extend(&found.all);
    }
    if segment.phase != Phase::Records {
        return false;
    }
    let lasted = now - segment.since;
    let options = config.targets.iter().find(|it| it.name == key.0);
    lasted >= config.agent.segment
        || segment.remote.status().bytes >= config.largest_segment()
        || options.is_some_and(|it| *it != *segment.options)
        || (!is_covered && lasted >= SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attempt that fails again and again is repeated more and more rarely, but for ever.
    #[test]
    fn retries() {
        let now = Instant::now();
        let mut retry = Retry::default();
        assert!(retry.is_due(now));
        let waits: Vec<u64> = (0..12).map(|_| retry.fail(now).as_secs()).collect();
        assert_eq!(waits[..4], [1, 2, 4, 8]);
        assert_eq!(waits[11], LONGEST_WAIT.as_secs());
        assert!(!retry.is_due(now) && retry.is_due(now + LONGEST_WAIT));
    }

    /// A directory is one agent's.
    #[test]
    fn locked() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        let held = lock(&directory).unwrap();
        let error = lock(&directory).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        drop(held);
        assert!(lock(&directory).is_ok());
    }
}
