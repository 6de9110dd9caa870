//! The binaries that are mapped anywhere, each once.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::fs::MemfdFlags;

use super::module::Module;
use super::recorded::Recorded;
use super::space::ModuleId;
use crate::binary::debug_file::DebugDirs;
use crate::binary::elf_image::{ElfHead, read_head};
use crate::binary::mapping::{Backing, BuildId, MappedFile, Mapping};
use crate::binary::open::{Opened, candidates};
use crate::binary::proc_maps::proc_maps;
use crate::binary::run_as::run_as;
use crate::store::schema::ANONYMOUS_MODULE;
use crate::units::Pid;

/// Largest vdso that is copied; it has 2 pages.
const VDSO_MAX: u64 = 1 << 20;

/// Maximum number of modules; further files have no name. A process may map ever new ones.
const MODULES_MAX: usize = 1 << 16;

/// Maximum number of open binaries; further ones have only their file name and no symbols.
const IMAGES_MAX: u64 = 4096;

/// Descriptors that a binary may take: its own, its debug file's, and blazesym's of each.
const DESCRIPTORS: u64 = 4;

/// Identity of a file's content without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stamp {
    dev: u64,
    inode: u64,
    mtime: (i64, i64),
    size: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            inode: metadata.ino(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.size(),
        }
    }
}

/// Another name of the file, by which a process runs it.
type Alias = Option<Arc<Path>>;

/// All modules, by build id, or by inode and time of change without one.
///
/// Files with the same build id but another size are kept apart: one of them is stripped, or an impostor.
pub(super) struct Modules {
    debug_dirs: DebugDirs,
    modules: Vec<Module>,
    by_stamp: FxHashMap<(Stamp, Alias), ModuleId>,
    by_content: FxHashMap<(BuildId, u64, Alias), ModuleId>,
    by_build_id: FxHashMap<(BuildId, Alias), ModuleId>,
    /// Files that could not be opened, or are no ELF files.
    by_path: FxHashMap<Arc<Path>, ModuleId>,
    anonymous: Option<ModuleId>,
    /// Number of binaries that may still be opened.
    images_left: u64,
    /// Search paths of a recording's binaries.
    recorded: Option<Recorded>,
    /// Module of a path and build id of a recording: a file is searched once, not for each process.
    by_recorded: FxHashMap<(Arc<Path>, Option<BuildId>), ModuleId>,
    /// Modules of recorded vdsos, by their length.
    recorded_vdsos: FxHashMap<u64, ModuleId>,
}

impl Modules {
    /// Returns an empty set. `debug_dirs`: directories of debug files; `None`: those of distributions.
    #[must_use]
    pub(super) fn new(debug_dirs: Option<&[PathBuf]>) -> Self {
        Self {
            debug_dirs: DebugDirs::new(debug_dirs),
            modules: Vec::new(),
            by_stamp: FxHashMap::default(),
            by_content: FxHashMap::default(),
            by_build_id: FxHashMap::default(),
            by_path: FxHashMap::default(),
            anonymous: None,
            images_left: images_max(),
            recorded: None,
            by_recorded: FxHashMap::default(),
            recorded_vdsos: FxHashMap::default(),
        }
    }

    /// With the binaries of a recording, if one is given.
    #[must_use]
    pub(super) fn with_recorded(self, recorded: Option<Recorded>) -> Self {
        Self { recorded, ..self }
    }

    #[must_use]
    pub(super) fn get(&self, id: ModuleId) -> &Module {
        &self.modules[id.0 as usize]
    }

    /// The module with this id, for look-ups.
    pub(super) fn get_mut(&mut self, id: ModuleId) -> &mut Module {
        &mut self.modules[id.0 as usize]
    }

    /// The module of a mapping, opened if it is new.
    ///
    /// Cost: about 10 us for a known file, 100 us for a new one.
    pub(super) fn of_mapping(&mut self, pid: Pid, mapping: &Mapping) -> ModuleId {
        match &mapping.backing {
            Backing::File(_) if self.modules.len() >= MODULES_MAX => self.of_anonymous(),
            Backing::File(mapped) => self.of_file(pid, mapping, mapped),
            Backing::Vdso => self.of_vdso(pid, mapping),
            Backing::Anonymous
            | Backing::Uprobes
            | Backing::UprobesTrampoline
            | Backing::Vsyscall => self.of_anonymous(),
        }
    }

