//! CPU time as criterion's measurement, and the table at the end.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Name of the yardstick's stage.
const YARDSTICK: &str = "read-only sum";

/// Name of the stage that is all of recording, from the ring to the compacted file.
pub const ALL_OF_RECORDING: &str = "bytes to compacted";

/// Largest cost of that stage, ns per record.
const LIMIT_NS: f64 = 100.0;

/// CPU time of this process so far.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures CPU time of the process, in ns.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, begin: Duration) -> Duration {
        cpu_time() - begin
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// One line of the table.
struct Figure {
    stage: &'static str,
    cpus: u16,
    ns: f64,
}

/// Best times so far.
#[derive(Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Records the best time of a stage. A stage left out by a filter has none.
    pub fn add(&mut self, stage: &'static str, cpus: u16, best: Duration, elements: usize) {
        if best < Duration::MAX {
            self.0.push(Figure {
                stage,
                cpus,
                ns: best.as_nanos() as f64 / elements as f64,
            });
        }
    }

    /// Prints the table.
    pub fn print(&self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("\nbest CPU time a record; load average {}", load.trim());
        println!("{:<20} {:>5} {:>10} {:>8}", "stage", "CPUs", "ns", "x sum");
        for Figure { stage, cpus, ns } in &self.0 {
            let sum = self
                .0
                .iter()
                .find(|f| f.stage == YARDSTICK && f.cpus == *cpus);
            let ratio = sum.map_or("-".to_owned(), |sum| format!("{:.1}", ns / sum.ns));
            println!("{stage:<20} {cpus:>5} {ns:>10.2} {ratio:>8}");
        }
        self.print_all_of_recording();
    }

    /// Prints the cost of a record over all stages, on the machine where it is largest.
    fn print_all_of_recording(&self) {
        let all = self.0.iter().filter(|it| it.stage == ALL_OF_RECORDING);
        let Some(worst) = all.max_by(|a, b| a.ns.total_cmp(&b.ns)) else {
            return;
        };
        let is_sum = |it: &&Figure| it.stage == YARDSTICK && it.cpus == worst.cpus;
        let sum = self.0.iter().find(is_sum).map_or(f64::NAN, |it| it.ns);
        let word = if worst.ns <= LIMIT_NS { "ok" } else { "MISSED" };
        println!(
            "all of recording, from ring to compacted file: {:.1} ns of CPU a record (limit {LIMIT_NS}, {} CPUs; reading the \
             bytes alone {sum:.1} ns): {word}",
            worst.ns, worst.cpus
        );
    }
}
