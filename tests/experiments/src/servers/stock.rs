//! `cargo xtask servers`: records Debian's servers under a load whose dear requests are known, and compares what the tool
//! says with what the client and the kernel saw.
//!
//! One client asks one request after the other, so that each item lies within one request. One request of some hundred,
//! drawn by chance, is dear. Rounds without and with a recording take turns. The exit code is 1 if items are missing, or
//! if the slow items are not the dear requests. With `--clock`: see `clock.rs`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use super::clients::{self, Client};
use super::clock;
use super::running::{POSTGRES, Program, Running, Which};
use crate::frame::lab::Lab;
use crate::frame::machine::{cpu_ns, now, pin};
use crate::frame::random::Random;
use crate::frame::recorder::Recorder;
use crate::frame::statistics::{median, quantiles};
use crate::frame::table::Table;
use crate::frame::trace;
use crate::frame::verdict::exit_code;

/// Options of `cargo xtask servers`.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds without and with a recording
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of a round, s
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Decides which requests are dear
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// More options of the recordings, such as '--no-switches'
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
    /// Compare the times of items with a clock inside of each server instead
    #[arg(long)]
    clock: bool,
    #[command(flatten)]
    which: Which,
}

/// One request of so many is dear.
pub(super) const DEAR: usize = 300;

/// Part of the dear requests that has to be slow, and the largest slow class in dear requests.
pub(super) const FOUND: (f64, f64) = (0.95, 1.3);

/// The reported cost is good within this share of the observed one, or this difference.
const GOOD: (f64, f64) = (0.25, 0.02);

/// Connects to a server on this port.
pub(super) type NewClient = fn(u16) -> Result<Box<dyn Client>>;

pub(super) struct Server {
    pub program: Program,
    /// `None`: no function of it has one call for each request.
    pub spec: Option<&'static str>,
    pub client: NewClient,
    /// Functions of libc that receive a request and send the answer, on one thread; `None`: no such two.
    pub clock: Option<(&'static str, &'static str)>,
}

