//! Description of a process's executable mapping.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Maximum length of a build id; linkers write 16 or 20 bytes.
const BUILD_ID_MAX: usize = 32;

/// The build id of a binary: bytes that its linker derived from its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BuildId {
    len: u8,
    bytes: [u8; BUILD_ID_MAX],
}

impl BuildId {
    /// Build id from the bytes of an ELF note or a perf record; `None` if empty or longer than 32 bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > BUILD_ID_MAX {
            return None;
        }
        let mut id = Self {
            len: u8::try_from(bytes.len()).ok()?,
            bytes: [0; BUILD_ID_MAX],
        };
        id.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(id)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// Device and inode of a mapped file, as in `/proc/PID/maps` and `PERF_RECORD_MMAP2`.
///
/// On some file systems (btrfs, older overlayfs) the device differs from that of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    pub inode: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Path without the kernel's ` (deleted)`: in the process's mount namespace; from our root if that is the same.
    pub path: Arc<Path>,
    /// Device and inode; `None` if a perf record has the build id instead.
    pub identity: Option<FileIdentity>,
    /// Build id, if reported by the kernel.
    pub build_id: Option<BuildId>,
    /// The file had been deleted when the mapping was seen.
    pub deleted: bool,
}

/// Kind of memory behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file, memfds included.
    File(MappedFile),
    /// Memory of the process itself: JIT-compiled code is there.
    Anonymous,
    /// The kernel's shared object.
    Vdso,
    /// The kernel's legacy page of three calls.
    Vsyscall,
    /// Slots in which the kernel single-steps probed instructions.
    Uprobes,
    /// Trampoline called in place of probed five-byte nops, since Linux 6.18.
    UprobesTrampoline,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// Offset in the file of `start`.
    pub offset: u64,
    /// Memory behind it.
    pub backing: Backing,
}

impl Mapping {
    /// Whether the address is inside.
    #[must_use]
    pub const fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// Offset in the file of an address inside.
    #[must_use]
    pub const fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.offset)
    }
}

impl Backing {
    /// Parses the kernel's name of a mapping.
    ///
    /// `file` makes the identity lazily, only for names that are files.
    #[must_use]
    pub fn from_kernel_name(name: &[u8], file: impl FnOnce() -> FileFacts) -> Self {
        match name {
            b"[vdso]" => return Self::Vdso,
            b"[vsyscall]" => return Self::Vsyscall,
            b"[uprobes]" => return Self::Uprobes,
            // The second form: records have only 15 bytes of such a name (perf_event_mmap_event).
            b"[uprobes-trampoline]" | b"[uprobes-trampo" => return Self::UprobesTrampoline,
            _ => {}
        }
        if !name.starts_with(b"/") || name.starts_with(b"//anon") {
            return Self::Anonymous;
        }
        let (path, deleted) = match name.strip_suffix(b" (deleted)") {
            Some(path) => (path, true),
            None => (name, false),
        };
        // Shared anonymous memory and System V segments are files to the kernel only.
        if deleted && (path == b"/dev/zero" || path.starts_with(b"/SYSV")) {
            return Self::Anonymous;
        }
        let FileFacts { identity, build_id } = file();
        Self::File(MappedFile {
            path: Arc::from(Path::new(bytes_as_os(path))),
            identity,
            build_id,
            deleted,
        })
    }
}

/// Data of the kernel about a mapped file, without its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Device and inode.
    pub identity: Option<FileIdentity>,
    pub build_id: Option<BuildId>,
}

fn bytes_as_os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(name: &str) -> Backing {
        Backing::from_kernel_name(name.as_bytes(), FileFacts::default)
    }

    /// The kernel's names of mappings become kinds at the edge.
    #[test]
    fn kernel_names() {
        assert_eq!(backing(""), Backing::Anonymous);
        assert_eq!(backing("//anon"), Backing::Anonymous);
        assert_eq!(backing("[heap]"), Backing::Anonymous);
        assert_eq!(backing("/dev/zero (deleted)"), Backing::Anonymous);
        assert_eq!(backing("[vdso]"), Backing::Vdso);
        assert_eq!(backing("[uprobes]"), Backing::Uprobes);
        let trampoline = Backing::UprobesTrampoline;
        assert_eq!(backing("[uprobes-trampoline]"), trampoline);
        assert_eq!(backing("[uprobes-trampo"), trampoline);
        let Backing::File(file) = backing("/usr/bin/a b (deleted)") else {
            panic!("a deleted file is a file");
        };
        assert!(file.deleted);
        assert_eq!(&*file.path, Path::new("/usr/bin/a b"));
    }

    /// A build id prints as hex, and impossible lengths are refused.
    #[test]
    fn build_ids() {
        assert_eq!(BuildId::new(&[0xab, 0x01]).unwrap().to_string(), "ab01");
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[0; 33]), None);
    }
}
