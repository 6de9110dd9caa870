//! `pebs-trace push`: brings traces into a lake.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytesize::ByteSize;

use super::progress::Progress;
use crate::failure::{Failure, Result};
use crate::lake::{self, Address, Host, Lake, Pushed, Tags};
use crate::present::human::plural;
use crate::terminal::{self, say, shown};

/// Options of `pebs-trace push`.
#[derive(Clone, Debug, clap::Args)]
pub struct PushArgs {
    /// Directories of the traces
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// The lake: a directory, s3://BUCKET/PREFIX, gs:// or az://
    #[arg(long, value_name = "LAKE", required = true)]
    pub to: Address,

    /// The host that they are of, instead of its name when it was recorded
    #[arg(long, value_name = "NAME")]
    pub host: Option<Host>,

    /// Add a label, such as version=1.2; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,

    /// Push texts of requests that are not redacted, too
    ///
    /// Arguments that are texts may hold personal data. They are redacted while they are recorded: see --redact.
    #[arg(long)]
    pub with_texts: bool,
}

/// Pushes every trace, even if others fail.
///
/// # Errors
/// The lake can't be opened; failures of a trace are printed and set the exit status.
pub fn run(args: &PushArgs) -> Result<ExitCode> {
    let mut tags = Tags {
        host: args.host.clone(),
        with_texts: args.with_texts,
        ..Tags::default()
    };
    for label in &args.labels {
        tags.label(label)?;
    }
    let lake = Lake::open_or_make(&args.to)?;
    let mut worst = 0;
    for dir in &args.traces {
        let progress = Progress::new();
        let pushed = lake::push(&lake, dir, &tags, &progress.watch());
        drop(progress);
        match pushed {
            // Ignored: the reader may have closed the pipe.
            Ok(pushed) => drop(write!(
                terminal::stdout(),
                "{}",
                text(dir, &args.to, &pushed)
            )),
            Err(error) => {
                let failure = Failure::from(error);
                say!("error: {failure}");
                if let Some(hint) = failure.hint() {
                    say!("hint: {hint}");
                }
                worst = 2;
            }
        }
    }
    Ok(ExitCode::from(worst))
}

fn text(dir: &Path, to: &Address, pushed: &Pushed) -> String {
    let Pushed {
        id,
        host,
        objects,
        bytes,
        there,
    } = pushed;
    let dir = dir.display().to_string();
    let made = match objects {
        0 => "nothing to push".to_owned(),
        _ => format!(
            "{}, {}",
            plural(*objects, "object"),
            ByteSize(*bytes).display().si()
        ),
    };
    let there = match there {
        0 => String::new(),
        _ => format!(", {there} there already"),
    };
    format!("{}: {made}{there}: {to}#{host}/{id}\n", shown(&dir))
}
