//! A thread that encodes samples and estimates, which are most rows, beside the one that makes them.
//!
//! Memory: [`QUEUE`] blocks wait at most; then their maker waits.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::super::estimates::EstimateBlock;
use super::super::output::Output;
use super::super::samples::SampleBlock;
use super::super::schema::{Columns, Table};
use super::super::tables::RowColumns as _;

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
    Samples(SampleBlock),
    Estimates(EstimateBlock),
    /// Answers once all before is done.
    Settle(Sender<()>),
}

/// Handle of the thread.
pub(super) struct Encoder {
    /// None: it is told to end.
    work: Option<Sender<Work>>,
    /// Blocks that were encoded, for their room.
    samples: Receiver<SampleBlock>,
    estimates: Receiver<EstimateBlock>,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (work, inbox) = bounded(QUEUE);
        let (empty_samples, samples) = unbounded();
        let (empty_estimates, estimates) = unbounded();
        let mut samples_room = SampleBlock::default();
        let mut estimates_room = EstimateBlock::default();
        let run = move || {
            for work in inbox {
                // Nobody may wait for an answer, or need room, any more.
                match work {
                    Work::Samples(mut block) => {
                        shared.samples(&block, &mut samples_room);
                        block.clear();
                        let _ = empty_samples.send(block);
                    }
                    Work::Estimates(mut block) => {
                        shared.estimates(&block, &mut estimates_room);
                        block.clear();
                        let _ = empty_estimates.send(block);
                    }
                    Work::Settle(done) => {
                        let _ = done.send(());
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("encoder".to_owned());
        Ok(Self {
            work: Some(work),
            samples,
            estimates,
            thread: Some(thread.spawn(run)?),
        })
    }

    /// Takes the rows of a block, which has none then.
    pub(super) fn samples(&self, block: &mut SampleBlock) {
        let room = self.samples.try_recv().unwrap_or_default();
        self.send(Work::Samples(std::mem::replace(block, room)));
    }

    /// Takes the rows of a block, which has none then.
    pub(super) fn estimates(&self, block: &mut EstimateBlock) {
        let room = self.estimates.try_recv().unwrap_or_default();
        self.send(Work::Estimates(std::mem::replace(block, room)));
    }

    /// Waits until all rows are in the columns.
    ///
    /// # Errors
    /// If the thread panicked: rows are lost.
    pub(super) fn settle(&self) -> io::Result<()> {
        let (done, wait) = bounded(1);
        self.send(Work::Settle(done));
        let panicked = |_| io::Error::other("the thread that encodes rows panicked: this is a bug");
        wait.recv().map_err(panicked)
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

impl Shared {
    /// Adds the rows of a block, thread after thread: times take least where there are
    /// [`ORDERED_ROWS`](super::super::samples::ORDERED_ROWS). Failures are remembered.
    fn samples(&self, block: &SampleBlock, room: &mut SampleBlock) {
        let columns = &mut locked(&self.columns).samples;
        block.ordered_parts(room, |part| {
            columns.extend_part(part);
            if columns.is_full() {
                let _ = locked(&self.output).append(Table::Samples, columns);
            }
        });
    }

    /// Adds the rows of a block, thread after thread. Failures are remembered.
    fn estimates(&self, block: &EstimateBlock, room: &mut EstimateBlock) {
        let columns = &mut locked(&self.columns).visit_functions;
        block.ordered_parts(room, |parts| {
            columns.extend_parts(parts);
            if columns.is_full() {
                let _ = locked(&self.output).append(Table::VisitFunctions, columns);
            }
        });
    }
}
