//! The account: a row of JSON for everything that happened, and above all for what was given up (`events.jsonl`).
//!
//! Each row is a message as well. What can't be written, as the disk is full, waits in memory, and is counted where it is too much.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use serde::Serialize;

use super::disk::Because;
use super::limits::Changed;
use super::segment::Counts;
use super::{Emit, Event, Level};

/// The file in the agent's directory.
pub(super) const FILE: &str = "events.jsonl";

/// Its size at which it becomes `events.jsonl.1`, bytes.
const LARGEST: u64 = 16 << 20;

/// Rows that wait for room on the disk.
const MOST_WAITING: usize = 10_000;

/// An event of the agent's account.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Row {
    /// The agent runs.
    AgentStarted {
        version: &'static str,
        targets: usize,
    },
    /// It ends.
    AgentEnded { why: &'static str },
    /// The configuration was read again.
    Reloaded { targets: usize },
    /// It has a fault, and the former one stays; or a key takes effect with the next start.
    NotReloaded { error: String },
    /// A trace begins.
    Started {
        trace: PathBuf,
        program: PathBuf,
        pids: Vec<u32>,
        /// Time that the first process had run before its items were recorded, s: no trace has it. Null where a former
        /// trace has it.
        unseen_s: Option<f64>,
    },
    /// A trace is closed.
    Ended {
        trace: PathBuf,
        why: String,
        #[serde(flatten)]
        counts: Option<Counts>,
        /// Samples in it.
        samples: u64,
        /// Records that are missing, by reason.
        lost: BTreeMap<&'static str, u64>,
        /// Items whose details were kept; null: all.
        kept: Option<u64>,
        /// Changes of the reset value.
        resets: u64,
        /// Warnings of the recording.
        warnings: Vec<String>,
    },
    /// A recording could not start, or could not write.
    Failed {
        error: String,
        hint: Option<String>,
        again_in_s: u64,
    },
    /// A recording goes on, with less.
    Warned { text: String },
    /// A budget made a recording give something up.
    Limited {
        what: &'static str,
        /// Events between two samples.
        from: u64,
        to: u64,
        because: String,
    },
    /// It is as it was.
    Restored {
        what: &'static str,
        from: u64,
        to: u64,
        because: String,
    },
    /// A copy of a trace that goes on was made.
    Snapshot {
        trace: PathBuf,
        of: PathBuf,
        because: String,
    },
    /// Details of a trace whose agent was killed were saved.
    Recovered {
        trace: PathBuf,
        rows: u64,
        lost_bytes: u64,
    },
    /// They could not be.
    NotRecovered { trace: PathBuf, error: String },
    /// A trace was removed.
    Removed {
        trace: PathBuf,
        because: Because,
        bytes: u64,
        /// Slow items that it had the details of.
        slow: u64,
        age_s: u64,
        /// Whether a lake has it; null: it was not to be brought anywhere.
        pushed: Option<bool>,
    },
    /// A trace was brought into the lake.
    Pushed {
        trace: PathBuf,
        /// Its id there.
        id: String,
        /// Objects that were made, and their bytes.
        objects: u64,
        bytes: u64,
        /// Objects that had been there.
        there: u64,
    },
    /// It could not be.
    NotPushed {
        trace: PathBuf,
        error: String,
        hint: Option<String>,
        /// Null: not before something changes.
        again_in_s: Option<u64>,
    },
    /// Nothing is recorded for want of room on the disk.
    NoRoom { free: u64 },
    /// There is room again.
    Room { free: u64 },
    /// So many rows are missing here, as the disk was full.
    RowsLost { rows: u64 },
}

impl Row {
    /// The row on a change of a reset value.
    pub(super) fn limited(changed: Changed) -> Self {
        let Changed {
            is_limited,
            from,
            to,
            because,
        } = changed;
        let what = "samples";
        match is_limited {
            true => Self::Limited {
                what,
                from,
                to,
                because,
            },
            false => Self::Restored {
                what,
                from,
                to,
                because,
            },
        }
    }

