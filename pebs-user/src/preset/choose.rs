//! Choice of the preset that fits a program.

use std::path::{Path, PathBuf};

use super::catalog::{self, Entry};
use super::{Chosen, Preset, expand, matches};
use crate::binary::elf::{Binary, BinaryError};
use crate::binary::process::{self, FileId};
use crate::binary::{locate, lookup};
use crate::failure::{Failure, Result};
use crate::probe::ResolveOptions;
use crate::units::Pid;

/// A program, by what presets know it.
pub(crate) struct Program {
    path: PathBuf,
    /// File names of its libraries.
    libraries: Vec<String>,
    /// It with its symbols, once they were needed.
    binary: Option<Binary>,
}

impl Program {
    /// The program of a process, with what it has mapped; `None` if it has ended.
    pub(crate) fn of_process(pid: Pid) -> Option<Self> {
        let mapped = process::mappings(pid)?;
        let files = mapped.iter().filter(|it| it.executable);
        let path = process::exe(pid)?;
        // By a name alone what the process runs is found, not what took its place.
        let replaced = path.to_str().and_then(|it| it.strip_suffix(" (deleted)"));
        let replaced = replaced.and_then(|it| file_name(Path::new(it)));
        Some(Self {
            path: replaced.map_or(path, PathBuf::from),
            libraries: files
                .filter_map(|it| file_name(Path::new(&it.path)))
                .collect(),
            binary: None,
        })
    }

    /// A program that does not run yet; of a script its interpreter.
    ///
    /// # Errors
    /// It is no program.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let (path, binary) = match Binary::open(path) {
            Err(BinaryError::NotElf {
                interpreter: Some(interpreter),
                ..
            }) => {
                let path = locate::locate(&interpreter, None)?;
                let binary = Binary::open(&path)?;
                (path, binary)
            }
            opened => (path.to_owned(), opened?),
        };
        Ok(Self {
            path,
            libraries: binary.needed.clone(),
            binary: Some(binary),
        })
    }

    /// The program's path, by a name that the preset has for the same file: `redis-server` is a link.
    fn path_for(&self, preset: &Preset) -> PathBuf {
        let beside = |name: &String| Some(self.path.parent()?.join(name));
        let own = FileId::of(&self.path);
        let same = |it: &PathBuf| own.is_some() && FileId::of(it) == own;
        let named = preset.programs.iter().filter_map(beside).find(same);
        named.unwrap_or_else(|| self.path.clone())
    }

    /// Whether a preset is for it by the names of files.
    pub(crate) fn is_named_by(&self, preset: &Preset) -> bool {
        let name = file_name(&self.path).unwrap_or_default();
        let has = |pattern: &String| self.libraries.iter().any(|it| matches(pattern, it));
        preset.programs.iter().any(|it| matches(it, &name)) || preset.libraries.iter().any(has)
    }

    /// Whether it has a function that the preset is for.
    fn has_function_of(&mut self, preset: &Preset) -> bool {
        if preset.functions.is_empty() {
            return false;
        }
        if self.binary.is_none() {
            self.binary = Binary::open(&self.path).ok();
        }
        let Some(binary) = &self.binary else {
            return false;
        };
        let has = |name: &String| !lookup::matches(binary, name).is_empty();
        preset.functions.iter().any(has)
    }

    /// Returns how well a preset fits: by the program, by a library, by a function.
    fn rank(&mut self, preset: &Preset) -> Option<u8> {
        let name = file_name(&self.path).unwrap_or_default();
        if preset.programs.iter().any(|it| matches(it, &name)) {
            return Some(0);
        }
        if self.is_named_by(preset) {
            return Some(1);
        }
        self.has_function_of(preset).then_some(2)
    }
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The preset that was asked for, as `NAME` or `NAME=BIN`.
///
/// # Errors
/// There is no such preset, no program is named, or none of its probes can be resolved in the program.
pub(crate) fn asked(
    typed: &str,
    program: impl FnOnce() -> Result<Option<Program>>,
    options: &ResolveOptions,
) -> Result<Chosen> {
    let (name, bin) = match typed.split_once('=') {
        Some((name, bin)) => (name, Some(bin.to_owned())),
        None => (typed, None),
    };
    let entry = catalog::named(name)?;
    let preset = entry.preset()?;
    let bin = match bin {
        Some(bin) => bin,
        None => match program()? {
            Some(program) => text_of(&program.path_for(&preset))?,
            None if !preset.libraries.is_empty() => String::new(),
            None => {
                return Err(Failure::new(
                    format!("preset '{typed}' needs a program to probe"),
                    format!("name it: --preset {typed}=./app, or give -p PID or -- CMD"),
                ));
            }
        },
    };
    expand::expand(&entry.name, &preset, &bin, options)
}

/// The first preset that fits a program: those for programs of its name before those for its libraries, and these before
/// those for its functions.
///
/// # Errors
/// None fits.
pub(crate) fn fitting(mut program: Program, options: &ResolveOptions) -> Result<Chosen> {
    let mut fitting: Vec<(u8, Entry, Preset)> = Vec::new();
    let mut asked_for = Vec::new();
    for entry in catalog::all()? {
        let preset = entry.preset()?;
        match program.rank(&preset) {
            Some(rank) if preset.auto => fitting.push((rank, entry, preset)),
            Some(_) => asked_for.push(entry.name),
            None => {}
        }
    }
    fitting.sort_by_key(|it| it.0);
    let mut first = None;
    for (_, entry, preset) in &fitting {
        let bin = text_of(&program.path_for(preset))?;
        match expand::expand(&entry.name, preset, &bin, options) {
            Ok(chosen) => return Ok(chosen),
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) => Err(error),
        None => Err(none_fits(&program.path, &asked_for, options.pid)),
    }
}

/// The error where no preset fits: what else there is.
fn none_fits(program: &Path, asked_for: &[String], pid: Option<Pid>) -> Failure {
    let what = match pid {
        Some(pid) => format!("-p {}", pid.0),
        None => "-- CMD".to_owned(),
    };
    let others = match asked_for {
        [] => String::new(),
        names => format!("--preset {} fits, too, if asked for; ", names.join(" or ")),
    };
    Failure::new(
        format!(
            "no preset fits {}, and no --uprobe says where items begin and end",
            program.display()
        ),
        format!(
            "{others}'pebs-trace suggest {what}' looks for functions to probe; 'pebs-trace presets' lists presets"
        ),
    )
}

fn text_of(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Failure::new(
            format!("cannot probe {}: its path is not UTF-8", path.display()),
            "give it another name, with a link".to_owned(),
        )),
    }
}
