//! Rules for texts that may hold personal data.
//!
//! A rule is applied where the text of a mark is read, so that nothing later, in memory or in the trace, has more. Where a
//! text can be understood in two ways, the one that leaves out more is taken.

use std::fmt;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::iter::Peekable;
use std::str::{CharIndices, FromStr};

use serde::Deserialize;

/// In place of what is left out.
const LEFT_OUT: char = '?';

/// Part of a text that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Of SQL and the like: all but literals and comments. A list of literals becomes one.
    Literals,
    /// Of a URL or the first line of a request: all but the query, the fragment, and who asks.
    Query,
    /// The same, without the parts of the path that have a digit.
    Route,
    /// The first word.
    FirstWord,
    /// A word of 16 hexadecimal digits: within a recording the same for equal texts, and no others.
    Hash,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Literals,
        Self::Query,
        Self::Route,
        Self::FirstWord,
        Self::Hash,
    ];

    /// Its name in options and presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Literals => "literals",
            Self::Query => "query",
            Self::Route => "route",
            Self::FirstWord => "first-word",
            Self::Hash => "hash",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = Self::ALL.into_iter().find(|it| it.name() == text);
        rule.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no rule '{text}'; there are {names}")
        })
    }
}

/// A rule of one recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    rule: Rule,
    /// Nobody has it once the recording has ended.
    key: [u64; 2],
}

impl Redaction {
    /// With a new key.
    pub(crate) fn new(rule: Rule) -> Self {
        let drawn = RandomState::new();
        Self {
            rule,
            key: [drawn.hash_one(0), drawn.hash_one(1)],
        }
    }

    /// Returns the part of a text that is recorded.
    #[must_use]
    pub(crate) fn apply(&self, text: &str) -> String {
        match self.rule {
            Rule::Literals => without_literals(text),
            Rule::Query => without_query(text, |part| part),
            Rule::Route => without_query(text, |part| {
                match part.contains(|it: char| it.is_ascii_digit()) {
                    true => "?",
                    false => part,
                }
            }),
            Rule::FirstWord => match text.trim_start().split_once(char::is_whitespace) {
                Some((first, _)) => format!("{first} {LEFT_OUT}"),
                None => text.trim_start().to_owned(),
            },
            Rule::Hash => {
                let mut hasher = DefaultHasher::new();
                (self.key, text).hash(&mut hasher);
                format!("{:016x}", hasher.finish())
            }
        }
    }
}

/// A URL or a request line without query, fragment and user; `part` says what stays of each part of the path.
fn without_query<'a>(text: &'a str, part: impl Fn(&'a str) -> &'a str) -> String {
    let one = |word: &'a str| {
        let Some(path) = word.find('/') else {
            // A method, a version without a slash, a path that was not read.
            return word.split(['?', '#', ';']).next().unwrap_or("").to_owned();
        };
        if word.starts_with("HTTP/") {
            return word.to_owned();
        }
        let (host, path) = match word.split_once("://") {
            Some((scheme, rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (host, path) = rest.split_at(end);
                let host = host.rsplit_once('@').map_or(host, |it| it.1);
                (format!("{scheme}://{host}"), path)
            }
            None => (word[..path].to_owned(), &word[path..]),
        };
        let end = path.find(['?', '#', ';']);
        let (path, rest) = path.split_at(end.unwrap_or(path.len()));
        let path: Vec<&str> = path.split('/').map(&part).collect();
        let mark = if rest.starts_with('?') { "?" } else { "" };
        format!("{host}{}{mark}", path.join("/"))
    };
    let line = text.lines().next().unwrap_or_default();
    // Spaces in a query are not always encoded: behind one, only the version does not belong to the query.
    let (path, version) = match line.rsplit_once(' ') {
        Some((path, version)) if version.starts_with("HTTP/") => (path, Some(version)),
        _ => (line, None),
    };
    let end = path.find(['?', '#', ';']);
    let end = end.and_then(|it| Some(it + path[it..].find(' ')?));
    let words = path[..end.unwrap_or(path.len())].split(' ').map(one);
    let words: Vec<String> = words.chain(version.map(str::to_owned)).collect();
    words.join(" ")
}

