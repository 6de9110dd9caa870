//! `cargo xtask suggest`: asks `pebs-trace suggest` for items of Debian's servers under load, and scores the answers.
//!
//! A suggestion is sensible if its function is known to handle a request of that server; of a stripped server, where
//! functions have no names, if it is called once for each request and has most of the CPU time. The exit code is 1 if a
//! sensible one is first for fewer than 60 % of the servers, or among the first five for fewer than 90 %.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::further::FURTHER;
use super::running::Which;
use super::stock::{SERVERS, start};
use crate::frame::machine::cpu_ns;
use crate::frame::shell;
use crate::frame::table::Table;
use crate::frame::verdict::exit_code;

/// Options of `cargo xtask suggest`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

/// Share of servers with a sensible first suggestion, and with one among the first five.
const GOALS: (f64, f64) = (0.6, 0.9);

/// Calls for each request, and share of the CPU time, of a sensible function without a name.
const ONCE: std::ops::RangeInclusive<f64> = 0.6..=1.6;
const MOST: f64 = 0.5;

/// One request of so many is dear.
const DEAR: u64 = 300;

/// Functions that handle a request, by the server's name; those of Debian 12 by their address where they have no name there, with
/// what they are known by.
const SENSIBLE: [(&str, &[&str]); 14] = [
    (
        "redis",
        &[
            "readQueryFromClient",
            "processInputBuffer",
            "processCommandAndResetClient",
            "processCommand",
            "call",
        ],
    ),
    (
        "memcached",
        &[
            "drive_machine",
            // It accepts and receives, and calls the state machine's parts.
            "memcached+fn@0xcf20",
            "process_command_ascii",
            "try_read_command_ascii",
        ],
    ),
    (
        "Apache",
        &[
            "ap_process_async_request",
            "ap_process_request",
            "ap_process_http_async_connection",
            "ap_process_request_internal",
            "ap_run_process_connection",
            "ap_process_connection",
            "ap_invoke_handler",
            "ap_run_handler",
        ],
    ),
    (
        "HAProxy",
        &[
            "process_stream",
            "http_process_req_common",
            "http_wait_for_request",
            "http_process_request",
            "h1_io_cb",
        ],
    ),
    (
        "PostgreSQL",
        &[
            "exec_simple_query",
            // It calls pg_parse_query, pg_plan_queries and PortalRun in turn.
            "postgres+fn@0x47c300",
            "PortalRun",
            "pg_plan_queries",
            "pg_parse_query",
            "pg_analyze_and_rewrite_fixedparams",
        ],
    ),
    (
        "MariaDB",
        &[
            "dispatch_command",
            "do_command",
            "mysql_parse",
            "mysql_execute_command",
        ],
    ),
    (
        "Go",
        &["main.(*app).ServeHTTP", "net/http.serverHandler.ServeHTTP"],
    ),
    (
        "unbound",
        &[
            "worker_handle_request",
            // It receives and sends a datagram.
            "unbound+fn@0xe09e0",
            "comm_point_udp_callback",
            "comm_point_udp_ancil_callback",
            "local_zones_answer",
        ],
    ),
    (
        "Varnish",
        &[
            "CNT_Request",
            "HTTP1_Session",
            "http1_session",
            "VPX_Send_Proxy",
            "HTTP1_Transition",
        ],
    ),
    (
        "nginx",
        &[
            "ngx_http_process_request",
            "ngx_http_process_request_line",
            "ngx_http_process_request_headers",
            "ngx_http_handler",
            "ngx_http_core_run_phases",
            "ngx_http_wait_request_handler",
            "ngx_http_keepalive_handler",
        ],
    ),
    (
        "bind9",
        &[
            "ns__client_request",
            "ns_query_start",
            "ns_client_request",
            "udp_recv_cb",
        ],
    ),
    (
        "PHP-FPM",
        &[
            "php_execute_script",
            "zend_execute_scripts",
            "php_request_startup",
        ],
    ),
    ("gunicorn", &[]),
    (
        "sqlite3",
        &[
            "sqlite3_step",
            "sqlite3_prepare_v2",
            "sqlite3_exec",
            "shell_exec",
            "runOneSqlLine",
            "process_input",
        ],
    ),
];

