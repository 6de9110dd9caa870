//! Two threads for the kept visits, beside the one that makes them: one encodes their samples, the other estimates them
//! and encodes the estimates.
//!
//! These are most of the rows. How visits are estimated is decided by the caller: see [`Estimate`]. Memory: at most
//! [`QUEUE`] blocks wait for each thread; then the maker waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::super::estimates::{EstimateBlock, ORDERED_ROWS};
use super::super::output::Output;
use super::super::row_columns::RowColumns as _;
use super::super::samples::SampleBlock;
use super::super::table::Table;
use super::super::tables::Columns;
use super::super::visit_block::VisitBlock;
use super::Estimate;

/// Maximum waiting blocks: one is encoded while others wait and the next is made. With one alone the threads wait for
/// each other.
const QUEUE: usize = 2;

/// Data shared by the threads. Lock order: columns, then the output.
pub(super) struct Shared {
    pub samples: Mutex<Columns>,
    pub estimates: Mutex<Columns>,
    pub output: Mutex<Output>,
}

impl Shared {
    /// The columns of a table that comes in blocks; `None` for others.
    pub(super) fn columns(&self, table: Table) -> Option<&Mutex<Columns>> {
        match table {
            Table::Samples => Some(&self.samples),
            Table::VisitFunctions => Some(&self.estimates),
            _ => None,
        }
    }
}

/// Locks a value, even after another thread panicked: rows are appended completely or not at all.
pub(super) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Work {
    Block(Arc<VisitBlock>),
    EstimateBy(Estimate),
    /// Writes all rows to disk.
    Flush,
    /// Answers once all rows are in the columns.
    Settle(SyncSender<()>),
}

/// Handle of the threads.
pub(super) struct Encoder {
    /// `None`: the thread is to end.
    samples: Option<SyncSender<Work>>,
    estimates: Option<SyncSender<Work>>,
    /// Encoded blocks, to be reused.
    empty: Receiver<VisitBlock>,
    /// Whether all rows are in the columns.
    is_settled: AtomicBool,
    threads: Vec<JoinHandle<()>>,
}

impl Encoder {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let (emptied, empty) = channel();
        let mut encoder = Self {
            samples: None,
            estimates: None,
            empty,
            is_settled: AtomicBool::new(true),
            threads: Vec::new(),
        };
        encoder.samples = Some(encoder.run(SampleEncoder::default(), shared, &emptied)?);
        encoder.estimates = Some(encoder.run(EstimateEncoder::default(), shared, &emptied)?);
        Ok(encoder)
    }

    /// Starts a thread.
    fn run<E: Encode>(
        &mut self,
        mut encode: E,
        shared: &Arc<Shared>,
        emptied: &Sender<VisitBlock>,
    ) -> io::Result<SyncSender<Work>> {
        // Not crossbeam's channel: it keeps queued work when its receiver is gone, so a queued `Settle` would block
        // forever.
        let (work, inbox) = sync_channel(QUEUE);
        let (shared, emptied) = (Arc::clone(shared), emptied.clone());
        let thread = thread::Builder::new().name(E::TABLE.name().to_owned());
        let thread = thread.spawn(move || encode.run(&inbox, &shared, &emptied))?;
        self.threads.push(thread);
        Ok(work)
    }

    /// Takes the rows of a block, which is empty afterwards.
    pub(super) fn block(&self, block: &mut VisitBlock) {
        let room = self.empty.try_recv().unwrap_or_default();
        self.is_settled.store(false, Ordering::Relaxed);
        let block = Arc::new(std::mem::replace(block, room));
        send(self.estimates.as_ref(), Work::Block(Arc::clone(&block)));
        send(self.samples.as_ref(), Work::Block(block));
    }

    /// Sets how visits in later blocks are estimated.
    pub(super) fn estimate_by(&self, estimate: Estimate) {
        send(self.estimates.as_ref(), Work::EstimateBy(estimate));
    }

    /// Starts writing all rows to disk, without waiting. Failures are remembered.
    pub(super) fn flush(&self) {
        send(self.estimates.as_ref(), Work::Flush);
        send(self.samples.as_ref(), Work::Flush);
    }

    /// Whether all rows are in the columns.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Waits until all rows are in the columns.
    ///
    /// # Errors
    /// If a thread panicked: rows are lost.
    pub(super) fn settle(&self) -> io::Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        let waits = [&self.estimates, &self.samples].map(|to| {
            let (done, wait) = sync_channel(1);
            send(to.as_ref(), Work::Settle(done));
            wait
        });
        let panicked = |_| io::Error::other("a thread that encodes rows panicked: this is a bug");
        for wait in waits {
            wait.recv().map_err(panicked)?;
        }
        self.is_settled.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn send(to: Option<&SyncSender<Work>>, work: Work) {
    if let Some(to) = to {
        // If the thread panicked, the next call of `settle` reports it.
        let _ = to.send(work);
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        (self.samples, self.estimates) = (None, None);
        for thread in self.threads.drain(..) {
            // Its panic was printed already.
            let _ = thread.join();
        }
    }
}

