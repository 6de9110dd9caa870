//! `cargo xtask presets`: records Debian's servers by the preset that fits them, with no SPEC, and compares the items and
//! their texts with the client's log, and the first cause with what is dear in it.
//!
//! The client and its dear requests are those of `cargo xtask servers`. The exit code is 1 if requests have no item, an
//! item has another text than its request, or the slow items are not the dear requests.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::clients::Client;
use super::further::FURTHER;
use super::running::Which;
use super::stock::{self, DEAR, FOUND, Request, SERVERS, Server};
use crate::frame::lab::Lab;
use crate::frame::machine::{cpu_ns, now};
use crate::frame::random::Random;
use crate::frame::table::Table;
use crate::frame::trace;
use crate::frame::verdict::exit_code;

/// Options of `cargo xtask presets`.
#[derive(clap::Args)]
pub struct Args {
    /// Length of the recording of a server, s
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Decides which requests are dear
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ask for this preset, instead of the one that fits the server
    #[arg(long)]
    preset: Option<String>,
    /// Show each server's report
    #[arg(long)]
    show: bool,
    #[command(flatten)]
    which: Which,
}

/// Servers whose preset is not taken without being asked for: programs of the language need not be servers.
const BY_NAME: [(&str, &str); 2] = [("gunicorn", "python"), ("Puma", "ruby")];

/// Longest text of an argument, bytes: its last characters are left out, and `…` follows.
const MOST_BYTES: usize = 53;

