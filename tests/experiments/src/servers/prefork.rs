//! `cargo xtask prefork`: records Debian's servers that fork a process for each request, and checks that they answer
//! and end as they do without the tool.
//!
//! Each child inherits what the probes left in its parent's memory, also after the recorder was killed. The exit code
//! is 1 if an answer is another one, or if a server ends in another way.

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use super::clients::Postgres;
use super::running::{PATIENCE, POSTGRES, Program, Running, Which, dir_of};
use crate::frame::lab::Lab;
use crate::frame::shell;
use crate::frame::verdict::exit_code;

/// Options of `cargo xtask prefork`.
#[derive(clap::Args)]
pub struct Args {
    /// Requests of each part, each answered by a process of its own
    #[arg(long, default_value_t = 100)]
    requests: usize,
    #[command(flatten)]
    which: Which,
}

/// A server whose children answer one request each.
struct Server {
    program: Program,
    spec: &'static str,
    /// Items of a request; `None`: some.
    items: Option<usize>,
    ask: fn(&mut TcpStream) -> Result<Vec<u8>>,
}

const SERVERS: [Server; 5] = [
    Server {
        program: Program {
            config: "ServerRoot DIR\nServerName localhost\nPidFile DIR/pid\nErrorLog DIR/log\nUser www-data\n\
            LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\n\
            LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
            Listen 127.0.0.1:PORT\nDocumentRoot DIR/www\nMaxConnectionsPerChild 1\nStartServers 5\n",
            args: &["-d", "DIR", "-f", "DIR/config", "-DFOREGROUND"],
            ..Program::new("Apache", "apache2", "/usr/sbin/apache2")
        },
        spec: "/usr/sbin/apache2:ap_process_request",
        items: Some(1),
        ask: http,
    },
    Server {
        program: POSTGRES,
        spec: "/usr/lib/postgresql/15/bin/postgres:pg_parse_query",
        items: Some(1),
        ask: postgres,
    },
    Server {
        program: Program {
            config: "[global]\nerror_log = DIR/log\ndaemonize = no\n[www]\nuser = www-data\n\
            listen = 127.0.0.1:PORT\npm = static\npm.max_children = 3\npm.max_requests = 1\n",
            args: &["--nodaemonize", "--fpm-config", "DIR/config"],
            ..Program::new("PHP-FPM", "php8.2-fpm", "/usr/sbin/php-fpm8.2")
        },
        spec: "/usr/sbin/php-fpm8.2:php_execute_script",
        items: Some(1),
        ask: page,
    },
    Server {
        program: Program {
            config: "protocols = pop3\nbase_dir = DIR/run\nlog_path = DIR/log\nssl = no\nlisten = 127.0.0.1\n\
            disable_plaintext_auth = no\nmail_location = maildir:DIR/www\n\
            passdb {\n driver = static\n args = password=secret\n}\n\
            userdb {\n driver = static\n args = uid=www-data gid=www-data home=DIR/www\n}\n\
            first_valid_uid = 1\n\
            service pop3-login {\n service_count = 1\n inet_listener pop3 {\n port = PORT\n }\n\
            inet_listener pop3s {\n port = 0\n }\n}\nservice pop3 {\n service_count = 1\n}\n",
            args: &["-F", "-c", "DIR/config"],
            ..Program::new("dovecot", "dovecot-pop3d", "/usr/sbin/dovecot")
        },
        spec: "/usr/lib/dovecot/libdovecot.so.0:io_loop_handler_run",
        items: None,
        ask: pop3,
    },
    Server {
        program: Program {
            config: "import zlib\ndef app(environ, start):\n    start('200 OK', [])\n    \
            return [zlib.compress(bytes(n % 251 for n in range(20000)))]\n",
            args: &[
                "-m",
                "gunicorn",
                "--preload",
                "-b",
                "127.0.0.1:PORT",
                "-w",
                "3",
                "--max-requests",
                "1",
                "--log-file",
                "DIR/log",
                "config:app",
            ],
            ..Program::new("gunicorn", "gunicorn", "/usr/bin/python3")
        },
        spec: "libz.so.1:deflate",
        items: Some(1),
        ask: http,
    },
];

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (tool, servers) = args.which.of(&SERVERS, |it| &it.program)?;
    let mut rows = Vec::new();
    let mut wrong = false;
    for server in servers {
        let row = match check(server, &tool, args.requests) {
            Ok(row) => row,
            Err(error) => {
                wrong = true;
                format!("FAILED: {error:#}")
            }
        };
        rows.push(format!("{:<12}{row}", server.program.name));
    }
    println!("{}", rows.join("\n"));
    Ok(exit_code(!wrong))
}

