//! Runs `pebs-trace import`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pebs_user::store::reader::Trace;
use pebs_user::store::schema::Table;

/// An import that ran, in its own folder, into `out`.
pub struct Import {
    pub dir: tempfile::TempDir,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Import {
    /// Imports a file under another name, so that the output does not depend on its path. Binaries are not searched.
    pub fn of(file: &Path, args: &[&str]) -> Self {
        let import = Self::prepare();
        std::os::unix::fs::symlink(file, import.dir.path().join("perf.data")).unwrap();
        import.run(&[&["perf.data", "--symfs", "nowhere", "-o", "out"], args].concat())
    }

    /// Imports bytes.
    pub fn of_bytes(bytes: &[u8], args: &[&str]) -> Self {
        let import = Self::prepare();
        import.write("perf.data", bytes);
        import.run(&[&["perf.data", "--symfs", "nowhere", "-o", "out"], args].concat())
    }

    pub fn prepare() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            code: -1,
            stdout: String::new(),
            stderr: String::new(),
        }
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    pub fn run(mut self, args: &[&str]) -> Self {
        let run = Command::new(env!("CARGO_BIN_EXE_pebs-trace"))
            .arg("import")
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        self.code = run.status.code().unwrap();
        self.stdout = String::from_utf8(run.stdout).unwrap();
        self.stderr = String::from_utf8(run.stderr).unwrap();
        self
    }

    /// Imports bytes that come through a pipe.
    pub fn of_stream(bytes: &[u8]) -> Self {
        let mut import = Self::prepare();
        let mut child = Command::new(env!("CARGO_BIN_EXE_pebs-trace"))
            .args(["import", "-", "--symfs", "nowhere", "-o", "out"])
            .current_dir(import.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(bytes).unwrap();
        drop(input);
        import.code = child.wait().unwrap().code().unwrap();
        import
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn trace(&self) -> Trace {
        Trace::open(&self.out()).unwrap_or_else(|error| panic!("{error}\n{}", self.stderr))
    }

    /// Rows of each table that has any.
    pub fn rows(&self) -> String {
        let trace = self.trace();
        let rows = Table::ALL.map(|table| (table.name(), trace.rows(table).unwrap()));
        let some = rows.iter().filter(|(_, rows)| *rows > 0);
        let some: Vec<_> = some
            .map(|(table, rows)| format!("{table} {rows}"))
            .collect();
        some.join(", ")
    }
}