    /// Returns the event as a message, with its level.
    fn message(&self) -> (Level, String) {
        let path = |it: &Path| it.display().to_string();
        match self {
            Self::AgentStarted { targets, .. } => {
                (Level::Info, format!("agent started, targets: {targets}"))
            }
            Self::AgentEnded { why } => (Level::Info, format!("agent ended: {why}")),
            Self::Reloaded { targets } => (
                Level::Info,
                format!("configuration read again, targets: {targets}"),
            ),
            Self::NotReloaded { error } => (Level::Error, error.clone()),
            Self::Started {
                trace, unseen_s, ..
            } => {
                let unseen = unseen_s
                    .filter(|it| *it >= 0.1)
                    .map(|it| format!(" (ran for {it:.1} s before, unseen)"));
                let unseen = unseen.unwrap_or_default();
                (Level::Info, format!("recording to {}{unseen}", path(trace)))
            }
            Self::Ended {
                trace,
                why,
                counts,
                lost,
                warnings,
                ..
            } => {
                let items = counts.as_ref().map(|it| format!(", {} items", it.items));
                let missing: u64 = lost.values().sum();
                let missing = match missing {
                    0 => String::new(),
                    n => format!(", {n} records lost"),
                };
                let warnings: String = warnings.iter().map(|it| format!("; {it}")).collect();
                let text = format!(
                    "{} is closed ({why}){}{missing}{warnings}",
                    path(trace),
                    items.unwrap_or_default()
                );
                let level = match missing.is_empty() {
                    true => Level::Info,
                    false => Level::Warning,
                };
                (level, text)
            }
            Self::Failed {
                error,
                hint,
                again_in_s,
            } => {
                let hint = hint
                    .as_ref()
                    .map(|it| format!(" ({it})"))
                    .unwrap_or_default();
                (
                    Level::Error,
                    format!("{error}{hint}; tried again in {again_in_s} s"),
                )
            }
            Self::Limited {
                what,
                from,
                to,
                because,
            } => {
                let text =
                    format!("fewer {what}: every {from} events before, {to} now, as {because}");
                (Level::Info, text)
            }
            Self::Restored { what, to, .. } => {
                (Level::Info, format!("{what} as before: every {to} events"))
            }
            Self::Snapshot { trace, because, .. } => {
                (Level::Info, format!("snapshot {} ({because})", path(trace)))
            }
            Self::Warned { text } => (Level::Warning, text.clone()),
            Self::Recovered {
                trace,
                rows,
                lost_bytes,
            } => (
                Level::Warning,
                format!(
                    "{} was not closed: recovered {rows} rows, {lost_bytes} bytes lost",
                    path(trace)
                ),
            ),
            Self::NotRecovered { trace, error } => (
                Level::Error,
                format!("{} can't be recovered: {error}", path(trace)),
            ),
            Self::Removed {
                trace,
                because,
                bytes,
                slow,
                age_s,
                pushed,
            } => {
                let why = match because {
                    Because::Age => "max-age",
                    Because::Size => "max-disk",
                    Because::Full => "a full disk",
                };
                let size = ByteSize(*bytes).display().iec();
                let age = humantime::format_duration(Duration::from_secs(*age_s));
                let is_lost = *pushed == Some(false);
                let text = format!(
                    "removed {} for {why}: {size}, {age} old, {slow} slow items{}",
                    path(trace),
                    if is_lost {
                        "; the lake does not have it"
                    } else {
                        ""
                    }
                );
                let level = if is_lost { Level::Warning } else { Level::Info };
                (level, text)
            }
            Self::Pushed {
                trace, id, bytes, ..
            } => {
                let size = ByteSize(*bytes).display().iec();
                (
                    Level::Info,
                    format!("{} is in the lake as {id}: {size}", path(trace)),
                )
            }
            Self::NotPushed {
                trace,
                error,
                again_in_s,
                ..
            } => {
                let again = again_in_s.map_or_else(
                    || "it is not tried again".to_owned(),
                    |it| format!("tried again in {it} s"),
                );
                let text = format!("{} is not in the lake: {error}; {again}", path(trace));
                (Level::Warning, text)
            }
            Self::NoRoom { free } => {
                let free = ByteSize(*free).display().iec();
                (
                    Level::Error,
                    format!("nothing is recorded: {free} are free on the disk"),
                )
            }
            Self::Room { .. } => (Level::Info, "there is room on the disk again".to_owned()),
            Self::RowsLost { rows } => (
                Level::Error,
                format!("{rows} rows of {FILE} are lost: the disk was full"),
            ),
        }
    }
}

