//! An S3 server on the loopback (moto's), and a proxy before it that does what networks and servers do at night.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::process::{self, Running};

/// Failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Pass,
    /// It is answered by 503 and does not arrive.
    Unavailable,
    /// It arrives, and is answered by 503 all the same: the next attempt is a duplicate.
    Unheard,
    /// The connection ends in the middle of the request.
    CutRequest,
    /// It arrives, and the connection ends in the middle of the answer.
    CutAnswer,
    /// It takes half a second more.
    Slow,
}

/// An S3 server with a bucket.
pub struct S3 {
    _server: Running,
    address: SocketAddr,
}

impl S3 {
    /// Name of the bucket.
    pub const BUCKET: &'static str = "bucket";

    /// Starts `moto_server`.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start(program: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        let server = Running::start(&mut command);
        process::wait_until("the S3 server does not answer", || {
            TcpStream::connect(address).is_ok()
        });
        let made = ask(
            address,
            &format!("PUT /{} HTTP/1.1\r\nContent-Length: 0", Self::BUCKET),
        );
        assert!(
            made.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&made)
        );
        Self {
            _server: server,
            address,
        }
    }

    /// Makes a command use it, at this address.
    pub fn used_by(command: &mut Command, address: SocketAddr) {
        command
            .env("AWS_ENDPOINT", format!("http://{address}"))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "very-secret")
            .env("AWS_REGION", "us-east-1");
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Names and contents of all objects, by its own interface.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let request = format!("GET /{}?list-type=2 HTTP/1.1", Self::BUCKET);
        let listed = String::from_utf8(body(&ask(self.address, &request))).unwrap();
        assert!(listed.contains("<IsTruncated>false"), "{listed}");
        let keys = listed.split("<Key>").skip(1);
        let keys = keys.map(|it| it.split('<').next().unwrap_or_default());
        keys.map(|key| {
            let request = format!("GET /{}/{key} HTTP/1.1", Self::BUCKET);
            (key.to_owned(), body(&ask(self.address, &request)))
        })
        .collect()
    }
}

/// Begin of an authorisation that moto accepts in place of a signature.
const KEY: &str = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request";

/// The whole answer to a request without body.
fn ask(address: SocketAddr, head: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{head}\r\nHost: {address}\r\nAuthorization: {KEY}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn body(answer: &[u8]) -> Vec<u8> {
    let is_good = answer.starts_with(b"HTTP/1.1 200");
    assert!(is_good, "{}", String::from_utf8_lossy(answer));
    let head = end_of_head(answer).unwrap();
    answer[head..].to_vec()
}

fn end_of_head(text: &[u8]) -> Option<usize> {
    Some(text.windows(4).position(|it| it == b"\r\n\r\n")? + 4)
}

/// A proxy; it ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    /// Does this to requests, in turn.
    ///
    /// # Panics
    /// If it can't listen.
    #[must_use]
    pub fn start(to: SocketAddr, faults: &'static [Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            ended: Arc::default(),
        };
        let (requests, ended) = (Arc::clone(&proxy.requests), Arc::clone(&proxy.ended));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let requests = Arc::clone(&requests);
                thread::spawn(move || {
                    let next = || {
                        let number = requests.fetch_add(1, Ordering::SeqCst);
                        faults[number % faults.len()]
                    };
                    // Whoever goes away is no failure of the proxy.
                    let _ = pass(&stream, to, next);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        proxy
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// One request of a connection.
fn pass(mut stream: &TcpStream, to: SocketAddr, fault: impl Fn() -> Fault) -> io::Result<()> {
    let mut request = Vec::new();
    let mut chunk = [0; 16 << 10];
    let head = loop {
        if let Some(head) = end_of_head(&request) {
            break head;
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    };
    let fault = fault();
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    let length = text.split("content-length: ").nth(1);
    let length = length.and_then(|it| it.split('\r').next()?.parse::<usize>().ok());
    let length = length.unwrap_or(0);
    if fault == Fault::CutRequest {
        let mut half = vec![0; (length / 2).min(chunk.len())];
        return stream.read_exact(&mut half);
    }
    while request.len() < head + length {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let unavailable =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if fault == Fault::Unavailable {
        return stream.write_all(unavailable);
    }
    if fault == Fault::Slow {
        thread::sleep(Duration::from_millis(500));
    }
    let mut server = TcpStream::connect(to)?;
    server.write_all(&request[..head - 2])?;
    server.write_all(b"Connection: close\r\n\r\n")?;
    server.write_all(&request[head..])?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    match fault {
        Fault::Unheard => stream.write_all(unavailable),
        Fault::CutAnswer => stream.write_all(&answer[..answer.len() / 2]),
        _ => stream.write_all(&answer),
    }
}
