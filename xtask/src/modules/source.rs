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

/// All modules of a crate, and the paths named in them, read from its root down.
pub struct Tree {
    root: PathBuf,
    modules: BTreeSet<Vec<String>>,
    named: Vec<Named>,
}

/// A path that code names, as seen from the crate's root.
struct Named {
    module: Vec<String>,
    path: Vec<String>,
    file: PathBuf,
    line: usize,
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

impl Tree {
    /// Reads the crate whose `lib.rs` is in `root`, and its binary if `main.rs` is there as well.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self {
            root: root.to_owned(),
            modules: BTreeSet::new(),
            named: Vec::new(),
        };
        tree.root_file("lib.rs", None)?;
        if root.join("main.rs").is_file() {
            tree.root_file("main.rs", Some("main"))?;
        }
        Ok(tree)
    }

    /// Paths of the modules that have modules in them; empty: the crate's root.
    pub fn parents(&self) -> BTreeSet<String> {
        let parents = self.modules.iter().map(|module| module.split_last());
        parents
            .filter_map(|split| Some(split?.1.join("::")))
            .collect()
    }

    /// The modules in a module, and the imports of one by another.
    pub fn children(&self, parent: &str) -> (BTreeSet<String>, Vec<Import>) {
        let parent: Vec<_> = parent.split("::").filter(|name| !name.is_empty()).collect();
        let child = |path: &[String]| {
            let is_below =
                path.len() > parent.len() && path.iter().zip(&parent).all(|(a, b)| a == b);
            is_below.then(|| path[parent.len()].clone())
        };
        let names: BTreeSet<_> = self.modules.iter().filter_map(|it| child(it)).collect();
        let imports = self.named.iter().filter_map(|named| {
            let (from, to) = (child(&named.module)?, child(&named.path)?);
            (from != to && names.contains(&to)).then(|| Import {
                from,
                to,
                file: named.file.clone(),
                line: named.line,
                path: named.path.join("::"),
            })
        });
        let imports = imports.collect();
        (names, imports)
    }

    /// Reads the file of a crate's root, and those of its modules; `module`: the module that its own paths count for.
    fn root_file(&mut self, name: &str, module: Option<&str>) -> Result<()> {
        let module: Vec<_> = module.map(str::to_owned).into_iter().collect();
        if !module.is_empty() {
            self.modules.insert(module.clone());
        }
        self.file(&Place {
            file: name.into(),
            folder: PathBuf::new(),
            module,
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
        self.modules.insert(child.module.clone());
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
        self.name(&path, line, place)
    }

    fn name(&mut self, path: &[String], line: usize, place: &Place) -> Result<()> {
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
        self.named.push(Named {
            module: place.module.clone(),
            path: module,
            file: self.shown(place),
            line,
        });
        Ok(())
    }

    fn shown(&self, place: &Place) -> PathBuf {
        let path = self.root.join(&place.file);
        path.strip_prefix(shell::workspace())
            .unwrap_or(&path)
            .to_owned()
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
