//! C++ names in one spelling: nm, c++filt, gdb, LLVM and people write the same function in different ways.
//!
//! The differences that do not matter: blanks, `unsigned` and `unsigned int`, `const T` and `T const`, `std::string` and what
//! it stands for, default arguments of the standard library's templates, inline namespaces and ABI tags of the standard
//! library, `(void)`, the type of the result, and how unnamed things are written.
//!
//! Pure text. What is not understood is `None`, never a guess.

/// Nesting of a name. Deeper ones are hostile.
const MAX_NESTING: u32 = 64;

/// Maximum length of a name, bytes.
const MAX_LENGTH: usize = 64 << 10;

/// Unnamed namespaces, as nm and gdb, GCC's messages, LLVM, and Microsoft write them.
const ANONYMOUS: [&str; 5] = [
    "(anonymous namespace)",
    "{anonymous}",
    "<unnamed>",
    "(anonymous)",
    "`anonymous namespace'",
];

/// Operators of one to three characters, the longest first.
const OPERATORS: [&str; 38] = [
    "->*", "<=>", "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "+", "-", "*", "/", "%", "^", "&", "|", "~",
    "!", "=", "<", ">", ",", "?",
];

/// Last arguments of the standard library's templates that are not written.
const DEFAULTS: [&str; 6] = [
    "std::allocator<",
    "std::less<",
    "std::char_traits<",
    "std::hash<",
    "std::equal_to<",
    "std::default_delete<",
];

/// A function's name in parts, each in one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CppName {
    /// A function that only adjusts `this` and jumps on to the named one.
    pub thunk: bool,
    /// Qualified name with the arguments of templates, without the type of the result.
    pub path: String,
    /// Types of the parameters with their parentheses; `None`: left out, or not written out by the debugger.
    pub parameters: Option<String>,
    /// `const`, `volatile`, `&` and `&&` behind the parameters.
    pub qualifiers: String,
    /// Names of what the compiler made of the function: `.isra.0`.
    pub clone: String,
}

/// Parts of a name that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All of it.
    Full,
    /// Without the numbers of lambdas and the parameters of the functions that they are in, which gdb leaves out or adds.
    Debugger,
}

/// Reads a name. `None` if it is not the name of a C++ function, or not understood.
pub(super) fn parse(text: &str, detail: Detail) -> Option<CppName> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let text = text.trim().trim_end_matches(';').trim_end();
    let (text, thunk) = without_thunk(text);
    let (text, clone) = without_clone(text);
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        detail,
    };
    let (path, parameters, qualifiers) = parser.function()?;
    Some(CppName {
        thunk,
        path,
        parameters,
        qualifiers,
        clone,
    })
}

/// The function that a thunk jumps to.
fn without_thunk(text: &str) -> (&str, bool) {
    for prefix in [
        "non-virtual thunk to ",
        "virtual thunk to ",
        "covariant return thunk to ",
    ] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return (rest, true);
        }
    }
    let inner = text
        .strip_prefix("{virtual override thunk(")
        .and_then(|rest| rest.strip_suffix(")}"));
    match inner {
        // One or two offsets, each in braces.
        Some(inner) => (
            inner.rsplit_once("}, ").map_or(inner, |(_, name)| name),
            true,
        ),
        None => (text, false),
    }
}

