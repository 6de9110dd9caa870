//! Recordings of a workload: pebs-trace's figures on each item, and the workload's own log.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Lab;
use crate::recorder::Recorder;
use crate::shell;

/// A function within an item.
pub struct Function {
    pub name: String,
    pub module: String,
    pub kernel: bool,
    pub samples: f64,
    /// The published estimate, ns.
    pub span_ns: f64,
    /// Ours, the time of samples included, ns.
    pub self_ns: f64,
}

/// An item that has an end.
pub struct Item {
    pub id: u64,
    /// Time on the CPU less pebs-trace's own, ns.
    pub net_ns: f64,
    oncpu_ns: f64,
    /// Times that it was off the CPU.
    pub switches: f64,
    pub functions: Vec<Function>,
}

impl Item {
    pub fn samples(&self) -> f64 {
        self.functions.iter().map(|it| it.samples).sum()
    }

    /// Estimated time of some of its functions without pebs-trace's own, ns.
    pub fn of(&self, is_wanted: impl Fn(&Function) -> bool) -> f64 {
        let functions = self.functions.iter().filter(|it| is_wanted(it));
        let own = functions.fold(0.0, |sum, it| sum + it.self_ns);
        own / self.oncpu_ns * self.net_ns
    }
}

/// An item by the workload's log, ns.
#[derive(Clone, Copy)]
pub struct Logged {
    pub id: u64,
    before: f64,
    enter: f64,
    leave: f64,
    after: f64,
}

impl Logged {
    /// From the first to the last instant within the function.
    pub fn inside(self) -> f64 {
        self.leave - self.enter
    }

    /// As its caller sees it: marks count.
    pub fn outside(self) -> f64 {
        self.after - self.before
    }
}

/// The workload's log.
#[derive(Default)]
pub struct Log {
    pub items: Vec<Logged>,
    /// Time of functions, by item and name, ns.
    pub calls: HashMap<(u64, String), f64>,
}

/// A recording of a workload.
pub struct Recording {
    pub items: Vec<Item>,
    pub log: Log,
    /// `trace.json`.
    pub info: Value,
}

/// A program as root, before all others: items are hardly ever displaced.
fn first(log: &Path) -> Command {
    let mut command = shell::as_root("env");
    command.arg(format!("TRUTH_FILE={}", log.display()));
    command.arg("TRUTH_REALTIME=1");
    command
}

/// Runs a workload without pebs-trace.
pub fn alone(lab: &Lab, program: &Path, args: &[&str]) -> Result<Log> {
    let log = lab.dir.join("log");
    lab.remove(&log)?;
    shell::output(first(&log).arg(program).args(args))?;
    read_log(&log)
}

/// Records a workload with a sample of cpu-clock every `reset` ns.
pub fn record(
    lab: &Lab,
    program: &Path,
    args: &[&str],
    function: &str,
    reset: u64,
) -> Result<Recording> {
    let (trace, log, csv) = (
        lab.dir.join("trace"),
        lab.dir.join("log"),
        lab.dir.join("items.csv"),
    );
    for old in [&trace, &log, &csv] {
        lab.remove(old)?;
    }
    // The recorder attaches when all is prepared: the time before the first item is long, and longer with
    // samples.
    let mut child = first(&log)
        .arg("TRUTH_WAIT=1")
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = ready(&mut child)?;
    let mut words = vec![lab.cache(), lab.tool.display().to_string()];
    words.extend([
        "--uprobe".to_owned(),
        format!("{}:{function}", program.display()),
    ]);
    words.extend(["--event", "cpu-clock", "--reset"].map(str::to_owned));
    words.extend([reset.to_string(), "-p".to_owned(), pid]);
    words.extend(
        [
            "--force",
            "--max-loss",
            "100",
            "--format",
            "json",
            "--output",
        ]
        .map(str::to_owned),
    );
    words.push(trace.display().to_string());
    let recorder = Recorder::start(Path::new("env"), &words)?;
    child.stdin.take().context("no stdin")?.write_all(b"go\n")?;
    let status = child.wait()?;
    recorder.stop()?;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    let mut command = lab.tool();
    command.args(["export", "--to", "csv", "--output"]);
    shell::output(command.arg(&csv).arg(&trace))?;
    Ok(Recording {
        items: read_items(&fs::read_to_string(&csv)?)?,
        log: read_log(&log)?,
        info: serde_json::from_slice(&fs::read(trace.join("trace.json"))?)?,
    })
}

