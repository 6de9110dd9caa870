//! The configuration: what was typed in its file, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::estimate::slow_by::SlowBy;
use crate::failure::{Context as _, Failure, Result};
use crate::files;
use crate::lake::{Address, Host, Tags};
use crate::preset::catalog;
use crate::probe::redact::Rule;
use crate::record::{KeepItems, Recording, Target};
use crate::spec::Spec;
use crate::stream::decode::{Interferences, RecordKinds};
use crate::units::Pid;

/// Default socket on which the agent answers.
pub const SOCKET: &str = "/run/pebs-trace/agent.sock";

/// Largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Least memory of a recording, bytes: with less it would drop samples.
const LEAST_MEMORY: u64 = 16 << 20;

/// Least and most bytes of a ring: what comes until it is read.
const LEAST_RING: u64 = 64 << 10;
const LARGEST_RING: u64 = 512 << 10;

/// Least bytes of disk for a target: two traces at once, each with a mebibyte in reserve for its end, and some older ones.
const LEAST_DISK: u64 = 4 << 20;

const HINT: &str = "'pebs-trace guide always-on' has all keys, with an example";

/// A configuration that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub agent: AgentConfig,
    pub targets: Vec<TargetConfig>,
}

/// Settings for all targets: the table `[agent]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentConfig {
    /// Directory of the traces: `DIRECTORY/TARGET/DATE-TIME`.
    pub directory: PathBuf,
    /// Bytes of all traces.
    #[serde(default = "max_disk", deserialize_with = "bytes")]
    pub max_disk: u64,
    /// Age at which a trace is removed, whatever room there is.
    #[serde(default = "max_age", deserialize_with = "time")]
    pub max_age: Duration,
    /// Length of a trace, after which the next one begins.
    #[serde(default = "segment", deserialize_with = "time")]
    pub segment: Duration,
    /// Time that a trace goes on after the next one began, for items under way.
    #[serde(default = "overlap", deserialize_with = "time")]
    pub overlap: Duration,
    /// Memory for pending records of all recordings together.
    #[serde(default = "max_memory", deserialize_with = "bytes")]
    pub max_memory: u64,
    /// Socket that answers with metrics.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// Address of this machine alone that does so, too.
    #[serde(default, deserialize_with = "loopback")]
    pub listen: Option<SocketAddr>,
    /// The lake that closed traces are brought into.
    #[serde(default, deserialize_with = "address")]
    pub to: Option<Address>,
    /// Name of this machine in the lake.
    #[serde(default, deserialize_with = "host")]
    pub host: Option<Host>,
    /// Labels of its traces in the lake.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether texts that are not redacted are brought, too.
    #[serde(default)]
    pub with_texts: bool,
}

fn max_disk() -> u64 {
    10 << 30
}

fn max_age() -> Duration {
    Duration::from_hours(7 * 24)
}

fn segment() -> Duration {
    Duration::from_hours(1)
}

fn overlap() -> Duration {
    Duration::from_secs(5)
}

fn max_memory() -> u64 {
    250 << 20
}

fn socket() -> PathBuf {
    SOCKET.into()
}

/// A service whose processes are recorded: a table `[[target]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TargetConfig {
    /// Its name, and that of the folder of its traces.
    pub name: String,
    /// Path or file name of the program.
    pub exe: Option<String>,
    /// Name of the process, as `ps` shows it.
    pub comm: Option<String>,
    /// Number of the process.
    pub pid: Option<u32>,
    /// Unit of systemd.
    pub unit: Option<String>,
    /// Path of the cgroup below the mount point; `*` stands for any text.
    pub cgroup: Option<String>,
    /// A preset, as `NAME` or `NAME=BIN`.
    pub preset: Option<String>,
    /// SPECs of items.
    #[serde(default)]
    pub uprobe: Vec<String>,
    /// SPECs of where items are resumed.
    #[serde(default)]
    pub resume: Vec<String>,
    #[serde(default)]
    pub keep: Keep,
    /// Definition of slow items; default p99.
    #[serde(default, deserialize_with = "slow")]
    pub slow: Option<SlowBy>,
    /// Bound on the slow-down of items, a share.
    #[serde(default, deserialize_with = "percent")]
    pub max_overhead: Option<f64>,
    /// Events between two samples.
    pub reset: Option<u64>,
    /// Records besides marks and samples.
    #[serde(default)]
    pub with: Vec<With>,
    #[serde(default, deserialize_with = "redact")]
    pub redact: Redact,
    /// Conditions that make a snapshot.
    pub trigger: Option<TriggerConfig>,
}