/// The work of one of the threads.
trait Encode: Send + 'static {
    /// The table that it writes.
    const TABLE: Table;

    /// Appends the rows of a block. Failures are remembered.
    fn block(&mut self, block: &VisitBlock, shared: &Shared);

    /// Appends the waiting rows. Failures are remembered.
    fn settle(&mut self, _shared: &Shared) {}

    fn estimate_by(&mut self, _estimate: Estimate) {}

    fn run(&mut self, inbox: &Receiver<Work>, shared: &Shared, emptied: &Sender<VisitBlock>) {
        for work in inbox {
            match work {
                Work::Block(block) => {
                    self.block(&block, shared);
                    // The last user returns the block. The receivers of blocks and answers may be gone.
                    if let Some(mut block) = Arc::into_inner(block) {
                        block.clear();
                        let _ = emptied.send(block);
                    }
                }
                Work::EstimateBy(estimate) => self.estimate_by(estimate),
                Work::Flush => {
                    self.settle(shared);
                    if let Some(columns) = shared.columns(Self::TABLE) {
                        let columns = &mut locked(columns);
                        let columns = columns.of_mut(Self::TABLE);
                        let _ = locked(&shared.output).append(Self::TABLE, columns);
                    }
                }
                Work::Settle(done) => {
                    self.settle(shared);
                    let _ = done.send(());
                }
            }
        }
    }
}

#[derive(Default)]
struct SampleEncoder {
    room: SampleBlock,
}

impl Encode for SampleEncoder {
    const TABLE: Table = Table::Samples;

    /// Thread by thread: [`ORDERED_ROWS`](super::super::samples::ORDERED_ROWS) rows at once make times smallest.
    fn block(&mut self, block: &VisitBlock, shared: &Shared) {
        let columns = &mut locked(&shared.samples).samples;
        block.samples.ordered_parts(&mut self.room, |part| {
            columns.extend_part(part);
            if columns.is_full() {
                let _ = locked(&shared.output).append(Self::TABLE, columns);
            }
        });
    }
}

#[derive(Default)]
struct EstimateEncoder {
    estimate: Option<Estimate>,
    /// Waiting rows.
    estimates: EstimateBlock,
    room: EstimateBlock,
}

impl Encode for EstimateEncoder {
    const TABLE: Table = Table::VisitFunctions;

    fn block(&mut self, block: &VisitBlock, shared: &Shared) {
        for (key, visit) in block.visits() {
            if let Some(estimate) = &mut self.estimate {
                estimate(&visit, &mut self.estimates);
            }
            self.estimates.keep(key);
            if self.estimates.rows() >= ORDERED_ROWS {
                self.settle(shared);
            }
        }
    }

    /// Thread by thread.
    fn settle(&mut self, shared: &Shared) {
        let columns = &mut locked(&shared.estimates).visit_functions;
        self.estimates.ordered_parts(&mut self.room, |parts| {
            columns.extend_parts(parts);
            if columns.is_full() {
                let _ = locked(&shared.output).append(Self::TABLE, columns);
            }
        });
        self.estimates.clear();
    }

    fn estimate_by(&mut self, estimate: Estimate) {
        self.estimate = Some(estimate);
    }
}
