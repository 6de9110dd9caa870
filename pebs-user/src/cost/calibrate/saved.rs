//! Saved calibrations, in the user's cache directory: one file per machine and event.
//!
//! Under sudo it is the invoking user's directory, and everything there is read and written as that user: a link
//! leads no further than the user could go. A file is replaced as a whole. A file that is damaged, or for another
//! machine, kernel or event, is ignored with a message.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{Apart, UnitCosts};
use crate::collect::session::Transport;
use crate::cost::{Fit, Point};
use crate::files::{self, FileUser};
use crate::pmu::host::Host;
use crate::store::run::EntryClass;

/// Layout of the file.
const VERSION: u32 = 1;

/// Largest file that is read.
const MOST_BYTES: u64 = 64 << 10;

/// Largest result of validating that is read.
const MOST_VALIDATION_BYTES: u64 = 16 << 20;

/// Costs of samples and marks above this are invalid, ns.
pub(super) const MOST_NS: f64 = 1e8;

/// Key of a calibration: the event, and the transport of its samples if no program sees them.
#[must_use]
pub(crate) fn key(event: &str, transport: Transport) -> String {
    match transport {
        Transport::Bpf => event.to_owned(),
        Transport::Bulk => format!("{event}, {}", transport.name()),
    }
}

/// A calibration of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Layout of the file.
    pub version: u32,
    /// Version of pebs-trace.
    pub tool_version: String,
    /// CPU model.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// Event, and the transport of its samples: see [`key`].
    pub event: String,
    /// Time of the measurement, seconds since 1970.
    pub taken_s: u64,
    /// Rounds of each reset value.
    pub rounds: u32,
    /// Samples that the ring had no room for.
    pub refused: u64,
    /// The line: its slope is the cost of a sample.
    pub fit: Fit,
    /// The points of the fit.
    pub points: Vec<SavedPoint>,
    /// Costs of marks and counted page faults.
    pub marks: SavedMarks,
}

/// Medians at one reset value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPoint {
    /// Reset value; null: without sampling.
    pub reset: Option<u64>,
    /// Samples.
    pub samples: f64,
    /// Time of the work, ns.
    pub elapsed_ns: f64,
}

impl SavedPoint {
    /// The point for the fit.
    #[must_use]
    pub const fn point(&self) -> Point {
        Point {
            samples: self.samples,
            elapsed_ns: self.elapsed_ns,
        }
    }
}

/// Cost of a mark by the class of the probed instruction, ns; null if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedMarks {
    /// An instruction that the kernel emulates.
    pub emulated_ns: Option<f64>,
    /// An instruction that is single-stepped.
    pub single_step_ns: Option<f64>,
    /// A uretprobe, without its entry.
    pub uretprobe_ns: Option<f64>,
    /// Additional time of any of these if the thread slept since the last mark.
    #[serde(default)]
    pub apart: Option<Apart>,
    /// Time of the program of a mark at an instruction that is single-stepped, right after another.
    #[serde(default)]
    pub single_step_ran_ns: Option<f64>,
    /// Cost of counting a page fault.
    pub page_fault_ns: Option<f64>,
}

impl SavedMarks {
    /// Cost of a mark at an instruction of that class, ns.
    #[must_use]
    pub const fn of(&self, class: EntryClass) -> Option<f64> {
        match class {
            EntryClass::Emulated | EntryClass::InProgram => self.emulated_ns,
            EntryClass::SingleStep => self.single_step_ns,
        }
    }

    /// Replaces `costs` where they are known here.
    pub(super) fn apply(&self, costs: &mut UnitCosts) {
        for (cost, saved) in [
            (&mut costs.emulated_ns, self.emulated_ns),
            (&mut costs.single_step_ns, self.single_step_ns),
            (&mut costs.uretprobe_ns, self.uretprobe_ns),
            (&mut costs.single_step_ran_ns, self.single_step_ran_ns),
            (&mut costs.page_fault_ns, self.page_fault_ns),
        ] {
            *cost = saved.or(*cost);
        }
        costs.apart = self.apart.or(costs.apart);
    }

