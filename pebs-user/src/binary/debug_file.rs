//! The separate file with a binary's DWARF and full symbol table.
//!
//! We search for it ourselves, as blazesym would follow any debug link, even to a pipe that a traced program left
//! beside its binary, and hang. A debug file counts only if it has the binary's build id.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use super::debuginfod;
use super::elf_image::{self, ElfHead, read_head};
use super::mapping::BuildId;
use super::open::open_in_root;

/// Directories of debug files in distributions.
const USUAL_DIRS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// A debug file, held open.
#[derive(Debug)]
pub(crate) struct DebugFile(File);

impl DebugFile {
    /// A path to the open file.
    #[must_use]
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Its variables, see [`elf_image::variables`].
    #[must_use]
    pub(crate) fn variables(&self) -> Vec<(String, u64, u64)> {
        elf_image::variables(&self.0)
    }
}

/// Origin of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A package, or the user who gave us the directory: it may refer to further files.
    DebugDir,
    /// Perhaps the traced program.
    BesideBinary,
}

/// Directories that are searched for debug files.
#[derive(Clone, Debug)]
pub(crate) struct DebugDirs {
    dirs: Vec<PathBuf>,
    /// Whether the cache of debuginfod's client is searched, too.
    cache: bool,
}

impl DebugDirs {
    /// Searches the given directories; without any the usual ones and debuginfod's cache.
    #[must_use]
    pub(crate) fn new(dirs: Option<&[PathBuf]>) -> Self {
        let usual = || USUAL_DIRS.map(PathBuf::from).to_vec();
        Self {
            dirs: dirs.map_or_else(usual, <[_]>::to_vec),
            cache: dirs.is_none(),
        }
    }

    /// Finds the debug file of a binary: by build id, `DIR/.build-id/ab/cdef.debug`; else by the name in its debug
    /// link, beside it, in `.debug` beside it, or under its folder's path in one of the directories; else in
    /// debuginfod's cache.
    #[must_use]
    pub(crate) fn find(&self, binary: &Path, head: &ElfHead) -> Option<DebugFile> {
        let build_id = head.build_id?;
        self.by_build_id(build_id)
            .or_else(|| self.by_link(binary, head.debug_link.as_deref()?, build_id))
            .or_else(|| self.fetched(build_id))
    }

    fn fetched(&self, build_id: BuildId) -> Option<DebugFile> {
        let path = self
            .cache
            .then(|| debuginfod::cached(&build_id.to_string()))??;
        accept(&path, build_id, Origin::DebugDir)
    }

    fn by_build_id(&self, build_id: BuildId) -> Option<DebugFile> {
        let hex = build_id.to_string();
        let (first, rest) = hex.split_at_checked(2)?;
        let below = format!(".build-id/{first}/{rest}.debug");
        self.dirs
            .iter()
            .find_map(|dir| accept(&dir.join(&below), build_id, Origin::DebugDir))
    }

    fn by_link(&self, binary: &Path, link: &Path, build_id: BuildId) -> Option<DebugFile> {
        // A name, not a path that leads elsewhere.
        let name = link.file_name().filter(|name| *name == link.as_os_str())?;
        let folder = binary.parent()?;
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let below = folder.strip_prefix("/").ok()?;
        beside
            .iter()
            .find_map(|path| accept(path, build_id, Origin::BesideBinary))
            .or_else(|| {
                self.dirs
                    .iter()
                    .find_map(|dir| accept(&dir.join(below).join(name), build_id, Origin::DebugDir))
            })
    }
}

fn accept(path: &Path, build_id: BuildId, origin: Origin) -> Option<DebugFile> {
    let (file, _) = open_in_root("/", path)?;
    let head = read_head(&file)?;
    let follows = head.debug_link.is_some() || (head.supplement && origin != Origin::DebugDir);
    let fits = head.build_id == Some(build_id) && head.sane_debug && !follows;
    fits.then_some(DebugFile(file))
}
