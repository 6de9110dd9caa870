//! Finds binaries of recorded processes, perhaps of another machine.
//!
//! The build id decides whether a file is the mapped one. If the recording has none for it, as perf writes them only for
//! files in which samples were taken, a file given by the user counts, by its name, or one that has the mapped file's inode
//! and is older than the recording, if the machine was not booted since.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use object::read::elf::NoteIterator;
use object::{Endianness, elf};

use crate::binary::elf_image::{ElfHead, read_head, symbol_address};
use crate::binary::mapping::{BuildId, MappedFile};
use crate::binary::open::{Opened, at_path, unchanged};

/// Directory of debug files in distributions.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// Search paths of a recording's binaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Binaries, and directories with binaries in them.
    pub symbols: Arc<[PathBuf]>,
    /// A copy of the recorded machine's file system, in which paths are looked up instead of ours.
    pub symfs: Option<Arc<Path>>,
    /// The recorded kernel; `None` if the recording does not identify it.
    pub kernel: Option<RecordedKernel>,
    /// Time at which the recording had been written, if this machine recorded it and was not booted since.
    pub until: Option<SystemTime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedKernel {
    /// Build id of its vmlinux.
    pub build_id: BuildId,
    pub symbol: Arc<[u8]>,
    /// Address of that symbol: kernels move with every boot.
    pub address: u64,
}

impl RecordedKernel {
    /// Whether it is the kernel that runs here, in this boot.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        our_build_id() == Some(self.build_id) && our_address(&self.symbol) == Some(self.address)
    }
}

/// The file of a recorded kernel.
pub(super) struct Vmlinux {
    /// The file.
    pub opened: Opened,
    /// Its headers.
    pub head: ElfHead,
    /// Offset of the kernel's addresses from those in the file.
    pub slide: u64,
}

impl Recorded {
    /// Whether the recorded kernel is the one running here, so that its /proc files apply.
    pub(super) fn has_our_kernel(&self) -> bool {
        let kernel = self.kernel.as_ref();
        self.symfs.is_none() && kernel.is_some_and(RecordedKernel::is_ours)
    }

    /// Files that may be the mapped one: those given, then the one at its path here.
    pub(super) fn candidates(&self, mapped: &MappedFile) -> impl Iterator<Item = Opened> + use<> {
        let id = mapped.build_id;
        let given = self.given(&mapped.path, id);
        let given = given
            .into_iter()
            .filter_map(move |path| at_path(&path, id.is_none()));
        // Without a build id, the file at the path here may be any other, unless it is the very same one.
        let here = match id {
            Some(_) if self.symfs.is_none() => at_path(&mapped.path, false),
            None if self.symfs.is_none() => self.until.and_then(|until| unchanged(mapped, until)),
            _ => None,
        };
        given.chain(here)
    }

    /// The file of the recorded kernel, if it is where binaries are looked for or among the debug files.
    pub(super) fn vmlinux(&self) -> Option<Vmlinux> {
        let kernel = self.kernel.as_ref()?;
        let installed = by_build_id(Path::new(DEBUG_DIR), &kernel.build_id.to_string());
        let mut paths = self.given(Path::new("/vmlinux"), Some(kernel.build_id));
        paths.push(installed.with_added_extension("debug"));
        paths.into_iter().find_map(|path| {
            let opened = at_path(&path, false)?;
            let head = read_head(&opened.file)?;
            if head.build_id != Some(kernel.build_id) {
                return None;
            }
            let slide = kernel
                .address
                .wrapping_sub(symbol_address(&opened.file, &kernel.symbol)?);
            Some(Vmlinux {
                opened,
                head,
                slide,
            })
        })
    }

    fn given(&self, path: &Path, id: Option<BuildId>) -> Vec<PathBuf> {
        let mut given = Vec::new();
        let relative = path.strip_prefix("/").unwrap_or(path);
        for place in &*self.symbols {
            if !place.is_dir() {
                // Matches by file name, or by build id.
                let named = place.file_name() == path.file_name();
                given.extend((named || id.is_some()).then(|| place.clone()));
                continue;
            }
            given.push(place.join(relative));
            given.extend(path.file_name().map(|name| place.join(name)));
            given.extend(id.map(|id| by_build_id(place, &id.to_string())));
        }
        given.extend(self.symfs.iter().map(|symfs| symfs.join(relative)));
        given
    }
}

/// `DIR/.build-id/ab/cdef`: where perf and debuggers keep binaries.
fn by_build_id(dir: &Path, id: &str) -> PathBuf {
    let (first, rest) = id.split_at(id.len().min(2));
    let dir = dir.join(".build-id").join(first);
    // A link to the file, or, in perf's cache, to a directory with it.
    let in_cache = dir.join(rest).join("elf");
    if in_cache.exists() {
        in_cache
    } else {
        dir.join(rest)
    }
}

/// Source: `/sys/kernel/notes`, the notes of the running kernel's ELF file.
fn our_build_id() -> Option<BuildId> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    let mut notes =
        NoteIterator::<elf::FileHeader64<Endianness>>::new(Endianness::Little, 4, &notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU
            && note.n_type(Endianness::Little) == elf::NT_GNU_BUILD_ID
        {
            return BuildId::new(note.desc());
        }
    }
    None
}