    /// All costs, scaled.
    pub(super) fn scaled(&self, scale: f64) -> Self {
        let times = |ns: Option<f64>| ns.map(|ns| ns * scale);
        Self {
            emulated_ns: times(self.emulated_ns),
            single_step_ns: times(self.single_step_ns),
            uretprobe_ns: times(self.uretprobe_ns),
            apart: self.apart.map(|it| it.times(scale)),
            single_step_ran_ns: times(self.single_step_ran_ns),
            page_fault_ns: times(self.page_fault_ns),
        }
    }

    pub(super) fn all(&self) -> [Option<f64>; 6] {
        let Self {
            emulated_ns,
            single_step_ns,
            uretprobe_ns,
            apart,
            single_step_ran_ns,
            page_fault_ns,
        } = *self;
        [
            emulated_ns,
            single_step_ns,
            uretprobe_ns,
            apart.map(|it| it.extra_ns()),
            single_step_ran_ns,
            page_fault_ns,
        ]
    }
}

impl From<&UnitCosts> for SavedMarks {
    fn from(costs: &UnitCosts) -> Self {
        Self {
            emulated_ns: costs.emulated_ns,
            single_step_ns: costs.single_step_ns,
            uretprobe_ns: costs.uretprobe_ns,
            apart: costs.apart,
            single_step_ran_ns: costs.single_step_ran_ns,
            page_fault_ns: costs.page_fault_ns,
        }
    }
}

impl Calibration {
    /// A calibration of now.
    #[must_use]
    pub fn new(host: &Host, event: &str, fit: Fit, points: Vec<SavedPoint>) -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        Self {
            version: VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: host.cpu.name.clone(),
            kernel: host.release.clone(),
            event: event.to_owned(),
            taken_s: now.map_or(0, |time| time.as_secs()),
            rounds: 0,
            refused: 0,
            fit,
            points,
            marks: SavedMarks::default(),
        }
    }

    /// The day on which it was taken: `2026-11-21`.
    #[must_use]
    pub fn day(&self) -> String {
        day_of(self.taken_s)
    }

    /// Replaces `costs` where they are known here.
    pub fn apply(&self, costs: &mut UnitCosts) {
        costs.sample_ns = Some(self.fit.alpha_ns);
        self.marks.apply(costs);
    }

    /// Why it can't be used on this machine for this event; `None` if it can.
    fn fault(&self, host: &Host, event: &str) -> Option<&'static str> {
        let cost = |ns: f64| (0.0..MOST_NS).contains(&ns);
        let numbers = cost(self.fit.alpha_ns)
            && self.fit.alpha_ns > 0.0
            && cost(self.fit.alpha_error_ns)
            && self.marks.all().into_iter().flatten().all(cost)
            // Beyond the year 9999 a date has no ten characters.
            && self.taken_s < 253_402_300_800;
        if self.version != VERSION {
            Some("written by another version of pebs-trace")
        } else if (self.cpu.as_str(), self.kernel.as_str()) != (&host.cpu.name, &host.release) {
            Some("measured on another machine or kernel")
        } else if self.event != event {
            Some("measured for another event")
        } else if !numbers {
            Some("damaged")
        } else {
            None
        }
    }
}

/// The day of a time in seconds since 1970.
pub(super) fn day_of(seconds: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.get(..10).unwrap_or_default().to_owned()
}

/// Result of loading a calibration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoadedCalibration {
    /// A calibration.
    Good(Box<Calibration>),
    /// No file.
    Nothing,
    /// A file that is ignored, and why.
    Ignored(String),
}

/// The user's folder of calibrations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Owner of files there, if it is not us.
    user: Option<FileUser>,
}

