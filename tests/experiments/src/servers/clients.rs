//! Clients that ask a usual or a dear request on a connection that stays.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use anyhow::{Context, Result, bail, ensure};

use super::prefork::{fastcgi, script};
use super::running::{PATIENCE, dir_of};
use crate::frame::resp;

/// A client with its connection.
pub trait Client {
    /// Asks for something and waits for the whole answer.
    fn ask(&mut self, dear: bool) -> Result<()>;

    /// Arguments of the last request's item, by their names in the tool's presets.
    fn texts(&self, dear: bool) -> Vec<(&'static str, String)>;
}

fn connect(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// The dear command walks along a list.
pub fn redis(port: u16) -> Result<Box<dyn Client>> {
    let mut client = resp::Client::connect(port)?;
    client.ask(&["SET", "key", "value"])?;
    client.ask(&["DEL", "list"])?;
    let mut push = vec!["RPUSH", "list"];
    push.resize(5_000, "element");
    client.ask(&push)?;
    Ok(Box::new(client))
}

impl Client for resp::Client {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let words: &[&str] = match dear {
            true => &["LREM", "list", "0", "absent"],
            false => &["GET", "key"],
        };
        Self::ask(self, words).map(drop)
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        vec![("cmd", if dear { "LREM" } else { "GET" }.to_owned())]
    }
}

struct Memcached(BufReader<TcpStream>);

/// The dear command asks for many values.
pub fn memcached(port: u16) -> Result<Box<dyn Client>> {
    let mut client = Memcached(connect(port)?);
    client
        .0
        .get_mut()
        .write_all(b"set key 0 0 5\r\nvalue\r\n")?;
    let mut line = String::new();
    client.0.read_line(&mut line)?;
    ensure!(line == "STORED\r\n", "{line}");
    Ok(Box::new(client))
}

impl Client for Memcached {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let command = get(dear) + "\r\n";
        self.0.get_mut().write_all(command.as_bytes())?;
        let mut line = String::new();
        while line != "END\r\n" {
            line.clear();
            ensure!(
                self.0.read_line(&mut line)? > 0,
                "the server closed the connection"
            );
        }
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        vec![("cmd", get(dear))]
    }
}

/// A command of memcached.
fn get(dear: bool) -> String {
    format!("get{}", " key".repeat(if dear { 150 } else { 1 }))
}

struct Http {
    stream: BufReader<TcpStream>,
    /// Port, if each request has a connection of its own.
    each: Option<u16>,
    /// Path of dear requests, which a number follows.
    dear: &'static str,
    number: u64,
}

impl Http {
    fn boxed(port: u16, dear: &'static str) -> Result<Box<dyn Client>> {
        Ok(Box::new(Self {
            stream: connect(port)?,
            each: None,
            dear,
            number: 0,
        }))
    }

    fn path(&self, dear: bool) -> String {
        match dear {
            true => format!("{}{}", self.dear, letters(self.number)),
            false => "/page".to_owned(),
        }
    }
}

/// The dear path makes a regular expression go back again and again.
pub fn apache(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/xaaaaaaaaaaaaaab")
}

/// The same.
pub fn haproxy(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/xabcdefghijklmnopqrstuvwx")
}

/// The same.
pub fn go(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/xaaaaaaaaaaaa")
}

/// The same.
pub fn varnish(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/xabcdefghijklmnopqrstuvwx")
}

/// The server computes for longer.
pub fn plain(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/x")
}

/// The same; the server closes the connection.
pub fn gunicorn(port: u16) -> Result<Box<dyn Client>> {
    Ok(Box::new(Http {
        stream: connect(port)?,
        each: Some(port),
        dear: "/x",
        number: 0,
    }))
}

/// The dear path has back references to be tried.
pub fn squid(port: u16) -> Result<Box<dyn Client>> {
    Http::boxed(port, "/xaaaaaaaaaaaaaaaaaa")
}

impl Client for Http {
    fn ask(&mut self, dear: bool) -> Result<()> {
        if let Some(port) = self.each {
            self.stream = connect(port)?;
        }
        // HAProxy knows what it has matched before.
        self.number += u64::from(dear);
        let path = self.path(dear);
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut length) = (String::new(), None);
        loop {
            line.clear();
            ensure!(
                self.stream.read_line(&mut line)? > 0,
                "the server closed the connection"
            );
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
            if line == "\r\n" {
                break;
            }
        }
        let length: u64 = length.context("no Content-Length")?;
        std::io::copy(&mut (&mut self.stream).take(length), &mut std::io::sink())?;
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let path = self.path(dear);
        vec![
            ("request", format!("GET {path} HTTP/1.1")),
            ("url", format!("http://localhost{path}")),
            ("uri", path),
            ("method", "GET".to_owned()),
        ]
    }
}

/// A number as three letters.
fn letters(number: u64) -> String {
    let digit = |place: u32| char::from(b'a' + (number / 26_u64.pow(place) % 26) as u8);
    (0..3).map(digit).collect()
}

/// A session with PostgreSQL.
///
/// Source: PostgreSQL 15, 55.7, message formats: a type, a length with itself, and what it is long.
pub struct Postgres(BufReader<TcpStream>);

