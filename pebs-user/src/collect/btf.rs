//! Offsets of kernel structure members, from the kernel's BTF.
//!
//! Reads only what the eBPF programs need: struct members by name. Source of the format: Documentation/bpf/btf.rst.

use crate::failure::Hint;
use std::path::{Path, PathBuf};

/// BTF of the running kernel.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// A BTF file that could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BtfError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The bytes are not BTF of a known version.
    #[error("type information of the kernel is malformed: {0}")]
    Malformed(&'static str),
    /// A member that every supported kernel has is missing.
    #[error("struct {0} has no member '{1}' in the kernel's type information")]
    NoMember(&'static str, &'static str),
}

impl Hint for BtfError {
    fn hint(&self) -> Option<String> {
        matches!(self, Self::Read { .. }).then(|| {
            "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF); 'pebs-trace doctor' says what it has"
                .to_owned()
        })
    }
}

/// Type information of a kernel.
pub(crate) struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Offset in `types` of type n+1.
    starts: Vec<u32>,
}

const MAGIC: u16 = 0xeb9f;
const KIND_POINTER: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC_PROTO: u32 = 13;

/// Bytes that follow the 12-byte header of a type.
fn trailer(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        1 => 4,                    // int
        2 | 7..=12 | 16 | 18 => 0, // pointer, forward, typedef, qualifiers, func, float, type tag
        3 => 12,                   // array
        4 | 5 => vlen * 12,        // struct, union
        6 => vlen * 8,             // enum
        13 => vlen * 8,            // func proto
        14 => 4,                   // var
        15 => vlen * 12,           // data section
        17 => 4,                   // declaration tag
        19 => vlen * 12,           // enum64
        _ => return None,
    })
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

impl Btf {
    /// Reads the running kernel's BTF. Cost: some milliseconds.
    ///
    /// # Errors
    /// The kernel has no BTF, or it is malformed.
    pub(crate) fn of_kernel() -> Result<Self, BtfError> {
        let path = Path::new(VMLINUX);
        let bytes = std::fs::read(path).map_err(|source| BtfError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&bytes)
    }