pub(super) const SERVERS: [Server; 9] = [
    Server {
        program: Program {
            args: &["--port", "PORT", "--save", "", "--dir", "DIR"],
            ..Program::new("redis", "redis-server", "/usr/bin/redis-server")
        },
        spec: Some("/usr/bin/redis-server:processCommand"),
        client: clients::redis,
        clock: Some(("read", "write")),
    },
    Server {
        program: Program {
            args: &[
                "-p",
                "PORT",
                "-U",
                "0",
                "-l",
                "127.0.0.1",
                "-u",
                "root",
                "-t",
                "1",
            ],
            ..Program::new("memcached", "memcached", "/usr/bin/memcached")
        },
        spec: Some("libc.so.6:read..sendmsg"),
        client: clients::memcached,
        clock: Some(("read", "sendmsg")),
    },
    Server {
        program: Program {
            config: "ServerRoot DIR\nServerName localhost\nPidFile DIR/pid\nErrorLog DIR/log\nUser www-data\n\
                LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
                LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
                Listen 127.0.0.1:PORT\nDocumentRoot DIR/www\nMaxKeepAliveRequests 0\n\
                <LocationMatch \"^/x(a+)+b$\">\nRequire all denied\n</LocationMatch>\n",
            args: &["-d", "DIR", "-f", "DIR/config", "-DFOREGROUND"],
            ..Program::new("Apache", "apache2", "/usr/sbin/apache2")
        },
        spec: Some("/usr/sbin/apache2:ap_process_async_request"),
        client: clients::apache,
        clock: Some(("read", "writev")),
    },
    Server {
        program: Program {
            config: "global\n maxconn 100\ndefaults\n mode http\n timeout client 30s\n timeout server 30s\n \
                timeout connect 5s\nfrontend f\n bind 127.0.0.1:PORT\n \
                http-request deny if { path_reg ^/x(([a-z])+.)+[A-Z]([a-z])+$ }\n \
                http-request return status 200 content-type text/plain string ok\n",
            args: &["-db", "-f", "DIR/config"],
            ..Program::new("HAProxy", "haproxy", "/usr/sbin/haproxy")
        },
        spec: Some("/usr/sbin/haproxy:http_process_req_common"),
        client: clients::haproxy,
        clock: Some(("recv", "send")),
    },
    Server {
        program: POSTGRES,
        spec: Some("/usr/lib/postgresql/15/bin/postgres:pg_parse_query..ReadyForQuery"),
        client: clients::postgres,
        clock: Some(("recv", "send")),
    },
    Server {
        program: Program {
            user: Some("mysql"),
            args: &[
                "--no-defaults",
                "--datadir=DIR/data",
                "--socket=DIR/socket",
                "--pid-file=DIR/pid",
                "--port=PORT",
                "--bind-address=127.0.0.1",
                "--skip-grant-tables",
                "--skip-networking=0",
            ],
            init: &[
                "/usr/bin/mariadb-install-db",
                "--no-defaults",
                "--datadir=DIR/data",
                "--auth-root-authentication-method=normal",
            ],
            ..Program::new("MariaDB", "mariadb-server", "/usr/sbin/mariadbd")
        },
        spec: Some("/usr/sbin/mariadbd:dispatch_command"),
        client: clients::mariadb,
        clock: Some(("recv", "send")),
    },
    Server {
        program: Program {
            needs: "/usr/bin/go",
            config: "package main\nimport (\n\"crypto/sha256\"\n\"net/http\"\n\"regexp\"\n\"runtime\"\n\"strings\"\n)\n\
                type app struct{ match *regexp.Regexp }\n\
                func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {\n\
                n := 1\nif strings.HasPrefix(r.URL.Path, \"/x\") {\nn = 1500\n}\n\
                sum := sha256.Sum256([]byte(strings.Repeat(\"text\", 5000)))\n\
                s := strings.Repeat(r.URL.Path, n)\n\
                if a.match.MatchString(s) {\nw.WriteHeader(403)\n}\nw.Write(sum[:])\n}\n\
                func main() {\nruntime.GOMAXPROCS(1)\nhttp.ListenAndServe(\"127.0.0.1:PORT\", &app{regexp.MustCompile(`(a+)+b$`)})\n}\n",
            args: &[],
            init: &[
                "/bin/sh",
                "-c",
                "cp DIR/config DIR/server.go && HOME=DIR go build -o DIR/server DIR/server.go",
            ],
            ..Program::new("Go", "golang-go", "DIR/server")
        },
        spec: Some("DIR/server:main.(*app).ServeHTTP"),
        client: clients::go,
        clock: None,
    },
    Server {
        program: Program {
            config: "server:\n interface: 127.0.0.1\n port: PORT\n do-daemonize: no\n username: \"\"\n chroot: \"\"\n \
                directory: \"DIR\"\n pidfile: \"DIR/pid\"\n use-syslog: no\n num-threads: 1\n local-zone: \"test.\" static\n \
                local-data: \"usual.test. A 192.0.2.1\"\n include: \"DIR/dear\"\nremote-control:\n control-enable: no\n",
            args: &["-d", "-c", "DIR/config"],
            init: &[
                "/bin/sh",
                "-c",
                "for i in $(seq 200); do echo \"local-data: \\\"dear.test. A 192.0.2.$i\\\"\"; done > DIR/dear",
            ],
            ..Program::new("unbound", "unbound", "/usr/sbin/unbound")
        },
        spec: None,
        client: clients::dns,
        clock: Some(("recvfrom", "sendto")),
    },
    Server {
        program: Program {
            config: "vcl 4.1;\nbackend none none;\nsub vcl_recv {\n \
                if (req.url ~ \"^/x(([a-z])+.)+[A-Z]([a-z])+$\") { return (synth(403)); }\n return (synth(200));\n}\n",
            args: &[
                "-F",
                "-n",
                "DIR/work",
                "-a",
                "127.0.0.1:PORT",
                "-f",
                "DIR/config",
                "-j",
                "none",
                "-p",
                "thread_pools=1",
                "-p",
                "pcre2_match_limit=1000000",
            ],
            ..Program::new("Varnish", "varnish", "/usr/sbin/varnishd")
        },
        spec: Some("/usr/sbin/varnishd:CNT_Request"),
        client: clients::varnish,
        clock: Some(("read", "writev")),
    },
];

/// A request as the client saw it, ns on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub begin: u64,
    pub end: u64,
    pub dear: bool,
}

/// Requests of a round, and the CPU time of the server.
struct Round {
    requests: Vec<Request>,
    cpu_ns: f64,
}

