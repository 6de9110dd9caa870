//! State of the agent: numbers for Prometheus, and for `pebs-trace agent status`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The agent and its targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub version: String,
    pub pid: u32,
    /// CPU time of the agent, s.
    pub cpu_seconds: f64,
    /// Resident memory of the agent, bytes.
    pub memory_bytes: u64,
    /// Time since the agent started, s.
    pub seconds: f64,
    pub disk: Disk,
    #[serde(default)]
    pub uploads: UploadHealth,
    /// Rows of `events.jsonl` that are missing.
    pub rows_lost: u64,
    pub targets: Vec<TargetHealth>,
}

/// Disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Bytes of all traces.
    pub bytes: u64,
    /// Limit of these bytes.
    pub max_bytes: u64,
    /// Bytes that are free on the disk.
    pub free_bytes: u64,
    /// Traces that are closed.
    pub traces: u64,
    /// Traces removed since the agent started.
    pub removed: u64,
}

/// State of the uploads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UploadHealth {
    /// The lake; null: nothing leaves the machine.
    pub to: Option<String>,
    /// Traces brought since the agent started.
    pub pushed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Closed traces that wait.
    pub pending: u64,
    /// Traces that were removed before they were brought.
    pub lost: u64,
    /// The last error, until a trace is brought.
    pub error: Option<String>,
}

/// A target, all its recordings since the agent started together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetHealth {
    pub name: String,
    pub state: State,
    /// Processes that are recorded, without those that descend from them.
    pub processes: u64,
    /// Traces begun.
    pub traces: u64,
    /// Visits of items.
    pub items: u64,
    pub samples: u64,
    /// Records lost so far; of running recordings, too.
    pub lost: u64,
    /// The same of recordings that ended, by reason.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// Recordings that could not start, or not write.
    pub failures: u64,
    /// Items that were slow, as far as their details are kept for that.
    #[serde(default)]
    pub slow: u64,
    /// Median and 99th percentile of the durations of the last minute's items, ns; null if there was none.
    #[serde(default)]
    pub p50_ns: Option<u64>,
    #[serde(default)]
    pub p99_ns: Option<u64>,
    /// Slow-down of items in the last moments, a share; null if unknown.
    pub slowdown: Option<f64>,
    /// The reset value in force, where the budget sets it.
    pub reset: Option<u64>,
    /// Directory of the trace that is being written.
    pub trace: Option<String>,
    /// The last error, until a recording starts.
    pub error: Option<String>,
}

/// State of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// None of its processes runs.
    #[default]
    Waits,
    /// A recording starts.
    Starts,
    Records,
    /// It could not be recorded.
    Failed,
}

impl State {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Starts => "starts",
            Self::Records => "records",
            Self::Failed => "failed",
        }
    }
}

impl Health {
    /// Adds what this process uses.
    pub(super) fn of_process(mut self) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        self.cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        // Source: proc_pid_statm(5): the second is resident, in pages.
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm
            .split(' ')
            .nth(1)
            .and_then(|it| it.parse::<u64>().ok());
        self.memory_bytes = pages.unwrap_or(0) * rustix::param::page_size() as u64;
        self
    }

    /// The text format of Prometheus.
    ///
    /// Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>
    pub(super) fn metrics(&self) -> String {
        let mut page = Page(String::new());
        let Disk {
            bytes,
            max_bytes,
            free_bytes,
            traces,
            removed,
        } = self.disk;
        page.metric(
            "agent_cpu_seconds_total",
            "counter",
            "CPU time of the agent",
        );
        page.value("", self.cpu_seconds);
        page.metric(
            "agent_memory_bytes",
            "gauge",
            "Resident memory of the agent",
        );
        page.value("", self.memory_bytes as f64);
        page.metric(
            "agent_seconds_total",
            "counter",
            "Time since the agent started",
        );
        page.value("", self.seconds);
        page.metric(
            "agent_rows_lost_total",
            "counter",
            "Rows that events.jsonl lacks",
        );
        page.value("", self.rows_lost as f64);
        page.metric("disk_bytes", "gauge", "Bytes of all traces");
        page.value("", bytes as f64);
        page.metric("disk_max_bytes", "gauge", "Bytes that traces may have");
        page.value("", max_bytes as f64);
        page.metric(
            "disk_free_bytes",
            "gauge",
            "Bytes that are free on the disk",
        );
        page.value("", free_bytes as f64);
        page.metric("disk_traces", "gauge", "Traces that are closed");
        page.value("", traces as f64);
        page.metric("disk_removed_total", "counter", "Traces that were removed");
        page.value("", removed as f64);
        if self.uploads.to.is_some() {
            self.uploads.metrics(&mut page);
        }
        type Number = fn(&TargetHealth) -> Option<f64>;
        let each: [(&str, &str, &str, Number); 12] = [
            ("target_up", "gauge", "1 while it is recorded", |it| {
                Some(f64::from(u8::from(it.state == State::Records)))
            }),
            ("target_processes", "gauge", "Processes recorded", |it| {
                Some(it.processes as f64)
            }),
            ("items_total", "counter", "Visits of items", |it| {
                Some(it.items as f64)
            }),
            (
                "slow_items_total",
                "counter",
                "Items that were slow",
                |it| Some(it.slow as f64),
            ),
            (
                "items_p50_seconds",
                "gauge",
                "Median time of the items of the last minute",
                |it| it.p50_ns.map(|it| it as f64 / 1e9),
            ),
            (
                "items_p99_seconds",
                "gauge",
                "Time that a hundredth of them exceeded",
                |it| it.p99_ns.map(|it| it as f64 / 1e9),
            ),
            ("samples_total", "counter", "Samples", |it| {
                Some(it.samples as f64)
            }),
            ("lost_total", "counter", "Records lost", |it| {
                Some(it.lost as f64)
            }),
            ("traces_total", "counter", "Traces begun", |it| {
                Some(it.traces as f64)
            }),
            (
                "failures_total",
                "counter",
                "Recordings that failed",
                |it| Some(it.failures as f64),
            ),
            (
                "slowdown_ratio",
                "gauge",
                "Slow-down of items lately",
                |it| it.slowdown,
            ),
            ("reset_value", "gauge", "Events between two samples", |it| {
                it.reset.map(|it| it as f64)
            }),
        ];
        for (name, kind, help, number) in each {
            page.metric(name, kind, help);
            for target in &self.targets {
                if let Some(number) = number(target) {
                    page.value(&format!("{{target=\"{}\"}}", target.name), number);
                }
            }
        }
        page.metric(
            "lost_by_reason_total",
            "counter",
            "Records lost by recordings that ended",
        );
        for target in &self.targets {
            for (reason, records) in &target.lost_by_reason {
                let labels = format!("{{target=\"{}\",reason=\"{reason}\"}}", target.name);
                page.value(&labels, *records as f64);
            }
        }
        page.0
    }
}