    /// Parses a BTF blob.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BtfError> {
        let short = BtfError::Malformed("shorter than its header says");
        let magic = bytes.get(..2).map(|m| u16::from_ne_bytes([m[0], m[1]]));
        if magic != Some(MAGIC) {
            return Err(BtfError::Malformed("bad magic number"));
        }
        let field = |offset| word(bytes, offset).map(|value| value as usize);
        let section = |at: usize| {
            let (header, offset, length) = (field(4)?, field(at)?, field(at + 4)?);
            let start = header.checked_add(offset)?;
            bytes.get(start..start.checked_add(length)?)
        };
        let (Some(types), Some(strings)) = (section(8), section(16)) else {
            return Err(short);
        };
        let mut starts = Vec::new();
        let mut at = 0;
        while at < types.len() {
            let info = word(types, at + 4).ok_or(BtfError::Malformed("cut in a type"))?;
            let (kind, vlen) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let trailer = trailer(kind, vlen).ok_or(BtfError::Malformed("unknown kind of type"))?;
            starts.push(at as u32);
            at += 12 + trailer;
        }
        Ok(Self {
            types: types.to_vec(),
            strings: strings.to_vec(),
            starts,
        })
    }

    /// Byte offset of a member in a struct, including members of its anonymous structs and unions.
    ///
    /// # Errors
    /// There is no such struct or member.
    pub(crate) fn member(&self, name: &'static str, member: &'static str) -> Result<u64, BtfError> {
        self.starts
            .iter()
            .map(|&at| at as usize)
            .filter(|&at| self.kind(at) == KIND_STRUCT && self.name_is(at, name))
            .find_map(|at| self.find(at, member, 0))
            .ok_or(BtfError::NoMember(name, member))
    }

    /// Number of arguments that a tracepoint passes to a typed program; `None` if there is no such tracepoint.
    ///
    /// Source: include/trace/bpf_probe.h: `typedef void (*btf_trace_NAME)(void *, ...)`.
    #[must_use]
    pub(crate) fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        let name = format!("btf_trace_{name}");
        let mut starts = self.starts.iter().map(|&at| at as usize);
        let typedef =
            starts.find(|&at| self.kind(at) == KIND_TYPEDEF && self.name_is(at, &name))?;
        let pointer = self.target(typedef, KIND_POINTER)?;
        let proto = self.target(pointer, KIND_FUNC_PROTO)?;
        let info = word(&self.types, proto + 4)?;
        // The first argument is internal to the tracepoint.
        ((info & 0xffff) as usize).checked_sub(1)
    }

    /// Position of the type that the type at `at` refers to, if it is of this kind.
    fn target(&self, at: usize, kind: u32) -> Option<usize> {
        let index = word(&self.types, at + 8)?.checked_sub(1)?;
        let target = *self.starts.get(index as usize)? as usize;
        (self.kind(target) == kind).then_some(target)
    }

    fn kind(&self, at: usize) -> u32 {
        word(&self.types, at + 4).map_or(0, |info| (info >> 24) & 0x1f)
    }

    fn name_is(&self, at: usize, name: &str) -> bool {
        word(&self.types, at).is_some_and(|offset| self.string(offset) == Some(name.as_bytes()))
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        self.strings
            .get(offset as usize..)?
            .split(|&byte| byte == 0)
            .next()
    }

    fn find(&self, at: usize, member: &str, depth: u32) -> Option<u64> {
        let info = word(&self.types, at + 4)?;
        let bitfields = info >> 31 == 1;
        for index in 0..(info & 0xffff) as usize {
            let entry = at + 12 + index * 12;
            let (name, r#type) = (word(&self.types, entry)?, word(&self.types, entry + 4)?);
            let bits = word(&self.types, entry + 8)?;
            let bits = if bitfields { bits & 0xff_ffff } else { bits };
            let offset = u64::from(bits / 8);
            let name = self.string(name)?;
            if name == member.as_bytes() {
                return Some(offset);
            }
            if name.is_empty() && depth < 8 {
                let inner = *self.starts.get((r#type as usize).checked_sub(1)?)? as usize;
                if matches!(self.kind(inner), KIND_STRUCT | KIND_UNION)
                    && let Some(found) = self.find(inner, member, depth + 1)
                {
                    return Some(offset + found);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The running kernel's `pid` and `tgid` are adjacent, as the kernel programs assume.
    #[test]
    fn members_of_the_running_kernel() {
        let Ok(btf) = Btf::of_kernel() else {
            println!("SKIP the kernel has no BTF");
            return;
        };
        let pid = btf.member("task_struct", "pid").unwrap();
        assert_eq!(btf.member("task_struct", "tgid").unwrap(), pid + 4);
        assert!(btf.member("perf_sample_data", "time").unwrap() > 0);
        assert!(btf.member("signal_struct", "live").is_ok());
        assert!(btf.member("perf_event", "hw").unwrap() > 0);
        assert!(btf.member("hw_perf_event", "interrupts").unwrap() > 0);
        assert!(matches!(
            btf.tracepoint_arguments("sched_switch"),
            Some(3 | 4)
        ));
        assert_eq!(btf.tracepoint_arguments("sched_process_exec"), Some(3));
        assert_eq!(btf.tracepoint_arguments("no_such"), None);
        assert!(matches!(
            btf.member("task_struct", "no_such"),
            Err(BtfError::NoMember(..))
        ));
    }

    proptest::proptest! {
        /// No bytes make the parser panic.
        #[test]
        fn any_bytes(mut bytes: Vec<u8>) {
            if bytes.len() > 2 {
                bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
            }
            let _ = Btf::parse(&bytes);
        }
    }
}
