//! One file per subcommand: wiring, messages and hints; no logic.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::binary::debug_files;
use crate::failure::{Context as _, Result};
use crate::present::Page;
use crate::terminal;
use crate::terminal::say;

pub mod agent;
pub mod calibrate;
pub mod diff;
pub mod doctor;
pub mod documents;
mod ending;
pub mod events;
pub mod explain;
pub mod export;
mod fleet;
pub mod html;
pub mod import;
pub mod info;
pub mod mine;
mod moment;
pub mod plan;
pub mod presets;
pub mod probes;
mod progress;
pub mod push;
pub mod record;
pub mod recover;
pub mod report;
pub mod result_file;
pub mod selftest;
mod source;
mod status;
pub mod suggest;
pub mod traces;
pub mod validate;
pub mod values;
pub mod view;

/// `./pebs-trace-YYYYmmdd-HHMMSS`, in UTC.
fn default_output() -> PathBuf {
    let now = std::time::SystemTime::now();
    let text = humantime::format_rfc3339_seconds(now).to_string();
    let digits =
        |range: std::ops::Range<usize>| text.get(range).unwrap_or_default().replace(['-', ':'], "");
    PathBuf::from(format!("pebs-trace-{}-{}", digits(0..10), digits(11..19)))
}

/// Fetches missing debug files of these binaries, if servers are configured: prints how many, and a warning if there
/// are none. Returns a remark.
fn fetch_debug_files(binaries: impl FnOnce() -> Vec<PathBuf>) -> Option<String> {
    let fetched = debug_files::fetch(binaries, |files| {
        say!("asking debuginfod for {}", debug_files::count(files));
    });
    if let Some(warning) = &fetched.warning {
        say!("warning: {}", warning.text);
        say!("hint: {}", warning.hint);
    }
    fetched.note
}

/// Writes a result to stdout.
///
/// # Errors
/// If that fails, but not if the reader had enough: `pebs-trace explain T | head` is not a failure.
fn print_result(text: &str, what: &str) -> Result<()> {
    match terminal::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.with_context(|| format!("cannot write the {what} to stdout")),
    }
}

/// Writes a page to stdout.
///
/// # Errors
/// As [`print_result`].
fn print_page(page: &Page, what: &str) -> Result<()> {
    match page.print() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.with_context(|| format!("cannot write the {what} to stdout")),
    }
}

/// Turns the panic of the standard library when no thread can be created into one line and exit status 2.
pub fn report_missing_threads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if !text.starts_with("failed to spawn thread") {
            return before(panic);
        }
        say!("error: cannot start a thread: the system grants no more memory or threads");
        say!(
            "hint: 'ulimit -v' and 'ulimit -u' show the limits of this shell, pids.max that of its cgroup"
        );
        std::process::exit(2);
    }));
}

/// Logs the messages of the program and its libraries to stderr: warnings; steps with -v, everything with -vv.
pub fn start_log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "warn,pebs_user=debug",
        _ => "info,pebs_user=trace,aya=debug,aya_obj=debug,pebs_ebpf=debug",
    };
    // Libraries log through the `log` crate. Neither call can fail: no logger was set before.
    let _ = tracing_log::LogTracer::init();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(level))
        .with_writer(terminal::stderr)
        .without_time()
        .try_init();
}
