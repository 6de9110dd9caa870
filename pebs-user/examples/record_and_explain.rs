//! Records a command with a SPEC, and explains why its slow items were slow.
//!
//!     cargo build -p pebs-user --examples
//!     sudo target/debug/examples/record_and_explain t './app:handle(id=arg1)' ./app

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use pebs_user::cmd::explain::{self, ExplainArgs};
use pebs_user::failure::{Failure, Result};
use pebs_user::record::{Event, Recording, Target};

fn main() -> ExitCode {
    record_and_explain().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        if let Some(hint) = error.hint() {
            eprintln!("hint: {hint}");
        }
        ExitCode::FAILURE
    })
}

fn record_and_explain() -> Result<ExitCode> {
    let mut words = env::args_os().skip(1);
    let (Some(trace), Some(spec)) = (words.next(), words.next()) else {
        return Err(Failure::bare("give a directory, a SPEC and a command"));
    };
    let command: Vec<OsString> = words.collect();
    let recording = Recording {
        uprobes: vec![spec.to_string_lossy().into_owned()],
        target: Target::Command(command),
        ..Recording::new(trace)
    };
    let recorded = recording.start(show)?.wait()?;
    for warning in &recorded.warnings {
        eprintln!("{} ({})", warning.text, warning.hint);
    }
    explain::run(&ExplainArgs::of(recorded.trace.clone()))
}

fn show(event: Event) {
    match event {
        Event::Note(text) | Event::Problem(text) => eprintln!("{text}"),
        Event::Warning(warning) => eprintln!("{} ({})", warning.text, warning.hint),
        Event::Started { .. } => eprintln!("recording"),
        Event::Status(status) => eprintln!("{} items so far", status.visits),
        _ => {}
    }
}
