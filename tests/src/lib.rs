//! The harness of the tests that need a real kernel: builds workloads, runs `pebs-trace` on them,
//! and reads the trace back.
//!
//! Invariant: nothing here uses the code of `pebs-user`. Tables are read by the stock parquet
//! crate, `trace.json` as plain JSON, so that the files are checked as a user would read them.
//!
//! `tests/experiments` uses workloads' truth and the machine without the feature `recordings`, so that `cargo xtask` does
//! not wait for Parquet to compile.
//!
//! A test that cannot run on this machine reports that and passes: `skip!("no librte_acl")` prints
//! `SKIP no librte_acl`. A test that fails shows the command, its directory and all its output.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "everything here runs in tests, where a panic is the report"
)]

#[cfg(feature = "recordings")]
pub mod bpf;
#[cfg(feature = "recordings")]
pub mod check;
#[cfg(feature = "recordings")]
pub mod explain;
pub mod locks;
pub mod machine;
pub mod process;
#[cfg(feature = "recordings")]
pub mod recording;
pub mod redis;
pub mod softpmu;
pub mod store;
pub mod sysctl;
#[cfg(feature = "recordings")]
pub mod table;
pub mod tmpfs;
#[cfg(feature = "recordings")]
pub mod trace;
pub mod truth;
pub mod workload;

/// Ends the test with `SKIP <reason>` on stderr: this machine lacks something the test needs.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::say_skip(format_args!($($reason)*));
        return;
    }};
}

/// Prints `SKIP <reason>` directly to stderr: the test runner hides the output of passing tests.
pub fn say_skip(reason: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {reason} ({name})");
}

/// Ends the test with `SKIP <reason>` if the `Result` is an `Err(reason)`, else returns its value.
#[macro_export]
macro_rules! need {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}