/// Conditions that make a snapshot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TriggerConfig {
    /// The p99 of the items of the last minute is above this.
    #[serde(default, deserialize_with = "some_time")]
    pub p99: Option<Duration>,
    /// This file is there.
    pub file: Option<PathBuf>,
    /// At most one snapshot in this time.
    #[serde(default = "apart", deserialize_with = "time")]
    pub apart: Duration,
}

fn apart() -> Duration {
    Duration::from_mins(10)
}

/// Items whose details are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    #[default]
    Slow,
    All,
    None,
}

/// Records besides marks and samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum With {
    Waits,
    Irq,
    Faults,
    Freq,
    None,
}

/// Rules for texts that may hold personal data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redact {
    /// Whether the preset says so.
    pub by_preset: bool,
    /// Arguments, and what stays of each.
    pub arguments: Vec<(String, Rule)>,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    agent: AgentConfig,
    #[serde(rename = "target", default)]
    targets: Vec<Spanned<TargetConfig>>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Its first fault, with its line.
    pub fn read(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read configuration {}", path.display());
        let data = files::read_regular(path, MOST_BYTES).with_context(cannot)?;
        let text = String::from_utf8(data)
            .map_err(|_| Failure::bare(format!("{}: it is not UTF-8", cannot())))?;
        Self::parse(&path.display().to_string(), &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self> {
        let fault = |at: Option<usize>, what: &str, hint: &str| {
            let before = at.and_then(|at| text.get(..at)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Failure::new(format!("{file}:{line}: {}", what.replace('\n', " ")), hint)
        };
        let read: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map(|it| it.start);
            fault(at, error.message(), HINT)
        })?;
        let mut names = BTreeSet::new();
        for target in &read.targets {
            let at = Some(target.span().start);
            let target = target.get_ref();
            if let Err((what, hint)) = target.check() {
                return Err(fault(
                    at,
                    &format!("target '{}': {what}", target.name),
                    &hint,
                ));
            }
            if !names.insert(&target.name) {
                let what = format!("there are two targets '{}'", target.name);
                return Err(fault(at, &what, "give each a name of its own"));
            }
        }
        if let Err((key, what, hint)) = read.agent.check(read.targets.len()) {
            let line = format!("\n{key}");
            let at = text.find(&line).map(|it| it + 1);
            return Err(fault(at, &format!("{key}: {what}"), hint));
        }
        if read.targets.is_empty() {
            return Err(fault(None, "there is no [[target]]", HINT));
        }
        Ok(Self {
            agent: read.agent,
            targets: read.targets.into_iter().map(Spanned::into_inner).collect(),
        })
    }

    /// Bytes that a recording may use.
    pub(super) fn memory_of_each(&self) -> u64 {
        let targets = self.targets.len().max(1) as u64;
        (self.agent.max_memory / targets).max(LEAST_MEMORY)
    }

    /// Bytes of the ring of each of so many CPUs: those of all recordings together have a quarter of the memory, if that is enough.
    pub(super) fn ring_of_each(&self, cpus: usize) -> u32 {
        let rings = (self.targets.len().max(1) * cpus.max(1)) as u64;
        let room = (self.agent.max_memory / 4 / rings).clamp(LEAST_RING, LARGEST_RING);
        1 << room.ilog2()
    }

    /// Bytes at which a trace is ended before its time: those that are being written have at most half of the room together.
    pub(super) fn largest_segment(&self) -> u64 {
        self.agent.max_disk / 2 / self.targets.len().max(1) as u64
    }
}

