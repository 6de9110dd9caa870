//! Every fifth item leaves the probed function by a panic that is caught: `panics [ITEMS]`.
//! Writes the same lines as `truth.h`; without times inside the function.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe};

#[repr(C)]
pub struct Item {
    id: u64,
    kind: u32,
}

#[inline(never)]
fn reject(item: &Item) {
    assert!(item.id % 5 != 0, "no such article");
}

#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn handle(item: &Item) -> u64 {
    let mut x = item.id | 1;
    for _ in 0..1000 {
        x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    reject(item);
    x
}

fn main() -> std::io::Result<()> {
    let items: u64 = std::env::args().nth(1).map_or(200, |n| n.parse().unwrap());
    panic::set_hook(Box::new(|_| {}));
    if std::env::var_os("TRUTH_WAIT").is_some() {
        eprintln!("ready {}", std::process::id());
        std::io::stdin().read_line(&mut String::new())?;
    }
    let (mut caught, mut checksum) = (0u64, 0u64);
    for id in 1..=items {
        let item = Item { id, kind: 0 };
        match panic::catch_unwind(AssertUnwindSafe(|| handle(&item))) {
            Ok(x) => checksum ^= x,
            Err(_) => caught += 1,
        }
    }
    let pid = std::process::id();
    let mut truth = String::new();
    for id in 1..=items {
        truth += &format!("item {id} {pid} {pid} 0 0 0 0\n");
    }
    truth += &format!("note unwound {caught}\n");
    match std::env::var_os("TRUTH_FILE") {
        Some(path) => std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)?
            .write_all(truth.as_bytes())?,
        None => print!("{truth}"),
    }
    println!("caught {caught}, checksum {checksum:016x}");
    Ok(())
}
