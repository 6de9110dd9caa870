//! Items named by Rust strings: `strings [ITEMS]`. Lengths go from 0 to 49; the bytes after a string in memory are not
//! part of it. Writes the same lines as `truth.h`, without times inside the function.

use std::hint::black_box;
use std::io::Write;

pub struct Request {
    id: u64,
    path: &'static str,
    user: String,
    body: Vec<u8>,
    next: Option<Box<Request>>,
}

pub struct Answer {
    pub id: u64,
    pub text: String,
    pub code: i32,
}

/// Source of the paths.
const PATHS: &str = "/index/of/all/the/things/that/there/are/and/more/!";

#[unsafe(no_mangle)]
#[inline(never)]
pub fn handle(request: &Request, kind: &str, name: String) -> u64 {
    let mut x = request.id | 1;
    for byte in request.path.bytes().chain(kind.bytes()).chain(name.bytes()) {
        x = black_box(x.wrapping_mul(31).wrapping_add(u64::from(byte)));
    }
    let lengths = request.user.len() + request.body.len();
    x ^ lengths as u64 ^ u64::from(request.next.is_some()) ^ kind.as_ptr() as u64 & 1
}

#[unsafe(no_mangle)]
#[inline(never)]
pub fn answer(id: u64, user: &String) -> Answer {
    Answer {
        id: black_box(id),
        text: format!("{user}!"),
        code: -(id as i32),
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
pub fn find<'a>(requests: &'a [Request], id: u64) -> &'a Request {
    black_box(&requests[id as usize % requests.len()])
}

fn main() -> std::io::Result<()> {
    let items: u64 = std::env::args().nth(1).map_or(200, |n| n.parse().unwrap());
    let requests: Vec<Request> = (0..50)
        .map(|n| Request {
            id: n as u64,
            path: &PATHS[..n],
            user: format!("user{n}"),
            body: vec![b'a' + n as u8 % 26; n],
            next: None,
        })
        .collect();
    let mut checksum = 0u64;
    let mut truth = String::new();
    let pid = std::process::id();
    for id in 1..=items {
        let request = find(&requests, id);
        let kind = ["get", "set", "delete"][id as usize % 3];
        checksum ^= handle(request, black_box(kind), format!("name{id}"));
        let answer = answer(id, &request.user);
        checksum ^= answer.id ^ answer.text.len() as u64 ^ answer.code as u64;
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
    println!("items {items}, checksum {}", checksum & 1);
    Ok(())
}
