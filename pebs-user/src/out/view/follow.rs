//! Follows a trace that is being written: reads it again and again, in a separate thread, until it has ended.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::data::Data;
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::report::ReportError;
use crate::store::reader::{Trace, TraceState};

/// Least time between two readings: about the delay until recorded data can be read.
const PERIOD: Duration = Duration::from_secs(1);

/// A reading takes at most this part of the time, as each reads all that there is.
const PART: u32 = 5;

/// A file that was just closed or compacted has moved since it was listed, and one being written may end anywhere:
/// an error is reported only if it persists this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shown of a trace that is being followed.
const FOLLOWING: &str = "live: being written, read anew every second or so";

/// Shown when it has ended.
const ENDED: &str = "the recording has ended, and this is all of it";

/// The trace to read, and how.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Directory of the trace.
    pub dir: PathBuf,
    /// Number of the slowest items of each probe.
    pub slowest: usize,
    /// Visits that overlap a loss.
    pub losses: LossVisits,
    /// Rule for slow items; `None`: that of the report.
    pub slow: Option<SlowBy>,
}

impl Source {
    /// Reads the current data, and whether more will come.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub(crate) fn read(&self) -> Result<(Data, bool), ReportError> {
        let trace = Trace::open_live(&self.dir)?;
        let is_live = trace.state() == TraceState::Live;
        let mut data = Data::read(&trace, (self.slowest, self.slow), self.losses)?;
        if is_live {
            data.remark = Some(FOLLOWING.to_owned());
        }
        Ok((data, is_live))
    }
}

/// Result of a reading: newer data, or the reason for their absence.
pub(crate) type News = Result<Box<Data>, String>;

/// Follows a trace until it has ended, or the receiver is dropped.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn follow(source: Source) -> std::io::Result<Receiver<News>> {
    // A result not yet taken blocks the next one: memory is bounded.
    let (sender, receiver) = sync_channel(0);
    thread::Builder::new()
        .name("follow".to_owned())
        .spawn(move || read_on(&source, &sender))?;
    Ok(receiver)
}

fn read_on(source: &Source, sender: &SyncSender<News>) {
    let (mut last_good, mut pause) = (Instant::now(), PERIOD);
    loop {
        thread::sleep(pause);
        let begun = Instant::now();
        let read = source.read();
        pause = PERIOD.max(begun.elapsed() * (PART - 1));
        let (news, more) = match read {
            Ok((mut data, more)) => {
                last_good = Instant::now();
                if !more && data.remark.is_none() {
                    data.remark = Some(ENDED.to_owned());
                }
                (Ok(Box::new(data)), more)
            }
            Err(_) if last_good.elapsed() < PATIENCE => continue,
            Err(error) => (Err(error.to_string()), true),
        };
        if sender.send(news).is_err() || !more {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::Did::Ran;
    use crate::store::fixtures::{Maker, VisitFixture, info};

    fn source(dir: PathBuf) -> Source {
        Source {
            dir,
            slowest: 100,
            losses: LossVisits::LeaveOut,
            slow: None,
        }
    }

    /// New data in an open segment appear at the next reading, and the end is shown.
    #[test]
    fn open_segments_are_read() {
        let parent = tempfile::tempdir().unwrap();
        let source = source(parent.path().join("t"));
        let mut maker = Maker::within(&source.dir, info(&["app:req"]));
        let mut seen = Vec::new();
        for second in 1..4 {
            for n in 0..10 {
                maker.visit(&VisitFixture::new(n, "k", &[Ran(1, 20_000)]));
            }
            maker.writer.tick(Duration::from_secs(second)).unwrap();
            let (data, is_live) = source.read().unwrap();
            assert!(is_live && data.remark.is_some_and(|it| it.starts_with("live")));
            seen.push(data.items.len());
        }
        assert_eq!(seen, [10, 20, 30]);
        maker.finish(&[(1, "work", "/bin/app")]);
        let (data, is_live) = source.read().unwrap();
        assert_eq!((data.items.len(), is_live, data.remark), (30, false, None));
    }

    /// The last result marks the end; none follow.
    #[test]
    fn until_the_end() {
        let parent = tempfile::tempdir().unwrap();
        let source = source(parent.path().join("t"));
        let mut maker = Maker::within(&source.dir, info(&["app:req"]));
        maker.visit(&VisitFixture::new(1, "k", &[Ran(1, 20_000)]));
        maker.finish(&[(1, "work", "/bin/app")]);
        let news = follow(source).unwrap();
        let data = news.recv().unwrap().unwrap();
        assert_eq!((data.items.len(), data.remark.as_deref()), (1, Some(ENDED)));
        assert!(news.recv().is_err());
    }
}
