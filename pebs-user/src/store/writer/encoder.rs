//! A thread that estimates and encodes the visits that are kept, beside the one that makes them.
//!
//! Samples and estimates are most rows. How visits are estimated is not decided here: see [`Estimate`].
//! Memory: [`QUEUE`] blocks wait at most; then their maker waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::super::estimates::{EstimateBlock, ORDERED_ROWS};
use super::super::output::Output;
use super::super::samples::SampleBlock;
use super::super::schema::{Columns, Table};
use super::super::tables::RowColumns as _;
use super::super::visit_block::VisitBlock;
use super::Estimate;

/// Blocks that wait at most: one is encoded while another waits and the next is made.
const QUEUE: usize = 1;

/// What both threads use. Whoever needs both locks takes that of the columns first.
pub(super) struct Shared {
    /// Of the tables that come in blocks.
    pub columns: Mutex<Columns>,
    pub output: Mutex<Output>,
}

/// The value, also after another thread panicked: rows are appended whole or not at all.
pub(super) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Work {
    Block(VisitBlock),
    EstimateBy(Estimate),
    /// Writes all rows to disk.
    Flush,
    /// Answers once all rows are in the columns.
    Settle(Sender<()>),
}

/// Handle of the thread.
pub(super) struct Encoder {
    /// None: it is told to end.
    work: Option<Sender<Work>>,
    /// Blocks that were encoded, for their room.
    empty: Receiver<VisitBlock>,
    /// All rows are in the columns.
    is_settled: AtomicBool,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (work, inbox) = bounded(QUEUE);
        let (emptied, empty) = unbounded();
        let encoding = Encoding {
            shared,
            estimate: None,
            estimates: EstimateBlock::default(),
            estimates_room: EstimateBlock::default(),
            samples_room: SampleBlock::default(),
        };
        let thread = thread::Builder::new().name("encoder".to_owned());
        Ok(Self {
            work: Some(work),
            empty,
            is_settled: AtomicBool::new(true),
            thread: Some(thread.spawn(move || encoding.run(&inbox, &emptied))?),
        })
    }

    /// Takes the rows of a block, which has none then.
    pub(super) fn block(&self, block: &mut VisitBlock) {
        let room = self.empty.try_recv().unwrap_or_default();
        self.is_settled.store(false, Ordering::Relaxed);
        self.send(Work::Block(std::mem::replace(block, room)));
    }

    /// Visits of the blocks from now on are estimated that way.
    pub(super) fn estimate_by(&self, estimate: Estimate) {
        self.send(Work::EstimateBy(estimate));
    }

    /// Has all rows written to disk, without waiting for it. Failures are remembered.
    pub(super) fn flush(&self) {
        self.send(Work::Flush);
    }

    /// Whether all rows are in the columns.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Waits until all rows are in the columns.
    ///
    /// # Errors
    /// If the thread panicked: rows are lost.
    pub(super) fn settle(&self) -> io::Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        let (done, wait) = bounded(1);
        self.send(Work::Settle(done));
        let panicked = |_| io::Error::other("the thread that encodes rows panicked: this is a bug");
        wait.recv().map_err(panicked)?;
        self.is_settled.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn send(&self, work: Work) {
        if let Some(to) = &self.work {
            // If it panicked, whoever settles next is told.
            let _ = to.send(work);
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // It has said why it panicked.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Encoding {
    shared: Arc<Shared>,
    estimate: Option<Estimate>,
    /// Rows that are not in the columns yet.
    estimates: EstimateBlock,
    estimates_room: EstimateBlock,
    samples_room: SampleBlock,
}

impl Encoding {
    fn run(mut self, inbox: &Receiver<Work>, emptied: &Sender<VisitBlock>) {
        for work in inbox {
            match work {
                Work::Block(mut block) => {
                    self.estimate(&block);
                    self.samples(&block.samples);
                    block.clear();
                    // Nobody may need room any more, or wait for an answer.
                    let _ = emptied.send(block);
                }
                Work::EstimateBy(estimate) => self.estimate = Some(estimate),
                Work::Flush => {
                    self.encode_estimates();
                    self.flush();
                }
                Work::Settle(done) => {
                    self.encode_estimates();
                    let _ = done.send(());
                }
            }
        }
    }

    fn estimate(&mut self, block: &VisitBlock) {
        for (key, visit) in block.visits() {
            if let Some(estimate) = &mut self.estimate {
                estimate(&visit, &mut self.estimates);
            }
            self.estimates.keep(key);
            if self.estimates.rows() >= ORDERED_ROWS {
                self.encode_estimates();
            }
        }
    }

    /// Adds the rows of a block, thread after thread: times take least where there are
    /// [`ORDERED_ROWS`](super::super::samples::ORDERED_ROWS). Failures are remembered.
    fn samples(&mut self, block: &SampleBlock) {
        let Shared { columns, output } = &*self.shared;
        let columns = &mut locked(columns).samples;
        block.ordered_parts(&mut self.samples_room, |part| {
            columns.extend_part(part);
            if columns.is_full() {
                let _ = locked(output).append(Table::Samples, columns);
            }
        });
    }

    /// Adds the estimates, thread after thread. Failures are remembered.
    fn encode_estimates(&mut self) {
        let Shared { columns, output } = &*self.shared;
        let columns = &mut locked(columns).visit_functions;
        let room = &mut self.estimates_room;
        self.estimates.ordered_parts(room, |parts| {
            columns.extend_parts(parts);
            if columns.is_full() {
                let _ = locked(output).append(Table::VisitFunctions, columns);
            }
        });
        self.estimates.clear();
    }

    /// Writes the rows to disk. Failures are remembered.
    fn flush(&self) {
        let Shared { columns, output } = &*self.shared;
        let columns = &mut locked(columns);
        for table in Table::ALL {
            if super::comes_in_blocks(table) {
                let _ = locked(output).append(table, columns.of_mut(table));
            }
        }
    }
}