impl AgentConfig {
    /// The key that can't be met, why, and a hint.
    fn check(&self, targets: usize) -> Result<(), (&'static str, String, &'static str)> {
        let least = LEAST_DISK * targets.max(1) as u64;
        if self.max_disk < least {
            let least = ByteSize(least).display().iec();
            let what = format!("too little for {targets} targets, which need {least}");
            return Err(("max-disk", what, "raise it, or record fewer"));
        }
        if self.segment < Duration::from_secs(1) || self.segment <= self.overlap {
            let what = "a second at least, and longer than 'overlap'".to_owned();
            return Err(("segment", what, "an hour is usual: segment = \"1h\""));
        }
        if !self.directory.is_absolute() {
            let what = "not an absolute path".to_owned();
            return Err(("directory", what, "directory = \"/var/lib/pebs-trace\""));
        }
        let label =
            |(key, value): (&String, &String)| Tags::default().label(&format!("{key}={value}"));
        if let Err(error) = self.labels.iter().try_for_each(label) {
            return Err((
                "labels",
                error.to_string(),
                "labels = { version = \"1.2\" }",
            ));
        }
        if self
            .to
            .as_ref()
            .and_then(Address::folder)
            .is_some_and(|it| !it.is_absolute())
        {
            let what = "not an absolute path".to_owned();
            return Err((
                "to",
                what,
                "to = \"s3://bucket/prefix\", to = \"file:///mnt/lake\"",
            ));
        }
        Ok(())
    }
}

impl TargetConfig {
    /// Returns the first setting that can't be, and a hint, as an error.
    fn check(&self) -> Result<(), (String, String)> {
        let says = |what: &str, hint: &str| Err((what.to_owned(), hint.to_owned()));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(plain) {
            return says(
                "its name is to be that of a folder",
                "letters, digits, '-', '_' and '.'",
            );
        }
        let Self {
            exe,
            comm,
            unit,
            cgroup,
            ..
        } = self;
        if [exe, comm, unit, cgroup].iter().all(|it| it.is_none()) && self.pid.is_none() {
            return says(
                "nothing says which processes it has",
                "give exe, comm, unit, cgroup or pid; a process has to meet all that is given",
            );
        }
        for spec in self.uprobe.iter().chain(&self.resume) {
            if let Err(error) = Spec::parse(spec) {
                let what = format!("cannot read '{spec}': {}", error.what);
                return Err((what, error.hint.unwrap_or_else(|| HINT.to_owned())));
            }
        }
        if let Some(typed) = &self.preset {
            let name = typed.split_once('=').map_or(&**typed, |it| it.0);
            if let Err(error) = catalog::named(name).and_then(|it| it.preset()) {
                let hint = error.hint().unwrap_or(HINT).to_owned();
                return Err((error.to_string(), hint));
            }
        }
        if self.slow.is_some() && self.keep != Keep::Slow {
            return says("slow says which items to keep", "add keep = \"slow\"");
        }
        if self.with.contains(&With::None) && self.with.len() > 1 {
            return says("with is nothing and something", "leave 'none' out");
        }
        if let Some(trigger) = &self.trigger {
            if trigger.p99.is_none() && trigger.file.is_none() {
                return says("trigger is without a condition", "give p99 or file");
            }
            if trigger.file.as_ref().is_some_and(|it| !it.is_absolute()) {
                return says("trigger: file is not an absolute path", "file = \"/run/x\"");
            }
        }
        if self.reset == Some(0) {
            return says("reset is 0", "events between two samples; of clocks ns");
        }
        Ok(())
    }

    /// The recording of these processes.
    pub(super) fn recording(
        &self,
        pids: Vec<Pid>,
        output: PathBuf,
        (memory, ring): (u64, u32),
    ) -> Recording {
        let has = |with| self.with.contains(&with);
        Recording {
            uprobes: self.uprobe.clone(),
            resumes: self.resume.clone(),
            presets: self.preset.iter().cloned().collect(),
            redact: self.redact.arguments.clone(),
            redact_by_preset: self.redact.by_preset,
            reset: self.reset,
            target: Target::Processes(pids),
            kinds: RecordKinds {
                switches: true,
                page_faults: true,
                encounters: has(With::Waits),
                encounters_later: self.with.is_empty(),
                interference: Interferences {
                    irq: has(With::Irq),
                    faults: has(With::Faults),
                },
            },
            frequencies: has(With::Freq),
            keep: match self.keep {
                Keep::Slow => KeepItems::Slow,
                Keep::All => KeepItems::All,
                Keep::None => KeepItems::None,
            },
            slow: self.slow,
            max_overhead: self.max_overhead.or(self.reset.is_none().then_some(0.01)),
            max_memory: memory,
            // Samples are rare, so that few copies of stacks come before the ring is read.
            ring_size: ring,
            ring_size_with_stacks: ring,
            patient: true,
            ..Recording::new(output)
        }
    }
}

