//! Records a command twice at once, below two folders, and changes the budget of both while they run.
//!
//!     sudo target/debug/examples/record_two /tmp/traces './app:handle(id=arg1)' ./app

use std::env;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;

use pebs_user::failure::{Failure, Result};
use pebs_user::record::{Event, Handle, Recording, Target};
use pebs_user::units::ResetValue;

/// ns between two samples of the first recording.
const RESET: ResetValue = ResetValue(NonZeroU64::new(50_000).expect("not zero"));

fn main() -> Result<()> {
    let mut words = env::args_os().skip(1);
    let (Some(folder), Some(spec)) = (words.next(), words.next()) else {
        return Err(Failure::bare("give a folder, a SPEC and a command"));
    };
    let (folder, spec) = (PathBuf::from(folder), spec.to_string_lossy());
    let command: Vec<OsString> = words.collect();
    let start = |name: &'static str| -> Result<Handle> {
        let recording = Recording {
            uprobes: vec![spec.clone().into_owned()],
            target: Target::Command(command.clone()),
            reset: Some(20_000),
            force: true,
            ..Recording::new(folder.join(name))
        };
        recording.start(move |event| match event {
            Event::Changed { new, .. } => eprintln!("{name}: a sample every {new} ns"),
            Event::Problem(text) => eprintln!("{name}: {text}"),
            _ => {}
        })
    };
    let (first, second) = (start("first")?, start("second")?);
    first.remote().set_reset(RESET);
    second.remote().set_max_overhead(0.05);
    for (handle, name) in [(first, "first"), (second, "second")] {
        let recorded = handle.wait()?;
        println!("{name}: {} items, {}", recorded.visits, recorded.ended_by);
    }
    Ok(())
}
