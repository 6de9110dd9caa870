//! The disk budget: which traces are removed so that all have room.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDateTime, Utc};

use super::config::AgentConfig;
use crate::store::reader::read_info;
use crate::store::run::KeptVisits;

/// Form of a trace's name: sorted by name they are sorted by time.
const NAME: &str = "%Y%m%d-%H%M%S";

/// Room on the disk that is left to others, bytes.
pub(super) const LEFT_FREE: u64 = 64 << 20;

/// A trace that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub path: PathBuf,
    pub began: SystemTime,
    pub bytes: u64,
    /// Slow items that it has the details of.
    pub slow: u64,
    /// Whether it waits for being brought into a lake.
    pub waits: bool,
}

/// Why a trace is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Because {
    /// It is older than `max-age`.
    Age,
    /// All together are larger than `max-disk`.
    Size,
    /// The disk has no room.
    Full,
}

/// Room for traces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub now: SystemTime,
    /// Bytes of traces that are being written.
    pub open: u64,
    /// Bytes that are free on the disk.
    pub free: u64,
}

/// Traces to be removed: too old ones, then the oldest until all have room, those with slow items last, and behind them those that
/// no lake has yet.
pub(super) fn surplus(closed: &[Closed], room: Room, agent: &AgentConfig) -> Vec<(usize, Because)> {
    let mut order: Vec<usize> = (0..closed.len()).collect();
    order.sort_by_key(|at| (closed[*at].waits, closed[*at].slow > 0, closed[*at].began));
    let is_old = |it: &Closed| {
        let age = room.now.duration_since(it.began).unwrap_or_default();
        age > agent.max_age
    };
    let mut bytes = room.open + closed.iter().map(|it| it.bytes).sum::<u64>();
    let mut free = room.free;
    let mut remove = Vec::new();
    let (old, rest): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|at| is_old(&closed[*at]));
    for at in old.into_iter().chain(rest) {
        let because = match () {
            () if is_old(&closed[at]) => Because::Age,
            () if bytes > agent.max_disk => Because::Size,
            () if free < LEFT_FREE => Because::Full,
            () => break,
        };
        bytes -= closed[at].bytes;
        free = free.saturating_add(closed[at].bytes);
        remove.push((at, because));
    }
    remove
}

/// The name of a trace that begins now.
pub(super) fn name(now: SystemTime) -> String {
    DateTime::<Utc>::from(now).format(NAME).to_string()
}

/// A path that is free for it: another one may have begun in the same second.
pub(super) fn free_path(
    folder: &Path,
    now: SystemTime,
    is_taken: impl Fn(&Path) -> bool,
) -> PathBuf {
    let first = folder.join(name(now));
    let more = (2..).map(|number| folder.join(format!("{}-{number}", name(now))));
    let mut paths = std::iter::once(first.clone()).chain(more);
    paths.find(|it| !is_taken(it)).unwrap_or(first)
}

/// Returns the time at which a trace of this name began; `None`: it is not one of the agent's.
fn began(name: &str) -> Option<SystemTime> {
    let time = NaiveDateTime::parse_from_str(name.get(..15)?, NAME).ok()?;
    let rest = name.get(15..)?;
    let is_number = |rest: &str| rest.parse::<u32>().is_ok();
    let is_ours = rest.is_empty() || rest.strip_prefix(['-', '.']).is_some_and(is_number);
    is_ours.then(|| time.and_utc().into())
}

/// The traces in a directory, with what is known of those that do not change any more.
#[derive(Debug, Default)]
pub(super) struct Traces {
    known: BTreeMap<PathBuf, Closed>,
}

impl Traces {
    /// All traces of the agent below a directory, of targets that there are no more as well. Others are not touched.
    pub(super) fn all(directory: &Path) -> Vec<(PathBuf, SystemTime)> {
        let folders = |path: &Path| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()))
        };
        let targets = folders(directory).map(|it| it.path());
        let traces = targets.flat_map(|target| folders(&target).collect::<Vec<_>>());
        let mut all: Vec<_> = traces
            .filter_map(|it| Some((it.path(), began(it.file_name().to_str()?)?)))
            .collect();
        all.sort();
        all
    }

    /// Those that are not being written.
    pub(super) fn closed(
        &mut self,
        directory: &Path,
        is_open: impl Fn(&Path) -> bool,
    ) -> Vec<Closed> {
        let mut known = std::mem::take(&mut self.known);
        for (path, began) in Self::all(directory) {
            if is_open(&path) {
                continue;
            }
            let closed = known.remove(&path).unwrap_or_else(|| Closed {
                began,
                bytes: size(&path),
                slow: slow(&path),
                waits: false,
                path: path.clone(),
            });
            self.known.insert(path, closed);
        }
        self.known.values().cloned().collect()
    }
}

/// Bytes that a directory takes on the disk.
pub(super) fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let each = entries.filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        let below = if meta.is_dir() {
            size(&entry.path())
        } else {
            0
        };
        Some(below + meta.blocks() * 512)
    });
    each.sum()
}