fn our_address(wanted: &[u8]) -> Option<u64> {
    let symbols = File::open("/proc/kallsyms").ok()?;
    let wanted = OsStr::from_bytes(wanted).to_str()?;
    for line in BufReader::new(symbols).lines() {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?;
        if words.nth(1) == Some(wanted) {
            return u64::from_str_radix(address, 16).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::modules::Modules;
    use super::*;
    use crate::binary::mapping::{Backing, Mapping};
    use crate::units::Pid;

    const PROGRAM: &str = "/bin/true";

    /// Whether the binary of a mapping is found.
    fn finds(recorded: Recorded, path: &str, build_id: Option<BuildId>) -> bool {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            backing: Backing::File(MappedFile {
                path: Arc::from(Path::new(path)),
                identity: None,
                build_id,
                deleted: false,
            }),
        };
        let mut modules = Modules::new(Some(&[])).with_recorded(Some(recorded));
        let id = modules.of_mapping(Pid(1), &mapping);
        modules.get(id).is_elf()
    }

    fn with(symbols: &Path) -> Recorded {
        Recorded {
            symbols: Arc::from([symbols.to_path_buf()]),
            ..Recorded::default()
        }
    }

    /// The build id decides; without one only a file given by name counts.
    #[test]
    fn build_ids_decide() {
        let file = File::open(PROGRAM).unwrap();
        let id = read_head(&file).unwrap().build_id;
        assert!(id.is_some(), "{PROGRAM} has a build id");
        let other = BuildId::new(&[7; 20]);
        let dir = tempfile::tempdir().unwrap();
        let given = dir.path().join("service");
        std::fs::copy(PROGRAM, &given).unwrap();
        let store = tempfile::tempdir().unwrap();
        let stored = by_build_id(store.path(), &id.unwrap().to_string());
        std::fs::create_dir_all(stored.parent().unwrap()).unwrap();
        std::fs::copy(PROGRAM, stored).unwrap();
        let symfs = Recorded {
            symfs: Some(Arc::from(dir.path())),
            ..Recorded::default()
        };
        let none = Recorded::default();
        let cases = [
            (none.clone(), PROGRAM, id, true),
            (none.clone(), PROGRAM, other, false),
            (none, PROGRAM, None, false),
            (with(&given), "/opt/service", id, true),
            (with(&given), "/opt/renamed", id, true),
            (with(&given), "/opt/service", other, false),
            (with(&given), "/opt/service", None, true),
            (with(&given), "/opt/renamed", None, false),
            (with(dir.path()), "/opt/service", id, true),
            (with(dir.path()), "/opt/service", None, true),
            (with(store.path()), "/opt/service", id, true),
            (with(store.path()), "/opt/service", other, false),
            (symfs.clone(), "/service", id, true),
            (symfs.clone(), "/service", None, true),
            (symfs, PROGRAM, id, false),
        ];
        for (n, (recorded, path, id, expected)) in cases.into_iter().enumerate() {
            assert_eq!(finds(recorded, path, id), expected, "case {n}: {path}");
        }
    }

    /// Processes that map the same file share the result of one search.
    #[test]
    fn looked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let given = dir.path().join("service");
        std::fs::copy(PROGRAM, &given).unwrap();
        let mapping = |path: &str| Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            backing: Backing::File(MappedFile {
                path: Arc::from(Path::new(path)),
                identity: None,
                build_id: None,
                deleted: false,
            }),
        };
        let mut modules = Modules::new(Some(&[])).with_recorded(Some(with(dir.path())));
        let first = modules.of_mapping(Pid(1), &mapping("/opt/service"));
        let missing = modules.of_mapping(Pid(1), &mapping("/opt/other"));
        std::fs::rename(&given, dir.path().join("other")).unwrap();
        assert_eq!(modules.of_mapping(Pid(2), &mapping("/opt/service")), first);
        assert_eq!(modules.of_mapping(Pid(2), &mapping("/opt/other")), missing);
        assert!(modules.get(first).is_elf() && !modules.get(missing).is_elf());
    }

    /// A kernel with another build id, or at another address, is not ours.
    #[test]
    fn other_kernels() {
        let kernel = |build_id, address| RecordedKernel {
            build_id,
            symbol: Arc::from(&b"_text"[..]),
            address,
        };
        assert!(!kernel(BuildId::new(&[7; 20]).unwrap(), 1).is_ours());
        if let (Some(id), Some(address)) = (our_build_id(), our_address(b"_text")) {
            assert!(kernel(id, address).is_ours());
            assert!(!kernel(id, address ^ 0x1000).is_ours());
        }
    }

    /// A kernel's file is found by its build id, and names addresses of a relocated kernel. This test's own program
    /// stands for it.
    #[test]
    fn moved_kernel() {
        let program = std::env::current_exe().unwrap();
        let file = File::open(&program).unwrap();
        let Some(build_id) = read_head(&file).unwrap().build_id else {
            return println!("SKIP programs are linked without build ids here");
        };
        let (main, other) = (
            symbol_address(&file, b"main"),
            symbol_address(&file, b"_start"),
        );
        let (main, other) = (main.unwrap(), other.unwrap());
        let base = 0xffff_ffff_8100_0000u64;
        let recorded = Recorded {
            kernel: Some(RecordedKernel {
                build_id,
                symbol: Arc::from(&b"main"[..]),
                address: base + main,
            }),
            ..with(&program)
        };
        let options = super::super::SymbolizeOptions {
            recorded: Some(recorded),
            ..Default::default()
        };
        let mut symbolizer = super::super::Symbolizer::new(options);
        let ips = [base + other, base + other + 1, base - 0x1000_0000];
        let ids = ips.map(|ip| symbolizer.function(Pid(1), crate::units::Ip(ip)));
        let mut rows = Vec::new();
        symbolizer.take_new_functions(&mut rows);
        assert_eq!(ids[0], ids[1]);
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_deref(), row.kernel))
            .collect();
        assert_eq!(names, [(Some("_start"), true), (None, true)]);
        assert_eq!(rows[0].module.as_deref(), Some("[kernel]"));
    }
}