/// Waits until a workload is ready, and returns its pid.
fn ready(child: &mut Child) -> Result<String> {
    let stderr = child.stderr.take().context("no stderr")?;
    for line in BufReader::new(stderr).lines() {
        if let Some(pid) = line?.strip_prefix("ready ") {
            return Ok(pid.trim().to_owned());
        }
    }
    bail!("the workload was not ready")
}

/// Parses the output of `export --to csv`: a row for each function of each visit.
fn read_items(text: &str) -> Result<Vec<Item>> {
    let mut lines = text.lines();
    let header = fields(lines.next().unwrap_or_default());
    let place = |name: &str| {
        let at = header.iter().position(|it| it == name);
        at.with_context(|| format!("the export has no column {name}"))
    };
    let (id, switches) = (place("item_id")?, place("switches")?);
    let (duration, net, oncpu) = (place("duration_ns")?, place("net_ns")?, place("oncpu_ns")?);
    let (name, module, kernel) = (place("function")?, place("module")?, place("kernel")?);
    let (samples, span, own) = (place("samples")?, place("span_ns")?, place("self_ns")?);
    let mut items: Vec<Item> = Vec::new();
    for line in lines {
        let row = fields(line);
        if row.len() != header.len() {
            bail!("the export has a row of {} fields: {line}", row.len());
        }
        let number = |at: usize| row[at].parse::<f64>().unwrap_or(f64::NAN);
        let net_ns = number(oncpu) - (number(duration) - number(net));
        // Unknown, or all of it was pebs-trace's own.
        if net_ns.is_nan() || net_ns <= 0.0 {
            continue;
        }
        let item: u64 = row[id].parse().context("an item without an id")?;
        if items.last().is_none_or(|it| it.id != item) {
            items.push(Item {
                id: item,
                net_ns,
                switches: number(switches),
                oncpu_ns: number(oncpu),
                functions: Vec::new(),
            });
        }
        if let (Some(last), false) = (items.last_mut(), row[samples].is_empty()) {
            last.functions.push(Function {
                name: row[name].clone(),
                module: row[module].clone(),
                kernel: row[kernel] == "true",
                samples: number(samples),
                span_ns: number(span),
                self_ns: number(own),
            });
        }
    }
    Ok(items)
}

/// Fields of a line of csv.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => {
                if let Some(last) = fields.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    fields
}

/// Reads the log of a workload of `tests/workloads`; see its README.
fn read_log(file: &Path) -> Result<Log> {
    let text = fs::read_to_string(file).with_context(|| format!("no log {}", file.display()))?;
    let mut log = Log::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        let id = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match words.first() {
            Some(&"item") => {
                let item = || {
                    Some(Logged {
                        id: id(1)?,
                        before: number(4)?,
                        enter: number(5)?,
                        leave: number(6)?,
                        after: number(7)?,
                    })
                };
                log.items
                    .push(item().with_context(|| format!("not an item: {line}"))?);
            }
            Some(&"call") => {
                let (Some(item), Some(enter), Some(leave)) = (id(2), number(4), number(5)) else {
                    bail!("not a call: {line}");
                };
                *log.calls.entry((item, words[1].to_owned())).or_default() += leave - enter;
            }
            _ => {}
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of an item belong together, one without a sample is an item as well; time off the CPU is not its own.
    #[test]
    fn rows_of_items() {
        let text = "item_id,duration_ns,net_ns,oncpu_ns,switches,function,module,kernel,samples,span_ns,self_ns\n\
                    1,100,50,100,0,\"f<a, b>\",lib,false,2,7,60\n1,100,50,100,0,irq,[kernel],true,1,0,40\n\
                    2,200,150,100,1,f,lib,false,2,7,100\n3,10,9,10,0,,,,,,\n";
        let items = read_items(text).unwrap();
        let [first, waited, last] = &items[..] else {
            panic!("{} items", items.len());
        };
        assert_eq!(
            (first.id, first.samples(), first.functions[0].name.as_str()),
            (1, 3.0, "f<a, b>")
        );
        assert_eq!(first.of(|it| !it.kernel), 30.0);
        assert_eq!((waited.switches, waited.of(|_| true)), (1.0, 50.0));
        assert_eq!((last.id, last.samples()), (3, 0.0));
        assert!(read_items("a,b\n").is_err());
    }
}
