//! Orders to a recording: lines of a FIFO (`--control`).

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::thread;

use crate::cmd::values;
use crate::collect::privileges;
use crate::failure::{Context as _, Failure, Result};
use crate::files::invoking_user;
use crate::record::Remote;
use crate::terminal::{say, shown};
use crate::units::ResetValue;

/// The orders, for messages.
const ORDERS: &str =
    "pause, resume, note TEXT, snapshot [DIR], reset N, max-overhead PERCENT, stop";

/// Longest line, bytes; the rest is another one.
const LONGEST: u64 = 4096;

/// Order in a line of the control file.
#[derive(Clone, Debug, PartialEq)]
enum Order {
    Pause,
    Resume,
    Note(String),
    Snapshot(Option<PathBuf>),
    Reset(ResetValue),
    MaxOverhead(f64),
    Stop,
}

/// A FIFO whose lines are obeyed as long as this process lives. Removed at the end if it was made here.
pub(super) struct Control {
    made: Option<PathBuf>,
}

impl Control {
    /// Opens the FIFO, which is made if there is nothing of that name, and obeys its lines on a thread of its own.
    ///
    /// # Errors
    /// It can't be made or opened, or is no FIFO.
    pub(super) fn listen(path: &Path, remote: &Remote) -> Result<Self> {
        let cannot = || format!("cannot read orders from {}", path.display());
        let made = match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_fifo() => None,
            Ok(_) => {
                return Err(Failure::new(
                    format!("{}: it is no FIFO", cannot()),
                    "name one that 'mkfifo' made, or a file that is not there",
                ));
            }
            Err(_) => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mkfifoat(rustix::fs::CWD, path, mode)
                    .map_err(std::io::Error::from)
                    .with_context(cannot)?;
                Some(path.to_owned())
            }
        };
        // Also for writing, so that it does not end with its first writer.
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(path)
            .with_context(cannot)?;
        // Whoever ran sudo may write to it.
        if let (Some(_), Some((uid, gid))) = (&made, invoking_user()) {
            fchown(&opened, Some(uid), Some(gid)).with_context(cannot)?;
        }
        rustix::fs::fcntl_setfl(&opened, rustix::fs::OFlags::empty())
            .map_err(std::io::Error::from)
            .with_context(cannot)?;
        let remote = remote.clone();
        thread::spawn(move || {
            privileges::give_up_on_this_thread();
            obey(opened, &remote);
        });
        Ok(Self { made })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

fn obey(fifo: File, remote: &Remote) {
    let (mut fifo, mut line) = (BufReader::new(fifo), Vec::new());
    loop {
        line.clear();
        let read = fifo.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        match String::from_utf8_lossy(&line).trim() {
            "" => {}
            order => match parse(order) {
                Ok(order) => order.give(remote),
                Err(error) => {
                    say!(
                        "warning: --control: cannot follow '{}': {error}",
                        shown(order)
                    );
                }
            },
        }
    }
}

impl Order {
    fn give(self, remote: &Remote) {
        match self {
            Self::Pause => remote.pause(),
            Self::Resume => remote.resume(),
            Self::Note(text) => remote.note(text),
            Self::Snapshot(to) => remote.snapshot(to),
            Self::Reset(reset) => remote.set_reset(reset),
            Self::MaxOverhead(share) => remote.set_max_overhead(share),
            Self::Stop => remote.end("stopped by --control"),
        }
    }
}

/// Reads an order. `enable` and `disable` are perf's words for two of them.
fn parse(line: &str) -> Result<Order, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    Ok(match (word, rest) {
        ("pause" | "disable", "") => Order::Pause,
        ("resume" | "enable", "") => Order::Resume,
        ("note", "") => return Err("a note has a text".to_owned()),
        ("note", text) => Order::Note(text.to_owned()),
        ("snapshot", "") => Order::Snapshot(None),
        ("snapshot", dir) => Order::Snapshot(Some(dir.into())),
        ("reset", number) => {
            let reset = NonZeroU64::new(values::event_count(number)?);
            Order::Reset(ResetValue(reset.ok_or("must be above 0")?))
        }
        ("max-overhead", percent) => Order::MaxOverhead(values::overhead(percent)?),
        ("stop", "") => Order::Stop,
        _ => return Err(format!("there are {ORDERS}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each order is read, perf's words for two of them, too; other words are refused.
    #[test]
    fn orders() {
        let of = |line: &str| parse(line).unwrap();
        assert_eq!(of("pause"), of("disable"));
        assert_eq!(of("resume"), of("enable"));
        assert_eq!(
            of("note  new deploy "),
            Order::Note("new deploy".to_owned())
        );
        assert_eq!(of("snapshot"), Order::Snapshot(None));
        assert_eq!(of("snapshot a b"), Order::Snapshot(Some("a b".into())));
        assert_eq!(of("max-overhead 2%"), Order::MaxOverhead(0.02));
        assert!(matches!(of("reset 16000"), Order::Reset(it) if it.0.get() == 16_000));
        assert_eq!(of("stop"), Order::Stop);
        for line in [
            "pause now",
            "note",
            "reset 0",
            "reset x",
            "go",
            "max-overhead 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("go").unwrap_err().contains("snapshot [DIR]"));
    }
}
