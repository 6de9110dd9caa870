//! Golden files of renderers.

use std::path::Path;
use std::{env, fs};

/// The output must be this file's, in `src/out/RENDERER/golden`; with `BLESS=1` it is written.
#[track_caller]
pub(super) fn golden(renderer: &str, name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/out")
        .join(renderer)
        .join("golden")
        .join(name);
    if env::var("BLESS").as_deref() == Ok("1") {
        fs::write(&path, got).unwrap();
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == want,
        "{} differs; BLESS=1 accepts this:\n{got}",
        path.display()
    );
}
