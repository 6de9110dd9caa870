//! Parses a crate's files into tokens: declared modules and named paths.
//!
//! Tokens rather than syntax, so that paths in the arguments of macros are seen too. Items that are compiled only for
//! tests are left out, and so are links in comments.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::shell;

/// One path that leads from a module to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// Relative to the workspace, if it is in there.
    pub file: PathBuf,
    pub line: usize,
    /// As seen from the crate's root: `stream::ledger::Ledger`.
    pub path: String,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from,
            file,
            line,
            path,
            ..
        } = self;
        write!(f, "{}:{line}: {from} imports {path}", file.display())
    }
}

/// Reads files, from the crate's root down.
pub struct Reader {
    root: PathBuf,
    /// The module whose children are distinguished; empty: the crate's root.
    parent: Vec<String>,
    modules: BTreeSet<String>,
    imports: Vec<Import>,
}

type Tokens = Peekable<IntoIter>;

/// Location of some tokens.
#[derive(Clone)]
struct Place {
    file: PathBuf,
    /// Folder of the module's children, relative to the root.
    folder: PathBuf,
    module: Vec<String>,
}

impl Place {
    fn child(&self, name: &str) -> Self {
        let mut child = self.clone();
        child.folder.push(name);
        child.module.push(name.to_owned());
        child
    }
}

impl Reader {
    /// An empty reader; `root` has the crate's `lib.rs`, `parent` is a module's path.
    pub fn new(root: &Path, parent: &str) -> Self {
        Self {
            root: root.to_owned(),
            parent: parent
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            modules: BTreeSet::new(),
            imports: Vec::new(),
        }
    }

    /// The modules, and the imports between them.
    pub fn finish(mut self) -> (BTreeSet<String>, Vec<Import>) {
        self.imports
            .retain(|import| self.modules.contains(&import.to));
        (self.modules, self.imports)
    }

    /// Reads the file of a crate's root, and those of its modules; `module`: the module that its own paths count for.
    pub fn root_file(&mut self, name: &str, module: Option<&str>) -> Result<()> {
        if self.parent.is_empty() {
            self.modules.extend(module.map(str::to_owned));
        }
        self.file(&Place {
            file: name.into(),
            folder: PathBuf::new(),
            module: module.map(str::to_owned).into_iter().collect(),
        })
    }