/// A row with its time and target.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    target: Option<&'a str>,
    #[serde(flatten)]
    row: &'a Row,
}

/// Writes rows and says them.
pub(super) struct Account<'a> {
    path: PathBuf,
    /// Lines that are not written yet.
    waiting: VecDeque<String>,
    /// Rows that were given up.
    pub(super) lost: u64,
    emit: &'a mut Emit<'a>,
}

impl<'a> Account<'a> {
    pub(super) fn new(directory: &Path, emit: &'a mut Emit<'a>) -> Self {
        Self {
            path: directory.join(FILE),
            waiting: VecDeque::new(),
            lost: 0,
            emit,
        }
    }

    /// Adds a row, of a target if it concerns one.
    pub(super) fn add(&mut self, target: Option<&str>, row: &Row) {
        let (level, text) = row.message();
        let text = match target {
            Some(target) => format!("{target}: {text}"),
            None => text,
        };
        self.tell(Event::Said(level, text));
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        // Nothing in a row fails to be written as JSON.
        if let Ok(mut line) = serde_json::to_string(&Line { time, target, row }) {
            line.push('\n');
            self.waiting.push_back(line);
        }
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.write();
    }

    /// Tells the caller something that is not a row.
    pub(super) fn tell(&mut self, event: Event) {
        (self.emit)(event);
    }

    /// Writes what waits, as far as there is room.
    pub(super) fn write(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let text: String = self.waiting.iter().map(String::as_str).collect();
        if let Err(error) = append(&self.path, &text) {
            tracing::debug!("cannot write {}: {error}", self.path.display());
            return;
        }
        self.waiting.clear();
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.add(None, &Row::RowsLost { rows: lost });
        }
    }
}

/// Appends whole lines, or nothing.
fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    let before = file.metadata()?.len();
    if before > LARGEST {
        let mut former = path.as_os_str().to_owned();
        former.push(".1");
        fs::rename(path, former)?;
        return append(path, text);
    }
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // A part of a line would hide the next one.
        let _ = file.set_len(before);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows are lines of JSON; what can't be written waits, and what is too much is counted.
    #[test]
    fn rows() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("later");
        let mut said = Vec::new();
        let mut emit = |event: Event| said.push(event);
        let mut account = Account::new(&missing, &mut emit);
        for free in 0..=MOST_WAITING as u64 {
            account.add(None, &Row::NoRoom { free });
        }
        fs::create_dir(&missing).unwrap();
        account.add(
            Some("web"),
            &Row::Warned {
                text: "a\nb".to_owned(),
            },
        );
        let text = fs::read_to_string(missing.join(FILE)).unwrap();
        let rows: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows.len(), MOST_WAITING + 1);
        let warned = &rows[MOST_WAITING - 1];
        assert_eq!(
            (&warned["event"], &warned["target"]),
            (&"warned".into(), &"web".into())
        );
        let last = &rows[MOST_WAITING];
        assert_eq!(
            (&last["event"], &last["rows"]),
            (&"rows_lost".into(), &2.into())
        );
        assert_eq!(said.len(), MOST_WAITING + 3);
    }

    /// A large file makes room for a new one.
    #[test]
    fn large() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE);
        fs::File::create(&path)
            .unwrap()
            .set_len(LARGEST + 1)
            .unwrap();
        append(&path, "a\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
        assert!(place.path().join("events.jsonl.1").exists());
    }
}
