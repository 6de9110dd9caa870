//! Signals that end a recording.
//!
//! They are caught from the first step on. SIGINT and SIGTERM end a recording even if they were ignored at its
//! start, as with `perf record`; SIGHUP does not (`nohup`).

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::collect::{privileges, signals};
use crate::failure::{Context as _, Failure, Result};

/// Time to wait for pending signals in a check.
const GLANCE: Duration = Duration::from_millis(1);

/// The event loop that waits for the end of a recording, and the signals that may end it.
pub(super) struct Ending {
    /// Runs on the thread that waits.
    pub runtime: Runtime,
    /// Signals received.
    pub signals: Signals,
}

impl Ending {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Started later by the main thread, to wait for the command.
            .on_thread_start(privileges::give_up_on_this_thread)
            .build()
            .context("cannot start the control loop")?;
        let signals = {
            let _inside = runtime.enter();
            Signals::listen()?
        };
        Ok(Self { runtime, signals })
    }

    /// Returns at once unless a signal came.
    ///
    /// # Errors
    /// Names the signal.
    pub(super) fn check(&mut self) -> Result<()> {
        let glance = async { tokio::time::timeout(GLANCE, self.signals.next()).await };
        match self.runtime.block_on(glance) {
            Ok(what) => Err(Failure::bare(format!(
                "ended before it began ({what}): nothing was recorded"
            ))),
            Err(_nothing_came) => Ok(()),
        }
    }
}

pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP is ignored.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> Result<Self> {
        let ignored = signals::is_ignored(libc::SIGHUP);
        let hangup = (!ignored).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot catch SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot catch SIGTERM")?,
            hangup: hangup.transpose().context("cannot catch SIGHUP")?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminated",
            _ = hangup => "hang-up",
        }
    }
}
