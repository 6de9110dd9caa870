//! One file per subcommand: wiring, messages and hints; no logic of its own.

use crate::{analysis, collect, pmu, store, target};

pub mod doctor;
pub mod probes;
pub mod record;
pub mod recover;
pub mod report;
pub mod selftest;

/// An error made here, with its hint.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// An error and what to do about it.
    #[must_use]
    pub const fn new(message: String, hint: String) -> Self {
        Self { message, hint }
    }
}

/// What to do about an error: the hint of the first error in the chain that has one.
#[must_use]
pub fn hint_of(error: &anyhow::Error) -> Option<String> {
    macro_rules! first_hint {
        ($cause:expr; $($kind:ty),*) => {
            $(if let Some(hint) = $cause.downcast_ref::<$kind>().and_then(<$kind>::hint) {
                return Some(hint);
            })*
        };
    }
    for cause in error.chain() {
        if let Some(Hinted { hint, .. }) = cause.downcast_ref() {
            return Some(hint.clone());
        }
        first_hint!(cause;
            target::ResolveError,
            target::breakpoint::BreakpointError,
            pmu::event::ParseError,
            pmu::attr::EventError,
            pmu::open::OpenError,
            pmu::open::AutoError,
            collect::session::SessionError,
            collect::command::CommandError,
            store::tables::ColumnError,
            store::writer::WriteError,
            store::reader::ReadError,
            analysis::report::ReportError,
            selftest::SelftestError
        );
    }
    None
}

/// The one line that says what failed: an error and its causes, each said once.
#[must_use]
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Sends what the program and its libraries log to stderr: warnings, with -v steps, with -vv all.
pub fn start_log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "warn,pebs_user=debug",
        _ => "info,pebs_user=trace,aya=debug,aya_obj=debug,pebs_ebpf=debug",
    };
    // Libraries log by the `log` crate. Neither can fail: nobody set a logger before.
    let _ = tracing_log::LogTracer::init();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(level))
        .with_writer(crate::terminal::stderr)
        .without_time()
        .try_init();
}
