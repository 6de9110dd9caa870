//! Records an unmodified program and shows why an item was slow.

use std::process::ExitCode;

use clap::Parser;
use pebs_user::cli::{self, Cli, Cmd};
use pebs_user::cmd;
use pebs_user::terminal::print_message;

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
    let result = match &cli.command {
        None => cmd::record::run(&cli.record),
        Some(Cmd::Report(args)) => cmd::report::run(args),
        Some(Cmd::View(args)) => cmd::view::run(args),
        Some(Cmd::Import(args)) => cmd::import::run(args),
        Some(Cmd::Explain(args)) => cmd::explain::run(args),
        Some(Cmd::Diff(args)) => cmd::diff::run(args),
        Some(Cmd::Export(args)) => cmd::export::run(args),
        Some(Cmd::Html(args)) => cmd::html::run(args),
        Some(Cmd::Mine(args)) => cmd::mine::run(args),
        Some(Cmd::Recover(args)) => cmd::recover::run(args),
        Some(Cmd::Probes(args)) => cmd::probes::run(args),
        Some(Cmd::Events(args)) => cmd::events::run(args),
        Some(Cmd::Doctor(args)) => cmd::doctor::run(args),
        Some(Cmd::Calibrate(args)) => cmd::calibrate::run(args),
        Some(Cmd::Plan(args)) => cmd::plan::run(args),
        Some(Cmd::Validate(args)) => cmd::validate::run(args),
        Some(Cmd::Selftest(args)) => cmd::selftest::run(args),
        Some(Cmd::SelftestWorkload(args)) => cmd::selftest::workload(args),
    };
    result.unwrap_or_else(|error| {
        print_message(&format!("error: {}", error));
        if let Some(hint) = error.hint() {
            print_message(&format!("hint: {hint}"));
        }
        ExitCode::from(2)
    })
}