/// Reads a value of TOML that is a text, by its own parser.
fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl FnOnce(&str) -> Option<T>,
    wanted: &str,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| D::Error::custom(format!("'{text}' is not {wanted}")))
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let size = |text: &str| Some(text.parse::<ByteSize>().ok()?.as_u64());
    parsed(from, size, "a size: \"10GiB\", \"512MiB\"")
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = |text: &str| humantime::parse_duration(text).ok();
    parsed(from, time, "a time: \"5s\", \"1h\", \"7d\"")
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let share = |text: &str| {
        let percent = text.strip_suffix('%')?.trim_end().parse::<f64>().ok()?;
        (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
    };
    parsed(from, share, "a percentage above 0: \"1%\"").map(Some)
}

fn slow<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SlowBy>, D::Error> {
    let rule = |text: &str| text.parse().ok();
    parsed(from, rule, "a rule: \"p99\", \"3x\", \"5ms\", \"cpu:p99\"").map(Some)
}

fn loopback<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let own = |text: &str| {
        text.parse::<SocketAddr>()
            .ok()
            .filter(|it| it.ip().is_loopback())
    };
    parsed(from, own, "an address of this machine: \"127.0.0.1:9464\"").map(Some)
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Address>, D::Error> {
    let lake = |text: &str| text.parse().ok();
    parsed(
        from,
        lake,
        "a lake: \"s3://bucket/prefix\", \"file:///mnt/lake\"",
    )
    .map(Some)
}

fn host<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Host>, D::Error> {
    let name = |text: &str| text.parse().ok();
    parsed(from, name, "a name of letters, digits, '.', '_' and '-'").map(Some)
}

