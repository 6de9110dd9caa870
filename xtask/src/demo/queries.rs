//! Runs the README's queries on a trace, so that they stay true.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// What stands for the trace's path in the README.
const PLACEHOLDER: &str = "TRACE";

/// A query as the README shows it.
#[derive(Debug, PartialEq, Eq)]
enum Query {
    /// For DuckDB.
    Sql(String),
    /// For Python.
    Python(String),
}

/// Runs every query and says how it went.
pub fn run(trace: &str) -> Result<String> {
    let python = shell::tools_dir().join("venv/bin/python");
    if !python.exists() {
        return Ok("SKIP the README's queries: no duckdb and pandas; see cargo xtask setup".into());
    }
    let readme = std::fs::read_to_string(shell::workspace().join("README.md"))?;
    let queries = extract(&readme);
    if queries.is_empty() {
        bail!("the README has no query");
    }
    for query in &queries {
        ask(&python, query, trace)
            .with_context(|| format!("the README's query fails: {query:?}"))?;
    }
    Ok(format!("the README's {} queries run on it", queries.len()))
}

fn ask(python: &Path, query: &Query, trace: &str) -> Result<String> {
    let script = match query {
        Query::Sql(_) => "import duckdb, sys; duckdb.sql(sys.argv[1]).show()",
        Query::Python(script) => &script.replace(PLACEHOLDER, trace),
    };
    let mut command = Command::new(python);
    command.args(["-c", script]);
    if let Query::Sql(sql) = query {
        command.arg(sql.replace(PLACEHOLDER, trace));
    }
    shell::output(&mut command)
}

/// The fenced blocks of SQL and Python.
fn extract(markdown: &str) -> Vec<Query> {
    let mut queries = Vec::new();
    let mut lines = markdown.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "sql" => queries.push(Query::Sql(body.join("\n"))),
            "python" => queries.push(Query::Python(body.join("\n"))),
            _ => {}
        }
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only fenced SQL and Python is taken, whole.
    #[test]
    fn fenced_blocks() {
        let markdown = "a\n```sql\nselect 1\nfrom t\n```\n```sh\nls\n```\n```python\nx\n```\n";
        assert_eq!(
            extract(markdown),
            [
                Query::Sql("select 1\nfrom t".into()),
                Query::Python("x".into())
            ]
        );
    }

    /// The README shows what it promises: three queries for DuckDB and one for pandas.
    #[test]
    fn readme_has_four() {
        let queries = extract(include_str!("../../../README.md"));
        let sql = queries
            .iter()
            .filter(|query| matches!(query, Query::Sql(_)));
        assert_eq!((queries.len(), sql.count()), (4, 3));
    }
}
