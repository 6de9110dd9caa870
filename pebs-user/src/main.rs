//! Records an unmodified program and shows why an item was slow.

use std::process::ExitCode;

use clap::Parser;
use pebs_user::cli::{self, Cli};
use pebs_user::cmd;
use pebs_user::terminal::print_message;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(cli::in_order(std::env::args_os())) {
        Ok(cli) => cli,
        // Help and version are no errors; all else could not run.
        Err(error) => {
            let _ = error.print();
            if let Some(hint) = cli::hint_of(&error) {
                print_message(&format!("hint: {hint}"));
            }
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    pebs_user::terminal::color(cli.color);
    cmd::start_log(cli.verbose);
    cmd::report_missing_threads();
    cli.run().unwrap_or_else(|error| {
        print_message(&format!("error: {}", error));
        if let Some(hint) = error.hint() {
            print_message(&format!("hint: {hint}"));
        }
        ExitCode::from(2)
    })
}
