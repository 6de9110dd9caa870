//! Programs that log their truth.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use pebs_tests::truth::{ItemTruth, Truth};

use super::shell;

/// Builds a program of one C file, named from the root of the workspace.
pub fn compile(source: &str, program: &Path, flags: &[&str]) -> Result<()> {
    let mut command = Command::new("cc");
    command.arg("-o").arg(program);
    command.arg(shell::workspace().join(source)).args(flags);
    shell::run(&mut command)
}

/// From the first to the last instant within the function, ns.
#[must_use]
pub fn inside(item: &ItemTruth) -> Option<f64> {
    Some(item.leave? as f64 - item.enter? as f64)
}

/// As its caller sees it, ns: marks count.
#[must_use]
pub fn outside(item: &ItemTruth) -> Option<f64> {
    Some(item.after? as f64 - item.before? as f64)
}

/// Time of functions by item and name, ns.
#[must_use]
pub fn calls(truth: &Truth) -> HashMap<(u64, String), f64> {
    let mut times = HashMap::new();
    for call in &truth.calls {
        let key = (call.item, call.name.clone());
        *times.entry(key).or_default() += call.leave as f64 - call.enter as f64;
    }
    times
}
