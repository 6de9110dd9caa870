//! Answers over HTTP on a socket of this machine: `/metrics` for Prometheus, `/status` as JSON; `POST /snapshot?target=NAME`, on
//! the socket alone, has a snapshot made.
//!
//! One question at a time, each on a deadline, by threads that do nothing else: a recording never waits for a reader. HTTP/1.0
//! without a library, as no body or header is understood.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::health::{Health, State};
use crate::collect::privileges;
use crate::failure::{Context as _, Failure, Result};

/// Longest question, bytes.
const LONGEST: usize = 4096;

/// Largest answer that is read, bytes.
const LARGEST: u64 = 16 << 20;

/// Time for a question, and for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The health that answers are made from.
pub(super) type Shared = Arc<Mutex<Health>>;

/// Has a snapshot of a target made.
type Snapshot<'a> = dyn Fn(&str) + 'a;

/// A socket in the file system. Removed at the end.
#[derive(Debug)]
pub(super) struct Socket(PathBuf);

impl Socket {
    /// Answers on it from now on. One that a killed agent left is replaced.
    ///
    /// # Errors
    /// Another agent answers there, or it can't be made.
    pub(super) fn open(
        path: &Path,
        health: &Shared,
        snapshot: impl Fn(&str) + Send + 'static,
    ) -> Result<Self> {
        let cannot = || format!("cannot answer on {}", path.display());
        let is_socket = |it: fs::Metadata| it.file_type().is_socket();
        if fs::symlink_metadata(path).is_ok_and(is_socket) {
            if UnixStream::connect(path).is_ok() {
                return Err(Failure::new(
                    format!("{}: another agent does", cannot()),
                    "end it ('systemctl stop pebs-trace-agent'), or give this one another 'socket'",
                ));
            }
            fs::remove_file(path).with_context(cannot)?;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(cannot)?;
        }
        let listener = UnixListener::bind(path).with_context(cannot)?;
        fs::set_permissions(path, Permissions::from_mode(0o660)).with_context(cannot)?;
        let health = Arc::clone(health);
        thread::spawn(move || {
            privileges::give_up_on_this_thread();
            for stream in listener.incoming().flatten() {
                // A reader that went away is no failure.
                let _ = answer_on(&stream, &health, Some(&snapshot));
            }
        });
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Answers on a port from now on.
///
/// # Errors
/// It is taken.
pub(super) fn listen(address: SocketAddr, health: &Shared) -> Result<()> {
    let listener = TcpListener::bind(address);
    let listener = listener.with_context(|| format!("cannot answer on {address}"))?;
    let health = Arc::clone(health);
    thread::spawn(move || {
        privileges::give_up_on_this_thread();
        for stream in listener.incoming().flatten() {
            let _ = answer_on(&stream, &health, None);
        }
    });
    Ok(())
}

/// A stream that gives up after some time.
trait Timed {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Timed for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Timed for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

fn answer_on<S: Timed>(
    stream: &S,
    health: &Shared,
    snapshot: Option<&Snapshot<'_>>,
) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    let deadline = Instant::now() + PATIENCE;
    let mut question = Vec::new();
    let mut chunk = [0; 512];
    while !question.windows(2).any(|it| it == b"\n\n" || it == b"\n\r") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || question.len() > LONGEST {
            return Ok(());
        }
        stream.limit(left)?;
        match (&mut &*stream).read(&mut chunk)? {
            0 => return Ok(()),
            n => question.extend_from_slice(&chunk[..n]),
        }
    }
    stream.limit(PATIENCE)?;
    let health = health
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    (&mut &*stream).write_all(answer(&question, &health.of_process(), snapshot).as_bytes())
}

/// The answer to a question.
fn answer(question: &[u8], health: &Health, snapshot: Option<&Snapshot<'_>>) -> String {
    let question = String::from_utf8_lossy(question);
    let mut words = question.split_whitespace();
    let (status, kind, body) = match (words.next(), words.next(), snapshot) {
        (Some("GET"), Some("/metrics"), _) => {
            ("200 OK", "text/plain; version=0.0.4", health.metrics())
        }
        (Some("GET"), Some("/status"), _) => (
            "200 OK",
            "application/json",
            serde_json::to_string(health).unwrap_or_default(),
        ),
        (Some("GET"), ..) => (
            "404 Not Found",
            "text/plain",
            "there are /metrics and /status\n".to_owned(),
        ),
        (Some("POST"), Some(path), Some(snapshot)) => {
            let (status, text) = order(path, health, snapshot);
            (status, "text/plain", text)
        }
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "there is GET, and on the socket POST /snapshot?target=NAME\n".to_owned(),
        ),
    };
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Gives an order; returns the answer.
fn order(path: &str, health: &Health, snapshot: &Snapshot<'_>) -> (&'static str, String) {
    let Some(name) = path.strip_prefix("/snapshot?target=") else {
        let text = "there is /snapshot?target=NAME\n";
        return ("404 Not Found", text.to_owned());
    };
    // Names have no character that would be written otherwise here.
    match health.targets.iter().find(|it| it.name == name) {
        None => ("404 Not Found", "there is no such target\n".to_owned()),
        Some(it) if it.state != State::Records => {
            let text = format!("{name} is not recorded now\n");
            ("409 Conflict", text)
        }
        Some(_) => {
            snapshot(name);
            let text = "the row 'snapshot' in events.jsonl names it\n";
            ("202 Accepted", text.to_owned())
        }
    }
}

/// Asks the agent that answers on a socket.
///
/// # Errors
/// None does.
pub fn ask(socket: &Path) -> Result<Health> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(
            format!("cannot ask the agent on {}: {error}", socket.display()),
            "'systemctl status pebs-trace-agent' says whether it runs; --socket or --config names its socket",
        )
    };
    let asked = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.limit(2 * PATIENCE)?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.take(LARGEST).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = asked().map_err(|error| failed(&error))?;
    let body = text.split_once("\r\n\r\n").map_or("", |it| it.1);
    serde_json::from_str(body).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::agent::health::TargetHealth;

    fn shared() -> Shared {
        Arc::new(Mutex::new(Health {
            version: "1".to_owned(),
            ..Health::default()
        }))
    }

    /// The agent is asked over its socket, which a second agent does not take, and which is removed at the end.
    #[test]
    fn socket() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run/agent.sock");
        let error = ask(&path).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        let socket = Socket::open(&path, &shared(), |_| ()).unwrap();
        assert_eq!(ask(&path).unwrap().version, "1");
        let error = Socket::open(&path, &shared(), |_| ()).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        drop(socket);
        assert!(!path.exists());
        // As a killed one leaves it.
        drop(UnixListener::bind(&path).unwrap());
        let _socket = Socket::open(&path, &shared(), |_| ()).unwrap();
        assert_eq!(ask(&path).unwrap().version, "1");
    }

    /// Known questions are answered; an unknown path and what is no request are refused.
    #[test]
    fn questions() {
        let status = |question: &str| {
            let answer = answer(question.as_bytes(), &Health::default(), None);
            answer.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.0 200 OK");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.0 404 Not Found");
        assert!(status("POST /metrics HTTP/1.1\r\n\r\n").contains("405"));
        assert!(status("\r\n\r\n").contains("405"));
    }

    /// A snapshot is made of a target that is recorded, where orders are taken.
    #[test]
    fn orders() {
        let target = |name: &str, state| TargetHealth {
            name: name.to_owned(),
            state,
            ..TargetHealth::default()
        };
        let health = Health {
            targets: vec![target("web", State::Records), target("db", State::Waits)],
            ..Health::default()
        };
        let ordered = RefCell::new(Vec::new());
        let order = |name: &str| ordered.borrow_mut().push(name.to_owned());
        let status = |path: &str, order: Option<&Snapshot<'_>>| {
            let question = format!("POST {path} HTTP/1.1\r\n\r\n");
            let answer = answer(question.as_bytes(), &health, order);
            answer.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(status("/snapshot?target=web", Some(&order)), "202");
        assert_eq!(status("/snapshot?target=db", Some(&order)), "409");
        assert_eq!(status("/snapshot?target=a", Some(&order)), "404");
        assert_eq!(status("/snapshot", Some(&order)), "404");
        assert_eq!(status("/snapshot?target=web", None), "405");
        assert_eq!(*ordered.borrow(), ["web"]);
    }

    /// One that asks for ever is given up: the next one is answered.
    #[test]
    fn silent_reader() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.sock");
        let _socket = Socket::open(&path, &shared(), |_| ()).unwrap();
        let mut silent = UnixStream::connect(&path).unwrap();
        silent.write_all(b"GET /sta").unwrap();
        assert_eq!(ask(&path).unwrap().version, "1");
    }
}
