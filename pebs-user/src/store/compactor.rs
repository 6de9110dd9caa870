//! The thread that compacts closed segments.
//!
//! Compacting costs about as much as writing; the thread that drains the rings must not wait for it. If this thread
//! falls behind, segments are not compacted: larger, but as readable. The writer waits for it only if nothing is
//! being recorded ([`WriterOptions::compact_all`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use arrow_schema::SchemaRef;
use crossbeam_channel::{SendError, Sender, TrySendError, bounded};

use super::descriptions::of_segment;
use super::files::Owner;
use super::net::SampleCosts;
use super::options::WriterOptions;
use super::segment::{close, compact};
use super::segment_files::{closed_path, open_path};
use super::write_error::WriteError;

/// Maximum number of segments waiting for the thread.
const QUEUE: usize = 64;

/// Maximum queue length if the writer waits: just enough to keep the thread busy.
const QUEUE_WAITING: usize = 2;

/// Maximum bytes of waiting segments: some seconds of work, for which the end of a run waits.
const BACKLOG_BYTES: u64 = 256 << 20;

/// Niceness of the thread: it runs on the machine of the traced program.
const NICE: i32 = 10;

/// A segment to close.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) folder: PathBuf,
    pub(super) number: u32,
    pub(super) schema: SchemaRef,
    /// Rows that were written.
    pub(super) rows: u64,
    /// Size of the file.
    pub(super) bytes: u64,
}

impl Job {
    /// Closes the segment.
    pub(super) fn close(&self) -> Result<(), WriteError> {
        let path = open_path(&self.folder, self.number);
        close(&self.folder, self.number, self.rows)
            .map_err(|error| WriteError::segment(&path, error))
    }

    /// Compacts the closed segment; returns the change of the trace's size, bytes.
    fn compact(&self, owner: Owner, costs: &SampleCosts) -> Result<i64, WriteError> {
        let path = closed_path(&self.folder, self.number);
        let schema = of_segment(&self.schema, self.number);
        let bytes = compact(&path, &schema, owner, self.rows, costs)
            .map_err(|error| WriteError::segment(&path, error))?;
        Ok(bytes as i64 - self.bytes as i64)
    }
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct Compactor {
    /// `None`: nothing is compacted.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Whether the writer waits for the thread instead of leaving a segment uncompacted.
    all: bool,
    done: Arc<Done>,
    /// Costs of a sample for items, by the visit from which they were known.
    pub(super) costs: SampleCosts,
    /// Bytes of segments handed to the thread.
    submitted: u64,
}

/// Totals of the thread.
#[derive(Debug, Default)]
struct Done {
    /// Change of the trace's size, bytes; mostly negative.
    growth: AtomicI64,
    /// Bytes of the segments.
    bytes: AtomicU64,
}

impl Compactor {
    /// Starts the thread.
    pub(super) fn start(
        dir: &Path,
        owner: Owner,
        options: &WriterOptions,
    ) -> Result<Self, WriteError> {
        let queue = if options.compact_all {
            QUEUE_WAITING
        } else {
            QUEUE
        };
        let (jobs, inbox) = bounded::<Job>(queue);
        let done = Arc::new(Done::default());
        let total = Arc::clone(&done);
        let costs = SampleCosts::default();
        let known = costs.clone();
        let work = move || {
            be_nice();
            for job in inbox {
                match job.compact(owner, &known) {
                    Ok(bytes) => {
                        total.growth.fetch_add(bytes, Ordering::Relaxed);
                    }
                    // The segment is unchanged, and complete.
                    Err(error) => tracing::debug!("a segment stays as it is: {error}"),
                }
                total.bytes.fetch_add(job.bytes, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new()
            .name("segments".to_owned())
            .spawn(work)
            .map_err(|error| WriteError::io(dir, error))?;
        Ok(Self {
            jobs: options.compact.then_some(jobs),
            thread: Some(thread),
            all: options.compact_all,
            done,
            costs,
            submitted: 0,
        })
    }

    /// Hands a closed segment over, unless too much waits already. Blocks only if all are to be compacted.
    pub(super) fn submit(&mut self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        if job.rows == 0 {
            return;
        }
        let bytes = job.bytes;
        let backlog = self.submitted - self.done.bytes.load(Ordering::Relaxed);
        let left = if self.all {
            jobs.send(job).err().map(|SendError(job)| job)
        } else if backlog > BACKLOG_BYTES {
            Some(job)
        } else {
            jobs.try_send(job).err().map(TrySendError::into_inner)
        };
        match left {
            None => self.submitted += bytes,
            Some(job) => tracing::debug!(
                "segment {} of {} stays as it is",
                job.number,
                job.folder.display()
            ),
        }
    }

    /// Change of the trace's size by compacting so far, bytes.
    pub(super) fn growth(&self) -> i64 {
        self.done.growth.load(Ordering::Relaxed)
    }

    /// Waits until every segment handed over is compacted.
    pub(super) fn finish(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            tracing::debug!("the thread that compacts segments died");
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Lowers the thread's priority. On Linux niceness is per thread.
fn be_nice() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        tracing::debug!("cannot lower the priority of the thread that compacts segments: {error}");
    }
}
