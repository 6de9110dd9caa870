//! As `calls.c`: every item runs handle > a > b > leaf, for 1 ms: `calls_rust [ITEMS]`.
//! Writes the same lines as `truth.h`; without times inside the function.

use std::hint::black_box;
use std::io::Write;

#[repr(C)]
pub struct Item {
    id: u64,
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn leaf(item: &Item) -> u64 {
    let mut x = item.id | 1;
    for _ in 0..1_000_000 {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    x
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn b(item: &Item) -> u64 {
    black_box(leaf(item)) + 1
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn a(item: &Item) -> u64 {
    black_box(b(item)) + 1
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn handle(item: &Item) -> u64 {
    black_box(a(item)) + 1
}

fn main() -> std::io::Result<()> {
    let items: u64 = std::env::args().nth(1).map_or(50, |n| n.parse().unwrap());
    let checksum = (1..=items).fold(0, |sum, id| sum ^ handle(&Item { id }));
    let pid = std::process::id();
    let mut truth = String::new();
    for id in 1..=items {
        truth += &format!("item {id} {pid} {pid} 0 0 0 0\n");
    }
    match std::env::var_os("TRUTH_FILE") {
        Some(path) => std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?
            .write_all(truth.as_bytes())?,
        None => print!("{truth}"),
    }
    println!("checksum {checksum:016x}");
    Ok(())
}
