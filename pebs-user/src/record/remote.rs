//! Ends and changes a recording from other threads, and asks for its progress.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::Notify;

use super::event::Status;
use super::finish::Recorded;
use crate::failure::{Failure, Result};
use crate::units::ResetValue;

/// Reaches a recording from any thread. Clones reach the same one.
#[derive(Clone, Debug, Default)]
pub struct Remote(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    /// Wakes the recording for them.
    wake: Notify,
    status: Mutex<Status>,
}

#[derive(Debug, Default)]
struct Orders {
    /// Why to end.
    end: Option<&'static str>,
    changes: Vec<Order>,
}

/// A change of the recording.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Reset(ResetValue),
    /// A bound on the slow-down of items, a share.
    MaxOverhead(f64),
    Pause,
    Resume,
    PauseOrResume,
    /// A note with the time.
    Note(String),
    /// A copy of the trace so far, in a new directory.
    Snapshot(Option<PathBuf>),
}

impl Remote {
    /// Ends the recording, which has `why` as its reason. The first reason counts.
    pub fn end(&self, why: &'static str) {
        self.orders().end.get_or_insert(why);
        self.0.wake.notify_one();
    }

    /// Has a sample taken every so many events, of clocks ns, from now on. With a bound it may be changed again. An
    /// [`Event`](super::Event) says whether it was changed.
    pub fn set_reset(&self, reset: ResetValue) {
        self.order(Order::Reset(reset));
    }

    /// Keeps the slow-down of items below this share from now on, by changing the reset value.
    pub fn set_max_overhead(&self, share: f64) {
        self.order(Order::MaxOverhead(share));
    }

    /// Removes the probes and takes no samples, until [`Remote::resume`]. Needs [`Recording::pausable`](super::Recording).
    pub fn pause(&self) {
        self.order(Order::Pause);
    }

    /// Goes on after [`Remote::pause`]; starts a recording that waits for that.
    pub fn resume(&self) {
        self.order(Order::Resume);
    }

    /// Goes on if it is paused, or waits to begin; else pauses.
    pub fn pause_or_resume(&self) {
        self.order(Order::PauseOrResume);
    }

    /// Adds a note with the time to the trace.
    pub fn note(&self, text: impl Into<String>) {
        self.order(Order::Note(text.into()));
    }

    /// Writes what was recorded up to now as a trace of its own in this directory, which must not exist; default: the
    /// trace's with a number behind it. An [`Event`](super::Event) says when it is there.
    pub fn snapshot(&self, to: Option<PathBuf>) {
        self.order(Order::Snapshot(to));
    }

    /// Progress, as of some ms ago.
    #[must_use]
    pub fn status(&self) -> Status {
        locked(&self.0.status).clone()
    }

    pub(super) fn report(&self, status: Status) {
        *locked(&self.0.status) = status;
    }

    /// Returns after the next order, at once if there was one since the last call.
    pub(super) async fn ordered(&self) {
        self.0.wake.notified().await;
    }

    /// Why to end, if it was asked for.
    pub(super) fn has_ended(&self) -> Option<&'static str> {
        self.orders().end
    }

    /// Changes that were asked for since the last call.
    pub(super) fn take_changes(&self) -> Vec<Order> {
        std::mem::take(&mut self.orders().changes)
    }

    fn order(&self, order: Order) {
        self.orders().changes.push(order);
        self.0.wake.notify_one();
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        locked(&self.0.orders)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording that runs on a thread of its own. Dropping it ends the recording, and waits until nothing of it is left
/// in the kernel; the trace stays.
#[derive(Debug)]
pub struct Handle {
    remote: Remote,
    thread: Option<JoinHandle<Result<Recorded>>>,
}

impl Handle {
    pub(super) const fn new(remote: Remote, thread: JoinHandle<Result<Recorded>>) -> Self {
        Self {
            remote,
            thread: Some(thread),
        }
    }

    /// Reaches the recording.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Waits for the end of the recording.
    ///
    /// # Errors
    /// It could not run. Data already written stays.
    pub fn wait(mut self) -> Result<Recorded> {
        let thread = self.thread.take();
        let ended = thread.map(JoinHandle::join).transpose();
        let ended = ended.ok().flatten();
        ended.unwrap_or_else(|| {
            Err(Failure::bare(
                "the recording's thread panicked: this is a bug",
            ))
        })
    }

    /// Ends the recording and waits for it.
    ///
    /// # Errors
    /// As [`Handle::wait`].
    pub fn finish(self) -> Result<Recorded> {
        self.remote.end("ended by its owner");
        self.wait()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.remote.end("dropped");
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first reason to end counts; changes are kept until they are taken, in their order.
    #[test]
    fn orders() {
        let remote = Remote::default();
        let other = remote.clone();
        assert_eq!(remote.has_ended(), None);
        other.end("first");
        other.end("second");
        assert_eq!(remote.has_ended(), Some("first"));
        other.set_max_overhead(0.02);
        other.set_max_overhead(0.03);
        let changes = remote.take_changes();
        assert!(
            matches!(changes[..], [Order::MaxOverhead(a), Order::MaxOverhead(b)] if a < b),
            "{changes:?}"
        );
        assert!(remote.take_changes().is_empty());
    }
}