/// Servers of which what lies between a read and the next write of a socket is known to be a request, from the clients' logs
/// (tests/measurements.md).
const BY_EXCHANGE: [&str; 5] = ["gunicorn", "HAProxy", "nginx", "unbound", "Varnish"];

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let is_known =
        |it: &&super::stock::Server| SENSIBLE.iter().any(|known| known.0 == it.program.name);
    let all: Vec<&super::stock::Server> = SERVERS.iter().chain(&FURTHER).filter(is_known).collect();
    let (tool, servers) = args.which.of(&all, |it| &it.program)?;
    let mut table = Table::new(
        "server | first | sensible | which | took of the server's CPU time | why not first",
    );
    let (mut first, mut five, number) = (0, 0, servers.len());
    for server in servers {
        match judge(server, &tool) {
            Ok(row) => {
                first += u32::from(row.place == Some(1));
                five += u32::from(row.place.is_some_and(|place| place <= 5));
                table.row(format_args!("{} | {}", server.program.name, row.text));
            }
            Err(error) => table.row(format_args!("{} | FAILED: {error:#}", server.program.name)),
        }
        eprintln!("{table}");
    }
    println!("{table}");
    println!(
        "a sensible item is first for {first} of {number} servers, among the first five for {five}"
    );
    let part = |n: u32| f64::from(n) / number as f64;
    Ok(exit_code(part(first) >= GOALS.0 && part(five) >= GOALS.1))
}

/// A row of the table.
struct Row {
    /// Place of the first sensible suggestion.
    place: Option<usize>,
    text: String,
}

fn judge(server: &super::stock::Server, tool: &Path) -> Result<Row> {
    let (running, mut client) = start(server, &[])?;
    let mut asked = 0_u64;
    // As root, and while the client asks.
    let mut look = shell::as_root(tool);
    look.args([
        "suggest",
        "--format",
        "json",
        "-p",
        &running.pid().to_string(),
    ]);
    let mut ask = |time: Duration| -> Result<(f64, f64)> {
        let (start, before, cpu) = (Instant::now(), asked, cpu_ns(running.pid())?);
        while start.elapsed() < time {
            client.ask(asked % DEAR == 7)?;
            asked += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let requests = (asked - before).max(1) as f64;
        Ok((
            requests / seconds,
            (cpu_ns(running.pid())? - cpu) / requests,
        ))
    };
    ask(Duration::from_millis(300))?;
    let (per_s, plain) = ask(Duration::from_secs(3))?;
    let (answer, with) = std::thread::scope(|scope| -> Result<_> {
        let looking = scope.spawn(move || shell::collect(&mut look));
        let mut with = Vec::new();
        while !looking.is_finished() {
            with.push(ask(Duration::from_millis(200))?.1);
        }
        let answer = looking
            .join()
            .map_err(|_| anyhow::anyhow!("the look panicked"))??;
        Ok((answer, mean(&with)))
    })?;
    let answer: Value = serde_json::from_slice(&answer.stdout).context("no JSON")?;
    std::fs::write(running.dir.join("suggested.json"), answer.to_string())?;
    let found = answer["suggestions"].as_array().context("no suggestions")?;
    let name = |it: &Value| it["function"].as_str().unwrap_or("?").to_owned();
    let place = found
        .iter()
        .position(|it| is_sensible(server.program.name, it, per_s));
    let reasons = |it: &Value| {
        let list = it["reasons"].as_array().into_iter().flatten();
        list.filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let shown =
        |it: Option<&Value>| it.map_or_else(|| "none".to_owned(), |it| format!("`{}`", name(it)));
    let text = format!(
        "{} | {} | {} | {:+.1} % | {}",
        shown(found.first()),
        place.map_or_else(|| "no".to_owned(), |n| format!("{}.", n + 1)),
        shown(place.and_then(|n| found.get(n))),
        (with / plain - 1.0) * 100.0,
        match place {
            Some(0) => String::new(),
            _ => found.first().map(reasons).unwrap_or_default(),
        }
    );
    Ok(Row {
        place: place.map(|n| n + 1),
        text,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn is_sensible(server: &str, suggestion: &Value, requests_per_s: f64) -> bool {
    let name = suggestion["function"].as_str().unwrap_or_default();
    // C++ has its arguments behind it.
    let plain = match name.starts_with("main.(") || name.contains('/') {
        true => name,
        false => name.split('(').next().unwrap_or(name),
    };
    let known = SENSIBLE
        .iter()
        .find(|it| it.0 == server)
        .map_or(&[][..], |it| it.1);
    let once = suggestion["per_s"]
        .as_f64()
        .is_some_and(|it| ONCE.contains(&(it / requests_per_s)));
    let most = suggestion["cpu"].as_f64().is_some_and(|it| it >= MOST);
    let is_exchange = name.contains("..") && BY_EXCHANGE.contains(&server);
    known.contains(&plain)
        || is_exchange
        || (once && most && (name.contains("fn@0x") || known.is_empty()))
}
