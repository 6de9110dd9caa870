//! Traces, as other programs read them: `trace.json`, visits by DuckDB, items by `pebs-trace export --to csv`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{installed, shell};

/// `trace.json` of a trace.
pub fn info(trace: &Path) -> Result<Value> {
    let path = trace.join("trace.json");
    // Files of root may be readable by root only.
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(_) => shell::output(shell::as_root("cat").arg(&path))?,
    };
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Account of one kind of record in the ledger of a trace, summed over CPUs.
#[derive(Debug)]
pub struct Account {
    pub seen: u64,
    pub written: u64,
    /// Records that were not written, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Whether each CPU's are all written, or have a reason.
    pub balances: bool,
}

impl Account {
    /// Of `samples`, `marks` or `tasks` in a `trace.json`.
    #[must_use]
    pub fn of(info: &Value, kind: &str) -> Self {
        let mut sum = Self {
            seen: 0,
            written: 0,
            reasons: BTreeMap::new(),
            balances: true,
        };
        for cpu in info["ledger"]["cpus"].as_array().into_iter().flatten() {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let account = &cpu[kind];
            let (seen, written) = (number(&account["seen"]), number(&account["written"]));
            let mut with_reason = 0;
            for (reason, records) in account["reasons"].as_object().into_iter().flatten() {
                with_reason += number(records);
                *sum.reasons.entry(reason.clone()).or_default() += number(records);
            }
            sum.seen += seen;
            sum.written += written;
            sum.balances &= seen == written + with_reason;
        }
        sum
    }
}

/// Result of a query of DuckDB, words by row; tables are `'TRACE/NAME/*.parquet'`. NULL is `None`.
pub fn query(trace: &Path, sql: &str) -> Result<Vec<Vec<String>>> {
    const SCRIPT: &str = "import duckdb, sys
duckdb.execute('set enable_progress_bar = false')
for row in duckdb.execute(sys.argv[2].replace('TRACE', sys.argv[1])).fetchall(): print(*row)";
    let python = installed::python_environment().join("bin/python");
    let mut command = Command::new(python);
    let text = shell::output(command.args(["-c", SCRIPT]).arg(trace).arg(sql))?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    Ok(text.lines().map(words).collect())
}

/// A visit that has an end. Times that are not known are `None`.
pub struct Visit {
    pub tid: u64,
    /// On `CLOCK_MONOTONIC`, ns.
    pub begin: u64,
    pub duration_ns: i64,
    /// Less pebs-trace's own time.
    pub net_ns: Option<i64>,
    pub oncpu_ns: Option<i64>,
    /// Samples in it, and times that it was off the CPU.
    pub disturbances: Option<u64>,
}

/// All visits that have an end, in order of time.
pub fn visits(trace: &Path) -> Result<Vec<Visit>> {
    let origin = info(trace)?["monotonic_ns"].as_u64();
    let origin = origin.context("trace.json has no monotonic_ns")?;
    let rows = query(
        trace,
        "select tid, begin_ns, duration_ns, net_ns, oncpu_ns, samples + coalesce(switches, 0) \
         from 'TRACE/visits/*.parquet' where end_ns is not null order by begin_ns",
    )?;
    let visit = |row: &Vec<String>| {
        let number = |at: usize| row.get(at)?.parse::<i64>().ok();
        Some(Visit {
            tid: number(0)?.try_into().ok()?,
            begin: origin.saturating_add_signed(number(1)?),
            duration_ns: number(2)?,
            net_ns: number(3),
            oncpu_ns: number(4),
            disturbances: number(5).and_then(|it| it.try_into().ok()),
        })
    };
    let visits: Option<Vec<Visit>> = rows.iter().map(visit).collect();
    visits.context("a visit without thread or times")
}

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
    /// Its standard error, ns.
    pub stderr_ns: f64,
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
        functions.fold(0.0, |sum, it| sum + it.self_ns) * self.net_part()
    }

    /// Its time without pebs-trace's own, as a part of all.
    pub fn net_part(&self) -> f64 {
        self.net_ns / self.oncpu_ns
    }
}

/// Parses the output of `export --to csv`: a row for each function of each visit.
pub fn read_items(text: &str) -> Result<Vec<Item>> {
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
    let stderr = place("self_stderr_ns")?;
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
                stderr_ns: number(stderr),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Over all CPUs; one that does not balance is enough.
    #[test]
    fn accounts() {
        let cpu = |seen: u64, late: u64| json!({"samples": {"seen": seen, "written": 10, "reasons": {"late": late}}});
        let of = |cpus: Value| Account::of(&json!({"ledger": {"cpus": cpus}}), "samples");
        let good = of(json!([cpu(13, 3), cpu(12, 2)]));
        assert_eq!((good.seen, good.written, good.reasons["late"]), (25, 20, 5));
        assert!(good.balances && !of(json!([cpu(13, 2), cpu(11, 2)])).balances);
    }

    /// Rows of an item belong together, one without a sample is an item as well; time off the CPU is not its own.
    #[test]
    fn rows_of_items() {
        let text = "item_id,duration_ns,net_ns,oncpu_ns,switches,function,module,kernel,samples,span_ns,self_ns,self_stderr_ns\n\
                    1,100,50,100,0,\"f<a, b>\",lib,false,2,7,60,3\n1,100,50,100,0,irq,[kernel],true,1,0,40,3\n\
                    2,200,150,100,1,f,lib,false,2,7,100,4\n3,10,9,10,0,,,,,,,\n";
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
