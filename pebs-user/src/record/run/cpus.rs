//! CPUs that come and go during a recording.

use std::path::Path;

use super::{Control, locked};
use crate::collect::clock::now;
use crate::collect::hotplug::CpuMessages;
use crate::failure::Failure;
use crate::pmu::host::online_cpus;
use crate::pmu::jitter::Clocks;
use crate::units::Cpu;

impl Control<'_, '_> {
    /// Handles CPUs that came or went.
    pub(super) fn look(&mut self) {
        let since = std::mem::replace(&mut self.looked, now());
        let online: Vec<Cpu> = online_cpus(Path::new("/"));
        // An empty list means that it could not be read: too many open files.
        if online.is_empty() {
            return;
        }
        match self.session.follow_cpus(self.plan, &online) {
            Ok(came) => {
                let until = now();
                self.follow_processes(&came);
                // Threads that are followed are sampled on every CPU.
                let of_cpus = self.session.which_clocks() == Clocks::OfCpus;
                if self.plan.pids.is_empty() || of_cpus {
                    let gaps = came.iter().map(|cpu| (since, until, *cpu));
                    locked(&self.signals.cpus).extend(gaps);
                }
            }
            Err(error) => self.note_cpu("sampled", &error.into()),
        }
        for ring in self.session.take_bulk_rings() {
            // Fails only if the recording is over.
            let _ = self.more_bulk.send(ring);
        }
    }

    /// Follows processes on new CPUs.
    fn follow_processes(&mut self, came: &[Cpu]) {
        let Some(opener) = &mut self.more_sideband else {
            return;
        };
        let opened = came.iter().try_for_each(|cpu| opener.add(*cpu));
        if let Err(error) = opened {
            self.note_cpu("asked for mappings", &error.into());
        }
    }

    /// Reports the data that is missing for a new CPU.
    fn note_cpu(&mut self, missing: &str, error: &Failure) {
        let text = format!("a CPU that came online is not {missing}: {error}");
        self.problem(&text);
        self.info.notes.push(text);
    }
}

/// The next message about CPUs.
pub(super) async fn next(messages: Option<&CpuMessages>) {
    match messages {
        Some(messages) => messages.next().await,
        None => std::future::pending().await,
    }
}
