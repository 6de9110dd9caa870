//! Fetches debug files from debuginfod servers with the client of elfutils.
//!
//! `debuginfod-find` knows the user's servers, cache and limits. It runs before anything is attached: a recording
//! starts no program after giving up root's rights, and never waits for the network. Fetched files are in its
//! cache, which is searched like other places of debug files.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::locate;

/// The client of elfutils.
pub(crate) const CLIENT: &str = "debuginfod-find";

pub(crate) const INSTALL: &str =
    "sudo apt-get install debuginfod (Fedora: elfutils-debuginfod-client)";

/// Servers, separated by spaces; unset or empty: none is used.
pub(crate) const URLS: &str = "DEBUGINFOD_URLS";

/// Maximum seconds of the client for a file.
const MOST_SECONDS: &str = "DEBUGINFOD_MAXTIME";

/// The limit unless the user sets one.
const PATIENCE: Duration = Duration::from_secs(30);

/// Additional time before the client is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Clients that run at once.
const AT_ONCE: usize = 8;

/// Interval of checking a client.
const POLL: Duration = Duration::from_millis(10);

/// Availability of debuginfod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Debuginfod {
    /// No servers are named.
    Off,
    /// Servers are configured, but there is no client.
    NoClient,
    /// The client to use.
    Client(PathBuf),
}

impl Debuginfod {
    /// Reads the environment.
    #[must_use]
    pub fn here() -> Self {
        if !is_configured() {
            return Self::Off;
        }
        locate::command(CLIENT).map_or(Self::NoClient, Self::Client)
    }
}

/// Why there is no debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No server has the file.
    Nowhere,
    /// The time limit was reached.
    Late,
    /// Another error, in the client's words.
    Failed(String),
}

fn is_configured() -> bool {
    env::var_os(URLS).is_some_and(|urls| !urls.as_bytes().trim_ascii().is_empty())
}

/// Path of a build's debug file in the client's cache, whether it exists or not; `None` if no servers are
/// configured.
#[must_use]
pub(crate) fn cached(build_id: &str) -> Option<PathBuf> {
    let cache = is_configured().then(|| cache(|name| env::var_os(name)))??;
    Some(cache.join(build_id).join("debuginfo"))
}

/// Source: `debuginfod_find_debuginfo(3)`, CACHE.
fn cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let home = folder("HOME");
    let old = home
        .as_ref()
        .map(|home| home.join(".debuginfod_client_cache"));
    folder("DEBUGINFOD_CACHE_PATH")
        .or_else(|| old.filter(|old| old.is_dir()))
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("debuginfod_client")))
        .or_else(|| Some(home?.join(".cache/debuginfod_client")))
}

/// Fetches the debug files of these builds (build ids in hex) into the client's cache.
///
/// Cost: network time; for all files together at most 32 s, or `DEBUGINFOD_MAXTIME` plus 2 s.
#[must_use]
pub(crate) fn fetch(client: &Path, build_ids: &[&str]) -> Vec<Result<(), Missing>> {
    let patience = patience(env::var_os(MOST_SECONDS).as_deref());
    let deadline = Instant::now() + patience + GRACE;
    let mut answers = Vec::new();
    for wave in build_ids.chunks(AT_ONCE) {
        let asked = wave.iter().map(|id| Request::start(client, id, patience));
        let asked: Vec<_> = asked.collect();
        answers.extend(asked.into_iter().map(|it| it?.answer(deadline)));
    }
    answers
}

fn patience(typed: Option<&OsStr>) -> Duration {
    let seconds = typed.and_then(|text| text.to_str()?.trim().parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0);
    // More than a day counts as no limit.
    seconds.map_or(PATIENCE, |seconds: u64| {
        Duration::from_secs(seconds.min(86_400))
    })
}

/// A client that runs. Killed if dropped.
struct Request(Child);

impl Request {
    fn start(client: &Path, build_id: &str, patience: Duration) -> Result<Self, Missing> {
        let started = Command::new(client)
            .args(["debuginfo", build_id])
            .env(MOST_SECONDS, patience.as_secs().to_string())
            .env_remove("DEBUGINFOD_VERBOSE")
            .env_remove("DEBUGINFOD_PROGRESS")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        started
            .map(Self)
            .map_err(|error| Missing::Failed(error.to_string()))
    }