/// Returns once a directory and all that is in it would survive a power failure.
///
/// # Errors
/// The disk can't take it.
pub(super) fn settle(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => settle(&entry.path())?,
            false => fs::File::open(entry.path())?.sync_all()?,
        }
    }
    fs::File::open(path)?.sync_all()
}

/// Slow items whose details a trace has. One that can't be read has none.
fn slow(path: &Path) -> u64 {
    let kept = read_info(path).ok().and_then(|info| info.keep?.visits);
    kept.map_or(0, |it: KeptVisits| it.slow_ones())
}

/// Bytes that are free where a directory is.
pub(super) fn free(directory: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Age of a trace, for messages.
pub(super) fn age(closed: &Closed, now: SystemTime) -> Duration {
    let age = now.duration_since(closed.began).unwrap_or_default();
    Duration::from_secs(age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(hours)
    }

    fn closed(hours: u64, bytes: u64, slow: u64) -> Closed {
        Closed {
            path: PathBuf::from(format!("/t/{hours}")),
            began: at(hours),
            bytes,
            slow,
            waits: false,
        }
    }

    fn agent() -> AgentConfig {
        let text = "directory = \"/t\"\nmax-disk = \"100B\"\nmax-age = \"10h\"";
        toml::from_str(text).unwrap()
    }

    fn removed(closed: &[Closed], open: u64, free: u64) -> Vec<(u64, Because)> {
        let room = Room {
            now: at(100),
            open,
            free,
        };
        let removed = surplus(closed, room, &agent()).into_iter();
        let hours = |at: usize| closed[at].began.duration_since(SystemTime::UNIX_EPOCH);
        removed
            .map(|(at, because)| (hours(at).unwrap().as_secs() / 3600, because))
            .collect()
    }

    /// The oldest go first, those with slow items last, and no more than is needed; what is being written counts.
    #[test]
    fn size_is_kept() {
        let all = [
            closed(95, 30, 1),
            closed(96, 30, 0),
            closed(97, 30, 0),
            closed(98, 10, 2),
        ];
        assert_eq!(removed(&all, 0, u64::MAX), []);
        let first = (96, Because::Size);
        assert_eq!(removed(&all, 1, u64::MAX), [first]);
        assert_eq!(removed(&all, 31, u64::MAX), [first, (97, Because::Size)]);
        let slow = [first, (97, Because::Size), (95, Because::Size)];
        assert_eq!(removed(&all, 80, u64::MAX), slow);
    }

    /// A trace that no lake has yet is removed last.
    #[test]
    fn waiting_is_kept() {
        let mut all = [closed(95, 30, 0), closed(96, 30, 5), closed(97, 30, 0)];
        all[0].waits = true;
        let order = [97, 96, 95].map(|it| (it, Because::Size));
        assert_eq!(removed(&all, 90, u64::MAX), order);
    }

    /// A trace that is too old is removed even if there is room, with slow items or not.
    #[test]
    fn age_is_kept() {
        let all = [closed(80, 1, 5), closed(95, 1, 0)];
        assert_eq!(removed(&all, 0, u64::MAX), [(80, Because::Age)]);
    }

    /// A disk that others filled gets room.
    #[test]
    fn full_disk() {
        let all = [closed(95, 10, 0), closed(96, 10, 0)];
        let both = [(95, Because::Full), (96, Because::Full)];
        assert_eq!(removed(&all, 0, LEFT_FREE - 15), both);
        assert_eq!(removed(&all, 0, LEFT_FREE - 5), both[..1]);
    }

    /// Names of traces are distinguished from others, and sort by time.
    #[test]
    fn names() {
        let time = at(500_000);
        assert_eq!(began(&name(time)), Some(time));
        assert_eq!(began(&format!("{}-2", name(time))), Some(time));
        assert_eq!(began(&format!("{}.1", name(time))), Some(time));
        for other in [
            "",
            "20260101",
            "20260101-000000x",
            "20260101-000000-",
            "2026-01-01T00:00",
        ] {
            assert_eq!(began(other), None, "{other}");
        }
    }

    /// Only folders of two levels with such names are traces; a second one in the same second has a name of its own.
    #[test]
    fn listed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("web");
        let first = free_path(&folder, at(1), Path::exists);
        fs::create_dir_all(&first).unwrap();
        let second = free_path(&folder, at(1), Path::exists);
        assert_ne!(first, second);
        fs::create_dir_all(&second).unwrap();
        fs::create_dir_all(folder.join("mine")).unwrap();
        fs::write(second.join("data"), [0; 10_000]).unwrap();
        let mut traces = Traces::default();
        let closed = traces.closed(place.path(), |path| path == first);
        assert_eq!(closed.len(), 1);
        assert_eq!(closed[0].path, second);
        assert!(closed[0].bytes >= 10_000);
    }
}