/// `f(int) [clone .isra.0]`: the function, and `.isra.0`.
fn without_clone(text: &str) -> (&str, String) {
    match text.find("[clone") {
        Some(at) => {
            let clone = text[at..].replace("[clone", "").replace([']', ' '], "");
            (text[..at].trim_end(), clone)
        }
        None => (text, String::new()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// An identifier, a keyword or a number.
    Word(&'a str),
    /// A single character, `::`, `...` or `""`.
    Mark(&'a str),
    /// The text in single quotes.
    Quoted(&'a str),
    /// An unnamed namespace.
    Anonymous,
}

/// Tokens with the places where they begin. `None` for a quote without an end.
fn tokens(text: &str) -> Option<Vec<(usize, Token<'_>)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
        let (token, length) = if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        } else if let Some(unnamed) = ANONYMOUS.iter().find(|it| rest.starts_with(**it)) {
            (Token::Anonymous, unnamed.len())
        } else if rest.starts_with("[abi:") {
            at += rest.find(']')? + 1;
            continue;
        } else if first == '\'' {
            let end = rest[1..].find('\'')?;
            (Token::Quoted(&rest[1..=end]), end + 2)
        } else if let Some(mark) = ["::", "...", "\"\""]
            .iter()
            .find(|it| rest.starts_with(**it))
        {
            (Token::Mark(mark), mark.len())
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (Token::Word(&rest[..length]), length)
        } else {
            let length = first.len_utf8();
            (Token::Mark(&rest[..length]), length)
        };
        found.push((at, token));
        at += length;
    }
    Some(found)
}

/// A component of a qualified name.
#[derive(Default)]
struct Component {
    name: String,
    arguments: Option<Vec<String>>,
    /// Parameters of a function with something declared in it.
    scope: String,
}

impl Component {
    fn text(self) -> String {
        let arguments = self.arguments.map(|list| {
            let list = list.join(", ");
            // `operator< <int>`
            let gap = if self.name.ends_with('<') { " " } else { "" };
            format!("{gap}<{list}>")
        });
        format!(
            "{}{}{}",
            self.name,
            arguments.unwrap_or_default(),
            self.scope
        )
    }
}

/// Whether a word is a part of types and declarations, which names nothing.
fn is_of_type(word: &str) -> bool {
    matches!(
        word,
        "unsigned"
            | "signed"
            | "long"
            | "short"
            | "int"
            | "char"
            | "double"
            | "float"
            | "void"
            | "bool"
            | "wchar_t"
            | "char8_t"
            | "char16_t"
            | "char32_t"
            | "__int128"
            | "const"
            | "volatile"
            | "noexcept"
            | "static"
            | "virtual"
            | "inline"
            | "extern"
    )
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token<'a>)>,
    at: usize,
    depth: u32,
    detail: Detail,
}

impl<'a> Parser<'a> {
    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).map(|(_, token)| *token)
    }

    fn is(&self, mark: &str) -> bool {
        self.peek(0) == Some(Token::Mark(mark))
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &str) -> Option<()> {
        self.eat(mark).then_some(())
    }

    fn word(&self) -> Option<&'a str> {
        match self.peek(0) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Runs a step one level deeper.
    fn deeper<T>(&mut self, step: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_NESTING {
            return None;
        }
        self.depth += 1;
        let found = step(self);
        self.depth -= 1;
        found
    }

    /// The whole name: path, parameters, qualifiers. What stands before the path is the result's type.
    fn function(&mut self) -> Option<(String, Option<String>, String)> {
        while self
            .word()
            .is_some_and(|word| matches!(word, "static" | "virtual" | "inline" | "extern"))
        {
            self.at += 1;
        }
        loop {
            self.qualifiers();
            if self.builtin().is_some() {
                self.pointers();
                continue;
            }
            let path = self.path()?;
            match self.peek(0) {
                None => return Some((path, None, String::new())),
                Some(Token::Mark("(")) => {
                    let cut = self.text[self.offset()..].contains("{...}");
                    let parameters = self.list(true)?;
                    let qualifiers = self.qualifiers();
                    let parameters = (!cut).then_some(parameters);
                    return (self.at == self.tokens.len())
                        .then_some((path, parameters, qualifiers));
                }
                Some(Token::Mark("*" | "&") | Token::Word(_) | Token::Anonymous) => self.pointers(),
                Some(_) => return None,
            }
        }
    }

    fn offset(&self) -> usize {
        self.tokens
            .get(self.at)
            .map_or(self.text.len(), |(at, _)| *at)
    }

    fn pointers(&mut self) {
        while self.eat("*") || self.eat("&") {}
    }

    /// `const`, `volatile` and what refers to `this`.
    fn qualifiers(&mut self) -> String {
        let (mut is_const, mut is_volatile) = (false, false);
        let mut reference = String::new();
        loop {
            match self.peek(0) {
                Some(Token::Word("const")) => is_const = true,
                Some(Token::Word("volatile")) => is_volatile = true,
                Some(Token::Word("noexcept")) => {}
                Some(Token::Mark("&")) => reference.push('&'),
                _ => break,
            }
            self.at += 1;
        }
        let mut parts = Vec::new();
        parts.extend(is_const.then_some("const"));
        parts.extend(is_volatile.then_some("volatile"));
        parts.extend((!reference.is_empty()).then_some(reference.as_str()));
        parts.join(" ")
    }

    /// A qualified name, up to the `::` of a member pointer.
    fn path(&mut self) -> Option<String> {
        self.deeper(Self::path_here)
    }

    fn path_here(&mut self) -> Option<String> {
        self.eat("::");
        let mut components = Vec::new();
        loop {
            components.push(self.component()?);
            if !self.is("::") || self.peek(1) == Some(Token::Mark("*")) {
                break;
            }
            self.at += 1;
        }
        Some(spelled(components))
    }

    fn component(&mut self) -> Option<Component> {
        let mut found = Component::default();
        match self.peek(0)? {
            Token::Anonymous => {
                self.at += 1;
                found.name = ANONYMOUS[0].to_owned();
            }
            Token::Mark("~") => {
                self.at += 1;
                found.name = format!("~{}", self.word()?);
                self.at += 1;
                found.arguments = self.arguments()?;
            }
            Token::Mark("{") => found.name = self.braces()?,
            Token::Mark("<") if self.peek(1) == Some(Token::Word("lambda")) => {
                self.at += 2;
                let parameters = self.list(true)?;
                self.expect(">")?;
                found.name = format!("{{lambda{parameters}}}");
            }
            Token::Quoted(word) if word.starts_with("lambda") => {
                self.at += 1;
                let number = match &word["lambda".len()..] {
                    "" => 1,
                    digits => digits.parse::<u32>().ok()?.checked_add(2)?,
                };
                let parameters = self.list(true)?;
                found.name = self.lambda(&parameters, &number.to_string());
            }
            Token::Word("operator") => {
                self.at += 1;
                found.name = self.operator()?;
                found.arguments = self.arguments()?;
            }
            Token::Word("decltype") if self.peek(1) == Some(Token::Mark("(")) => {
                self.at += 1;
                found.name = format!("decltype{}", self.balanced()?);
            }
            Token::Word(word)
                if !word.starts_with(|c: char| c.is_ascii_digit()) && !is_of_type(word) =>
            {
                self.at += 1;
                found.name = word.to_owned();
                found.arguments = self.arguments()?;
            }
            _ => return None,
        }
        if self.is("(") && self.is_scope() {
            let parameters = self.list(true)?;
            let qualifiers = self.qualifiers();
            if self.detail == Detail::Full {
                let gap = if qualifiers.is_empty() { "" } else { " " };
                found.scope = format!("{parameters}{gap}{qualifiers}");
            }
        }
        Some(found)
    }

    fn lambda(&self, parameters: &str, number: &str) -> String {
        match self.detail {
            Detail::Full => format!("{{lambda{parameters}#{number}}}"),
            Detail::Debugger => format!("{{lambda{parameters}}}"),
        }
    }

    /// Whether the parentheses here are the parameters of a function with something declared in it.
    fn is_scope(&self) -> bool {
        let Some(mut at) = self.closing(self.at) else {
            return false;
        };
        let token = |at: usize| self.tokens.get(at).map(|(_, token)| *token);
        while matches!(
            token(at),
            Some(Token::Word("const" | "volatile") | Token::Mark("&"))
        ) {
            at += 1;
        }
        token(at) == Some(Token::Mark("::")) && token(at + 1) != Some(Token::Mark("*"))
    }

    /// Index after the bracket that closes the one at an index. Angle brackets do not count.
    fn closing(&self, from: usize) -> Option<usize> {
        let mut depth = 0_u32;
        for (at, (_, token)) in self.tokens.iter().enumerate().skip(from) {
            match token {
                Token::Mark("(" | "{" | "[") => depth += 1,
                Token::Mark(")" | "}" | "]") => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The text up to the closing bracket, without blanks.
    fn balanced(&mut self) -> Option<String> {
        let end = self.closing(self.at)?;
        let text = self.joined(self.at, end);
        self.at = end;
        Some(text)
    }

    /// Tokens as text.
    fn joined(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        let mut after_word = false;
        for (_, token) in &self.tokens[from..to] {
            let is_word = matches!(token, Token::Word(_));
            if is_word && after_word {
                text.push(' ');
            }
            after_word = is_word;
            match token {
                Token::Word(it) | Token::Mark(it) => text.push_str(it),
                Token::Quoted(it) => text.push_str(&format!("'{it}'")),
                Token::Anonymous => text.push_str(ANONYMOUS[0]),
            }
        }
        text
    }

    /// `{lambda(int)#1}`, `{unnamed type#1}`, or what a debugger does not write out.
    fn braces(&mut self) -> Option<String> {
        if self.peek(1) != Some(Token::Word("lambda")) || self.peek(2) != Some(Token::Mark("(")) {
            return self.balanced();
        }
        self.at += 2;
        let parameters = self.list(true)?;
        let number = if self.eat("#") {
            let number = self.word()?;
            self.at += 1;
            number
        } else {
            "1"
        };
        self.expect("}")?;
        Some(self.lambda(&parameters, number))
    }

    /// Reads the name behind `operator`.
    fn operator(&mut self) -> Option<String> {
        match (self.peek(0)?, self.peek(1)) {
            (Token::Mark("("), Some(Token::Mark(")"))) => {
                self.at += 2;
                return Some("operator()".to_owned());
            }
            (Token::Mark("["), Some(Token::Mark("]"))) => {
                self.at += 2;
                return Some("operator[]".to_owned());
            }
            (Token::Mark("\"\""), Some(Token::Word(suffix))) => {
                self.at += 2;
                return Some(format!("operator\"\"{suffix}"));
            }
            (Token::Word(word @ ("new" | "delete")), _) => {
                self.at += 1;
                let many = self.is("[") && self.peek(1) == Some(Token::Mark("]"));
                self.at += if many { 2 } else { 0 };
                let many = if many { "[]" } else { "" };
                return Some(format!("operator {word}{many}"));
            }
            (Token::Word("co_await"), _) => {
                self.at += 1;
                return Some("operator co_await".to_owned());
            }
            (Token::Mark(_), _) => {}
            _ => {
                let target = self.deeper(|it| it.type_with(Top::Kept, Groups::Left))?;
                return Some(format!("operator {target}"));
            }
        }
        let from = self.offset();
        let rest = &self.text[from..];
        let mut fitting = OPERATORS.iter().filter(|it| rest.starts_with(**it));
        let longest = fitting.next()?;
        // `operator<<int>` is `operator<` for `int`.
        let behind = rest[longest.len()..].trim_start();
        let is_split =
            *longest == "<<" && behind.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let symbol = if is_split { "<" } else { longest };
        while self.at < self.tokens.len() && self.offset() < from + symbol.len() {
            self.at += 1;
        }
        Some(format!("operator{symbol}"))
    }

    /// Arguments of a template, if there are some here. The outer `None`: not understood.
    #[expect(clippy::option_option, reason = "absent, and not understood")]
    fn arguments(&mut self) -> Option<Option<Vec<String>>> {
        if !self.is("<") {
            return Some(None);
        }
        self.at += 1;
        self.deeper(|it| {
            let mut list = Vec::new();
            if it.eat(">") {
                return Some(list);
            }
            loop {
                list.push(it.argument()?);
                if it.eat(">") {
                    return Some(list);
                }
                it.expect(",")?;
            }
        })
        .map(Some)
    }

    /// A type, a number, or an expression as it is written.
    fn argument(&mut self) -> Option<String> {
        let from = self.at;
        let ends = |it: &Self| it.is(",") || it.is(">");
        let number = self.number();
        if let Some(number) = number.filter(|_| ends(self)) {
            return Some(number);
        }
        self.at = from;
        let found = self.type_of(Top::Kept);
        if let Some(found) = found.filter(|_| ends(self)) {
            return Some(found);
        }
        self.at = from;
        self.expression()
    }

    /// `5`, `5ul`, `-1`, `true`, `'a'`, `(char)97`; of an enumeration, with its type.
    fn number(&mut self) -> Option<String> {
        let mut kind = None;
        if self.eat("(") {
            let builtin = self.builtin();
            kind = match builtin {
                Some(word) => (word == "bool").then_some(word),
                None => Some(self.path()?),
            };
            self.expect(")")?;
        }
        let sign = if self.eat("-") { "-" } else { "" };
        let value = match self.peek(0)? {
            Token::Word(word @ ("true" | "false")) => word.to_owned(),
            Token::Word(word) => {
                let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
                let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
                is_number.then(|| digits.to_owned())?
            }
            Token::Quoted(text) => {
                let mut letters = text.chars();
                match (letters.next()?, letters.next()) {
                    (letter, None) => u32::from(letter).to_string(),
                    _ => return None,
                }
            }
            _ => return None,
        };
        self.at += 1;
        Some(match (kind.as_deref(), value.as_str()) {
            (Some("bool"), "0") => "false".to_owned(),
            (Some("bool"), "1") => "true".to_owned(),
            (Some("bool") | None, _) => format!("{sign}{value}"),
            (Some(kind), _) => format!("({kind}){sign}{value}"),
        })
    }

    /// Text up to the end of a template's argument.
    fn expression(&mut self) -> Option<String> {
        let from = self.at;
        let mut angles = 0_u32;
        loop {
            match self.peek(0)? {
                Token::Mark("(" | "{" | "[") => {
                    self.at = self.closing(self.at)?;
                    continue;
                }
                Token::Mark(")" | "}" | "]") => return None,
                Token::Mark("," | ">") if angles == 0 => break,
                Token::Mark("<") => angles += 1,
                Token::Mark(">") => angles -= 1,
                _ => {}
            }
            self.at += 1;
        }
        Some(self.joined(from, self.at))
    }

    /// Types in parentheses. `(void)` is `()`.
    fn list(&mut self, are_parameters: bool) -> Option<String> {
        self.expect("(")?;
        let top = if are_parameters {
            Top::Dropped
        } else {
            Top::Kept
        };
        let mut list = Vec::new();
        while !self.eat(")") {
            if !list.is_empty() {
                self.expect(",")?;
            }
            list.push(self.type_of(top)?);
        }
        if list == ["void"] {
            list.clear();
        }
        Some(format!("({})", list.join(", ")))
    }

    fn type_of(&mut self, top: Top) -> Option<String> {
        self.deeper(|it| it.type_with(top, Groups::Read))
    }

    fn type_with(&mut self, top: Top, groups: Groups) -> Option<String> {
        let mut cv = self.cv();
        if let Some("struct" | "class" | "union" | "enum" | "typename") = self.word() {
            self.at += 1;
        }
        let core = match self.peek(0)? {
            Token::Mark("...") => {
                self.at += 1;
                return Some("...".to_owned());
            }
            // The inside of `(*)` and `(&)`.
            Token::Mark("*" | "&") => String::new(),
            _ => match self.builtin() {
                Some(word) => word,
                None => self.path()?,
            },
        };
        cv.add(self.cv());
        let mut text = core;
        // Of a parameter, the qualifiers of the value itself are not part of the function's type.
        let mut last = cv.text();
        loop {
            let more = match self.peek(0) {
                Some(Token::Mark(mark @ ("*" | "&"))) => {
                    self.at += 1;
                    mark.to_owned()
                }
                Some(Token::Word(
                    "const" | "volatile" | "restrict" | "__restrict" | "noexcept",
                )) => {
                    last.push_str(&self.cv().text());
                    continue;
                }
                Some(Token::Mark("(")) if groups == Groups::Read => self.list(false)?,
                Some(Token::Mark("[")) => self.balanced()?,
                Some(Token::Mark("::")) => {
                    self.at += 1;
                    self.expect("*")?;
                    "::*".to_owned()
                }
                Some(Token::Word(_) | Token::Anonymous) => {
                    let class = self.path()?;
                    self.expect("::")?;
                    self.expect("*")?;
                    format!(" {class}::*")
                }
                _ => break,
            };
            text.push_str(&std::mem::take(&mut last));
            text.push_str(&more);
        }
        if top == Top::Kept {
            text.push_str(&last);
        }
        Some(text)
    }

    fn cv(&mut self) -> Cv {
        let mut found = Cv::default();
        while let Some(word) = self.word() {
            match word {
                "const" => found.is_const = true,
                "volatile" => found.is_volatile = true,
                "restrict" | "__restrict" | "noexcept" => {}
                _ => break,
            }
            self.at += 1;
        }
        found
    }

    /// A type of one or more keywords, in one order.
    fn builtin(&mut self) -> Option<String> {
        let mut count = 0;
        let (mut longs, mut unsigned, mut signed) = (0, false, false);
        let mut base = None;
        while let Some(word) = self.word() {
            match word {
                "unsigned" => unsigned = true,
                "signed" => signed = true,
                "long" => longs += 1,
                "short" | "char" | "double" | "__int128" => base = Some(word),
                "int" => {}
                "void" | "bool" | "float" | "wchar_t" | "char8_t" | "char16_t" | "char32_t"
                    if count == 0 =>
                {
                    self.at += 1;
                    return Some(word.to_owned());
                }
                _ => break,
            }
            count += 1;
            self.at += 1;
        }
        if count == 0 {
            return None;
        }
        let sign = match base {
            _ if unsigned => "unsigned ",
            Some("char") if signed => "signed ",
            _ => "",
        };
        let base = match (base, longs) {
            (Some("double"), 1) => "long double",
            (Some(base), _) => base,
            (None, 0) => "int",
            (None, 1) => "long",
            (None, _) => "long long",
        };
        Some(format!("{sign}{base}"))
    }
}

/// Whether `const` of the value itself is part of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    Kept,
    Dropped,
}

/// Whether parentheses behind a type are part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    Read,
    Left,
}

#[derive(Clone, Copy, Default)]
struct Cv {
    is_const: bool,
    is_volatile: bool,
}

impl Cv {
    const fn add(&mut self, other: Self) {
        self.is_const |= other.is_const;
        self.is_volatile |= other.is_volatile;
    }

    fn text(self) -> String {
        let is_const = if self.is_const { " const" } else { "" };
        let is_volatile = if self.is_volatile { " volatile" } else { "" };
        format!("{is_const}{is_volatile}")
    }
}

/// Joins the components of a qualified name; names of the standard library are shortened.
fn spelled(mut components: Vec<Component>) -> String {
    if components.first().is_some_and(|it| it.name == "std") {
        components.retain(|it| !matches!(it.name.as_str(), "__cxx11" | "__1" | "__ndk1"));
        let mut before = None;
        for component in &mut components {
            before = shorten(component, before);
        }
    }
    let texts: Vec<String> = components.into_iter().map(Component::text).collect();
    let text = texts.join("::");
    if text == "std::nullptr_t" {
        return "decltype(nullptr)".to_owned();
    }
    text
}

/// `std::basic_string<char, std::char_traits<char>, std::allocator<char>>` is `std::string`, and so are its constructors.
/// Gives the shortened name.
fn shorten(component: &mut Component, class: Option<String>) -> Option<String> {
    let long = component.name.strip_prefix("basic_");
    if let (Some(long), Some(class)) = (long, &class)
        && class.trim_start_matches('w') == long
        && component.arguments.is_none()
    {
        component.name.clone_from(class);
        return None;
    }
    if let (Some(long), Some(class)) = (component.name.strip_prefix("~basic_"), &class)
        && class.trim_start_matches('w') == long
    {
        component.name = format!("~{class}");
        return None;
    }
    let list = component.arguments.as_mut()?;
    while list.len() > 1
        && (list.last()).is_some_and(|last| DEFAULTS.iter().any(|it| last.starts_with(it)))
    {
        list.pop();
    }
    let short = match (long?, list.as_slice()) {
        (long, [letter]) if letter == "char" => long.to_owned(),
        (long, [letter]) if letter == "wchar_t" => format!("w{long}"),
        _ => return None,
    };
    component.arguments = None;
    component.name.clone_from(&short);
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &str) -> CppName {
        parse(text, Detail::Full).unwrap_or_else(|| panic!("not understood: {text}"))
    }

    /// Spellings of one name are equal; the first is how it is shown.
    #[test]
    fn spellings() {
        let groups: &[&[&str]] = &[
            &[
                "ns::f(std::string const&, unsigned long)",
                "ns::f(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&, unsigned long)",
                "static void ns::f(const std::string &, unsigned long int);",
                "ns::f(const std::__1::basic_string<char> &,long unsigned)",
            ],
            &[
                "(anonymous namespace)::f(int)",
                "{anonymous}::f(signed int)",
                "<unnamed>::f(const int)",
                "`anonymous namespace'::f(int)",
            ],
            &[
                "A<5, true, 97>::f(std::map<std::string, int> const&)",
                "A<5ul, (bool)1, (char)97>::f(std::map<std::string, int, std::less<std::string>, \
                 std::allocator<std::pair<std::string const, int>>> const&)",
                "A<5, true, 'a'>::f(const std::map<std::string, int>&)",
            ],
            &[
                "A::operator std::string() const",
                "std::string A::operator std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >() const",
            ],
            &["A::operator()(int) const", "bool A::operator ()(int) const"],
            &[
                "A::operator new[](unsigned long)",
                "void *A::operator new [] (unsigned long)",
            ],
            &[
                "A::operator\"\"_eur(unsigned long long)",
                "A A::operator \"\" _eur(unsigned long long)",
            ],
            &["A::operator<<int>(A)", "bool A::operator< <int>(A)"],
            &["A::operator<<<int>(A)", "A::operator<< <int>(A)"],
            &["A::operator->()", "A *A::operator ->(void)"],
            &[
                "f(int)::{lambda(long)#2}::operator()(long) const",
                "f(int)::'lambda0'(long)::operator()(long) const",
            ],
            &[
                "f(void (*)(int, char const*), int const(&)[4])",
                "f(void (*)(int, const char *), int const (&) [4])",
            ],
            &[
                "f(long A::*, long (A::*)(int) const)",
                "int f(long A::*,long(A::*)(int) const)",
            ],
            &["f(char const* const*)", "f(const char *const *const)"],
            &["f() const &", "f(void) const&"],
            &["thing(int) [clone .isra.0]", "thing(int) [clone.isra.0]"],
            &[
                "non-virtual thunk to A::f()",
                "{virtual override thunk({offset(-16)}, A::f())}",
            ],
        ];
        for group in groups {
            let first = full(group[0]);
            for other in &group[1..] {
                assert_eq!(full(other), first, "{other}");
            }
        }
    }

    /// Names that differ stay different.
    #[test]
    fn differences() {
        for (a, b) in [
            ("f(int)", "f(unsigned)"),
            ("f(int) const", "f(int)"),
            ("f(int*)", "f(int const*)"),
            ("f<1>()", "f<2>()"),
            ("f<int>()", "f()"),
            ("ns::f()", "f()"),
            ("A::operator<()", "A::operator<<()"),
            ("A::~A()", "A::A()"),
            (
                "f(int)::{lambda(long)#2}::operator()(long) const",
                "f(int)::{lambda(long)#1}::operator()(long) const",
            ),
            ("(anonymous namespace)::f()", "f()"),
            (
                "f(std::vector<int, my::allocator<int>>)",
                "f(std::vector<int>)",
            ),
            ("f(int) [clone .isra.0]", "f(int)"),
            ("virtual thunk to A::f()", "A::f()"),
        ] {
            assert_ne!(full(a), full(b), "{a} {b}");
        }
    }

    /// The result's type and the parameters are separated from the name.
    #[test]
    fn parts() {
        for (text, path, parameters) in [
            (
                "long shop::many<int, char>(int, char)",
                "shop::many<int, char>",
                Some("(int, char)"),
            ),
            ("std::map<int, A> const& B::get", "B::get", None),
            (
                "unsigned long A::operator unsigned long() const",
                "A::operator unsigned long",
                Some("()"),
            ),
            (
                "std::ostream &ns::operator<<(std::ostream&, A const&)",
                "ns::operator<<",
                Some("(std::ostream&, A const&)"),
            ),
            (
                "std::string::append(char const*)",
                "std::string::append",
                Some("(char const*)"),
            ),
            (
                "std::__cxx11::basic_string<char>::basic_string(char const*)",
                "std::string::string",
                Some("(char const*)"),
            ),
            ("f(struct {...} &&)", "f", None),
            ("plain", "plain", None),
        ] {
            let found = full(text);
            assert_eq!(
                (found.path.as_str(), found.parameters.as_deref()),
                (path, parameters),
                "{text}"
            );
        }
        let debugger = |text| parse(text, Detail::Debugger).expect("understood").path;
        assert_eq!(
            debugger("call<main(int, char**)::<lambda(std::string)> >"),
            debugger("call<main::{lambda(std::string)#3}>")
        );
    }

    proptest::proptest! {
        /// No text makes the parser panic, and what it shows is read again as the same name.
        #[test]
        fn any_pieces(pieces in proptest::collection::vec(proptest::sample::select(vec![
            "a", "::", "<", ">", "(", ")", "operator", "const", "*", "&", ",", " ", "unsigned", "long", "{", "}", "lambda",
            "#1", "(anonymous namespace)", "'", "std", "basic_string", "char", "[", "]", "5ul", "~", "\"\"", "é", "...",
        ]), 0..16)) {
            let text = pieces.concat();
            let _ = parse(&text, Detail::Debugger);
            if let Some(name) = parse(&text, Detail::Full) {
                let shown = format!("{}{}", name.path, name.parameters.clone().unwrap_or_default());
                let again = parse(&shown, Detail::Full).map(|it| (it.path, it.parameters));
                proptest::prop_assert_eq!(again, Some((name.path, name.parameters)), "{}", text);
            }
        }
    }
}
