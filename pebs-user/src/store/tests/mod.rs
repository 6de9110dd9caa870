//! Tests of the trace as a whole: full disks, killed writers, other programs that read it.

mod disk_full;
mod killed;
mod other_readers;