/// Output of the tool about a round.
pub(super) struct Said {
    /// Requests with one item.
    pub items: u64,
    /// Share of dear requests in the slow class, and its size in dear requests.
    pub found: f64,
    pub size: f64,
    pub first: String,
    /// Growth of the target's CPU time.
    pub cpu: Option<f64>,
    own_ns: f64,
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    let (tool, servers) = args.which.of(&SERVERS, |it| &it.program)?;
    if args.clock {
        let length = Duration::from_secs_f64(args.seconds);
        return clock::main(&tool, &servers, args.rounds, length);
    }
    let mut table = Table::new(
        "server | items of requests | dear requests in the slow class | its size | first cause | CPU time of a request | with | \
         said | own time of an item | p50 of the client | with | p99 | with",
    );
    let (mut wrong, mut good, mut number) = (false, 0, 0);
    for server in servers {
        let Some(spec) = server.spec else { continue };
        let row = match measure(server, spec, &tool, args) {
            Ok(row) => row,
            Err(error) => {
                wrong = true;
                table.row(format_args!("{} | FAILED: {error:#}", server.program.name));
                continue;
            }
        };
        wrong |= !row.is_right;
        number += 1;
        good += u32::from(row.is_good);
        table.row(format_args!("{} | {}", server.program.name, row.text));
        eprintln!("{table}");
    }
    println!("{table}");
    println!("the cost that is said is near what is seen for {good} of {number} servers");
    Ok(exit_code(!wrong))
}

/// A row of the table.
struct Row {
    text: String,
    is_right: bool,
    is_good: bool,
}

fn measure(server: &Server, spec: &str, tool: &Path, args: &Args) -> Result<Row> {
    let (running, mut client) = start(server, &[])?;
    let lab = Lab::at(&running.dir, tool)?;
    let spec = spec.replace("DIR", &running.dir.display().to_string());
    let (mut draw, mut warm) = (Random::new(args.seed), Random::new(!args.seed));
    let length = Duration::from_secs_f64(args.seconds);
    let mut round = |client: &mut dyn Client| -> Result<Round> {
        let before = cpu_ns(running.pid())?;
        let requests = ask_for(client, length, &mut draw)?;
        // Work after the answer.
        std::thread::sleep(Duration::from_millis(5));
        let cpu_ns = cpu_ns(running.pid())? - before;
        Ok(Round { requests, cpu_ns })
    };
    let (mut plain, mut traced, mut said) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_right = true;
    let options = &args.options;
    for _ in 0..args.rounds.max(1) {
        plain.push(round(&mut *client)?);
        let options: Vec<&str> = options.split_whitespace().collect();
        let recorder = record_under_load(&lab, (Some(&spec), running.pid()), &options, || {
            ask_for(&mut *client, Duration::from_millis(20), &mut warm).map(drop)
        })?;
        let with = round(&mut *client)?;
        recorder.stop()?;
        let asked = with.requests.len() as u64;
        let one = told(&lab, &with.requests)?;
        is_right &= one.items == asked && one.found >= FOUND.0 && one.size <= FOUND.1;
        eprintln!(
            "{}: one item in {} of {asked} requests, {:.3} of the dear ones found in a class of {:.2} times as many, first {}",
            server.program.name, one.items, one.found, one.size, one.first
        );
        said.push((one, asked));
        traced.push(with);
    }
    plain.push(round(&mut *client)?);
    Ok(row(&plain, &traced, &said, is_right))
}

/// Starts a server with these variables on one CPU, and a client of it on the other.
pub(super) fn start(
    server: &Server,
    variables: &[(String, String)],
) -> Result<(Running, Box<dyn Client>)> {
    let running = Running::start(&server.program, variables, |it| {
        (server.client)(it.port).is_ok_and(|mut it| it.ask(false).is_ok())
    })?;
    pin(running.pid(), 0)?;
    pin(std::process::id(), 1)?;
    let client = (server.client)(running.port)?;
    Ok((running, client))
}

/// Starts a recording of a server's items, by a SPEC or by the preset that fits, which finds its pace under load: `ask` makes some of it.
pub(super) fn record_under_load(
    lab: &Lab,
    (spec, pid): (Option<&str>, u32),
    options: &[&str],
    mut ask: impl FnMut() -> Result<()>,
) -> Result<Recorder> {
    std::thread::scope(|scope| {
        let start = || match spec {
            Some(spec) => lab.attach(spec, pid, options),
            None => lab.attach_by_preset(pid, options),
        };
        let recorder = scope.spawn(start);
        while !recorder.is_finished() {
            ask()?;
        }
        recorder
            .join()
            .unwrap_or_else(|_| bail!("the start panicked"))
    })
}

