//! `pebs-trace presets [NAME]`: lists presets, those of running processes first, or prints one.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::values::Format;
use crate::binary::process;
use crate::failure::Result;
use crate::present::table::{Column, Table};
use crate::preset::catalog;
use crate::preset::choose::Program;
use crate::terminal::{self, shown, shown_lines};

/// Options of `pebs-trace presets`.
#[derive(Clone, Debug, Args)]
pub struct PresetsArgs {
    /// Print this preset, to learn from or to change
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub format: Format,
}

/// Processes that are listed for a preset.
const MOST_PIDS: usize = 4;

/// A preset of the list.
#[derive(Serialize)]
struct Row {
    name: String,
    about: String,
    /// Programs and libraries that it is for.
    of: Vec<String>,
    /// Versions with which it was tried.
    tried: Vec<String>,
    /// Processes that it is for, by the names of files.
    pids: Vec<u32>,
    /// Its file; null: built in.
    path: Option<String>,
}

/// Prints the list, or a preset, to stdout.
///
/// # Errors
/// There is no such preset, one can't be read, or stdout can't be written.
pub fn run(args: &PresetsArgs) -> Result<ExitCode> {
    let mut out = terminal::stdout();
    let written = match &args.name {
        Some(name) => {
            let entry = catalog::named(name)?;
            // A faulty one is no example.
            entry.preset()?;
            out.write_all(shown_lines(&entry.text).as_bytes())
        }
        None => {
            let rows = rows()?;
            match args.format {
                Format::Text => text(&mut out, &rows),
                Format::Json => serde_json::to_writer_pretty(&mut out, &rows)
                    .map_err(io::Error::from)
                    .and_then(|()| writeln!(out)),
            }
        }
    };
    match written {
        // `| head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

/// All presets, those with running processes first.
fn rows() -> Result<Vec<Row>> {
    let own = std::process::id();
    let pids = process::all().into_iter().filter(|pid| pid.0 != own);
    let running: Vec<(u32, Program)> = pids
        .filter_map(|pid| Some((pid.0, Program::of_process(pid)?)))
        .collect();
    let mut rows = Vec::new();
    for entry in catalog::all()? {
        let preset = entry.preset()?;
        let fits = running
            .iter()
            .filter(|(_, it)| preset.auto && it.is_named_by(&preset));
        let pids = fits.map(|(pid, _)| *pid).collect();
        rows.push(Row {
            name: entry.name,
            about: preset.about,
            of: [preset.programs, preset.libraries, preset.functions].concat(),
            tried: preset.tried,
            pids,
            path: entry.path.map(|it| it.display().to_string()),
        });
    }
    rows.sort_by_key(|row| row.pids.is_empty());
    Ok(rows)
}

fn text(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let mut table = Table::new(vec![
        Column::words("preset"),
        Column::names("items", 20),
        Column::names("of", 12),
        Column::words("running"),
    ]);
    for row in rows {
        let mut pids: Vec<String> = row.pids.iter().map(u32::to_string).collect();
        if pids.len() > MOST_PIDS {
            let more = pids.len() - MOST_PIDS;
            pids.truncate(MOST_PIDS);
            pids.push(format!("and {more} more"));
        }
        let name = match &row.path {
            Some(path) => format!("{} ({path})", row.name),
            None => row.name.clone(),
        };
        let cells = [
            shown(&name).into_owned(),
            shown(&row.about).into_owned(),
            shown(&row.of.join(", ")).into_owned(),
            match pids.as_slice() {
                [] => "-".to_owned(),
                pids => pids.join(", "),
            },
        ];
        table.row(cells.map(Into::into));
    }
    writeln!(out, "{}", table.whole())?;
    writeln!(
        out,
        "\n'pebs-trace --preset NAME -p PID' records with one; 'pebs-trace -p PID' takes the one that fits; \
         'pebs-trace presets NAME' prints it"
    )
}
