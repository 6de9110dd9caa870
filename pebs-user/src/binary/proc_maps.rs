//! The executable mappings of a running process, from `/proc/PID/maps`.

use std::fs::File;
use std::io::Read as _;

use super::mapping::{Backing, FileFacts, FileIdentity, Mapping};
use crate::units::Pid;

/// Maximum read, bytes. A line may have 4 KiB because of long paths, and a process may have 65,530 mappings.
const TEXT_MAX: u64 = 32 << 20;

/// The executable mappings of a process, in order of address; `None` if it is gone or may not be read.
///
/// Cost: one read of `/proc/PID/maps`, about 10 us for 30 mappings.
#[must_use]
pub(crate) fn proc_maps(pid: Pid) -> Option<Vec<Mapping>> {
    let file = File::open(format!("/proc/{}/maps", pid.0)).ok()?;
    let mut text = Vec::new();
    file.take(TEXT_MAX).read_to_end(&mut text).ok()?;
    // An exiting process has a readable, but empty file.
    (!text.is_empty()).then(|| parse_maps(&text))
}

/// The executable mappings in a `maps` file; malformed lines are skipped.
///
/// Source: proc_pid_maps(5).
#[must_use]
pub(crate) fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = field(line)?;
    let (permissions, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, name) = field(rest)?;
    if permissions.get(2) != Some(&b'x') {
        return None;
    }
    let (start, end) = split_once(range, b'-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    if start >= end {
        return None;
    }
    let (major, minor) = split_once(device, b':')?;
    let identity = FileIdentity {
        major: u32::try_from(hex(major)?).ok()?,
        minor: u32::try_from(hex(minor)?).ok()?,
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
    };
    let name = unescape(name.trim_ascii_start());
    let backing = Backing::from_kernel_name(&name, || FileFacts {
        identity: Some(identity),
        build_id: None,
    });
    Some(Mapping {
        start,
        end,
        offset: hex(offset)?,
        backing,
    })
}

/// The next word, and the text after its blank.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = text.iter().position(|byte| *byte == at)?;
    Some((&text[..position], &text[position + 1..]))
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// Unescapes `\012`, the kernel's form of a newline in a name; nothing else is escaped.
fn unescape(name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    const ESCAPED: &[u8] = b"\\012";
    if !name.windows(ESCAPED.len()).any(|bytes| bytes == ESCAPED) {
        return name.into();
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(ESCAPED) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &[u8] = b"\
55d000-55e000 r--p 00000000 fe:01 42                     /usr/bin/a
55e000-560000 r-xp 00001000 fe:01 42                     /usr/bin/a
560000-570000 r-xp 00002000 fe:01 43                     /tmp/with blank and\\012line (deleted)
570000-571000 r-xp 00000000 00:00 0 
7f000-80000 rwxp 00000000 00:00 0                        [heap]
7fff000-8000000 r-xp 00000000 00:00 0                    [vdso]
garbage
90000-80000 r-xp 00000000 00:00 0
-1-5 r-xp zz 00:00 0 x
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
";

    /// Executable mappings only, with their names; malformed lines are skipped.
    #[test]
    fn lines() {
        let maps = parse_maps(TEXT);
        assert_eq!(maps.len(), 6);
        let Backing::File(first) = &maps[0].backing else {
            panic!("a file");
        };
        assert_eq!(&*first.path, Path::new("/usr/bin/a"));
        assert_eq!(first.identity.unwrap().inode, 42);
        assert_eq!(maps[0].file_offset(0x55e010), 0x1010);
        let Backing::File(second) = &maps[1].backing else {
            panic!("a file");
        };
        assert_eq!(&*second.path, Path::new("/tmp/with blank and\nline"));
        assert!(second.deleted);
        assert_eq!(maps[2].backing, Backing::Anonymous);
        assert_eq!(maps[4].backing, Backing::Vdso);
        assert_eq!(maps[5].backing, Backing::Vsyscall);
    }

    /// The test's own process has its own code mapped; a pid that can't exist gives `None`.
    #[test]
    fn own_process() {
        let maps = proc_maps(Pid(std::process::id())).unwrap();
        let here = own_process as *const () as usize as u64;
        assert!(maps.iter().any(|mapping| mapping.contains(here)));
        assert_eq!(proc_maps(Pid(u32::MAX)), None);
    }

    proptest::proptest! {
        /// Any bytes parse without a panic, into ranges that are ranges.
        #[test]
        fn any_bytes(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            for mapping in parse_maps(&text) {
                proptest::prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
