//! `pebs-trace export`: converts a trace for other tools.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use super::moment::PeriodArgs;
use super::progress::Progress;
use super::result_file::{OnTerminal, ResultFile};
use super::source::open;
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::select::Selection;
use crate::failure::{Failure, Result};
use crate::out::export::{Format, export};
use crate::terminal::say;

/// Options of `pebs-trace export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// Directory of the trace, or its address in a lake
    ///
    /// As printed at the end of the recording.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: Format,

    /// Export only the visits of this item
    #[arg(long, value_name = "ID", conflicts_with = "slow")]
    pub item: Option<u64>,

    /// Export only slow items, by this rule
    ///
    /// p99: the slowest 1 % of the visits of a probe (p50 to p99.99); 3x: at least three times their median; 500us:
    /// at least this time. cpu:p99, cpu:3x, cpu:500us: the same of their times on the CPU; cpu: those above a gap in
    /// these, else cpu:p99.
    #[arg(long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    #[command(flatten)]
    pub period: PeriodArgs,

    /// Include visits that overlap a loss
    ///
    /// Default: formats that add up times of functions leave them out, as some of their records may be missing; the
    /// others (perfetto, firefox, csv) show their flags.
    #[arg(long)]
    pub all: bool,

    /// Destination.
    #[command(flatten)]
    pub result: ResultFile,
}

/// Runs `pebs-trace export`: the summary of the output and remarks on the trace go to stderr.
///
/// # Errors
/// If the trace can't be read, nothing is selected, or the output can't be written.
pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    let selection = match (args.item, args.slow) {
        (Some(item), _) => Selection::Item(item),
        (None, Some(rule)) => Selection::Slow(rule),
        (None, None) => Selection::All,
    };
    let losses = if args.all {
        LossVisits::Include
    } else {
        LossVisits::LeaveOut
    };
    let mut trace = open(&args.trace)?;
    if args.to == Format::Views {
        let unfit = match trace.is_remote() {
            true => Some(("a trace in a lake", "the lake has its own, lake.sql")),
            false if args.period.is_given() => {
                Some(("a part of a trace", "leave --since and --until out"))
            }
            false => None,
        };
        if let Some((what, hint)) = unfit {
            return Err(Failure::new(format!("there are no views of {what}"), hint));
        }
    }
    args.period.apply(&mut trace)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let on_terminal = if args.to.is_text() {
        OnTerminal::Show
    } else {
        OnTerminal::Refuse
    };
    // No progress line where text output goes to the terminal: it would be mixed into it.
    let progress = Progress::unless(args.to.is_text() && io::stdout().is_terminal());
    trace.watch = progress.watch();
    let written = args.result.write(on_terminal, |out| {
        export(&trace, args.to, (selection, losses), out)
    });
    drop(progress);
    match written {
        Ok(note) => say!("{note}"),
        Err(error) if error.is_broken_pipe() => {}
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::store::fixtures::Did::Ran;
    use crate::store::fixtures::{Maker, VisitFixture, info};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    /// Every option is accepted, and options that exclude each other are refused.
    #[test]
    fn arguments() {
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        let args = parse("export t --to csv --slow 3x --all -o f --force");
        let args = args.unwrap_or_else(|error| panic!("{error}")).args;
        assert_eq!(
            (args.to, args.slow.map(|it| it.to_string())),
            (Format::Csv, Some("3x".to_owned()))
        );
        assert!(args.all && args.result.force);
        assert!(parse("export t --to csv --slow 3x --item 4").is_err());
        assert!(parse("export t --to xml").is_err());
        assert!(parse("export t").is_err());
    }

    /// Only the items of a period are exported; there are no views of it.
    #[test]
    fn period() {
        let mut maker = Maker::new(info(&["app:f"]));
        for second in 0..20 {
            let made = VisitFixture::new(second, "k", &[Ran(0, 1_000)]);
            maker.at(second as i64 * 1_000_000_000, &made);
        }
        let made = maker.finish(&[]);
        let to = made.dir.with_extension("out");
        let lines = |format: &str, more: &str| {
            let paths = (made.dir.display(), to.display());
            let line = format!(
                "export {} --to {format} -o {} --force {more}",
                paths.0, paths.1
            );
            let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
            run(&args).map(|_| std::fs::read_to_string(&to).unwrap().lines().count())
        };
        let head = lines("csv", "").unwrap() - 20;
        assert_eq!(lines("csv", "--since +5 --until +8").unwrap(), head + 3);
        assert_eq!(lines("csv", "--since +15").unwrap(), head + 5);
        assert!(lines("csv", "--since +30").is_err());
        let error = lines("views.sql", "--since +5").unwrap_err();
        assert!(error.to_string().contains("part of a trace"), "{error}");
        std::fs::remove_file(&to).unwrap();
    }
}