impl UploadHealth {
    fn metrics(&self, page: &mut Page) {
        for (name, kind, help, value) in [
            (
                "uploads_total",
                "counter",
                "Traces brought into the lake",
                self.pushed,
            ),
            (
                "upload_bytes_total",
                "counter",
                "Bytes brought into the lake",
                self.bytes,
            ),
            (
                "upload_failures_total",
                "counter",
                "Attempts that failed",
                self.failures,
            ),
            (
                "upload_lost_total",
                "counter",
                "Traces removed before they were brought",
                self.lost,
            ),
            (
                "uploads_pending",
                "gauge",
                "Closed traces that wait",
                self.pending,
            ),
        ] {
            page.metric(name, kind, help);
            page.value("", value as f64);
        }
    }
}

/// A page of metrics. Names of targets and reasons have no character that a label would have to escape.
struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(
            self.0,
            "# HELP pebs_trace_{name} {help}\n# TYPE pebs_trace_{name} {kind}\n"
        );
    }

    /// A value of the metric that was named last.
    fn value(&mut self, labels: &str, value: f64) {
        let name = self.0.rsplit("# TYPE ").next().unwrap_or_default();
        let name = name.split(' ').next().unwrap_or_default().to_owned();
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each metric has its help and type, and a line for each target that has a value.
    #[test]
    fn metrics() {
        let health = Health {
            memory_bytes: 1 << 20,
            uploads: UploadHealth {
                to: Some("s3://b".to_owned()),
                pending: 3,
                ..UploadHealth::default()
            },
            targets: vec![
                TargetHealth {
                    name: "web".to_owned(),
                    state: State::Records,
                    items: 7,
                    slowdown: Some(0.25),
                    lost_by_reason: [("late".to_owned(), 2)].into(),
                    ..TargetHealth::default()
                },
                TargetHealth {
                    name: "db".to_owned(),
                    ..TargetHealth::default()
                },
            ],
            ..Health::default()
        };
        let text = health.metrics();
        for line in [
            "pebs_trace_agent_memory_bytes 1048576",
            "pebs_trace_uploads_pending 3",
            "# TYPE pebs_trace_items_total counter",
            "pebs_trace_items_total{target=\"web\"} 7",
            "pebs_trace_target_up{target=\"db\"} 0",
            "pebs_trace_slowdown_ratio{target=\"web\"} 0.25",
            "pebs_trace_lost_by_reason_total{target=\"web\",reason=\"late\"} 2",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(!text.contains("slowdown_ratio{target=\"db\"}"), "{text}");
    }

    /// The dashboard shows metrics that exist, and each panel has a place of its own.
    #[test]
    fn dashboard() {
        let text = include_str!("../../guide/grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let health = Health {
            uploads: UploadHealth {
                to: Some("s3://b".to_owned()),
                ..UploadHealth::default()
            },
            ..Health::default()
        };
        let page = health.metrics();
        let exists = |name: &str| page.contains(&format!("# TYPE {name} "));
        let names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> = names.filter(|it| it.starts_with("pebs_trace_")).collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(exists(name), "{name}");
        }
        let panels = dashboard["panels"].as_array().unwrap();
        let places = panels
            .iter()
            .map(|it| (it["gridPos"]["x"].as_u64(), it["gridPos"]["y"].as_u64()));
        let places: std::collections::BTreeSet<_> = places.collect();
        assert_eq!(places.len(), panels.len());
    }

    /// A process has used time and memory.
    #[test]
    fn own() {
        let health = Health::default().of_process();
        assert!(
            health.cpu_seconds > 0.0 && health.memory_bytes > 1 << 20,
            "{health:?}"
        );
    }
}