    fn file(&mut self, place: &Place) -> Result<()> {
        let path = self.root.join(&place.file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokens: TokenStream =
            (text.parse()).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        self.items(tokens, place)
    }

    fn items(&mut self, tokens: TokenStream, place: &Place) -> Result<()> {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(&mut tokens) => {
                    skip_item(&mut tokens);
                }
                TokenTree::Group(group) => self.items(group.stream(), place)?,
                TokenTree::Ident(ident) if ident == "mod" => self.module(&mut tokens, place)?,
                TokenTree::Ident(ident) if begins_path(&ident.to_string()) => {
                    let first = vec![ident.to_string()];
                    self.path(first, ident.span().start().line, &mut tokens, place)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// `mod name;` or `mod name { .. }`, from the name on.
    fn module(&mut self, tokens: &mut Tokens, place: &Place) -> Result<()> {
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return Ok(());
        };
        let mut child = place.child(&name.to_string());
        self.modules.extend(self.child_of_parent(&child.module));
        if let Some(TokenTree::Group(group)) = tokens.peek() {
            let body = group.stream();
            tokens.next();
            return self.items(body, &child);
        }
        let files = [
            child.folder.with_extension("rs"),
            child.folder.join("mod.rs"),
        ];
        let file = files
            .into_iter()
            .find(|file| self.root.join(file).is_file());
        child.file = file.with_context(|| {
            format!("{}: no file for module {name}", self.shown(place).display())
        })?;
        self.file(&child)
    }

    /// A path, from the `::` after its first word on.
    fn path(
        &mut self,
        mut path: Vec<String>,
        line: usize,
        tokens: &mut Tokens,
        place: &Place,
    ) -> Result<()> {
        while takes_colons(tokens) {
            match tokens.peek() {
                Some(TokenTree::Ident(ident)) => {
                    path.push(ident.to_string());
                    tokens.next();
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let mut branches = group.stream().into_iter().peekable();
                    tokens.next();
                    while let Some(token) = branches.next() {
                        if let TokenTree::Ident(ident) = token {
                            let branch = [&path[..], &[ident.to_string()]].concat();
                            self.path(branch, ident.span().start().line, &mut branches, place)?;
                            skip_to_comma(&mut branches);
                        }
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        self.import(&path, line, place)
    }

    fn import(&mut self, path: &[String], line: usize, place: &Place) -> Result<()> {
        let mut module = place.module.clone();
        let mut names = path.iter().peekable();
        while let Some(name) = names.next_if(|name| begins_path(name) || *name == "self") {
            match &**name {
                "super" if module.pop().is_none() => {
                    bail!("{}:{line}: super of the root", self.shown(place).display())
                }
                "super" | "self" => {}
                _ => module.clear(),
            }
        }
        module.extend(names.cloned());
        let (from, to) = (
            self.child_of_parent(&place.module),
            self.child_of_parent(&module),
        );
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            self.imports.push(Import {
                from,
                to,
                file: self.shown(place),
                line,
                path: module.join("::"),
            });
        }
        Ok(())
    }

    fn shown(&self, place: &Place) -> PathBuf {
        let path = self.root.join(&place.file);
        path.strip_prefix(shell::workspace())
            .unwrap_or(&path)
            .to_owned()
    }

    fn child_of_parent(&self, module: &[String]) -> Option<String> {
        module.strip_prefix(&self.parent[..])?.first().cloned()
    }
}

/// The library is named so in its binary.
fn begins_path(word: &str) -> bool {
    matches!(word, "crate" | "super" | "pebs_user")
}

/// Whether the attribute whose brackets come next restricts its item to tests.
fn is_for_tests(tokens: &mut Tokens) -> bool {
    let Some(TokenTree::Group(group)) = tokens.peek() else {
        return false;
    };
    let mut words = group.stream().into_iter();
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(condition))) =
        (words.next(), words.next())
    else {
        return false;
    };
    name == "cfg" && holds_in_tests(condition.stream())
}

/// Whether a condition is for tests: `test`, `fuzzing` or `any(..)` of them.
fn holds_in_tests(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(word)), None) => word == "test" || word == "fuzzing",
        (Some(TokenTree::Ident(word)), Some(TokenTree::Group(group))) if word == "any" => {
            let mut words = group.stream().into_iter();
            words.all(|word| !matches!(word, TokenTree::Ident(word) if word != "test" && word != "fuzzing"))
        }
        _ => false,
    }
}

/// First tokens of items that end with their body or a semicolon; others (fields, variants, arms) end with a comma.
const ITEMS: [&str; 11] = [
    "const", "enum", "fn", "impl", "let", "mod", "static", "struct", "trait", "type", "use",
];

/// Those that end with a semicolon even after braces.
const STATEMENTS: [&str; 5] = ["const", "let", "static", "type", "use"];

/// Skips the item whose attribute comes next.
fn skip_item(tokens: &mut Tokens) {
    let mut keyword = String::new();
    for token in tokens {
        match &token {
            TokenTree::Ident(word) if keyword.is_empty() || word == "fn" => {
                let word = word.to_string();
                if ITEMS.contains(&&*word) {
                    keyword = word;
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Punct(punct) if punct.as_char() == ',' && keyword.is_empty() => return,
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace && !STATEMENTS.contains(&&*keyword) =>
            {
                return;
            }
            _ => {}
        }
    }
}

fn skip_to_comma(tokens: &mut Tokens) {
    for token in tokens {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
            return;
        }
    }
}

fn takes_colons(tokens: &mut Tokens) -> bool {
    let mut ahead = tokens.clone();
    let is_colon = |token: Option<TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    let found = is_colon(ahead.next()) && is_colon(ahead.next());
    if found {
        *tokens = ahead;
    }
    found
}
