//! The PMU in software that an emulated guest may have: `tests/softpmu`.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};

use crate::locks::Lock;
use crate::process;

/// Directory of the module's settings and tallies.
const PARAMETERS: &str = "/sys/module/softpmu/parameters";

/// The module, as the guest has it.
const MODULE: &str = "/softpmu.ko";

/// Tallies of the module.
const TALLIES: [&str; 12] = [
    "records",
    "collisions",
    "output",
    "overflows",
    "interrupts",
    "late",
    "stood_still",
    "at_threshold",
    "at_switch",
    "at_stop",
    "at_read",
    "pauses",
];

/// The PMU, with tallies at 0. Holds the recording lock, as tallies are machine-wide; settings are restored when
/// dropped.
#[derive(Debug)]
pub struct SoftPmu {
    lock: Lock,
    before: Vec<(&'static str, String)>,
}

impl SoftPmu {
    /// The PMU with PEBS, if the machine has it.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn pebs() -> Result<Self, String> {
        Self::there("cpu/caps/max_precise", "3")?;
        Ok(Self::under(Lock::recording()))
    }

    /// The PMUs of two kinds of cores with PEBS, if the machine has them.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn hybrid() -> Result<Self, String> {
        Self::there("cpu_atom/caps/max_precise", "3")?;
        Ok(Self::under(Lock::recording()))
    }

    /// The PMU with IBS, if the machine has it.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn ibs() -> Result<Self, String> {
        Self::there("ibs_op/format/cnt_ctl", "config:19")?;
        Ok(Self::under(Lock::recording()))
    }

    fn there(file: &str, holds: &str) -> Result<(), String> {
        let path = Path::new("/sys/bus/event_source/devices").join(file);
        let text = fs::read_to_string(path).unwrap_or_default();
        if Path::new(PARAMETERS).is_dir() && text.trim() == holds {
            return Ok(());
        }
        Err("no PMU in software: cargo xtask kernels --pmu".to_owned())
    }

    fn under(lock: Lock) -> Self {
        let soft = Self {
            lock,
            before: Vec::new(),
        };
        soft.clear();
        soft
    }

    /// Sets the tallies back to 0.
    ///
    /// # Panics
    /// If the module lacks one.
    pub fn clear(&self) {
        for tally in TALLIES {
            write(tally, "0");
        }
    }

    /// Changes one of the module's settings.
    ///
    /// # Panics
    /// If there is no such setting.
    #[must_use]
    pub fn with(mut self, setting: &'static str, value: &str) -> Self {
        self.before.push((setting, read(setting)));
        write(setting, value);
        self
    }

    /// Its lock, for recordings that use it.
    #[must_use]
    pub fn lock(&self) -> Lock {
        self.lock.clone()
    }

    /// Number of occurrences since then.
    ///
    /// # Panics
    /// If the module does not count it.
    #[must_use]
    pub fn tally(&self, name: &str) -> u64 {
        let text = read(name);
        let value = text.parse();
        value.unwrap_or_else(|_| panic!("{name} is '{text}'"))
    }

    /// All tallies that are not 0, for messages.
    #[must_use]
    pub fn tallies(&self) -> String {
        let all = TALLIES.map(|name| (name, self.tally(name)));
        let seen = all.iter().filter(|(_, n)| *n > 0);
        seen.map(|(name, n)| format!("{name} {n} ")).collect()
    }
}

impl Drop for SoftPmu {
    fn drop(&mut self) {
        for (setting, value) in &self.before {
            let path = format!("{PARAMETERS}/{setting}");
            if let Err(error) = fs::write(&path, value) {
                eprintln!("cannot put {path} back: {error}");
            }
        }
    }
}

/// Unloads the module, once it is unused, and loads it again.
///
/// # Panics
/// If the kernel refuses.
pub fn reload() {
    process::wait_until("the module stays in use", || {
        match delete_module(c"softpmu", rustix::fs::OFlags::NONBLOCK.bits() as i32) {
            Ok(()) => true,
            // The last event is freed a little later than its file is closed.
            Err(Errno::AGAIN | Errno::BUSY) => {
                std::thread::sleep(Duration::from_millis(5));
                false
            }
            Err(error) => panic!("cannot unload the module: {error}"),
        }
    });
    let file = File::open(MODULE).expect("the guest has the module");
    finit_module(file, c"", 0).expect("the module can be loaded again");
}

fn read(name: &str) -> String {
    let path = format!("{PARAMETERS}/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"));
    text.trim().to_owned()
}

fn write(name: &str, value: &str) {
    let path = format!("{PARAMETERS}/{name}");
    fs::write(&path, value).unwrap_or_else(|e| panic!("cannot write {path}: {e}"));
}