/// The dear query counts for long.
pub fn postgres(port: u16) -> Result<Box<dyn Client>> {
    Ok(Box::new(Postgres::begin(connect(port)?)?))
}

impl Postgres {
    pub fn begin(stream: BufReader<TcpStream>) -> Result<Self> {
        let mut session = Self(stream);
        session.send(b"", b"\0\x03\0\0user\0postgres\0\0")?;
        session.until_ready()?;
        Ok(session)
    }

    /// The rows of a query.
    pub fn query(&mut self, query: &[u8]) -> Result<Vec<u8>> {
        self.send(b"Q", query)?;
        self.until_ready()
    }

    pub fn end(mut self) -> Result<()> {
        self.send(b"X", b"")
    }

    fn send(&mut self, kind: &[u8], content: &[u8]) -> Result<()> {
        let length = (4 + content.len() as u32).to_be_bytes();
        let message = [kind, &length, content].concat();
        Ok(self.0.get_mut().write_all(&message)?)
    }

    /// Data rows until the server is ready for a query.
    fn until_ready(&mut self) -> Result<Vec<u8>> {
        let mut rows = Vec::new();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut content = vec![0; length.saturating_sub(4) as usize];
            self.0.read_exact(&mut content)?;
            match head[0] {
                b'D' => rows.extend(content),
                b'E' => bail!("{}", String::from_utf8_lossy(&content)),
                b'Z' => return Ok(rows),
                _ => {}
            }
        }
    }
}

impl Client for Postgres {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let (_, query) = &self.texts(dear)[0];
        self.query(format!("{query}\0").as_bytes()).map(drop)
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let query = match dear {
            true => "select sum(i * i) from generate_series(1, 5000) i",
            false => "select 1 + 1",
        };
        vec![("sql", query.to_owned())]
    }
}

struct Maria(BufReader<TcpStream>);

/// The dear query computes for long.
///
/// Source: MariaDB's client/server protocol: a length of three bytes, a number, and what it is long.
pub fn mariadb(port: u16) -> Result<Box<dyn Client>> {
    let mut client = Maria(connect(port)?);
    client.packet()?;
    // Protocol 4.1, no password; `root`, as nobody is asked for one.
    let mut answer = 0x0000_8200_u32.to_le_bytes().to_vec();
    answer.extend(0x0100_0000_u32.to_le_bytes());
    answer.push(33);
    answer.extend([0; 23]);
    answer.extend(b"root\0\0");
    client.send(1, &answer)?;
    let done = client.packet()?;
    ensure!(
        done.first() == Some(&0),
        "{}",
        String::from_utf8_lossy(&done)
    );
    Ok(Box::new(client))
}

impl Maria {
    fn send(&mut self, number: u8, content: &[u8]) -> Result<()> {
        let mut packet = (content.len() as u32).to_le_bytes();
        packet[3] = number;
        Ok(self.0.get_mut().write_all(&[&packet, content].concat())?)
    }

    fn packet(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut content = vec![0; length as usize];
        self.0.read_exact(&mut content)?;
        Ok(content)
    }
}

impl Client for Maria {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let (_, query) = &self.texts(dear)[0];
        self.send(0, &[b"\x03", query.as_bytes()].concat())?;
        // Columns and rows end with a short packet each.
        let mut ends = 0;
        while ends < 2 {
            let packet = self.packet()?;
            match packet.first() {
                Some(0xff) => bail!("{}", String::from_utf8_lossy(&packet)),
                Some(0xfe) if packet.len() < 9 => ends += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let query = match dear {
            true => "select benchmark(5000, md5('text'))",
            false => "select 1 + 1",
        };
        vec![("sql", query.to_owned()), ("command", "3".to_owned())]
    }
}

struct Dns {
    socket: UdpSocket,
    number: u16,
}

/// The dear name has many addresses, or leads to others.
pub fn dns(port: u16) -> Result<Box<dyn Client>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(Box::new(Dns { socket, number: 0 }))
}

impl Client for Dns {
    fn ask(&mut self, dear: bool) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        // Source: RFC 1035, 4.1: an id, flags, one question; RFC 6891, 6.1: one record of EDNS, 4,096 bytes at most.
        let mut query = self.number.to_be_bytes().to_vec();
        query.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        query.extend(if dear { &b"\x04dear"[..] } else { b"\x05usual" });
        query.extend(b"\x04test\0\0\x01\0\x01");
        query.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        self.socket.send(&query)?;
        let mut answer = [0; 4096];
        let length = loop {
            match self.socket.recv(&mut answer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received?,
            }
        };
        ensure!(length > 12 && answer[..2] == query[..2], "no answer");
        ensure!(answer[3] & 15 == 0, "answer code {}", answer[3] & 15);
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let name = if dear { "dear" } else { "usual" };
        // With the length of the second part before it.
        vec![("query", format!("{name}\u{4}test"))]
    }
}

/// Scripts, each on a connection of its own.
struct Scripts(u16);

/// The dear script counts for longer.
pub fn scripts(port: u16) -> Result<Box<dyn Client>> {
    Ok(Box::new(Scripts(port)))
}