impl Folder {
    /// The folder of the user who runs us, or who invoked sudo: `$XDG_CACHE_HOME/pebs-trace`, else
    /// `~/.cache/pebs-trace`; `None` if it is unknown.
    #[must_use]
    pub(crate) fn of_user() -> Option<Self> {
        let absolute = |name| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let user = FileUser::invoking();
        let home = || match &user {
            Some(user) => user.home(),
            None => absolute("HOME"),
        };
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache")))?;
        Some(Self::new(cache.join("pebs-trace"), user))
    }

    pub(super) fn new(path: PathBuf, user: Option<FileUser>) -> Self {
        Self { path, user }
    }

    /// File of an event's calibration.
    #[must_use]
    pub(crate) fn file(&self, host: &Host, event: &str) -> PathBuf {
        self.named("calibration", host, event)
    }

    /// Path of an event's file, with a checksum of the machine and kernel in its name.
    pub(super) fn named(&self, kind: &str, host: &Host, event: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = event.chars().take(40).map(plain).collect();
        let whole = format!("{}\n{}\n{event}", host.cpu.name, host.release);
        let sum = crc32fast::hash(whole.as_bytes());
        self.path.join(format!("{kind}-{name}-{sum:08x}.json"))
    }

    /// The saved result of the last validation of this machine; `None` if there is none.
    pub(crate) fn validation(&self, host: &Host) -> Option<Vec<u8>> {
        let path = self.named("validation", host, "");
        files::as_user(self.user.as_ref(), || {
            files::read_regular(&path, MOST_VALIDATION_BYTES)
        })
        .ok()
    }

