//! A browser without a screen, for the tests of the page.

use anyhow::Result;

use super::Means;

/// The smallest first: without a window it is 64 MB to fetch, 220 MB on disk.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// Installs the first that apt has.
pub fn install(means: &Means) -> Result<()> {
    let package = PACKAGES.into_iter().find(|package| means.apt.has(package));
    // If there is none, apt reports it.
    means.apt.install(&[package.unwrap_or(PACKAGES[0])])
}
