//! Counts itself while it fills memory: `cargo run --example selfcount [EVENT,EVENT..]`.

use std::process::ExitCode;

use pebs_selfcount::{Error, Group, ReadPath, events};

/// Bytes that are filled, one page fault a page at least.
const BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let names = std::env::args().nth(1);
    match count(names.as_deref().unwrap_or("page-faults:u,task-clock:u")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(2)
        }
    }
}

fn count(names: &str) -> Result<(), Error> {
    let mut group = Group::open(events(names)?)?;
    group.start()?;
    let before = group.read()?.to_vec();
    let block = std::hint::black_box(vec![1_u8; BYTES]);
    let after = group.read()?.to_vec();
    let path = group.read_path();
    group.stop()?;
    for (name, (after, before)) in names.split(',').zip(after.iter().zip(&before)) {
        match after.since(before).scaled() {
            Some(value) => println!("{value:>12.0}  {name}"),
            None => println!("{:>12}  {name}", "not counted"),
        }
    }
    match path {
        ReadPath::Rdpmc => println!("read by rdpmc"),
        ReadPath::Syscall(why) => println!("read by read(): {why}"),
    }
    drop(block);
    Ok(())
}