/// A request, and the arguments that its item should have.
type Asked = (Request, Vec<(&'static str, String)>);

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let all: Vec<&Server> = SERVERS.iter().chain(&FURTHER).collect();
    let (tool, servers) = args.which.of(&all, |it| &it.program)?;
    let mut table = Table::new(
        "server | preset | items of requests | texts as in the client's log | dear requests in the slow class | its size | \
         first cause | CPU time of a request | with | said",
    );
    let mut wrong = false;
    for server in servers {
        let row = measure(server, &tool, args).unwrap_or_else(|error| Row {
            text: format!("FAILED: {error:#}"),
            is_right: false,
        });
        wrong |= !row.is_right;
        table.row(format_args!("{} | {}", server.program.name, row.text));
        eprintln!("{table}");
    }
    println!("{table}");
    Ok(exit_code(!wrong))
}

/// A row of the table.
struct Row {
    text: String,
    is_right: bool,
}

fn measure(server: &Server, tool: &std::path::Path, args: &Args) -> Result<Row> {
    let (running, mut client) = stock::start(server, &[])?;
    let lab = Lab::at(&running.dir, tool)?;
    let (mut draw, mut warm) = (Random::new(args.seed), Random::new(!args.seed));
    let length = Duration::from_secs_f64(args.seconds);
    let round = |client: &mut dyn Client, draw: &mut Random| -> Result<(Vec<Asked>, f64)> {
        let before = cpu_ns(running.pid())?;
        let asked = ask_for(client, length, draw)?;
        // Work after the answer.
        std::thread::sleep(Duration::from_millis(5));
        let us = (cpu_ns(running.pid())? - before) / asked.len() as f64 / 1e3;
        Ok((asked, us))
    };
    let (_, plain_us) = round(&mut *client, &mut draw)?;
    let own = BY_NAME.iter().find(|it| it.0 == server.program.name);
    let asked_for = args.preset.as_deref().or(own.map(|it| it.1));
    let options: Vec<&str> = asked_for.map_or_else(Vec::new, |name| vec!["--preset", name]);
    let recorder = stock::record_under_load(&lab, (None, running.pid()), &options, || {
        ask_for(&mut *client, Duration::from_millis(20), &mut warm).map(drop)
    })?;
    let (asked, with_us) = round(&mut *client, &mut draw)?;
    let report = recorder.stop()?;
    if args.show {
        eprintln!("{report}");
    }
    let requests: Vec<Request> = asked.iter().map(|it| it.0).collect();
    let said = stock::told(&lab, &requests)?;
    let texts = texts(&lab, &asked)?;
    let info = lab.info()?;
    let specs = info["probes"].as_array().into_iter().flatten();
    let specs: Vec<&str> = specs.filter_map(|it| it["spec"].as_str()).collect();
    let number = requests.len() as u64;
    let compared: u64 = texts.iter().map(|it| it.2).sum();
    let right: u64 = texts.iter().map(|it| it.1).sum();
    let names: Vec<&str> = texts.iter().map(|it| it.0).collect();
    let told = said
        .cpu
        .map_or("?".to_owned(), |it| format!("{:+.0} %", it * 100.0));
    Ok(Row {
        text: format!(
            "`{}` | {} of {number} | {} | {:.1} % | {:.2} | {} | {plain_us:.1} us | {:+.0} % | {told}",
            specs.join("`, `"),
            said.items,
            match names.as_slice() {
                [] => "no text".to_owned(),
                names => format!("{}: {right} of {compared}", names.join(", ")),
            },
            said.found * 100.0,
            said.size,
            said.first,
            (with_us / plain_us - 1.0) * 100.0,
        ),
        is_right: said.items == number
            && right == compared
            && said.found >= FOUND.0
            && said.size <= FOUND.1,
    })
}

/// Requests for a time.
fn ask_for(client: &mut dyn Client, time: Duration, draw: &mut Random) -> Result<Vec<Asked>> {
    let start = Instant::now();
    let mut asked = Vec::new();
    while start.elapsed() < time {
        let dear = draw.below(DEAR) == 0;
        let begin = now();
        client.ask(dear)?;
        let end = now();
        asked.push((Request { begin, end, dear }, client.texts(dear)));
    }
    Ok(asked)
}

/// Each argument that the trace has and the client knows: of how many items it is what the client asked for, and of how
/// many it was compared.
fn texts(lab: &Lab, asked: &[Asked]) -> Result<Vec<(&'static str, u64, u64)>> {
    let info = lab.info()?;
    let origin = info["monotonic_ns"].as_u64().context("no monotonic_ns")?;
    let known = asked.first().map_or(&[][..], |it| &it.1);
    let columns = trace::query(
        &lab.trace(),
        "select column_name from (describe select * from 'TRACE/visits/*.parquet')",
    )?;
    let has = |name: &str| {
        columns
            .iter()
            .any(|row| row.first().is_some_and(|it| it == name))
    };
    let mut found = Vec::new();
    for (number, (name, _)) in known.iter().enumerate().filter(|(_, it)| has(it.0)) {
        let rows = trace::query(
            &lab.trace(),
            &format!(
                "select begin_ns, coalesce(hex({name}::varchar), '') from 'TRACE/visits/*.parquet' \
                 where end_ns is not null order by begin_ns"
            ),
        )?;
        let (mut right, mut compared, mut next) = (0, 0, 0);
        for row in rows {
            let begin: i64 = row.first().context("no time")?.parse()?;
            let begin = origin.saturating_add_signed(begin);
            while asked.get(next).is_some_and(|it| it.0.end < begin) {
                next += 1;
            }
            let Some((_, texts)) = asked.get(next).filter(|it| it.0.begin <= begin) else {
                continue;
            };
            compared += 1;
            let read = row.get(1).map_or("", String::as_str);
            right += u64::from(is_same(read, &texts[number].1));
        }
        found.push((*name, right, compared));
    }
    Ok(found)
}

/// Whether the first line of a text that was read, in hexadecimal, is this one, or its beginning if it was cut.
fn is_same(read: &str, text: &str) -> bool {
    let digits: Vec<&str> = read
        .as_bytes()
        .chunks(2)
        .filter_map(|it| std::str::from_utf8(it).ok())
        .collect();
    let bytes: Option<Vec<u8>> = digits
        .iter()
        .map(|it| u8::from_str_radix(it, 16).ok())
        .collect();
    let Some(read) = bytes.and_then(|it| String::from_utf8(it).ok()) else {
        return false;
    };
    if let Some((line, _)) = read.split_once("\r\n") {
        return line == text;
    }
    match read.strip_suffix('…') {
        None => read == text,
        Some(cut) => text.starts_with(cut) && cut.len() >= MOST_BYTES.min(text.len()) - 3,
    }
}