    fn answer(mut self, deadline: Instant) -> Result<(), Missing> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => return Err(self.reason()),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) => return Err(Missing::Late),
                Err(error) => return Err(Missing::Failed(error.to_string())),
            }
        }
    }

    /// Error message of a client that has ended.
    fn reason(&mut self) -> Missing {
        let mut message = Vec::new();
        if let Some(stderr) = &mut self.0.stderr {
            let _ = stderr.take(4096).read_to_end(&mut message);
        }
        reason(&String::from_utf8_lossy(&message))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // Fails only if the client has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Parses the client's message: `Server query failed: ` and the system's text for an error number.
fn reason(message: &str) -> Missing {
    let line = message.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it did not say why");
    let why = line.rsplit(": ").next().unwrap_or(line).trim();
    match why {
        "No such file or directory" => Missing::Nowhere,
        "Timer expired" => Missing::Late,
        other => Missing::Failed(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The cache is at the places documented by the client, in this order.
    #[test]
    fn cache_folder() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<_> = set
                .iter()
                .map(|it| (it.0.to_owned(), it.1.to_owned()))
                .collect();
            let path = cache(|name| {
                set.iter()
                    .find(|it| it.0 == name)
                    .map(|it| it.1.clone().into())
            });
            path.map(|path| path.display().to_string())
        };
        let home = ("HOME", "/nonexistent");
        assert_eq!(with(&[]), None);
        assert_eq!(
            with(&[home]).unwrap(),
            "/nonexistent/.cache/debuginfod_client"
        );
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(with(&[home, xdg]).unwrap(), "/x/debuginfod_client");
        let own = ("DEBUGINFOD_CACHE_PATH", "/own");
        assert_eq!(with(&[home, xdg, own]).unwrap(), "/own");
        let empty = ("DEBUGINFOD_CACHE_PATH", "");
        assert_eq!(with(&[empty, xdg]).unwrap(), "/x/debuginfod_client");
        let old = tempfile::tempdir().unwrap();
        let path = old.path().join(".debuginfod_client_cache");
        fs::create_dir(&path).unwrap();
        let home = ("HOME", old.path().to_str().unwrap());
        assert_eq!(with(&[home, xdg]).unwrap(), path.to_str().unwrap());
    }

    /// The user's bound counts, garbage and "no bound" do not.
    #[test]
    fn bounds() {
        let of = |text: &str| patience(Some(OsStr::new(text)));
        assert_eq!(of("7"), Duration::from_secs(7));
        for text in ["0", "", "x", "-1"] {
            assert_eq!(of(text), PATIENCE, "{text}");
        }
        assert_eq!(patience(None), PATIENCE);
    }

    /// A failing client's message is reported, and a hanging client is ended.
    #[test]
    fn clients_that_do_not_find() {
        let dir = tempfile::tempdir().unwrap();
        let client = dir.path().join("client");
        // Not written by ourselves: a process forked meanwhile by another test inherits our descriptor for a
        // moment, and a file open for writing can't be executed.
        let make = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 700 \"$0\"";
        let run = |script: &str, patience: Duration| {
            let mut sh = Command::new("sh");
            let made = sh.args(["-c", make]).arg(&client).arg(script).status();
            assert!(made.unwrap().success());
            let request = Request::start(&client, "abcd", patience)?;
            request.answer(Instant::now() + patience)
        };
        let soon = Duration::from_secs(60);
        let says = |text: &str| run(&format!("echo '{text}' >&2; exit 1"), soon);
        let nothing = "Server query failed: No such file or directory";
        assert_eq!(says(nothing), Err(Missing::Nowhere));
        assert_eq!(
            says("Server query failed: Timer expired"),
            Err(Missing::Late)
        );
        let refused = Missing::Failed("Connection refused".to_owned());
        assert_eq!(
            says("Server query failed: Connection refused"),
            Err(refused)
        );
        assert_eq!(run("test $1 = debuginfo -a $2 = abcd", soon), Ok(()));
        assert_eq!(
            run("exec sleep 600", Duration::from_millis(50)),
            Err(Missing::Late)
        );
        let gone = Request::start(&dir.path().join("none"), "abcd", soon);
        assert!(matches!(gone, Err(Missing::Failed(_))));
    }
}
