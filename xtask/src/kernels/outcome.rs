//! Parses a guest's report. Pure.

use std::fmt::Write;
use std::time::Duration;

use super::guest::{self, BEGIN, DONE, END};
use super::machine::Ran;
use crate::test::Counts;

/// Results on one kernel.
#[derive(Debug)]
pub struct Outcome {
    release: String,
    took: Duration,
    doctor: Option<Doctor>,
    recording: Recording,
    tests: Tests,
    /// Faults, one line each; empty if all is well.
    faults: Vec<String>,
    /// Output to show if something went wrong.
    evidence: String,
}

/// Findings of the doctor.
#[derive(Debug)]
struct Doctor {
    usable: bool,
    /// Status, name and finding of each check that is not ok.
    problems: Vec<(String, String, String)>,
}

/// Result of the recording.
#[derive(Debug, PartialEq, Eq)]
enum Recording {
    /// As it should.
    Worked,
    /// One line of error and one of advice, exit status 2.
    Refused,
    /// Neither: how it ended.
    Broken(String),
}

/// Result of the tests.
#[derive(Debug)]
enum Tests {
    /// Not run, as recording is not possible here.
    NotRun,
    /// All tests ended.
    Ran(Counts),
    /// The tests did not finish.
    Unfinished,
}

/// One step of the report.
#[derive(Debug, Default)]
struct Section<'a> {
    lines: Vec<&'a str>,
    /// Its result; `None` if it did not end.
    how: Option<&'a str>,
}

impl Outcome {
    /// Reads the report.
    pub fn read(release: &str, ran: &Ran) -> Self {
        let doctor = section(&ran.report, guest::DOCTOR);
        let record = section(&ran.report, guest::RECORD);
        let tests = section(&ran.report, guest::TESTS);
        let mut outcome = Self {
            release: release.to_owned(),
            took: ran.took,
            doctor: Doctor::read(&doctor),
            recording: Recording::read(&record),
            tests: Tests::read(&tests),
            faults: Vec::new(),
            evidence: String::new(),
        };
        outcome.judge(ran);
        if !outcome.is_well() {
            outcome.evidence = evidence(ran, &record, &tests);
        }
        outcome
    }

    /// Whether all is well: if the doctor calls recording possible, it works and no test fails;
    /// otherwise it is refused.
    pub fn is_well(&self) -> bool {
        self.faults.is_empty()
    }

    fn judge(&mut self, ran: &Ran) {
        let mut faults = Vec::new();
        faults.extend(ran.killed.clone());
        if !ran.report.lines().any(|line| line == DONE) {
            faults.push("the guest did not get to its end".to_owned());
        }
        match (&self.doctor, &self.recording) {
            (None, _) => faults.push("the doctor's answer can't be read".to_owned()),
            (Some(doctor), recording) => {
                let expected = if doctor.usable {
                    Recording::Worked
                } else {
                    Recording::Refused
                };
                if *recording != expected {
                    let verdict = doctor.verdict();
                    faults.push(format!("doctor: {verdict}, but recording {recording}"));
                }
            }
        }
        match &self.tests {
            Tests::Ran(counts) if counts.failed > 0 => {
                faults.push(format!("{} tests failed", counts.failed));
            }
            Tests::Ran(counts) if counts.passed == 0 => faults.push("no test was run".to_owned()),
            Tests::Unfinished => faults.push("the tests did not get to their end".to_owned()),
            Tests::Ran(_) | Tests::NotRun => {}
        }
        self.faults = faults;
    }

    /// Missing or degraded features, reasons of skipped tests, and faults.
    pub fn details(&self) -> String {
        let mut text = format!("Linux {}\n", self.release);
        for (status, name, found) in self.doctor.iter().flat_map(|doctor| &doctor.problems) {
            let _ = writeln!(text, "  {status:<9} {name}: {found}");
        }
        if let Tests::Ran(counts) = &self.tests {
            for skipped in &counts.skipped {
                let _ = writeln!(text, "  {skipped}");
            }
        }
        for fault in &self.faults {
            let _ = writeln!(text, "  FAILED    {fault}");
        }
        text + &self.evidence
    }

    fn row(&self) -> [String; 5] {
        let tests = match &self.tests {
            Tests::NotRun => "not run".to_owned(),
            Tests::Unfinished => "unfinished".to_owned(),
            Tests::Ran(counts) => counts.figures(),
        };
        [
            self.release.clone(),
            self.doctor
                .as_ref()
                .map_or("no answer".into(), Doctor::verdict),
            self.recording.to_string(),
            tests,
            format!("{} s", self.took.as_secs()),
        ]
    }
}

/// One line per kernel.
pub fn table(outcomes: &[Outcome]) -> String {
    const HEAD: [&str; 5] = ["kernel", "doctor", "recording", "tests", "time"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(outcomes.iter().map(Outcome::row));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// The lines between a step's begin and end.
fn section<'a>(report: &'a str, name: &str) -> Section<'a> {
    let mut section = Section::default();
    let mut inside = false;
    for line in report.lines() {
        if line.strip_prefix(BEGIN) == Some(name) {
            inside = true;
        } else if let Some(how) = line
            .strip_prefix(END)
            .and_then(|rest| rest.strip_prefix(name))
            .filter(|_| inside)
        {
            section.how = Some(how.trim());
            return section;
        } else if inside && !line.is_empty() {
            section.lines.push(line);
        }
    }
    section
}

