//! Output of `pebs-trace explain --format json`, for the tests.

use std::path::Path;

use serde_json::Value;

use crate::recording::pebs_trace;

/// Runs `explain` with these arguments on a trace.
///
/// # Panics
/// If it fails or does not print JSON.
#[must_use]
pub fn explain(trace: &Path, args: &[&str]) -> Value {
    let dir = trace.display().to_string();
    let mut all = vec!["explain", &dir, "--format", "json"];
    all.extend(args);
    let done = pebs_trace(all);
    assert_eq!(done.code(), Some(0), "{done}");
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}\n{done}"))
}

/// All items of the first probe.
#[must_use]
pub fn whole(explanation: &Value) -> Group<'_> {
    Group(&explanation["probes"][0]["whole"])
}

/// A group of items in an explanation.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a>(pub &'a Value);

impl<'a> Group<'a> {
    /// A number by its keys.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn number(&self, keys: &[&str]) -> f64 {
        let found = keys.iter().fold(self.0, |value, key| &value[*key]);
        found
            .as_f64()
            .unwrap_or_else(|| panic!("no {keys:?} in {:#}", self.0))
    }

    /// Causes of the gap, the largest first.
    ///
    /// # Panics
    /// If there is no gap.
    #[must_use]
    pub fn causes(&self) -> Vec<Cause<'a>> {
        let causes = self.0["gap"]["causes"].as_array();
        let causes = causes.unwrap_or_else(|| panic!("no causes in {:#}", self.0));
        causes.iter().map(Cause).collect()
    }

    /// The first cause.
    ///
    /// # Panics
    /// If there are no causes.
    #[must_use]
    pub fn first(&self) -> Cause<'a> {
        self.causes()
            .first()
            .copied()
            .unwrap_or_else(|| panic!("no cause in {:#}", self.0))
    }

    /// The first cause that is the program's own: preemption is another's doing, and on a busy machine may
    /// come first.
    ///
    /// # Panics
    /// If there is no such cause.
    #[must_use]
    pub fn first_of_program(&self) -> Cause<'a> {
        let own = self
            .causes()
            .into_iter()
            .find(|it| it.kind() != "preempted");
        own.unwrap_or_else(|| panic!("no cause in {:#}", self.0))
    }

    /// Share of the gap that is the program's own: everything except preemption.
    ///
    /// # Panics
    /// If there is no gap.
    #[must_use]
    pub fn of_program(&self) -> f64 {
        let causes = self.causes().into_iter();
        let others = causes.filter(|it| it.kind() == "preempted");
        1.0 - others.map(|it| it.share()).sum::<f64>()
    }

    /// Whether an item of this net time is slow, and whether it is typical.
    #[must_use]
    pub fn classes(&self, net_ns: i64) -> (bool, bool) {
        let ns = net_ns as f64;
        let slow = ns >= self.number(&["slow", "from_ns"]);
        let (from, to) = (
            self.number(&["typical", "from_ns"]),
            self.number(&["typical", "to_ns"]),
        );
        (slow, !slow && (from..=to).contains(&ns))
    }

    /// Tests of an argument that separate slow items from others, the best first.
    #[must_use]
    pub fn because(&self) -> Vec<&'a Value> {
        self.0["because"]
            .as_array()
            .map_or_else(Vec::new, |all| all.iter().collect())
    }
}

/// A cause in an explanation.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a>(pub &'a Value);

impl Cause<'_> {
    /// Name of its function; empty if unknown.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0["function"]["name"].as_str().unwrap_or("")
    }

    /// `function`, `module`, `wait`, `preempted`, `elsewhere`.
    ///
    /// # Panics
    /// If it is missing.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0["kind"].as_str().expect("a cause has a kind")
    }

    /// Share of the gap.
    ///
    /// # Panics
    /// If it is missing.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.0["share"].as_f64().expect("a cause has a share")
    }

    /// Panics unless a true share lies within the cause's interval widened by `slack`, the cost of marks
    /// and of the clock readings for the truth.
    ///
    /// # Panics
    /// If not.
    pub fn holds(&self, truth: f64, slack: f64) {
        let end = |key: &str| {
            self.0[key]
                .as_f64()
                .unwrap_or_else(|| panic!("no {key}: {:#}", self.0))
        };
        let (low, high) = (end("share_low") - slack, end("share_high") + slack);
        assert!(
            (low..=high).contains(&truth),
            "true share {truth} of {:#}",
            self.0
        );
    }
}
