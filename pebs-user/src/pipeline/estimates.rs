//! Estimates kept visits, on a thread of the writer.

use std::sync::Arc;

use super::resets::Resets;
use crate::estimate::{Estimator, FunctionEstimate};
use crate::store::writer::Estimate;

/// An estimator of visits whose samples stand for the numbers of events in `resets`.
pub(super) fn estimate(mut estimator: Estimator, resets: Arc<Resets>) -> Estimate {
    Box::new(move |visit, block| {
        let estimate = |out: &mut Vec<FunctionEstimate>| estimator.estimate(visit, out);
        block.fill(estimate, |rows, events| {
            resets.events_of(&visit.samples, rows, events);
        });
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::Duration;
    use std::{fs, thread};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use crate::estimate::Pause;
    use crate::pipeline::synthetic::{self, Workload};
    use crate::pipeline::{Keep, Pipeline, PipelineOptions};
    use crate::store::options::WriterOptions;
    use crate::store::run::RunInfo;
    use crate::store::schema::{SCHEMA_VERSION, Table};
    use crate::store::writer::TraceWriter;
    use crate::stream::cycle::Cycle;
    use crate::stream::decode::RecordKinds;
    use crate::units::EventId;

    /// Bytes of the tables' files.
    fn files(keep: Keep) -> BTreeMap<PathBuf, Vec<u8>> {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("trace");
        let info = RunInfo {
            schema_version: SCHEMA_VERSION,
            ..RunInfo::default()
        };
        let writer_options = WriterOptions {
            segment: Duration::from_millis(20),
            flush: Duration::from_millis(3),
            compact: false,
            compact_all: false,
        };
        let writer = TraceWriter::create(&dir, &info, writer_options).unwrap();
        let options = PipelineOptions {
            kinds: RecordKinds {
                switches: true,
                ..RecordKinds::default()
            },
            keep,
            interval: writer_options.segment,
            ..synthetic::options()
        };
        let mut pipeline =
            Pipeline::new(&synthetic::probes(), &options, writer, Default::default());
        let workload = Workload {
            cpus: 4,
            threads: 9,
            records: 200_000,
            // No such process exists.
            pid: 0xff_0000,
            ..Workload::default()
        };
        let mut end = workload.start;
        for (n, batch) in (0..).zip(synthetic::stream(&workload)) {
            if n % 8 == 7 {
                pipeline.reset_changed(end, EventId(0), 1000 + n);
            }
            if n == 10 {
                let pause = Pause {
                    before: 30,
                    after: 50,
                    spread: 10,
                };
                pipeline.pause(pause);
            }
            end = batch.frontier;
            pipeline.cycle(&mut Cycle {
                streams: batch.streams,
                frontier: end,
                counted_at: end,
                ..Cycle::default()
            });
        }
        let outcome = pipeline.finish(end);
        assert!(outcome.write_error.is_none(), "{:?}", outcome.write_error);
        outcome.writer.finish(&info).unwrap();
        let mut files = BTreeMap::new();
        for table in Table::ALL {
            for file in fs::read_dir(dir.join(table.name())).unwrap() {
                let file = file.unwrap().path();
                let name = file.strip_prefix(&dir).unwrap().to_owned();
                files.insert(name, fs::read(file).unwrap());
            }
        }
        files
    }

    /// The files do not depend on the number of cores, to the byte.
    #[test]
    fn one_core_or_more() {
        let rule = Keep::Slow("3x".parse().unwrap());
        for keep in [Keep::All, rule] {
            let one = thread::spawn(move || {
                let all = sched_getaffinity(None).unwrap();
                let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu));
                let mut one = CpuSet::new();
                one.set(first.unwrap());
                // Threads started from here inherit it.
                sched_setaffinity(None, &one).unwrap();
                files(keep)
            });
            let (more, one) = (files(keep), one.join().unwrap());
            assert!(more.len() > Table::ALL.len(), "several segments");
            assert!(more.keys().eq(one.keys()));
            for (name, bytes) in &more {
                assert!(one[name] == *bytes, "{}", name.display());
            }
        }
    }
}
