//! The load: many GETs of small live keys, few GETs of expired keys of a large hash.
//!
//! Redis frees an expired key inside the command that accesses it. So the truth is known: exactly the GETs of
//! `big:*` are slow, because they free 20,000 fields.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pebs_experiments::frame::resp::{Client, Reply};

/// Fields of each large hash.
const FIELDS: usize = 20_000;

/// Fields set by one command.
const FIELDS_PER_COMMAND: usize = 1000;

/// Commands in flight while the keys are made.
const BATCH: usize = 100;

/// Lifetime of the large hashes. Redis deletes at once those that have expired by the end of the command, which a
/// host may delay for milliseconds.
const TO_LIVE_MS: &str = "50";

/// Time until they have surely expired.
const EXPIRY: Duration = Duration::from_millis(100);

/// Same order in every run.
const SEED: u64 = 7;

/// Amount of work.
#[derive(Clone, Copy)]
pub struct Size {
    /// GETs of live small keys.
    pub small: usize,
    /// GETs of expired large hashes.
    pub big: usize,
}

/// Latencies measured by the client.
pub struct Latencies {
    /// GETs of small keys, sorted.
    pub small: Vec<Duration>,
    /// GETs of expired large hashes, sorted.
    pub big: Vec<Duration>,
}

/// Makes the keys, and waits until the large ones are expired but not yet freed.
pub fn prepare(client: &mut Client, size: Size) -> Result<()> {
    // Without this, the server frees expired keys on its own, outside any command.
    client.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])?;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let small = (0..size.small).map(|i| words(&["SET", &small_key(i), "vvvvvvvvvvvvvvvvvvvv"]));
    client.ask_all(small, BATCH)?;
    let parts = (0..FIELDS).step_by(FIELDS_PER_COMMAND);
    let big = (0..size.big).flat_map(|i| parts.clone().map(move |first| hset(i, first)));
    client.ask_all(big, BATCH)?;
    let expire = (0..size.big).map(|i| words(&["PEXPIRE", &big_key(i), TO_LIVE_MS]));
    client.ask_all(expire, BATCH)?;
    std::thread::sleep(EXPIRY);
    Ok(())
}

/// Asks for every key once, in a fixed shuffled order, one after the other.
pub fn run(client: &mut Client, size: Size) -> Result<Latencies> {
    let small = (0..size.small).map(|i| (small_key(i), false));
    let mut keys: Vec<(String, bool)> = small
        .chain((0..size.big).map(|i| (big_key(i), true)))
        .collect();
    shuffle(&mut keys, SEED);
    let mut latencies = Latencies {
        small: Vec::with_capacity(size.small),
        big: Vec::with_capacity(size.big),
    };
    for (key, is_big) in &keys {
        let begin = Instant::now();
        let reply = client.ask(&["GET", key])?;
        let latency = begin.elapsed();
        match (reply, is_big) {
            (Reply::Value(None), true) => latencies.big.push(latency),
            (Reply::Value(Some(_)), false) => latencies.small.push(latency),
            (reply, _) => bail!("GET {key}: unexpected {reply:?}"),
        }
    }
    latencies.small.sort();
    latencies.big.sort();
    Ok(latencies)
}

impl Latencies {
    /// One line for a person.
    pub fn summary(&self) -> String {
        let at = |sorted: &[Duration], permille: usize| {
            let index = (sorted.len() * permille / 1000).min(sorted.len().saturating_sub(1));
            sorted
                .get(index)
                .map_or("none".to_owned(), |latency| format!("{latency:.1?}"))
        };
        format!(
            "the client saw {} GETs of small keys (p50 {}, p99 {}, max {}) and {} of expired hashes (min {}, p50 {}, max {})",
            self.small.len(),
            at(&self.small, 500),
            at(&self.small, 990),
            at(&self.small, 1000),
            self.big.len(),
            at(&self.big, 0),
            at(&self.big, 500),
            at(&self.big, 1000),
        )
    }
}

fn small_key(i: usize) -> String {
    format!("small:{i:06}")
}

fn big_key(i: usize) -> String {
    format!("big:{i:03}")
}

fn hset(key: usize, first: usize) -> Vec<String> {
    let fields = first..first + FIELDS_PER_COMMAND;
    ["HSET".to_owned(), big_key(key)]
        .into_iter()
        .chain(fields.flat_map(|field| [format!("f{field}"), format!("val{field}")]))
        .collect()
}

/// Fisher and Yates' shuffle with a 64-bit xorshift generator.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let choice = (state % (last as u64 + 1)) as usize;
        items.swap(last, choice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order is a permutation, is not the order of the keys, and does not change.
    #[test]
    fn shuffle_is_fixed() {
        let mut first: Vec<usize> = (0..1000).collect();
        let mut second = first.clone();
        shuffle(&mut first, SEED);
        shuffle(&mut second, SEED);
        assert_eq!(first, second);
        assert!(!first.is_sorted());
        first.sort_unstable();
        assert!(first.into_iter().eq(0..1000));
    }
}
