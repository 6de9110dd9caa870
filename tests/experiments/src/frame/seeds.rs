//! A log of what came out, a line of JSON for each seed: a long experiment goes on where it was ended.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Results by seed, and the file that has them.
pub struct Seeds<'a, T> {
    log: Option<&'a Path>,
    pub done: BTreeMap<u64, T>,
}

impl<'a, T: Serialize + DeserializeOwned> Seeds<'a, T> {
    /// Results of earlier runs; `what` a line is. `seed` fails for a line that can't be used.
    pub fn read(
        log: Option<&'a Path>,
        what: &str,
        seed: impl Fn(&T) -> Result<u64>,
    ) -> Result<Self> {
        let mut done = BTreeMap::new();
        if let Some(log) = log.filter(|it| it.exists()) {
            let name = log.display();
            for line in fs::read_to_string(log)?.lines() {
                let result: T = serde_json::from_str(line)
                    .with_context(|| format!("{name}: not {what}: {line}"))?;
                done.insert(seed(&result).with_context(|| name.to_string())?, result);
            }
        }
        Ok(Self { log, done })
    }

    /// Takes a result, and appends it to the file.
    pub fn add(&mut self, seed: u64, result: T) -> Result<()> {
        if let Some(log) = self.log {
            let mut log = OpenOptions::new().create(true).append(true).open(log)?;
            writeln!(log, "{}", serde_json::to_string(&result)?)?;
        }
        self.done.insert(seed, result);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Added results are read again, and a line of something else is an error.
    #[test]
    fn lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let read = || Seeds::<(u64, String)>::read(Some(&log), "a pair", |it| Ok(it.0));
        let mut seeds = read().unwrap();
        assert!(seeds.done.is_empty());
        seeds.add(7, (7, "x".to_owned())).unwrap();
        assert_eq!(read().unwrap().done[&7].1, "x");
        fs::write(&log, "{}\n").unwrap();
        assert!(read().is_err_and(|it| it.to_string().contains("not a pair: {}")));
    }
}
