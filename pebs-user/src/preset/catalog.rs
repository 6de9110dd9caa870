//! Folders of presets: built in, the machine's, and the user's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Preset;
use crate::failure::{Context as _, Failure, Result};
use crate::files::{self, FileUser};

/// A preset with where it is from.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// The file; `None`: built in.
    pub path: Option<PathBuf>,
    pub text: String,
}

impl Entry {
    /// The preset itself.
    ///
    /// # Errors
    /// The file has a fault.
    pub(crate) fn preset(&self) -> Result<Preset> {
        match &self.path {
            Some(path) => Preset::parse(&path.display().to_string(), &self.text),
            None => Preset::parse(&self.name, &self.text),
        }
    }
}

/// Name and text of the built-in presets, in this order.
macro_rules! built_in {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../data/presets/", $name, ".toml")))),*]
    };
}

const BUILT_IN: [(&str, &str); 26] = built_in![
    "apache" "bind9" "dovecot" "getaddrinfo" "go" "go-grpc" "go-http" "haproxy" "http" "hyper" "java" "mariadb" "memcached" "nginx" "node" "php"
    "postgresql" "python" "redis" "ruby" "sqlite" "squid" "tls" "tokio" "unbound" "varnish"
];

/// Folder of the machine's own presets.
const MACHINE: &str = "/etc/pebs-trace/presets";

/// Ending of the files.
const EXTENSION: &str = "toml";

/// Largest file that is read.
const MOST_BYTES: u64 = 64 << 10;

/// Largest number of files of a folder that are read.
const MOST_FILES: usize = 1_000;

/// All presets: the user's, the machine's, and the built-in ones; of those with the same name the first alone.
///
/// # Errors
/// A folder or file can't be read.
pub(crate) fn all() -> Result<Vec<Entry>> {
    let user = FileUser::invoking();
    let mut all = Vec::new();
    if let Some(folder) = of_user(user.as_ref()) {
        all.extend(in_folder(&folder, user.as_ref())?);
    }
    all.extend(in_folder(Path::new(MACHINE), None)?);
    all.extend(BUILT_IN.map(|(name, text)| Entry {
        name: name.to_owned(),
        path: None,
        text: text.to_owned(),
    }));
    let mut unique: Vec<Entry> = Vec::new();
    for entry in all {
        if !unique.iter().any(|it| it.name == entry.name) {
            unique.push(entry);
        }
    }
    Ok(unique)
}

/// The preset of this name, or in this file.
///
/// # Errors
/// There is none.
pub(crate) fn named(name: &str) -> Result<Entry> {
    if name.contains('/') || name.ends_with(&format!(".{EXTENSION}")) {
        let user = FileUser::invoking();
        return read(Path::new(name), user.as_ref())
            .with_context(|| format!("cannot read preset {name}"));
    }
    let all = all()?;
    let known: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
    let unknown = Failure::new(
        format!("there is no preset '{name}'"),
        format!(
            "there are {}; name one of your own by the path of its file, ./{name}.{EXTENSION}",
            known.join(", ")
        ),
    );
    let found = all.into_iter().find(|it| it.name == name);
    found.ok_or(unknown)
}

/// The user's folder, `$XDG_CONFIG_HOME/pebs-trace/presets`, else `~/.config/pebs-trace/presets`: under sudo of the user
/// who called it.
fn of_user(user: Option<&FileUser>) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let home = || match user {
        Some(user) => user.home(),
        None => absolute("HOME"),
    };
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))?;
    Some(config.join("pebs-trace/presets"))
}

/// Presets of a folder, by name; none if there is no such folder.
fn in_folder(folder: &Path, user: Option<&FileUser>) -> Result<Vec<Entry>> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.map(|it| Ok(it?.path()));
        let mut paths = paths.take(MOST_FILES).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|it| it.extension().is_some_and(|it| it == EXTENSION));
        paths.sort();
        Ok(paths)
    };
    let attempted = |path: &Path| format!("cannot read presets of {}", path.display());
    let paths = files::as_user(user, list).with_context(|| attempted(folder))?;
    let read = |path: PathBuf| read(&path, user).with_context(|| attempted(&path));
    paths.into_iter().map(read).collect()
}

fn read(path: &Path, user: Option<&FileUser>) -> io::Result<Entry> {
    let data = files::as_user(user, || files::read_regular(path, MOST_BYTES))?;
    let text = String::from_utf8(data)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Entry {
        name: name.into_owned(),
        path: Some(path.to_owned()),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every built-in preset can be read, says what its items are and with what it was tried.
    #[test]
    fn built_in() {
        for (name, text) in BUILT_IN {
            let preset = Preset::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(
                !preset.about.is_empty() && !preset.tried.is_empty(),
                "{name}"
            );
            let about = &preset.about;
            assert!(about.len() <= 60, "{name}: {about}");
            let is_for = [&preset.programs, &preset.libraries, &preset.functions];
            assert!(is_for.iter().any(|it| !it.is_empty()), "{name}");
        }
    }

    /// A folder's files by name, others left out; a missing folder has none.
    #[test]
    fn folders() {
        let dir = tempfile::tempdir().unwrap();
        let text = "about = \"a\"\n[[probe]]\nspec = \"{bin}:f\"\n";
        for file in ["b.toml", "a.toml", "c.txt"] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let found = in_folder(dir.path(), None).unwrap();
        let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(
            in_folder(&dir.path().join("none"), None)
                .unwrap()
                .is_empty()
        );
        assert!(named(dir.path().join("a.toml").to_str().unwrap()).is_ok());
        assert!(named("./none.toml").is_err() && named("none").is_err());
    }
}