fn redact<'de, D: Deserializer<'de>>(from: D) -> Result<Redact, D::Error> {
    let mut redact = Redact::default();
    for word in Vec::<String>::deserialize(from)? {
        match word.split_once('=') {
            Some((name, rule)) => {
                let rule = rule.parse().map_err(D::Error::custom)?;
                redact.arguments.push((name.to_owned(), rule));
            }
            None if word == "preset" => redact.by_preset = true,
            None => {
                let wanted = "an argument and a rule, such as sql=literals, or preset";
                return Err(D::Error::custom(format!("'{word}' is not {wanted}")));
            }
        }
    }
    Ok(redact)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "[agent]\ndirectory = \"/var/lib/t\"\n";

    fn fault(text: &str) -> String {
        let error = Config::parse("a.toml", text).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    /// The least that is needed, and all keys.
    #[test]
    fn read() {
        let text = format!("{AGENT}[[target]]\nname = \"a\"\nexe = \"app\"\n");
        let least = Config::parse("a.toml", &text).unwrap();
        assert_eq!(least.agent.max_disk, 10 << 30);
        assert_eq!(least.agent.max_age, Duration::from_hours(168));
        assert_eq!(least.memory_of_each(), 250 << 20);
        let recording = least.targets[0].recording(vec![Pid(7)], "t".into(), (1 << 20, 1 << 16));
        assert_eq!(least.ring_of_each(2), 512 << 10);
        assert_eq!(least.ring_of_each(3_000), 64 << 10);
        assert_eq!(recording.keep, KeepItems::Slow);
        assert_eq!(recording.max_overhead, Some(0.01));
        assert!(recording.kinds.encounters_later);
        let text = format!(
            "{AGENT}max-disk = \"1GiB\"\nmax-age = \"1d\"\nsegment = \"10m\"\noverlap = \"1s\"\n\
             max-memory = \"64MiB\"\nsocket = \"/tmp/s\"\nlisten = \"127.0.0.1:9464\"\n\
             to = \"s3://b/p\"\nhost = \"a\"\nlabels = {{ version = \"1\" }}\nwith-texts = true\n\
             [[target]]\nname = \"a\"\nexe = \"/bin/app\"\ncomm = \"app\"\npid = 7\nunit = \"app\"\n\
             cgroup = \"/system.slice/*\"\nuprobe = [\"app:f\"]\nresume = [\"app:g(id=arg1)\"]\n\
             keep = \"slow\"\nslow = \"cpu:5ms\"\nreset = 16000\nmax-overhead = \"2%\"\nwith = [\"waits\", \"irq\"]\n\
             redact = [\"sql=literals\"]\n"
        );
        let all = Config::parse("a.toml", &text).unwrap();
        assert_eq!(all.targets[0].max_overhead, Some(0.02));
        assert_eq!(all.largest_segment(), 512 << 20);
        let redact = &all.targets[0].redact.arguments;
        assert_eq!(redact, &[("sql".to_owned(), Rule::Literals)]);
    }

    /// Faults have file, line and hint: unknown keys, other types, values that can't be, and what does not go together.
    #[test]
    fn faults() {
        let target = |more: &str| fault(&format!("{AGENT}[[target]]\nname = \"a\"\n{more}\n"));
        let cases = [
            (target("exes = \"app\""), 5, "unknown field `exes`"),
            (target("exe = 7"), 5, "invalid type"),
            (
                target("max-overhead = \"much\""),
                5,
                "'much' is not a percentage",
            ),
            (target("max-overhead = \"0%\""), 5, "a percentage above 0"),
            (
                target("exe = \"a\"\nslow = \"often\""),
                6,
                "'often' is not a rule",
            ),
            (
                target("exe = \"a\"\nredact = [\"sql\"]"),
                6,
                "'sql' is not an argument",
            ),
            (target("keep = \"slow\""), 3, "which processes"),
            (target("exe = \"a\"\nuprobe = [\"app\"]"), 3, "target 'a'"),
            (
                target("exe = \"a\"\npreset = \"no-such\""),
                3,
                "no preset 'no-such'",
            ),
            (
                target("exe = \"a\"\nkeep = \"all\"\nslow = \"3x\""),
                3,
                "which items to keep",
            ),
            (
                target("exe = \"a\"\n[[target]]\nname = \"a\"\nexe = \"b\""),
                6,
                "two targets 'a'",
            ),
            (
                fault(&format!("{AGENT}segment = \"soon\"\n")),
                3,
                "'soon' is not a time",
            ),
            (
                fault(&format!("{AGENT}listen = \"0.0.0.0:80\"\n")),
                3,
                "of this machine",
            ),
            (
                fault(&format!("{AGENT}max-disk = \"1MiB\"\n")),
                3,
                "max-disk: too little",
            ),
            (
                fault(&format!("{AGENT}segment = \"2s\"\n")),
                3,
                "longer than 'overlap'",
            ),
            (
                fault(&format!("{AGENT}to = \"ftp://x\"\n")),
                3,
                "is not a lake",
            ),
            (
                fault(&format!("{AGENT}to = \"lake\"\n")),
                3,
                "not an absolute path",
            ),
            (
                fault(&format!("{AGENT}host = \"a/b\"\n")),
                3,
                "is not a name",
            ),
            (
                fault(&format!("{AGENT}labels = {{ \"a b\" = \"c\" }}\n")),
                3,
                "cannot be a label",
            ),
            (
                fault("[agent]\ndirectory = \"t\"\n"),
                2,
                "not an absolute path",
            ),
            (fault(AGENT), 1, "no [[target]]"),
            (fault("[agent\n"), 1, "a.toml:1: "),
        ];
        for (text, line, expect) in cases {
            assert!(
                text.starts_with(&format!("a.toml:{line}: ")),
                "{line}: {text}"
            );
            assert!(text.contains(expect), "{expect}: {text}");
        }
    }
}
