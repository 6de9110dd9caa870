//! Tests of complete traces: full disks, killed writers, other programs that read them.

mod disk_full;
mod killed;
mod other_readers;
