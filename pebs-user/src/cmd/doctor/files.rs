//! Checks of other files: debug files.

use super::check::Check;
use super::facts::Facts;
use crate::binary::debuginfod::{CLIENT, Debuginfod, INSTALL, URLS};

const DEBUG_FILES: &str = "debug files";

/// Debug files that are not installed.
pub(super) fn debug_files(facts: &Facts) -> Check {
    match &facts.debuginfod {
        Debuginfod::Off => Check::ok(
            DEBUG_FILES,
            format!(
                "those installed; no debuginfod servers ({URLS} is not set; sudo keeps it with --preserve-env={URLS})"
            ),
        ),
        Debuginfod::Client(client) => Check::ok(
            DEBUG_FILES,
            format!(
                "those installed, and from debuginfod servers by {}",
                client.display()
            ),
        ),
        Debuginfod::NoClient => Check::degraded(
            DEBUG_FILES,
            format!("{URLS} is set, but {CLIENT} is not installed"),
            INSTALL,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;
    use crate::pmu::host::fixtures;

    /// Only servers configured without a client need a fix.
    #[test]
    fn servers_need_a_client() {
        let of = |debuginfod| {
            let mut facts = Facts::able(fixtures::skylake());
            facts.debuginfod = debuginfod;
            debug_files(&facts)
        };
        assert_eq!(of(Debuginfod::Off).status, Status::Ok);
        let client = of(Debuginfod::Client("/usr/bin/debuginfod-find".into()));
        assert_eq!(client.status, Status::Ok);
        assert!(client.found.contains("/usr/bin/debuginfod-find"));
        let none = of(Debuginfod::NoClient);
        assert_eq!(none.status, Status::Degraded);
        assert!(none.fix.unwrap().contains("debuginfod"));
    }
}
