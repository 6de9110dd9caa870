//! Output of a subcommand's result: a file that appears only when complete, or stdout.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Context as _, Failure, Result};
use crate::terminal;

/// Behaviour if the result would go to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTerminal {
    /// Lines of text: show them, escaped.
    Show,
    /// Data for programs: refuse.
    Refuse,
}

/// Destination of a result.
#[derive(Clone, Debug, clap::Args)]
pub struct ResultFile {
    /// Write to this file, which must not exist
    ///
    /// Default: standard output, which must not be a terminal unless the output is text.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(long, requires = "output")]
    pub force: bool,
}

impl ResultFile {
    /// Calls `write` and returns its result. If it fails, no file is left and an existing one is unchanged.
    ///
    /// # Errors
    /// Errors of `write`; or the file exists or can't be written.
    pub fn write<T, E>(
        &self,
        on_terminal: OnTerminal,
        write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T>
    where
        Failure: From<E>,
    {
        let Some(path) = &self.output else {
            return to_stdout(on_terminal, write);
        };
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Err(Failure::new(
                format!("cannot write {}: it is a directory", path.display()),
                "name a file in it".to_owned(),
            )),
            // A pipe or a device is written to, not replaced.
            Ok(meta) if !meta.is_file() => {
                let file = fs::OpenOptions::new().write(true).open(path);
                fill(&file.map_err(|error| unwritable(path, error))?, path, write)
            }
            Ok(_) if !self.force => Err(Failure::new(
                format!("cannot write {}: it exists", path.display()),
                "name another file, or overwrite it with --force".to_owned(),
            )),
            _ => replace(path, write),
        }
    }
}

fn replace<T, E>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, E>) -> Result<T>
where
    Failure: From<E>,
{
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let part = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(|error| unwritable(path, error))?;
    let value = fill(part.as_file(), path, write)?;
    part.persist(path)
        .map_err(|it| unwritable(path, it.error))?;
    Ok(value)
}

fn fill<T, E>(
    file: &File,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T>
where
    Failure: From<E>,
{
    let mut out = BufWriter::new(file);
    let value = write(&mut out)?;
    out.flush().map_err(|error| unwritable(path, error))?;
    Ok(value)
}

fn to_stdout<T, E>(
    on_terminal: OnTerminal,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T>
where
    Failure: From<E>,
{
    if io::stdout().is_terminal() && on_terminal == OnTerminal::Refuse {
        return Err(Failure::new(
            "cannot write to a terminal: the result is for programs".to_owned(),
            "give a file with -o FILE, or a pipe".to_owned(),
        ));
    }
    let mut out = BufWriter::new(terminal::stdout());
    let value = write(&mut out)?;
    out.flush().context("cannot write to stdout")?;
    Ok(value)
}

fn unwritable(path: &Path, error: io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "the directory must exist",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "name a file on a disk with more room"
        }
        _ => "name a file in a directory that you may write to",
    };
    Failure::new(
        format!("cannot write {}: {}", path.display(), lower(&error)),
        hint.to_owned(),
    )
}

/// The system's message, without its number.
fn lower(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(result: &ResultFile, text: &str) -> Result<()> {
        result.write(OnTerminal::Refuse, |out| out.write_all(text.as_bytes()))
    }

    /// A file is not overwritten unless asked, and a failure leaves the old content.
    #[test]
    fn whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut result = ResultFile {
            output: Some(path.clone()),
            force: false,
        };
        write(&result, "one").unwrap();
        let error = write(&result, "two").unwrap_err().to_string();
        assert!(error.ends_with("it exists"), "{error}");
        result.force = true;
        let failed: Result<()> = result.write(OnTerminal::Refuse, |out| {
            out.write_all(b"part")?;
            Err(io::Error::other("no"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        write(&result, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        result.output = Some(dir.path().join("no/f"));
        let error = write(&result, "").unwrap_err();
        assert_eq!(error.hint().unwrap(), "the directory must exist");
    }

    /// A device is written to, and stays a device.
    #[test]
    fn devices() {
        let result = ResultFile {
            output: Some("/dev/null".into()),
            force: true,
        };
        write(&result, "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