/// SQL and the like without literals and comments.
fn without_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.char_indices().peekable();
    while let Some((at, it)) = rest.next() {
        let next = rest.peek().map(|it| it.1);
        // Both: a comment or a literal may lie between.
        let in_word = out.ends_with(is_of_word) && text[..at].ends_with(is_of_word);
        match it {
            '\'' | '"' => {
                let is_clear = skip_quoted(&mut rest, it);
                literal(&mut out);
                if !is_clear {
                    break;
                }
            }
            '$' if !in_word => match dollar_quote(&text[at..]) {
                Some(length) => {
                    literal(&mut out);
                    skip_to(&mut rest, at + length);
                }
                // A parameter.
                None => {
                    out.push('$');
                    while let Some((_, digit)) = rest.next_if(|it| it.1.is_ascii_digit()) {
                        out.push(digit);
                    }
                }
            },
            // A name, which may have a quote.
            '`' => {
                out.push(it);
                for (_, it) in rest.by_ref() {
                    out.push(it);
                    if it == '`' {
                        break;
                    }
                }
            }
            '#' | '-' if it == '#' || next == Some('-') => {
                let line = text[at..].lines().next().unwrap_or_default();
                // For some servers no comment, and a text may begin there.
                if !line.starts_with("-- ") && line.contains(['\'', '"']) {
                    break;
                }
                skip_to(&mut rest, at + line.len());
            }
            '/' if next == Some('*') => {
                let end = text[at + 2..].find("*/");
                let end = end.map_or(text.len(), |it| at + 2 + it + 2);
                // For some servers it ends later.
                if text[at + 2..end].contains("/*") {
                    break;
                }
                skip_to(&mut rest, end);
            }
            '0'..='9' if !in_word => {
                skip_number(&mut rest);
                literal(&mut out);
            }
            '.' if !in_word && next.is_some_and(|it| it.is_ascii_digit()) => {
                skip_number(&mut rest);
                literal(&mut out);
            }
            _ => out.push(it),
        }
    }
    out
}

/// Adds a literal that is left out; after another one and a comma they are one.
fn literal(out: &mut String) {
    let before = out.trim_end();
    if let Some(list) = before.strip_suffix(',')
        && list.trim_end().ends_with(LEFT_OUT)
    {
        out.truncate(list.trim_end().len());
        return;
    }
    out.push(LEFT_OUT);
}

type Rest<'a> = Peekable<CharIndices<'a>>;

/// Skips to behind the closing quote. Returns whether it is clear which that is: a backslash before a quote is part of the
/// text for some servers, and for others it is not.
fn skip_quoted(rest: &mut Rest<'_>, quote: char) -> bool {
    let mut last = ' ';
    while let Some((_, it)) = rest.next() {
        if it == quote {
            if last == '\\' {
                return false;
            }
            // Twice: a quote in the text.
            if rest.next_if(|it| it.1 == quote).is_none() {
                return true;
            }
        }
        last = it;
    }
    false
}

/// Length of a text in dollars at the start: `$$..$$`, `$tag$..$tag$`; up to the end if it is not closed.
fn dollar_quote(text: &str) -> Option<usize> {
    let tag = text[1..].find('$')? + 2;
    let name = &text[1..tag - 1];
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    if !name.chars().all(is_name) || name.starts_with(|it: char| it.is_ascii_digit()) {
        return None;
    }
    let end = text[tag..].find(&text[..tag]);
    Some(end.map_or(text.len(), |it| tag + it + tag))
}

fn skip_to(rest: &mut Rest<'_>, end: usize) {
    while rest.next_if(|it| it.0 < end).is_some() {}
}

fn is_of_word(it: char) -> bool {
    it.is_alphanumeric() || it == '_' || it == '$'
}

