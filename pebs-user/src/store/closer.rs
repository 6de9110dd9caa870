//! The thread that turns open segments into Parquet.
//!
//! Encoding costs several times what writing the open segment does; the thread that drains the
//! rings must not wait for it. If the thread falls behind, segments stay open longer on disk;
//! memory does not grow.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};

use super::files::Owner;
use super::segment::{Expect, close, open_path};
use super::write_error::WriteError;

/// Segments that wait for the thread beside the one it works on.
const QUEUE: usize = 16;

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
    /// Closes the segment; returns by how many bytes the trace grew.
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
    /// By how many bytes the trace grew, mostly less than 0.
    growth: Arc<AtomicI64>,
}

impl Closer {
    /// Starts the thread.
    pub(super) fn start(dir: &Path, owner: Owner) -> Result<Self, WriteError> {
        let (jobs, inbox) = bounded::<Job>(QUEUE);
        let (outbox, failures) = unbounded();
        let growth = Arc::new(AtomicI64::new(0));
        let total = Arc::clone(&growth);
        let work = move || {
            be_nice();
            for job in inbox {
                match job.run(owner) {
                    Ok(bytes) => {
                        total.fetch_add(bytes, Ordering::Relaxed);
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
            growth,
        })
    }

    /// Hands a segment over. Never blocks.
    pub(super) fn submit(&mut self, job: Job) {
        self.waiting.push_back(job);
        self.pump();
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
        self.growth.load(Ordering::Relaxed)
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