impl Client for Scripts {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let answer = fastcgi(connect(self.0)?.get_mut(), &script_of(dear))?;
        ensure!(!answer.is_empty(), "no answer");
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        vec![("script", script_of(dear))]
    }
}

fn script_of(dear: bool) -> String {
    script(if dear { "dear" } else { "page" })
}

/// Statements into the shell's input, and the lines that it prints.
struct Sqlite {
    input: File,
    output: BufReader<File>,
    number: u64,
}

/// The dear statement counts for longer.
pub fn sqlite(_: u16) -> Result<Box<dyn Client>> {
    let dir = dir_of("sqlite3");
    Ok(Box::new(Sqlite {
        input: OpenOptions::new().write(true).open(dir.join("in"))?,
        output: BufReader::new(File::open(dir.join("out"))?),
        number: 0,
    }))
}

impl Client for Sqlite {
    fn ask(&mut self, dear: bool) -> Result<()> {
        self.number += 1;
        let (_, statement) = &self.texts(dear)[0];
        writeln!(self.input, "{statement}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            line.starts_with(&format!("{}|", self.number)),
            "another answer: {line}"
        );
        Ok(())
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let (number, rows) = (self.number, if dear { 5000 } else { 50 });
        let statement = format!(
            "select {number}, sum(x) from (with recursive c(x) as (select 1 union all select x + 1 from c limit {rows}) \
             select x from c);"
        );
        vec![("sql", statement)]
    }
}

/// A session of IMAP.
struct Imap {
    stream: BufReader<TcpStream>,
    number: u64,
}

/// The dear command reads all mails.
pub fn imap(port: u16) -> Result<Box<dyn Client>> {
    let mut client = Imap {
        stream: connect(port)?,
        number: 0,
    };
    client.command("LOGIN somebody secret")?;
    client.command("SELECT INBOX")?;
    Ok(Box::new(client))
}

impl Imap {
    fn command(&mut self, command: &str) -> Result<()> {
        self.number += 1;
        let tag = format!("a{} ", self.number);
        self.stream
            .get_mut()
            .write_all(format!("{tag}{command}\r\n").as_bytes())?;
        let mut line = String::new();
        while !line.starts_with(&tag) {
            line.clear();
            ensure!(
                self.stream.read_line(&mut line)? > 0,
                "the server closed the connection"
            );
        }
        ensure!(line[tag.len()..].starts_with("OK"), "{line}");
        Ok(())
    }
}

impl Client for Imap {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let [command, args] = imap_command(dear);
        self.command(&format!("{command} {args}"))
    }

    fn texts(&self, dear: bool) -> Vec<(&'static str, String)> {
        let [command, args] = imap_command(dear);
        vec![("command", command.to_owned()), ("args", args.to_owned())]
    }
}

/// A command and its parameters.
fn imap_command(dear: bool) -> [&'static str; 2] {
    match dear {
        true => ["SEARCH", "BODY absent"],
        false => ["FETCH", "1 (FLAGS)"],
    }
}

/// A connection of HTTP/2 that calls methods of gRPC.
///
/// Source: RFC 9113, 4.1: length, type, flags, stream; RFC 7541, appendix A: known headers.
struct Grpc {
    stream: BufReader<TcpStream>,
    number: u32,
}

/// The dear method computes for longer.
pub fn grpc(port: u16) -> Result<Box<dyn Client>> {
    let mut stream = connect(port)?;
    // Settings, those of the server accepted, and a window for all answers.
    let start = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(4, 1, 0, &[]),
        frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes()),
    ];
    stream.get_mut().write_all(&start.concat())?;
    Ok(Box::new(Grpc { stream, number: 1 }))
}

/// A frame of a type, with flags, of a stream.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    [&head.concat(), content].concat()
}

impl Client for Grpc {
    fn ask(&mut self, dear: bool) -> Result<()> {
        let path = if dear {
            "/pebs.Server/Dear"
        } else {
            "/pebs.Server/Usual"
        };
        // POST, http, and names that are known or spelt.
        let mut headers = b"\x83\x86".to_vec();
        for (name, value) in [
            (&b"\x04"[..], path),
            (b"\x01", "localhost"),
            (b"\x0f\x10", "application/grpc"),
            (b"\x00\x02te", "trailers"),
        ] {
            headers.extend(name);
            headers.push(value.len() as u8);
            headers.extend(value.bytes());
        }
        let call = self.number;
        self.number += 2;
        let message = [frame(1, 4, call, &headers), frame(0, 1, call, &[0; 5])].concat();
        self.stream.get_mut().write_all(&message)?;
        let mut length = 0;
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head)?;
            let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut content)?;
            let [kind, flags] = [head[3], head[4]];
            if u32::from_be_bytes([head[5], head[6], head[7], head[8]]) == call {
                length += if kind == 0 { content.len() } else { 0 };
                if kind > 1 || flags & 1 == 1 {
                    break;
                }
            }
        }
        ensure!(length > 5, "no answer");
        Ok(())
    }

    fn texts(&self, _: bool) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
