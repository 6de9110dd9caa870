//! A redis server of our own, and a client that speaks just enough of its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{self, Finished, Running};

/// Longest time for the server to accept connections, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A redis server on a free port of loopback, in a temporary directory. Killed if dropped.
#[derive(Debug)]
pub struct Server {
    process: Running,
    port: u16,
    _dir: TempDir,
}

impl Server {
    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(binary: &Path) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory is writable");
        let port = free_port();
        let mut command = Command::new(binary);
        command.args(["--bind", "127.0.0.1", "--save", ""]);
        command.args(["--enable-debug-command", "local", "--daemonize", "no"]);
        command.arg("--port").arg(port.to_string());
        command.arg("--dir").arg(dir.path());
        let process = Running::start(arg0_redis_server(&mut command));
        let mut server = Self {
            process,
            port,
            _dir: dir,
        };
        let deadline = Instant::now() + PATIENCE;
        while !server.answers() {
            let alive = server.process.is_running() && Instant::now() < deadline;
            assert!(alive, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Whether it answers. A connection alone says little: a port without server may connect to itself.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut reply = [0; 7];
        stream.set_read_timeout(Some(PATIENCE)).is_ok()
            && stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && reply == *b"+PONG\r\n"
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A new connection.
    ///
    /// # Panics
    /// If it is refused.
    #[must_use]
    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("server accepts");
        stream.set_nodelay(true).expect("own socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("own socket");
        Client {
            reader: BufReader::new(stream),
        }
    }

    /// Ends it in good order.
    #[must_use]
    pub fn stop(self) -> Finished {
        self.process.signal(Signal::TERM);
        self.process.finish()
    }
}

/// Debian's server and its checker are one file that looks at the name it is called by.
fn arg0_redis_server(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    command.arg0("redis-server")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("bound").port()
}

/// A reply, as far as the tests look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string or a number.
    Line(String),
    Error(String),
    /// A bulk string; `None`: no such key.
    Bulk(Option<Vec<u8>>),
}

/// A connection. One command at a time.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Sends a command and waits for its reply.
    ///
    /// # Panics
    /// If the server hangs up, does not answer, or answers with an unknown type.
    pub fn command(&mut self, words: &[&str]) -> Reply {
        let mut message = format!("*{}\r\n", words.len());
        for word in words {
            message += &format!("${}\r\n{word}\r\n", word.len());
        }
        let stream = self.reader.get_mut();
        stream.write_all(message.as_bytes()).expect("server reads");
        self.reply()
    }

    /// Sends a command that must not fail.
    ///
    /// # Panics
    /// If it does.
    pub fn must(&mut self, words: &[&str]) -> Reply {
        let reply = self.command(words);
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", words[0]);
        reply
    }

    /// The number that the server gave this connection.
    ///
    /// # Panics
    /// If the reply has no number.
    #[must_use]
    pub fn id(&mut self) -> u64 {
        let Reply::Line(id) = self.must(&["CLIENT", "ID"]) else {
            panic!("CLIENT ID is a number");
        };
        id.parse().expect("CLIENT ID is a number")
    }

    fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("server answers");
        let (kind, rest) = line.trim_end().split_at_checked(1).expect("server answers");
        match kind {
            "+" | ":" => Reply::Line(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            "$" => Reply::Bulk(rest.parse().ok().map(|length: usize| {
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes).expect("server answers");
                bytes.truncate(length);
                bytes
            })),
            _ => panic!("not a reply that is understood: '{line}'"),
        }
    }
}

/// Offset of `current_client` in `struct redisServer`, in any build: it points to the client while
/// the server serves it, and is null otherwise.
///
/// # Errors
/// The reason to skip: this build does not show it.
///
/// # Panics
/// If the server does not answer.
pub fn offset_of_current_client(server: &Server, binary: &Path) -> Result<usize, String> {
    let listing = process::run(Command::new("nm").args(["-D", "-S"]).arg(binary));
    let symbol = listing
        .stdout
        .lines()
        .find(|line| line.ends_with(" B server"));
    let mut words = symbol
        .ok_or("redis-server has no symbol 'server'")?
        .split(' ');
    let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
    let (address, size) = hex().zip(hex()).expect("nm says address and size");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid()));
    let maps = maps.expect("the server runs");
    let base = maps
        .split('-')
        .next()
        .and_then(|it| u64::from_str_radix(it, 16).ok());
    let base = base.expect("the program comes first in its mappings");
    let memory = std::fs::File::open(format!("/proc/{}/mem", server.pid())).expect("root");
    let read = |at: u64, length: u64| -> Vec<u64> {
        let mut bytes = vec![0; length as usize];
        if memory.read_exact_at(&mut bytes, at).is_err() {
            return Vec::new();
        }
        let words = bytes.chunks_exact(8);
        words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
            .collect()
    };
    let mut client = server.connect();
    let id = client.id();
    let idle = read(base + address, size);
    let names_it = |word: u64| read(word, 8).first() == Some(&id);
    let look = || {
        let busy = read(base + address, size);
        (0..busy.len()).find(|&at| idle[at] == 0 && busy[at] != 0 && names_it(busy[at]))
    };
    let found = std::thread::scope(|scope| {
        let asked = scope.spawn(|| client.must(&["DEBUG", "SLEEP", "0.5"]));
        loop {
            // It begins, and ends, when the machine finds the time.
            let (is_over, found) = (asked.is_finished(), look());
            if found.is_some() || is_over {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    found
        .map(|at| 8 * at)
        .ok_or_else(|| "redis-server does not show its client".to_owned())
}
