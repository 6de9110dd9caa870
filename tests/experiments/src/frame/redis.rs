//! Debian's redis-server on its own port and in its own folder.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::machine;
use super::resp::Client;

/// Longest time for the server to answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server; ends when dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts the server: loopback only, nothing saved, `DEBUG` allowed.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::start_with(dir, &[])
    }

    /// The same with further options.
    pub fn start_with(dir: &Path, options: &[&str]) -> Result<Self> {
        let port = machine::free_port()?;
        std::fs::create_dir_all(dir)?;
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args([
                "--appendonly",
                "no",
                "--enable-debug-command",
                "local",
                "--dir",
            ])
            .arg(dir)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let mut server = Self { child, port };
        server.wait_until_up()?;
        Ok(server)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to it.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(self.port)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let mut ended = None;
        let answers = machine::wait_until(START_TIMEOUT, || {
            ended = self.child.try_wait().ok().flatten();
            let answer = || self.connect()?.ask(&["PING"]);
            ended.is_some() || answer().is_ok()
        });
        match ended {
            Some(status) => bail!("redis-server ended at once ({status})"),
            None if answers => Ok(()),
            None => bail!("redis-server does not answer on port {}", self.port),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(std::io::Error::from)
            .and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!(
                "redis-server (pid {}) not stopped: {error}",
                self.child.id()
            );
        }
    }
}
