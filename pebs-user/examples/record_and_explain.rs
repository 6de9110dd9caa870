//! Records a command with a SPEC (`t './app:handle(id=arg1)' ./app`), and explains why its slow items were slow.

use pebs_user::failure::{Failure, Result};
use pebs_user::out::explain;
use pebs_user::record::{Event, Recording, Target};

fn main() {
    if let Err(error) = record_and_explain() {
        eprintln!("error: {error}\nhint: {}", error.hint().unwrap_or("none"));
        std::process::exit(2);
    }
}

fn record_and_explain() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    let (Some(trace), Some(spec)) = (words.next(), words.next()) else {
        return Err(Failure::bare("give a directory, a SPEC and a command"));
    };
    let recording = Recording {
        uprobes: vec![spec.to_string_lossy().into_owned()],
        target: Target::Command(words.collect()),
        ..Recording::new(trace)
    };
    let recorded = recording.start(show)?.wait()?;
    for warning in &recorded.warnings {
        eprintln!("{} ({})", warning.text, warning.hint);
    }
    print!("{}", explain::text_of(&recorded.trace, 120)?);
    Ok(())
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