/// Answers and end of a server, without the tool and with it.
fn check(server: &Server, tool: &Path, requests: usize) -> Result<String> {
    let start = || Running::start(&server.program, &[], |it| ask(server, it, 1).is_ok());
    let mut without = start()?;
    let right = ask(server, &without, 1)?.remove(0);
    let answers = |running: &Running, requests, when: &'static str| -> Result<()> {
        let answers = ask(server, running, requests).context(when)?;
        let others = answers.iter().filter(|it| **it != right).count();
        ensure!(others == 0, "{others} of {requests} answers differ {when}");
        Ok(())
    };
    answers(&without, requests, "without the tool")?;
    let end = without.stop()?;

    let mut with = start()?;
    let lab = Lab::at(&with.dir, tool)?;
    let record = || lab.attach(server.spec, with.pid(), &["--force"]);
    let recorder = record()?;
    answers(&with, requests, "while recording")?;
    recorder.stop()?;
    let report = lab.ask("report")?;
    let items = report["probes"][0]["visits"].as_u64().unwrap_or(0) as usize;
    let expected = server.items.map(|each| each * requests);
    if items < requests || expected.is_some_and(|it| it != items) {
        bail!("{items} items for {requests} requests");
    }
    answers(&with, requests, "after the recording")?;

    let recorder = record()?;
    answers(&with, requests / 2, "while recording again")?;
    shell::output(shell::as_root("kill").args(["-9", &recorder.pid()?.to_string()]))?;
    answers(&with, requests, "after the recorder was killed")?;
    let other = with.stop()?;
    ensure!(other == end, "ended with {other}, not {end}");
    Ok(format!(
        "{} of {} requests answered, {items} items in {requests}; ended with {end} as without",
        7 * requests / 2,
        7 * requests / 2
    ))
}

/// Answers to some requests, one connection each.
fn ask(server: &Server, running: &Running, requests: usize) -> Result<Vec<Vec<u8>>> {
    let one = |n| {
        let connect = || -> Result<Vec<u8>> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, running.port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            (server.ask)(&mut stream)
        };
        let answer = connect().with_context(|| format!("request {n}"))?;
        ensure!(!answer.is_empty(), "request {n}: no answer");
        Ok(answer)
    };
    (0..requests).map(one).collect()
}

/// The body of a page.
fn http(stream: &mut TcpStream) -> Result<Vec<u8>> {
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|it| it == b"\r\n\r\n");
    let head = head.context("no head")?;
    ensure!(
        answer.starts_with(b"HTTP/1.") && answer[9..].starts_with(b"200"),
        "no page"
    );
    Ok(answer.split_off(head))
}

/// The output of a page.
fn page(stream: &mut TcpStream) -> Result<Vec<u8>> {
    fastcgi(stream, &script("page"))
}

/// Path of a script of PHP-FPM.
pub(super) fn script(name: &str) -> String {
    let path = dir_of("PHP-FPM").join(format!("www/{name}.php"));
    path.display().to_string()
}

/// The output of a script.
///
/// Source: FastCGI specification 1.0, section 3: version, type, id, length, padding, reserved.
pub(super) fn fastcgi(stream: &mut TcpStream, script: &str) -> Result<Vec<u8>> {
    let mut record = |kind: u8, content: &[u8]| {
        let length = (content.len() as u16).to_be_bytes();
        stream.write_all(&[1, kind, 0, 1, length[0], length[1], 0, 0])?;
        stream.write_all(content)
    };
    // A request to a responder, on a connection that ends with it.
    record(1, &[0, 1, 0, 0, 0, 0, 0, 0])?;
    let mut params = Vec::new();
    for (name, value) in [("SCRIPT_FILENAME", script), ("REQUEST_METHOD", "GET")] {
        params.extend([name.len() as u8, value.len() as u8]);
        params.extend([name.as_bytes(), value.as_bytes()].concat());
    }
    record(4, &params)?;
    record(4, &[])?;
    record(5, &[])?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// The answers in a session.
fn pop3(stream: &mut TcpStream) -> Result<Vec<u8>> {
    stream.write_all(b"USER somebody\r\nPASS secret\r\nSTAT\r\nLIST\r\nQUIT\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    ensure!(answer.ends_with(b"Logging out.\r\n"), "no session");
    Ok(answer)
}

/// The rows of a query.
fn postgres(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut session = Postgres::begin(BufReader::new(stream.try_clone()?))?;
    let rows = session.query(
        b"select sum(i * i), md5(string_agg(i::text, '')) from generate_series(1, 1000) i\0",
    )?;
    session.end()?;
    Ok(rows)
}