/// Skips the rest of a number: `1.5e-3`, `0x1F`, `1_000`.
fn skip_number(rest: &mut Rest<'_>) {
    let mut last = '0';
    while let Some((_, it)) = rest.next_if(|it| {
        let is_sign = matches!(it.1, '+' | '-') && matches!(last, 'e' | 'E');
        it.1.is_alphanumeric() || matches!(it.1, '.' | '_') || is_sign
    }) {
        last = it;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rule: Rule, cases: &[(&str, &str)]) {
        let redaction = Redaction::new(rule);
        for (text, expected) in cases {
            assert_eq!(redaction.apply(text), *expected, "{text}");
        }
    }

    #[test]
    fn literals() {
        all(
            Rule::Literals,
            &[
                (
                    "select * from t1 where a = 'x' and b=12.5e-3",
                    "select * from t1 where a = ? and b=?",
                ),
                (
                    "insert into t values (1, 'it''s', NULL, 0x1F)",
                    "insert into t values (?, NULL, ?)",
                ),
                (
                    "select a from t where b in (1, 2 ,3,'4')",
                    "select a from t where b in (?)",
                ),
                ("select \"name\" from t", "select ? from t"),
                (
                    "select $1, $tag$it's $5$tag$ from a$b",
                    "select $1, ? from a$b",
                ),
                ("select $$a$$", "select ?"),
                (
                    "select 1 -- of user 7\nfrom t /* for 'me' */ where x",
                    "select ? \nfrom t  where x",
                ),
                (
                    "select a # of user\nfrom t2.c where d<.5",
                    "select a \nfrom t2.c where d<?",
                ),
                // Cut short.
                ("select 'secr", "select ?"),
                ("select $a$ secr", "select ?"),
                ("select 1 /* secr", "select ? "),
                (
                    "select 1 or/**/2 from `it's` where a = 'x'",
                    "select ? or? from `it's` where a = ?",
                ),
                // A comment, or not; one in another.
                ("a # 'two\nlines'", "a "),
                ("a --'two\nlines'", "a "),
                ("a -- it's\n = 1", "a \n = ?"),
                ("a /* b /* c */ d */", "a "),
                // The second quote ends the text, or not.
                (r"select '\', 'secret'", "select ?"),
                (r"select 'it\'s', secret", "select ?"),
                ("", ""),
                ("é = 'é' 1é", "é = ? ?"),
            ],
        );
    }

    #[test]
    fn query() {
        all(
            Rule::Query,
            &[
                ("GET /a/b?q=me&x HTTP/1.1", "GET /a/b? HTTP/1.1"),
                ("GET /a/b HTTP/1.1", "GET /a/b HTTP/1.1"),
                ("/a;jsessionid=1?q", "/a"),
                ("/a#me", "/a"),
                ("/a?q=cut sh", "/a?"),
                ("GET /a?q=not encoded HTTP/1.1", "GET /a? HTTP/1.1"),
                (
                    "GET http://me:secret@host/a/1?x HTTP/1.1",
                    "GET http://host/a/1? HTTP/1.1",
                ),
                ("CONNECT host:443?x HTTP/1.1", "CONNECT host:443 HTTP/1.1"),
                ("GET / HTTP/1.1\r\nCookie: secret", "GET / HTTP/1.1"),
                ("", ""),
            ],
        );
    }

    #[test]
    fn route() {
        all(
            Rule::Route,
            &[
                (
                    "GET /users/123/orders/a7f?q=1 HTTP/1.1",
                    "GET /users/?/orders/?? HTTP/1.1",
                ),
                ("/v1/é/x", "/?/é/x"),
                ("https://h1:80/x2", "https://h1:80/?"),
            ],
        );
    }

    #[test]
    fn first_word() {
        all(
            Rule::FirstWord,
            &[("get key key2", "get ?"), (" quit", "quit"), ("", "")],
        );
    }

    /// Equal texts are equal in one recording, and in another they have another word.
    #[test]
    fn hash() {
        let [one, other] = [Rule::Hash; 2].map(Redaction::new);
        assert_eq!(one.apply("me"), one.apply("me"));
        assert_ne!(one.apply("me"), one.apply("you"));
        assert_ne!(one.apply("me"), other.apply("me"));
        assert_eq!(one.apply("").len(), 16);
    }

    /// Rules are known by their names, and nothing else.
    #[test]
    fn names() {
        for rule in Rule::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
        }
        assert_eq!(
            "sql".parse::<Rule>(),
            Err("no rule 'sql'; there are literals, query, route, first-word, hash".to_owned())
        );
    }
}
