//! `pebs-trace recover`: completes traces whose recording was killed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::progress::Progress;
use crate::failure::{Failure, Result};
use crate::present::human::plural;
use crate::store::recover::{Recovered, recover_watched};
use crate::terminal::say;

/// Options of `pebs-trace recover`.
#[derive(Clone, Debug, clap::Args)]
pub struct RecoverArgs {
    /// Directories of the traces, as printed when recording began
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
}

/// Recovers every trace, even if others fail.
///
/// # Errors
/// None: failures are printed and set the exit status.
pub fn run(args: &RecoverArgs) -> Result<ExitCode> {
    let mut worst = 0;
    for dir in &args.traces {
        let progress = Progress::new();
        let recovered = recover_watched(dir, &progress.watch());
        drop(progress);
        let code = match recovered {
            Ok(recovered) => {
                // Ignored: the reader may have closed the pipe.
                let _ = write_all(&describe(dir, &recovered));
                u8::from(recovered.lost_bytes() > 0)
            }
            Err(error) => {
                let failure = Failure::from(error);
                say!("error: {failure}");
                if let Some(hint) = failure.hint() {
                    say!("hint: {hint}");
                }
                2
            }
        };
        worst = worst.max(code);
    }
    Ok(ExitCode::from(worst))
}

fn write_all(text: &str) -> std::io::Result<()> {
    std::io::Write::write_all(&mut crate::terminal::stdout(), text.as_bytes())
}

/// Text of the result: a line for the trace and one per table.
fn describe(dir: &Path, recovered: &Recovered) -> String {
    let dir = dir.display();
    if recovered.tables.is_empty() {
        return format!("{dir}: nothing to recover\n");
    }
    let segments: u32 = recovered.tables.iter().map(|table| table.segments).sum();
    let mut text = format!(
        "{dir}: recovered {} from {}\n",
        plural(recovered.rows(), "row"),
        plural(segments.into(), "open segment")
    );
    for table in &recovered.tables {
        let (name, rows) = (table.table.name(), table.rows);
        // Writing to a string does not fail.
        let _ = write!(text, "  {name:<15} {rows:>12} rows");
        if table.lost_bytes > 0 {
            let _ = write!(text, ", {} bytes lost", table.lost_bytes);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::recover::RecoveredTable;
    use crate::store::schema::Table;

    // Saved and lost bytes are reported per table.
    #[test]
    fn loss_is_reported() {
        let recovered = Recovered {
            tables: vec![
                RecoveredTable {
                    table: Table::Visits,
                    segments: 1,
                    rows: 20,
                    lost_bytes: 0,
                },
                RecoveredTable {
                    table: Table::Samples,
                    segments: 2,
                    rows: 200,
                    lost_bytes: 17,
                },
            ],
        };
        let expected = "t: recovered 220 rows from 3 open segments
  visits                    20 rows
  samples                  200 rows, 17 bytes lost
";
        assert_eq!(describe(Path::new("t"), &recovered), expected);
        let nothing = describe(Path::new("t"), &Recovered::default());
        assert_eq!(nothing, "t: nothing to recover\n");
    }
}
