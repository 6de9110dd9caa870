//! Extracts fenced blocks, code spans, and the commands of `sh` blocks from README, guide and the page on how to work.
//!
//! The tests of the guide, of the command line (`tests/tests/cli/documented.rs`) and of `xtask` share this file.

use std::path::{Path, PathBuf};

pub struct Page {
    /// File name.
    pub name: String,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// Words after the opening fence: `sh`, `sh mixed`, `sql`.
    pub info: String,
    /// The lines between.
    pub text: String,
}

/// A command as it would be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments, without `sudo` and assignments before them.
    pub words: Vec<String>,
}

impl Command {
    /// Whether it runs this program.
    pub fn runs(&self, program: &str) -> bool {
        self.words.first().is_some_and(|word| word == program)
    }
}

/// The page on working on the program.
pub const CONTRIBUTING: &str = ".github/CONTRIBUTING.md";

/// Reads the README, the pages of the guide by name, and the one on how to work.
pub fn pages(workspace: &Path) -> std::io::Result<Vec<Page>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(workspace.join("pebs-user/guide"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    paths.insert(0, workspace.join("README.md"));
    paths.push(workspace.join(CONTRIBUTING));
    paths
        .into_iter()
        .map(|path| {
            Ok(Page {
                name: path
                    .strip_prefix(workspace)
                    .unwrap_or(&path)
                    .display()
                    .to_string(),
                text: std::fs::read_to_string(&path)?,
            })
        })
        .collect()
}

/// The fenced blocks of a page.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block {
                info: info.to_owned(),
                text: body.join("\n"),
            });
        }
    }
    blocks
}

/// The code spans of a page, outside its blocks.
pub fn spans(text: &str) -> Vec<String> {
    let mut inside = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let is_fence = line.starts_with("```");
            inside ^= is_fence;
            !inside && !is_fence && !line.starts_with("    ")
        })
        .collect();
    let prose = prose.join("\n");
    let spans = prose.split('`').skip(1).step_by(2);
    spans.map(|span| span.replace('\n', " ")).collect()
}

/// The commands of a shell script. A `$(..)` becomes `1234`: such substitutions only produce pids.
///
/// # Panics
/// If a quote is not closed, or an unquoted word contains a parenthesis, which a shell would reject.
pub fn commands(script: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    let (mut words, mut word) = (Vec::<String>::new(), None::<String>);
    let mut chars = script.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars
                        .next()
                        .unwrap_or_else(|| panic!("open quote in: {script}"))
                    {
                        end if end == char => break,
                        other => word.push(other),
                    }
                }
            }
            '\\' => match chars.next() {
                None | Some('\n') => {}
                Some(other) => word.get_or_insert_default().push(other),
            },
            '$' if chars.peek() == Some(&'(') => {
                let _pid = chars.by_ref().find(|char| *char == ')');
                word.get_or_insert_default().push_str("1234");
            }
            '#' if word.is_none() => while chars.next_if(|char| *char != '\n').is_some() {},
            '(' if word.is_some() => panic!("'(' without quotes in: {script}"),
            '\n' | ';' | '|' | '&' | '(' | ')' => {
                words.extend(word.take());
                commands.extend(command(std::mem::take(&mut words)));
            }
            '>' | '<' => {
                // The target of a redirection is not an argument.
                words.extend(word.take());
                while chars.next_if(|char| *char == ' ').is_some() {}
                while chars.next_if(|char| !char.is_whitespace()).is_some() {}
            }
            char if char.is_whitespace() => words.extend(word.take()),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    commands.extend(command(words));
    commands
}

fn command(words: Vec<String>) -> Option<Command> {
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let words: Vec<String> = words
        .into_iter()
        .skip_while(|word| word == "sudo" || is_assignment(word))
        .collect();
    (!words.is_empty()).then_some(Command { words })
}