/// The end of the output of the steps and the kernel.
fn evidence(ran: &Ran, record: &Section<'_>, tests: &Section<'_>) -> String {
    let mut text = String::new();
    for (name, section) in [("record", record), ("tests", tests)] {
        let lines = section.lines.join("\n");
        let _ = writeln!(text, "--- {name}\n{lines}");
    }
    let _ = writeln!(text, "--- console\n{}\n---", ran.console);
    text
}

impl Doctor {
    fn read(section: &Section<'_>) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_str(&section.lines.join("\n")).ok()?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let problems = json["checks"]
            .as_array()?
            .iter()
            .filter(|check| check["status"] != "ok")
            .map(|check| {
                (
                    text(&check["status"]),
                    text(&check["name"]),
                    text(&check["found"]),
                )
            });
        Some(Self {
            usable: json["usable"].as_bool()?,
            problems: problems.collect(),
        })
    }

    fn verdict(&self) -> String {
        let count = |wanted: &str| {
            self.problems
                .iter()
                .filter(|(status, ..)| status == wanted)
                .count()
        };
        if self.usable {
            format!("ready, {} degraded", count("degraded"))
        } else {
            format!("not ready, {} missing", count("missing"))
        }
    }
}

impl Recording {
    fn read(section: &Section<'_>) -> Self {
        match (section.how, &section.lines[..]) {
            (Some("exit status: 0"), _) => Self::Worked,
            (Some("exit status: 2"), [error, hint])
                if error.starts_with("error: ") && hint.starts_with("hint: ") =>
            {
                Self::Refused
            }
            (how, _) => Self::Broken(how.unwrap_or("did not end").to_owned()),
        }
    }
}

impl std::fmt::Display for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Worked => f.write_str("works"),
            Self::Refused => f.write_str("refused"),
            Self::Broken(how) => write!(f, "broken ({how})"),
        }
    }
}

impl Tests {
    fn read(section: &Section<'_>) -> Self {
        if section.how == Some(guest::PASSED_OVER) {
            return Self::NotRun;
        }
        let mut counts = Counts::default();
        for line in &section.lines {
            counts.read(line);
        }
        let ended = section
            .lines
            .iter()
            .any(|line| line.starts_with("test result: "));
        if ended {
            Self::Ran(counts)
        } else {
            Self::Unfinished
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USABLE: &str = "{\n\"usable\": true, \"checks\": [{\"name\": \"kernel\", \"status\": \"ok\", \
        \"found\": \"6.1\"}, {\"name\": \"sample time\", \"status\": \"degraded\", \"found\": \"old\"}]\n}";

    fn ran(report: &str) -> Ran {
        Ran {
            report: report.to_owned(),
            console: "Linux version".to_owned(),
            took: Duration::from_secs(9),
            killed: None,
        }
    }

    fn report(doctor: &str, record: (&str, &str), tests: (&str, &str)) -> String {
        let mut text = String::new();
        let doctor = (doctor, "exit status: 0");
        for (name, (lines, how)) in [("doctor", doctor), ("record", record), ("tests", tests)] {
            text += &format!("#begin {name}\n{lines}\n\n#end {name} {how}\n");
        }
        text + "#done\n"
    }

    fn check(report: &str, faults: &[&str]) -> Outcome {
        let outcome = Outcome::read("6.1.0-1", &ran(report));
        assert_eq!(outcome.faults, faults, "{}", outcome.details());
        outcome
    }

    /// A kernel on which all works; its missing features and skipped tests are listed.
    #[test]
    fn well() {
        let tests = "running 3 tests\ntest a ... ok\nSKIP no PMU (b)\ntest b ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        let text = report(
            USABLE,
            ("200 items", "exit status: 0"),
            (tests, "exit status: 0"),
        );
        let outcome = check(&text, &[]);
        assert!(outcome.details().contains("degraded  sample time: old"));
        assert!(outcome.details().contains("SKIP no PMU (b)"));
        let table = table(&[outcome]);
        let row = table.lines().nth(1).unwrap();
        assert_eq!(
            row,
            "6.1.0-1  ready, 1 degraded  works      1 passed, 0 failed, 1 skipped  9 s"
        );
    }

    /// A kernel that is too old: two lines and exit status 2 are a refusal, more are not.
    #[test]
    fn refused() {
        let doctor = USABLE
            .replace("true", "false")
            .replace("degraded", "missing");
        let two = "error: cannot record: Linux 5.10\nhint: boot a newer one";
        let not_run = ("", "not run");
        let outcome = check(&report(&doctor, (two, "exit status: 2"), not_run), &[]);
        assert!(table(&[outcome]).contains("not ready, 1 missing  refused"));
        let wall = format!("{two}\n0: (bf) r6 = r1");
        check(
            &report(&doctor, (&wall, "exit status: 2"), not_run),
            &["doctor: not ready, 1 missing, but recording broken (exit status: 2)"],
        );
    }

    /// Failures are counted, and shown with their output; a guest that stops is a failure.
    #[test]
    fn failures() {
        let tests = "running 1 test\ntest a ... FAILED\nfailures:\n---- a stdout ----\nwhy\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored";
        let text = report(USABLE, ("", "exit status: 0"), (tests, "exit status: 101"));
        let outcome = check(&text, &["1 tests failed"]);
        assert!(outcome.details().contains("why") && outcome.details().contains("Linux version"));
        let cut = &text[..text.find("test result").unwrap()];
        check(
            cut,
            &[
                "the guest did not get to its end",
                "the tests did not get to their end",
            ],
        );
    }
}
