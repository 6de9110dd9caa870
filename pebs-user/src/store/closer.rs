//! The thread that compacts segments.
//!
//! That costs several times what writing the open segment does; the thread that drains the rings must
//! not wait for it. If the thread falls behind, segments are closed as they are: larger, as readable.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};

use super::files::Owner;
use super::segment::{Expect, close, open_path, rename};
use super::write_error::WriteError;

/// Segments that wait for the thread beside the one it works on.
const QUEUE: usize = 16;

/// Bytes of segments that wait at most: some seconds of work, which the end of a run waits for.
const BACKLOG_BYTES: u64 = 256 << 20;

/// Niceness of the thread: it runs beside the traced program.
const NICE: i32 = 10;

/// A segment to close.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) folder: PathBuf,
    pub(super) number: u32,
    pub(super) schema: SchemaRef,
    /// Rows that were written.
    pub(super) rows: u64,
    /// Size of the open file.
    pub(super) bytes: u64,
}

impl Job {
    /// Closes the segment as it is.
    fn run_quickly(&self) -> Result<(), WriteError> {
        rename(&self.folder, self.number).map_err(|error| WriteError::segment(&self.path(), error))
    }

    /// Closes the segment, compacted; returns by how many bytes the trace grew.
    pub(super) fn run(&self, owner: Owner) -> Result<i64, WriteError> {
        let expect = Expect::Rows(self.rows);
        let closed = close(&self.folder, self.number, &self.schema, owner, expect)
            .map_err(|error| WriteError::segment(&self.path(), error))?;
        Ok(closed.bytes as i64 - self.bytes as i64)
    }

    fn path(&self) -> PathBuf {
        open_path(&self.folder, self.number)
    }
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Closer {
    jobs: Option<Sender<Job>>,
    failures: Receiver<(Job, WriteError)>,
    /// Jobs that found the queue full.
    waiting: VecDeque<Job>,
    thread: Option<JoinHandle<()>>,
    compact: bool,
    done: Arc<Done>,
    /// Bytes of segments handed to the thread.
    submitted: u64,
}

/// What the thread did.
#[derive(Debug, Default)]
struct Done {
    /// By how many bytes the trace grew, mostly less than 0.
    growth: AtomicI64,
    /// Bytes of the segments.
    bytes: AtomicU64,
}

impl Closer {
    /// Starts the thread. `compact`: whether segments are compacted at all.
    pub(super) fn start(dir: &Path, owner: Owner, compact: bool) -> Result<Self, WriteError> {
        let (jobs, inbox) = bounded::<Job>(QUEUE);
        let (outbox, failures) = unbounded();
        let done = Arc::new(Done::default());
        let total = Arc::clone(&done);
        let work = move || {
            be_nice();
            for job in inbox {
                let result = job.run(owner);
                total.bytes.fetch_add(job.bytes, Ordering::Relaxed);
                match result {
                    Ok(bytes) => {
                        total.growth.fetch_add(bytes, Ordering::Relaxed);
                    }
                    Err(error) => {
                        // Fails only if the writer is gone; its segment can be recovered then.
                        let _ = outbox.send((job, error));
                    }
                }
            }
        };
        let thread = thread::Builder::new()
            .name("segments".to_owned())
            .spawn(work)
            .map_err(|error| WriteError::io(dir, error))?;
        Ok(Self {
            jobs: Some(jobs),
            failures,
            waiting: VecDeque::new(),
            thread: Some(thread),
            compact,
            done,
            submitted: 0,
        })
    }

    /// Closes a segment, or hands it over to be closed. Never waits for the thread.
    ///
    /// # Errors
    /// If it could not be closed at once: the segment and why.
    pub(super) fn submit(&mut self, job: Job) -> Result<(), (Job, WriteError)> {
        let backlog = self.submitted - self.done.bytes.load(Ordering::Relaxed);
        if !self.compact || backlog > BACKLOG_BYTES {
            return job.run_quickly().map_err(|error| (job, error));
        }
        self.submitted += job.bytes;
        self.waiting.push_back(job);
        self.pump();
        Ok(())
    }

    /// Moves waiting segments into the queue as far as it has room. Never blocks.
    pub(super) fn pump(&mut self) {
        let Some(jobs) = &self.jobs else { return };
        while let Some(job) = self.waiting.pop_front() {
            if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
                jobs.try_send(job)
            {
                self.waiting.push_front(job);
                return;
            }
        }
    }

    /// A segment that could not be closed, if there is one, and why.
    pub(super) fn failure(&self) -> Option<(Job, WriteError)> {
        self.failures.try_recv().ok()
    }

    /// By how many bytes closing changed the size of the trace so far.
    pub(super) fn growth(&self) -> i64 {
        self.done.growth.load(Ordering::Relaxed)
    }

    /// Waits until every segment is closed or failed; returns those that failed.
    pub(super) fn finish(&mut self) -> Vec<(Job, WriteError)> {
        if let Some(jobs) = self.jobs.take() {
            for job in mem::take(&mut self.waiting) {
                // Fails only if the thread died, which the join below tells.
                if let Err(error) = jobs.send(job) {
                    self.waiting.push_back(error.into_inner());
                }
            }
        }
        let died = self.thread.take().is_some_and(|t| t.join().is_err());
        let mut failed: Vec<_> = self.failures.try_iter().collect();
        if died || !self.waiting.is_empty() {
            for job in mem::take(&mut self.waiting) {
                let source = io::Error::other("the thread that closes segments died");
                let error = WriteError::io(&job.path(), source);
                failed.push((job, error));
            }
        }
        failed
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        // What failed stays open on disk, where it can be recovered.
        drop(self.finish());
    }
}

/// Lets everything else run first. On Linux niceness is a thread's own.
fn be_nice() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        tracing::debug!("cannot lower the priority of the thread that closes segments: {error}");
    }
}