fn row(plain: &[Round], traced: &[Round], said: &[(Said, u64)], is_right: bool) -> Row {
    let each =
        |rounds: &[Round], of: &dyn Fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    let cpu = |it: &Round| it.cpu_ns / it.requests.len() as f64 / 1e3;
    let (before, with) = (each(plain, &cpu), each(traced, &cpu));
    let seen = with / before - 1.0;
    let told = median(said.iter().filter_map(|it| it.0.cpu).collect());
    let part = |q: f64| {
        move |it: &Round| {
            let usual = it.requests.iter().filter(|it| !it.dear);
            let us = usual.map(|it| (it.end - it.begin) as f64 / 1e3);
            quantiles(us.collect(), [q])[0]
        }
    };
    let (p50, p99) = (part(0.5), part(0.99));
    let least = |of: &dyn Fn(&Said) -> f64| {
        said.iter()
            .map(|it| of(&it.0))
            .fold(f64::INFINITY, f64::min)
    };
    let most = said.iter().map(|it| it.0.size).fold(0.0, f64::max);
    let missing: u64 = said.iter().map(|it| it.1.abs_diff(it.0.items)).sum();
    let asked: u64 = said.iter().map(|it| it.1).sum();
    let items = match missing {
        0 => format!("all {asked}"),
        _ => format!("{missing} of {asked} have none or several"),
    };
    let mut first: Vec<&str> = said.iter().map(|it| it.0.first.as_str()).collect();
    first.dedup();
    Row {
        text: format!(
            "{items} | {:.1} % | {most:.2} | {} | {before:.1} us | {:+.0} % | {:+.0} % | {:.1} us | {:.1} us | {:.1} us | {:.1} us | {:.1} us",
            least(&|it| it.found) * 100.0,
            first.join(", "),
            seen * 100.0,
            told * 100.0,
            median(said.iter().map(|it| it.0.own_ns).collect()) / 1e3,
            each(plain, &p50),
            each(traced, &p50),
            each(plain, &p99),
            each(traced, &p99),
        ),
        is_right,
        is_good: (told - seen).abs() <= GOOD.1.max(GOOD.0 * seen),
    }
}

/// Output of the tool about the items of these requests.
pub(super) fn told(lab: &Lab, requests: &[Request]) -> Result<Said> {
    let (report, explained) = (lab.ask("report")?, lab.ask("explain")?);
    let probe = &report["probes"][0];
    let info = lab.info()?;
    let by_cpu = &probe["slow_on_cpu"];
    let [by_clock, by_time] = [&probe["slow"], &by_cpu["slow"]]
        .map(|class: &Value| class["from_ns"].as_i64().unwrap_or(i64::MAX));
    // A reader sees the first sentence, and the second if there is one.
    let mut classes = [(0_u32, 0_u32); 2];
    let mut items = vec![0_u32; requests.len()];
    let mut next = 0;
    for visit in trace::visits(&lab.trace())? {
        let begin = visit.begin;
        let net_ns = visit.net_ns.unwrap_or(visit.duration_ns);
        let waited_ns = visit.duration_ns - visit.oncpu_ns.unwrap_or(visit.duration_ns);
        while requests.get(next).is_some_and(|it| it.end < begin) {
            next += 1;
        }
        let request = requests.get(next).filter(|it| it.begin <= begin);
        let Some(request) = request else { continue };
        items[next] += 1;
        let is_slow = [net_ns >= by_clock, net_ns - waited_ns >= by_time];
        for (class, _) in classes.iter_mut().zip(is_slow).filter(|it| it.1) {
            class.0 += 1;
            class.1 += u32::from(request.dear);
        }
    }
    let second = classes[1].1 > classes[0].1;
    let (slow, found) = classes[usize::from(second)];
    let dear = requests.iter().filter(|it| it.dear).count().max(1) as f64;
    let cause = match second {
        true => &by_cpu["gap"]["causes"][0],
        false => &explained["probes"][0]["whole"]["gap"]["causes"][0],
    };
    let name = cause["function"]["name"].as_str();
    let module = cause["function"]["module"].as_str();
    // As the report calls it.
    let module = module.map(|it| match it {
        "[anon]" => "code made at run time",
        it => it,
    });
    let name = name.or(module);
    Ok(Said {
        items: items.iter().filter(|it| **it == 1).count() as u64,
        found: f64::from(found) / dear,
        size: f64::from(slow) / dear,
        first: name
            .or(cause["kind"].as_str())
            .unwrap_or("nothing")
            .to_owned(),
        cpu: info["cost"]["target_cpu"].as_f64(),
        own_ns: probe["own"]["all_ns"].as_f64().unwrap_or(f64::NAN),
    })
}

/// Requests for a time.
fn ask_for(client: &mut dyn Client, time: Duration, draw: &mut Random) -> Result<Vec<Request>> {
    let start = Instant::now();
    let mut requests = Vec::new();
    while start.elapsed() < time {
        let dear = draw.below(DEAR) == 0;
        let begin = now();
        client.ask(dear)?;
        requests.push(Request {
            begin,
            end: now(),
            dear,
        });
    }
    Ok(requests)
}
