//! As much of Redis' protocol as the load needs.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/> (RESP2).

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail};

/// Answer of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status or a number, as text.
    Line(String),
    /// A value; `None`: no such key.
    Value(Option<Vec<u8>>),
}

/// One connection.
pub struct Client {
    reader: BufReader<TcpStream>,
    pending: Vec<u8>,
}

impl Client {
    /// Connects to a server on this machine.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(stream),
            pending: Vec::new(),
        })
    }

    /// Sends one command and waits for its reply.
    pub fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        self.queue(words);
        self.flush()?;
        parse(&mut self.reader)
    }

    /// Sends commands `batch` at a time and fails at the first error.
    pub fn ask_all(
        &mut self,
        commands: impl Iterator<Item = Vec<String>>,
        batch: usize,
    ) -> Result<()> {
        let mut waiting = 0;
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.queue(&words);
            waiting += 1;
            if waiting == batch {
                self.settle(waiting)?;
                waiting = 0;
            }
        }
        self.settle(waiting)
    }

    fn settle(&mut self, replies: usize) -> Result<()> {
        self.flush()?;
        for _ in 0..replies {
            parse(&mut self.reader)?;
        }
        Ok(())
    }

    fn queue(&mut self, words: &[&str]) {
        self.pending.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            self.pending
                .extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.reader.get_mut().write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

fn parse(reader: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    match line.split_at_checked(1) {
        Some(("+" | ":", rest)) => Ok(Reply::Line(rest.to_owned())),
        Some(("$", "-1")) => Ok(Reply::Value(None)),
        Some(("$", length)) => {
            let length: usize = length.parse().context("length of a value")?;
            let mut value = vec![0; length + 2];
            reader.read_exact(&mut value)?;
            value.truncate(length);
            Ok(Reply::Value(Some(value)))
        }
        Some(("-", error)) => bail!("redis-server: {error}"),
        _ => bail!("redis-server: reply not understood: {line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &str, expect: &Reply) {
        assert_eq!(&parse(&mut bytes.as_bytes()).unwrap(), expect);
    }

    /// Each kind of reply that the load can meet is distinguished.
    #[test]
    fn replies() {
        check("+OK\r\n", &Reply::Line("OK".into()));
        check(":1\r\n", &Reply::Line("1".into()));
        check("$-1\r\n", &Reply::Value(None));
        check("$4\r\na\r\nb\r\n", &Reply::Value(Some(b"a\r\nb".to_vec())));
        assert!(parse(&mut "-ERR no\r\n".as_bytes()).is_err());
        assert!(parse(&mut "".as_bytes()).is_err());
    }
}