    fn of_file(&mut self, pid: Pid, mapping: &Mapping, mapped: &MappedFile) -> ModuleId {
        let live = self.recorded.is_none().then(|| run_as(pid, &mapped.path));
        let alias: Alias = live.flatten().map(Arc::from);
        if let Some(build_id) = mapped.build_id
            && let Some(known) = self.by_build_id.get(&(build_id, alias.clone()))
        {
            return *known;
        }
        match self.recorded.clone() {
            Some(recorded) => self.of_recorded(&recorded, mapped),
            None => candidates(pid, mapping, mapped)
                .find_map(|opened| self.of_opened(opened, mapped, &alias))
                .unwrap_or_else(|| self.nameless(mapped)),
        }
    }

    fn of_recorded(&mut self, recorded: &Recorded, mapped: &MappedFile) -> ModuleId {
        let key = (Arc::clone(&mapped.path), mapped.build_id);
        if let Some(known) = self.by_recorded.get(&key) {
            return *known;
        }
        let found = recorded
            .candidates(mapped)
            .find_map(|opened| self.of_opened(opened, mapped, &None));
        let id = found.unwrap_or_else(|| self.nameless(mapped));
        if self.by_recorded.len() >= MODULES_MAX {
            self.by_recorded.clear();
        }
        self.by_recorded.insert(key, id);
        id
    }

    fn of_opened(
        &mut self,
        opened: Opened,
        mapped: &MappedFile,
        alias: &Alias,
    ) -> Option<ModuleId> {
        let size = opened.metadata.size();
        let stamp = (Stamp::of(&opened.metadata), alias.clone());
        if opened.certain
            && let Some(known) = self.by_stamp.get(&stamp)
        {
            return Some(*known);
        }
        let head = read_head(&opened.file)?;
        if !opened.certain && (mapped.build_id.is_none() || mapped.build_id != head.build_id) {
            return None;
        }
        let name = alias.as_deref().unwrap_or(&mapped.path);
        let name = name.to_string_lossy().into_owned();
        let id = self.add_elf(name, alias, opened.file, head, size);
        if self.by_stamp.len() >= MODULES_MAX {
            self.by_stamp.clear();
        }
        self.by_stamp.insert(stamp, id);
        Some(id)
    }

    fn add_elf(
        &mut self,
        name: String,
        alias: &Alias,
        file: File,
        head: ElfHead,
        size: u64,
    ) -> ModuleId {
        let build_id = head.build_id;
        if let Some(build_id) = build_id
            && let Some(known) = self.by_content.get(&(build_id, size, alias.clone()))
        {
            return *known;
        }
        let module = match self.images_left.checked_sub(1) {
            Some(left) => {
                self.images_left = left;
                let debug_file = self.debug_dirs.find(Path::new(&name), &head);
                Module::of_elf(name, file, head, debug_file)
            }
            None => Module::without_symbols(name),
        };
        let id = self.push(module);
        if let Some(build_id) = build_id {
            self.by_content.insert((build_id, size, alias.clone()), id);
            let known = self.by_build_id.entry((build_id, alias.clone()));
            known.or_insert(id);
        }
        id
    }

    /// The vdso has no file: its pages are copied from the process, or from our own.
    fn of_vdso(&mut self, pid: Pid, mapping: &Mapping) -> ModuleId {
        if self.recorded.is_none() {
            return self.copied_vdso(pid, mapping);
        }
        let size = mapping.end.saturating_sub(mapping.start);
        if let Some(known) = self.recorded_vdsos.get(&size) {
            return *known;
        }
        let id = self.copied_vdso(pid, mapping);
        // A damaged recording may have any lengths.
        if self.recorded_vdsos.len() < MODULES_MAX {
            self.recorded_vdsos.insert(size, id);
        }
        id
    }