    /// Saves the result of a validation of this machine.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn keep_validation(&self, host: &Host, text: &[u8]) -> io::Result<()> {
        self.write(&self.named("validation", host, ""), text)
    }

    /// Reads a file of the user's.
    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        files::as_user(self.user.as_ref(), || files::read_regular(path, MOST_BYTES))
    }

    /// Replaces a file of the user.
    pub(super) fn write(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        files::as_user(self.user.as_ref(), || {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)?;
            // Without the name of the temporary file.
            let plain = |error: io::Error| io::Error::from(error.kind());
            let mut file = NamedTempFile::new_in(&self.path).map_err(plain)?;
            file.write_all(text)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        })
    }

    /// Loads the calibration of an event on this machine.
    #[must_use]
    pub(crate) fn load(&self, host: &Host, event: &str) -> LoadedCalibration {
        let path = self.file(host, event);
        let ignored = |why: &str| {
            LoadedCalibration::Ignored(format!("ignoring calibration {}: {why}", path.display()))
        };
        let data = match self.read(&path) {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return LoadedCalibration::Nothing;
            }
            Err(error) => {
                // Our own errors have a message, not just a kind.
                let own = error.get_ref().map(ToString::to_string);
                return ignored(&own.unwrap_or_else(|| error.kind().to_string()));
            }
        };
        match serde_json::from_slice::<Calibration>(&data) {
            Err(_) => ignored("damaged"),
            Ok(found) => match found.fault(host, event) {
                Some(fault) => ignored(fault),
                None => LoadedCalibration::Good(Box::new(found)),
            },
        }
    }

    /// Saves a calibration, replacing an old one; returns its path.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn save(&self, host: &Host, calibration: &Calibration) -> io::Result<PathBuf> {
        let path = self.file(host, &calibration.event);
        let mut text = serde_json::to_vec_pretty(calibration)?;
        text.push(b'\n');
        self.write(&path, &text)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::pmu::host::fixtures;

    fn calibration(host: &Host) -> Calibration {
        let fit = Fit {
            alpha_ns: 2_510.0,
            alpha_error_ns: 40.0,
            base_ns: 2e7,
            r2: 0.999,
            points: 8,
        };
        let marks = SavedMarks {
            emulated_ns: Some(150.0),
            ..SavedMarks::default()
        };
        Calibration {
            taken_s: 1_795_300_000,
            marks,
            ..Calibration::new(host, "cpu-clock", fit, Vec::new())
        }
    }

    /// A saved calibration is found for the same machine and event only.
    #[test]
    fn saved_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("a/b"), None);
        let host = fixtures::skylake();
        let saved = calibration(&host);
        assert_eq!(folder.load(&host, "cpu-clock"), LoadedCalibration::Nothing);
        for _ in 0..2 {
            folder.save(&host, &saved).unwrap();
        }
        let found = folder.load(&host, "cpu-clock");
        assert_eq!(found, LoadedCalibration::Good(Box::new(saved.clone())));
        assert_eq!(folder.load(&host, "cycles"), LoadedCalibration::Nothing);
        let other = Host {
            release: "7.0".into(),
            ..host
        };
        assert_eq!(folder.load(&other, "cpu-clock"), LoadedCalibration::Nothing);
        // No leftovers.
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
        assert_eq!(saved.day(), "2026-11-21");
    }

    /// An invalid file, or one of another machine, is ignored with a reason.
    #[test]
    fn damaged_and_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned(), None);
        let host = fixtures::skylake();
        let path = folder.file(&host, "cpu-clock");
        let good = calibration(&host);
        let with = |change: &dyn Fn(&mut Calibration)| {
            let mut other = good.clone();
            change(&mut other);
            serde_json::to_vec(&other).unwrap()
        };
        let cases = [
            (b"{\"version\":1,".to_vec(), "damaged"),
            (with(&|it| it.fit.alpha_ns = -3.0), "damaged"),
            (with(&|it| it.fit.alpha_ns = 1e300), "damaged"),
            (with(&|it| it.taken_s = u64::MAX), "damaged"),
            (with(&|it| it.marks.emulated_ns = Some(-1.0)), "damaged"),
            (with(&|it| it.version = 2), "another version"),
            (with(&|it| it.cpu = "i386".into()), "another machine"),
            (with(&|it| it.event = "cycles".into()), "another event"),
            (vec![b' '; MOST_BYTES as usize + 1], "larger than 64 KiB"),
        ];
        for (data, why) in cases {
            fs::write(&path, data).unwrap();
            match folder.load(&host, "cpu-clock") {
                LoadedCalibration::Ignored(note) => assert!(note.contains(why), "{note}"),
                other => panic!("{why}: {other:?}"),
            }
        }
    }

    /// Known costs replace measured ones; unknown ones stay.
    #[test]
    fn applied() {
        let mut costs = UnitCosts {
            emulated_ns: Some(999.0),
            single_step_ns: Some(7_000.0),
            ..UnitCosts::default()
        };
        calibration(&fixtures::skylake()).apply(&mut costs);
        assert_eq!(
            (costs.emulated_ns, costs.single_step_ns, costs.sample_ns),
            (Some(150.0), Some(7_000.0), Some(2_510.0))
        );
    }

    /// Under sudo files belong to the invoking user, and a link to other users' files is not followed.
    #[test]
    fn theirs_under_sudo() {
        let nobody = || Some(FileUser::new(65_534, 65_534));
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(65_534), Some(65_534)).unwrap();
        let host = fixtures::skylake();
        let folder = Folder::new(home.path().join("cache/pebs-trace"), nobody());
        let path = folder.save(&host, &calibration(&host)).unwrap();
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        assert_eq!(
            (owner(&path), owner(path.parent().unwrap())),
            (65_534, 65_534)
        );
        let ours = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(ours.path(), home.path().join("link")).unwrap();
        let trap = Folder::new(home.path().join("link"), nobody());
        assert!(trap.save(&host, &calibration(&host)).is_err());
        // Nor is what root's group may read.
        let secret = ours.path().join("secret");
        fs::write(&secret, fs::read(&path).unwrap()).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(ours.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(matches!(
            folder.load(&host, "cpu-clock"),
            LoadedCalibration::Ignored(_)
        ));
        fs::remove_file(&secret).unwrap();
        assert_eq!(fs::read_dir(ours.path()).unwrap().count(), 0);
        // This thread is still itself.
        assert!(fs::write(ours.path().join("file"), "").is_ok());
    }
}
