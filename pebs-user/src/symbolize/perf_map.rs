//! Perf maps: `/tmp/perf-PID.map` in the process's root, with the PID of its own pid namespace. One line per
//! function, `START SIZE NAME`, numbers in hex. Source: tools/perf/Documentation/jit-interface.txt.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::rc::Rc;

use super::jitted::{JitFile, JitTable, READ_AT_ONCE, Source};
use crate::binary::demangle::NAME_MAX;
use crate::units::Pid;

/// The map of a process, by its path; see [`JitFile::new`].
pub(super) fn file(pid: Pid, left: Rc<Cell<usize>>) -> Option<JitFile> {
    let path = format!("/tmp/perf-{}.map", own_pid(pid).0);
    JitFile::new(pid, path.into(), read_lines, left)
}

/// The pid of a process in its innermost pid namespace; the given pid if that can't be read.
fn own_pid(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.0)).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|pids| pids.split_whitespace().next_back()?.parse().ok())
        .map_or(pid, Pid)
}

/// Adds the function of a line; malformed lines are skipped.
pub(super) fn push_line(table: &mut JitTable, line: &[u8]) {
    if let Some((start, end, name)) = parse_line(line) {
        table.push(start, end, name);
    }
}

/// Parses `START SIZE NAME`; the name may contain blanks.
fn parse_line(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let (start, size) = (hex(start)?, hex(size)?);
    let name = name.trim();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| (start, end, name.to_string()))
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}

/// Reads complete lines until the table has `most` functions.
fn read_lines(source: &mut Source, table: &mut JitTable, most: usize) -> io::Result<()> {
    source.file.seek(SeekFrom::Start(source.read))?;
    let limited = (&source.file).take(READ_AT_ONCE);
    let mut reader = BufReader::with_capacity(64 << 10, limited);
    let mut line = Vec::new();
    let mut read_now = 0;
    while table.len() < most {
        let (len, whole) = read_line(&mut reader, &mut line)?;
        if !whole {
            // A line longer than one read is refused.
            source.given_up = len == READ_AT_ONCE;
            break;
        }
        read_now += len;
        push_line(table, &line);
    }
    source.read += read_now;
    Ok(())
}

/// Reads up to the next newline, keeping no more of the line than a name can need. Returns the bytes read and
/// whether there was a newline.
fn read_line(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<(u64, bool)> {
    const KEPT: usize = NAME_MAX + 64;
    line.clear();
    let mut len = 0;
    loop {
        let buffer = reader.fill_buf()?;
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(buffer.len(), |at| at + 1);
        let room = KEPT.saturating_sub(line.len());
        line.extend_from_slice(&buffer[..used.min(room)]);
        reader.consume(used);
        len += used as u64;
        if newline.is_some() || used == 0 {
            return Ok((len, newline.is_some()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::symbolize::jitted::{ENTRIES_MAX, name};

    /// A sparse file of any size is soon given up, and a file with too many functions is read only up to the limit.
    #[test]
    fn garbage_without_end() {
        let garbage = |size: u64| {
            let file = tempfile::tempfile().unwrap();
            fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), "1000 10 f\n").unwrap();
            file.set_len(size).unwrap();
            Source::new(file, 0)
        };
        let mut table = JitTable::default();
        let mut source = garbage(1 << 42);
        for _ in 0..3 {
            read_lines(&mut source, &mut table, ENTRIES_MAX).unwrap();
        }
        assert!(source.given_up && source.read == 10);
        assert_eq!(name(&mut table, 0x1000).as_deref(), Some("f"));
        let lines: String = (1..100).map(|at| format!("{at:x}0 8 f\n")).collect();
        let mut source = garbage(0);
        source.file.write_all(lines.as_bytes()).unwrap();
        let mut table = JitTable::default();
        read_lines(&mut source, &mut table, 7).unwrap();
        assert_eq!(table.len(), 7);
    }

    /// Malformed lines are skipped, the others count.
    #[test]
    fn lines() {
        let mut table = JitTable::default();
        let text: &[u8] = b"1000 10 LazyCompile:~f a.js:1\n0x2000 0x20 g\n\nzz 10 h\n3000 0 none\n\
            4000 10\n\xff\xfe 1 x\nffffffffffffffff 10 wraps\n";
        text.split(|byte| *byte == b'\n')
            .for_each(|line| push_line(&mut table, line));
        assert_eq!(table.len(), 2);
        assert_eq!(name(&mut table, 0x100f).unwrap(), "LazyCompile:~f a.js:1");
        assert_eq!(name(&mut table, 0x1010), None);
        assert_eq!(name(&mut table, 0x2000).unwrap(), "g");
    }

    proptest::proptest! {
        /// Any line is taken without a panic.
        #[test]
        fn any_line(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            push_line(&mut JitTable::default(), &line);
        }
    }
}