    fn copied_vdso(&mut self, pid: Pid, mapping: &Mapping) -> ModuleId {
        let key: Arc<Path> = Arc::from(Path::new("[vdso]"));
        let copied = match &self.recorded {
            Some(recorded) if !recorded.has_our_kernel() => None,
            Some(_) => copy_own_vdso(mapping),
            None => copy_vdso(pid, mapping).or_else(|| copy_own_vdso(mapping)),
        };
        if let Some((file, head)) = copied {
            let size = mapping.end - mapping.start;
            return self.add_elf("[vdso]".into(), &None, file, head, size);
        }
        if let Some(known) = self.by_path.get(&key) {
            return *known;
        }
        let id = self.push(Module::without_symbols("[vdso]".into()));
        self.by_path.insert(key, id);
        id
    }

    fn of_anonymous(&mut self) -> ModuleId {
        if let Some(known) = self.anonymous {
            return known;
        }
        let id = self.push(Module::without_symbols(ANONYMOUS_MODULE.into()));
        self.anonymous = Some(id);
        id
    }

    fn nameless(&mut self, mapped: &MappedFile) -> ModuleId {
        if let Some(known) = self.by_path.get(&mapped.path) {
            return *known;
        }
        let name = mapped.path.to_string_lossy().into_owned();
        let id = self.push(Module::without_symbols(name));
        self.by_path.insert(mapped.path.clone(), id);
        id
    }

    fn push(&mut self, module: Module) -> ModuleId {
        let id = ModuleId(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        self.modules.push(module);
        id
    }
}

/// Half of the descriptors allowed are left for other uses.
fn images_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.unwrap_or(u64::MAX);
    (limit / 2 / DESCRIPTORS).min(IMAGES_MAX)
}

/// A copy of our own vdso, for a process that is gone; `None` if the size differs (32-bit).
fn copy_own_vdso(mapping: &Mapping) -> Option<(File, ElfHead)> {
    let me = Pid(std::process::id());
    let own = proc_maps(me)?
        .into_iter()
        .find(|own| own.backing == Backing::Vdso)?;
    let same_size = own.end - own.start == mapping.end - mapping.start;
    same_size.then(|| copy_vdso(me, &own)).flatten()
}

/// A copy of the vdso of a process as a file in memory.
fn copy_vdso(pid: Pid, mapping: &Mapping) -> Option<(File, ElfHead)> {
    let len = mapping.end.checked_sub(mapping.start)?;
    if len > VDSO_MAX {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let memory = File::open(format!("/proc/{}/mem", pid.0)).ok()?;
    memory.read_exact_at(&mut bytes, mapping.start).ok()?;
    let copy = File::from(rustix::fs::memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?);
    copy.write_all_at(&bytes, 0).ok()?;
    let head = read_head(&copy)?;
    Some((copy, head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::mapping::FileIdentity;

    /// With ever new binaries, descriptors stay limited; further binaries are known by name.
    #[test]
    fn images_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let mut modules = Modules::new(Some(&[]));
        modules.images_left = 3;
        let known: Vec<bool> = (0..5u8)
            .map(|n| {
                let path = dir.path().join(n.to_string());
                let mut bytes = std::fs::read("/bin/true").unwrap();
                // Another size makes it another binary.
                bytes.resize(bytes.len() + usize::from(n), 0);
                std::fs::write(&path, bytes).unwrap();
                let metadata = std::fs::metadata(&path).unwrap();
                let mapping = Mapping {
                    start: 0x1000,
                    end: 0x2000,
                    offset: 0,
                    backing: Backing::File(MappedFile {
                        path: Arc::from(&*path),
                        identity: Some(FileIdentity {
                            major: rustix::fs::major(metadata.dev()),
                            minor: rustix::fs::minor(metadata.dev()),
                            inode: metadata.ino(),
                        }),
                        build_id: None,
                        deleted: false,
                    }),
                };
                let id = modules.of_mapping(Pid(u32::MAX - 3), &mapping);
                modules.get(id).is_elf()
            })
            .collect();
        assert_eq!(known, [true, true, true, false, false]);
    }
}
