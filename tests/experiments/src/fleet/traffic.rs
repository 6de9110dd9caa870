//! Debian's redis-server with a hash of many fields, and clients that read them.
//!
//! A hash of up to `hash-max-listpack-entries` fields (128 by default) is a list in which each field is looked for from the begin,
//! a larger one a table. A host where that setting is too large is slow by `lpFind`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::frame::redis::Server;

/// The setting that makes a server slow.
pub const SLOW: [&str; 2] = ["--hash-max-listpack-entries", "100000"];

/// Where it looks for fields.
pub const CAUSE: &str = "lpFind";

const FIELDS: u64 = 10_000;

/// Commands at a time, and the time in between.
const AT_ONCE: u64 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// A server whose client is at work until this is dropped.
pub struct Busy {
    pub server: Server,
    ended: Arc<AtomicBool>,
    client: Option<JoinHandle<Result<()>>>,
}

impl Busy {
    pub fn start(dir: &Path, options: &[&str]) -> Result<Self> {
        let server = Server::start_with(dir, options)?;
        let mut client = server.connect()?;
        let set = |n: u64| {
            ["HSET", "hash", &field(n), "value"]
                .map(str::to_owned)
                .to_vec()
        };
        client.ask_all((0..FIELDS).map(set), 100)?;
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let work = move || {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                let get = |n: u64| {
                    ["HGET", "hash", &field(n % FIELDS)]
                        .map(str::to_owned)
                        .to_vec()
                };
                // Prime to the number of fields, so that each has its turn.
                client.ask_all((n..n + AT_ONCE).map(|it| get(it * 7)), 1)?;
                n += AT_ONCE;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        };
        Ok(Self {
            server,
            ended,
            client: Some(std::thread::spawn(work)),
        })
    }

    /// Ends the client.
    ///
    /// # Errors
    /// It failed.
    pub fn end(mut self) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        let client = self.client.take().map(JoinHandle::join);
        client.map_or(Ok(()), |it| {
            it.map_err(|_| anyhow!("the client panicked"))?
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn field(n: u64) -> String {
    format!("field:{n:06}")
}
