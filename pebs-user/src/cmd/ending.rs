//! Signals that end a recording, pause it (SIGUSR1), or make a snapshot (SIGUSR2).
//!
//! They are caught once it is planned. SIGINT and SIGTERM end a recording even if they were ignored at its
//! start, as with `perf record`; SIGHUP does not (`nohup`).

use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::collect::{privileges, signals};
use crate::failure::{Context as _, Result};
use crate::record::Remote;

/// Ends a recording at a signal, as long as this exists.
pub(super) struct EndSignals(#[expect(dead_code, reason = "held, not read")] oneshot::Sender<()>);

impl EndSignals {
    /// Listens from now on, on a thread of its own.
    pub(super) fn listen(remote: &Remote) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the control loop")?;
        let mut signals = {
            let _inside = runtime.enter();
            Signals::listen()?
        };
        let remote = remote.clone();
        let (kept, gone) = oneshot::channel();
        thread::spawn(move || {
            privileges::give_up_on_this_thread();
            runtime.block_on(async {
                tokio::select! {
                    name = signals.end(&remote) => remote.end(name),
                    _ = gone => {}
                }
            });
        });
        Ok(Self(kept))
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP is ignored.
    hangup: Option<Signal>,
    pause: Signal,
    snapshot: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let ignored = signals::is_ignored(libc::SIGHUP);
        let hangup = (!ignored).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot catch SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot catch SIGTERM")?,
            hangup: hangup.transpose().context("cannot catch SIGHUP")?,
            pause: signal(SignalKind::user_defined1()).context("cannot catch SIGUSR1")?,
            snapshot: signal(SignalKind::user_defined2()).context("cannot catch SIGUSR2")?,
        })
    }

    /// Waits for a signal that ends the recording, and returns its name; obeys others meanwhile.
    async fn end(&mut self, remote: &Remote) -> &'static str {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(signal) => signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => return "interrupt",
                _ = self.terminate.recv() => return "terminated",
                _ = hangup => return "hang-up",
                _ = self.pause.recv() => remote.pause_or_resume(),
                _ = self.snapshot.recv() => remote.snapshot(None),
            }
        }
    }
}
