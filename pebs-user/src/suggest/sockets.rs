//! Items of programs in which no function handles a request, such as interpreters: from a read of a socket to the write of the
//! answer, by functions of the C library.
//!
//! Assumption: a thread takes a request by one read, and its next write is the answer. So it is suggested where about as much is
//! read as is written.

use std::collections::BTreeMap;

use super::calls::{Call, Channel};
use super::profile::Rates;
use super::stacks::{Look, Stack};
use crate::arch::Register;
use crate::store::schema::FunctionRow;

/// Functions whose second argument is the place of what they read; its register still has it where they return.
const READS: [&str; 3] = ["read", "recv", "recvfrom"];
const WRITES: [&str; 6] = ["write", "writev", "send", "sendto", "sendmsg", "sendfile"];

/// Innermost frames in which the function is looked for: it may call another one that makes the system call.
const INNERMOST: usize = 3;

/// Least share of the calls that are made by such functions, and of each that is named.
const MOST: f64 = 0.8;
const LEAST: f64 = 0.05;

/// Reads for each write, with those that find nothing.
const LIKE: std::ops::RangeInclusive<f64> = 0.4..=2.5;

/// Where such items begin and end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exchange {
    pub spec: String,
    /// The functions, for people.
    pub functions: String,
    /// The C library, as the process sees it.
    pub library: String,
    /// Items per second.
    pub per_s: f64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
}

/// The items between reads and writes of sockets; `None` if they don't take turns, or not by functions of the C library.
pub(super) fn exchange(look: &Look, rates: &Rates) -> Option<Exchange> {
    let of = |list: &BTreeMap<Channel, f64>| list.get(&Channel::Socket).copied();
    let (reads_per_s, writes_per_s) = (of(&rates.inputs)?, of(&rates.outputs)?);
    if !LIKE.contains(&(reads_per_s / writes_per_s)) {
        return None;
    }
    let (library, reads) = callers(look, Call::Input(Channel::Socket), &READS)?;
    let (_, writes) = callers(look, Call::Output(Channel::Socket), &WRITES)?;
    let (reads, writes) = (reads.join("|"), writes.join("|"));
    let file = library.rsplit('/').next().unwrap_or(&library);
    let place = Register::ARGUMENTS[1].name();
    Some(Exchange {
        spec: format!("{file}:{reads}%return(text=str(%{place}, retval))..{writes}%return"),
        functions: format!("{reads}..{writes}"),
        library,
        per_s: reads_per_s.min(writes_per_s),
        reads_per_s,
        writes_per_s,
    })
}

/// The functions of the C library that make nearly all of these calls, and its file.
fn callers(look: &Look, call: Call, known: &[&'static str]) -> Option<(String, Vec<&'static str>)> {
    let mut weights: BTreeMap<&'static str, f64> = BTreeMap::new();
    let (mut all, mut library) = (0.0, None);
    for stack in look.stacks.iter().filter(|it| it.call == Some(call)) {
        all += stack.weight;
        if let Some((file, name)) = caller(stack, &look.functions, known) {
            library.get_or_insert(file);
            *weights.entry(name).or_default() += stack.weight;
        }
    }
    let sum: f64 = weights.values().sum();
    weights.retain(|_, weight| *weight >= LEAST * all);
    let library = library.filter(|_| sum >= MOST * all)?;
    Some((library.to_owned(), weights.into_keys().collect()))
}

/// The function of the C library that made a call.
fn caller<'a>(
    stack: &Stack,
    functions: &'a [FunctionRow],
    known: &[&'static str],
) -> Option<(&'a str, &'static str)> {
    let mut rows = stack
        .frames
        .iter()
        .take(INNERMOST)
        .filter_map(|it| functions.get(it.function.0 as usize));
    rows.find_map(|row| {
        let module = row.module.as_deref()?;
        let file = module.rsplit('/').next().unwrap_or(module);
        // `__libc_recv`, `__read`: names of the same function.
        let name = row.name.as_deref()?.trim_start_matches('_');
        let name = name.strip_prefix("libc_").unwrap_or(name);
        let name = known.iter().find(|it| **it == name)?;
        file.starts_with("libc.so").then_some((module, *name))
    })
}

#[cfg(test)]
mod tests {
    use super::super::stacks::Frame;
    use super::super::thread::Thread;
    use super::*;
    use crate::units::{FunctionId, Pid, Tid};

    fn look(calls: &[(Call, u32)]) -> Look {
        let names = ["__libc_recv", "send", "__write", "handle"];
        let functions = names.iter().enumerate().map(|(n, name)| FunctionRow {
            function_id: FunctionId(n as u32),
            name: Some((*name).to_owned()),
            module: Some(match n {
                3 => "/usr/bin/app".to_owned(),
                _ => "/lib/libc.so.6".to_owned(),
            }),
            ..FunctionRow::default()
        });
        let stacks = calls.iter().map(|(call, function)| Stack {
            thread: Thread {
                pid: Pid(1),
                tid: Tid(1),
            },
            call: Some(*call),
            in_kernel: false,
            weight: 1.0,
            frames: vec![Frame {
                function: FunctionId(*function),
                address: 0,
            }],
        });
        Look {
            stacks: stacks.collect(),
            functions: functions.collect(),
            ..Look::default()
        }
    }

    const READ: Call = Call::Input(Channel::Socket);
    const WRITE: Call = Call::Output(Channel::Socket);

    fn rates(reads: f64, writes: f64) -> Rates {
        Rates {
            inputs: BTreeMap::from([(Channel::Socket, reads)]),
            outputs: BTreeMap::from([(Channel::Socket, writes)]),
            waits: 0.0,
        }
    }

    /// Functions that read and write sockets in turn are where items begin and end.
    #[test]
    fn by_turns() {
        let look = look(&[(READ, 0), (WRITE, 1), (READ, 0), (WRITE, 2)]);
        let found = exchange(&look, &rates(1_000.0, 900.0)).unwrap();
        let text = format!("str(%{}, retval)", Register::ARGUMENTS[1].name());
        assert_eq!(
            found.spec,
            format!("libc.so.6:recv%return(text={text})..send|write%return")
        );
        assert_eq!(
            (&*found.functions, found.per_s),
            ("recv..send|write", 900.0)
        );
        assert_eq!(exchange(&look, &rates(1_000.0, 100.0)), None);
    }

    /// Not by the C library, or mostly not.
    #[test]
    fn by_others() {
        let of = |calls: &[(Call, u32)]| exchange(&look(calls), &rates(100.0, 100.0));
        assert_eq!(of(&[(READ, 3), (WRITE, 1)]), None);
        assert_eq!(of(&[(READ, 0), (WRITE, 1), (WRITE, 3)]), None);
        assert_eq!(of(&[(READ, 0)]), None);
    }
}
