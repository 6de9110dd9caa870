//! Runs the guide's queries on a trace, so that they stay valid.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Placeholder of the trace's path in the guide.
const PLACEHOLDER: &str = "TRACE";

/// A query as the guide shows it.
#[derive(Debug, PartialEq, Eq)]
enum Query {
    /// For DuckDB.
    Sql(String),
    Python(String),
}

/// Runs every query and returns a summary.
pub fn run(trace: &str) -> Result<String> {
    let python = shell::tools_dir().join("venv/bin/python");
    if !python.exists() {
        return Ok("SKIP the guide's queries: no duckdb and pandas; see cargo xtask setup".into());
    }
    let queries = of_guide()?;
    if queries.is_empty() {
        bail!("the guide has no query");
    }
    for query in &queries {
        ask(&python, query, trace)
            .with_context(|| format!("the guide's query fails: {query:?}"))?;
    }
    Ok(format!("the guide's {} queries run on it", queries.len()))
}

/// The queries of all pages.
fn of_guide() -> Result<Vec<Query>> {
    let folder = shell::workspace().join("pebs-user/guide");
    let mut paths: Vec<_> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    let mut queries = Vec::new();
    for path in paths {
        queries.extend(extract(&fs::read_to_string(&path)?));
    }
    Ok(queries)
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

    /// The guide shows six queries for DuckDB and one for pandas.
    #[test]
    fn guide_has_seven() {
        let queries = of_guide().unwrap();
        let sql = queries
            .iter()
            .filter(|query| matches!(query, Query::Sql(_)));
        assert_eq!((queries.len(), sql.count()), (7, 6));
    }
}
