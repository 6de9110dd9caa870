//! Realistic names of functions, which give no hint at the cause.

use super::mystery::Language;
use crate::frame::random::Random;

const VERBS: [&str; 36] = [
    "parse", "apply", "build", "check", "encode", "decode", "update", "resolve", "merge", "match",
    "render", "route", "score", "scan", "select", "emit", "expand", "format", "index", "insert",
    "join", "load", "map", "plan", "prepare", "push", "rank", "reduce", "rewrite", "sign", "split",
    "store", "trim", "validate", "verify", "visit",
];

const NOUNS: [&str; 40] = [
    "header",
    "body",
    "field",
    "row",
    "column",
    "path",
    "rule",
    "policy",
    "token",
    "session",
    "cookie",
    "quota",
    "price",
    "order",
    "ledger_entry",
    "bucket",
    "shard",
    "prefix",
    "suffix",
    "record",
    "segment",
    "packet",
    "frame",
    "chunk",
    "digest",
    "schema",
    "filter",
    "template",
    "locale",
    "badge",
    "ticket",
    "account",
    "range",
    "tree",
    "node",
    "edge",
    "label",
    "metric",
    "event",
    "reply",
];

const HANDLERS: [&str; 10] = [
    "handle_request",
    "process_request",
    "serve_query",
    "on_message",
    "do_command",
    "execute_query",
    "dispatch_call",
    "process_packet",
    "run_job",
    "answer",
];

const SPACES: [&str; 10] = [
    "core",
    "engine",
    "app",
    "svc",
    "backend",
    "proto",
    "pipeline",
    "broker",
    "gateway",
    "store_api",
];

/// Names of one program.
pub struct Names {
    language: Language,
    used: Vec<String>,
}

impl Names {
    /// A source without used names.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            used: Vec::new(),
        }
    }

    /// A new name of a function.
    pub fn function(&mut self, random: &mut Random) -> String {
        loop {
            let name = format!("{}_{}", random.one(&VERBS), random.one(&NOUNS));
            if !self.used.contains(&name) {
                self.used.push(name.clone());
                return self.written(&name);
            }
        }
    }

    /// The name of the function that takes an item.
    pub fn handler(&self, random: &mut Random) -> String {
        self.written(random.one(&HANDLERS))
    }

    /// The name of a namespace or module.
    pub fn space(random: &mut Random) -> &'static str {
        random.one(&SPACES)
    }

    /// As the language writes names: `parse_header`, in Go `parseHeader`.
    fn written(&self, name: &str) -> String {
        if self.language != Language::Go {
            return name.to_owned();
        }
        let mut words = name.split('_');
        let first = words.next().unwrap_or("").to_owned();
        words.fold(first, |all, word| {
            let (head, rest) = word.split_at(1);
            all + &head.to_uppercase() + rest
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No name hints at a cause, or matches the judge's names of the allocator or the kernel.
    #[test]
    fn names_are_neutral() {
        let telling = [
            "lock", "alloc", "free", "fault", "page", "slow", "wait", "sleep", "cache", "disk",
            "queue", "cause", "file", "burst", "heavy", "memory", "pread", "recv",
        ];
        for word in VERBS.iter().chain(&NOUNS).chain(&HANDLERS).chain(&SPACES) {
            for telling in telling {
                assert!(!word.contains(telling), "{word}");
            }
        }
    }

    /// Names of one program differ, and are written as the language does.
    #[test]
    fn names_differ() {
        let mut random = Random::new(1);
        let mut names = Names::new(Language::Go);
        let mut all: Vec<String> = (0..200).map(|_| names.function(&mut random)).collect();
        assert!(all.iter().all(|it| !it.contains('_')), "{all:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}
