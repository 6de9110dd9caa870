//! Parser of argument expressions, left to right.

use super::{
    Behind, Expr, Fault, Ids, Path, RETVAL, STRING_MAX, Step, Type, type_named, type_names,
};
use crate::arch::Register;

/// Maximum nesting of parentheses and `*`. The eBPF program supports fewer dereferences.
const MAX_DEPTH: u32 = 16;

/// Parses the expression that is `text[start..end]`.
///
/// # Errors
/// The first fault, with its byte in `text`.
pub(crate) fn parse(text: &str, start: usize, end: usize) -> Result<Expr, Fault> {
    let mut parser = Parser {
        text: &text[..end],
        at: start,
        depth: 0,
    };
    let expr = parser.sum()?;
    let expr = parser.suffix(expr)?;
    parser.space();
    if parser.at < end {
        let rest = &text[parser.at..end];
        return Err(if rest.starts_with("->") || rest.starts_with('.') {
            Fault::new(parser.at, "only a named argument and retval have fields")
                .hint("start with its name (pkt->hdr.id), or write the offset: *(arg1+16):u32")
        } else {
            Fault::new(parser.at, format!("'{}' can't follow here", first(rest)))
                .hint("an expression is a value, then + or - and a number: *(arg1+16):u32")
        });
    }
    Ok(expr)
}

/// Parses `ARRAY[COUNT]:TYPE` that is `text[start..end]`.
///
/// # Errors
/// The first fault, with its byte in `text`.
pub(crate) fn parse_ids(text: &str, start: usize, end: usize) -> Result<Ids, Fault> {
    const FORM: &str = "the ids of a batch are ids=ARRAY[COUNT]:TYPE, for example ids=arg2[arg3]:u64; behind pointers \
        ids=arg2[arg3]->16:u64";
    let mut parser = Parser {
        text: &text[..end],
        at: start,
        depth: 0,
    };
    let array = parser.sum()?;
    parser.need('[').map_err(|fault| fault.hint(FORM))?;
    let count = parser.sum()?;
    let count = parser.suffix(count)?;
    parser.need(']').map_err(|fault| fault.hint(FORM))?;
    let behind = parser.behind().map_err(|fault| fault.hint(FORM))?;
    parser.space();
    let at = parser.at;
    let r#type = parser.type_suffix()?;
    if r#type == Some(Type::Str) {
        return Err(Fault::new(at, "item ids must be numbers").hint(FORM));
    }
    parser.space();
    if parser.at < end {
        let rest = first(&text[parser.at..end]);
        return Err(Fault::new(parser.at, format!("'{rest}' can't follow here")).hint(FORM));
    }
    Ok(Ids {
        array,
        count,
        behind,
        r#type,
        at: start,
    })
}

/// First character of a text, for messages.
fn first(text: &str) -> String {
    text.chars().take(1).collect()
}

/// Recursive-descent parser; `text` ends where the expression must end.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes a character if it is next.
    fn take(&mut self, wanted: char) -> bool {
        self.space();
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn need(&mut self, wanted: char) -> Result<(), Fault> {
        if self.take(wanted) {
            return Ok(());
        }
        let found = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("'{}'", first(rest)),
        };
        Err(Fault::new(
            self.at,
            format!("expected '{wanted}', found {found}"),
        ))
    }

    /// Letters, digits and underscores.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// A value and the numbers added to it.
    fn sum(&mut self) -> Result<Expr, Fault> {
        let mut expr = self.unary()?;
        loop {
            let negative = if self.take('+') {
                false
            } else if !self.rest().starts_with("->") && self.take('-') {
                true
            } else {
                return Ok(expr);
            };
            self.space();
            let at = self.at;
            let word = self.word();
            let value = number(word).ok_or_else(|| {
                Fault::new(at, "only a number can be added or taken away")
                    .hint("for example arg1+8 or arg1-0x10")
            })?;
            let value = if negative { -value } else { value };
            expr = match expr {
                Expr::Add(inner, before) => Expr::Add(inner, before.saturating_add(value)),
                other => Expr::Add(Box::new(other), value),
            };
        }
    }

    /// Parses a value, with or without `*`.
    fn unary(&mut self) -> Result<Expr, Fault> {
        self.space();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::new(
                self.at,
                format!("more than {MAX_DEPTH} levels within one another"),
            ));
        }
        let expr = if self.take('*') {
            let address = self.unary_without_type()?;
            let r#type = self.type_suffix()?;
            Expr::Deref(Box::new(address), r#type)
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Parses the operand of `*`: the type after it belongs to the outermost `*`.
    fn unary_without_type(&mut self) -> Result<Expr, Fault> {
        self.space();
        if self.rest().starts_with('*') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(Fault::new(
                    self.at,
                    format!("more than {MAX_DEPTH} levels within one another"),
                ));
            }
            self.at += 1;
            let inner = self.unary_without_type()?;
            self.depth -= 1;
            return Ok(Expr::Deref(Box::new(inner), None));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        self.space();
        let at = self.at;
        if self.take('(') {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(Fault::new(
                    at,
                    format!("more than {MAX_DEPTH} levels within one another"),
                ));
            }
            let inner = self.sum()?;
            let inner = self.suffix(inner)?;
            self.need(')')?;
            self.depth -= 1;
            return Ok(inner);
        }
        if self.take('%') {
            let name = self.word();
            return Register::from_name(name).map(Expr::Reg).ok_or_else(|| {
                Fault::new(at, format!("no register '%{name}'"))
                    .hint(format!("registers: {}", Register::names()))
            });
        }
        let word = self.word();
        self.named(word, at)
    }

    /// A value that starts with a word.
    fn named(&mut self, word: &str, at: usize) -> Result<Expr, Fault> {
        if word == RETVAL {
            // Alone it is a register, with or without debug information.
            return Ok(match self.path(word)? {
                Expr::Path(path) if path.steps.is_empty() => Expr::Retval,
                path => path,
            });
        }
        if word == "str" && self.take('(') {
            return self.string();
        }
        if let Some(digits) = word.strip_prefix("arg")
            && !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
        {
            return match digits.parse::<u32>() {
                Ok(n @ 1..=64) => Ok(Expr::Arg(n)),
                _ => Err(Fault::new(at, format!("no argument '{word}'"))
                    .hint("arguments count from 1: arg1, arg2, ...")),
            };
        }
        if word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return self.path(word);
        }
        self.space();
        let what = match (word, self.rest().chars().next()) {
            ("", None) => "a value is missing".to_owned(),
            ("", Some(c)) => format!("expected a value, found '{c}'"),
            (word, _) => format!("unknown value '{word}'"),
        };
        Err(Fault::new(at, what).hint(
            "values: arg1, %rdi, retval, *(arg1+16):u32, str(arg2), str(arg2, 128), str(arg2, arg3), pkt->hdr.id",
        ))
    }

    /// Parses `->OFFSET` or `->FIELD.FIELD` after an array, if present.
    fn behind(&mut self) -> Result<Option<Behind>, Fault> {
        self.space();
        if !self.rest().starts_with("->") {
            return Ok(None);
        }
        let start = self.at + 2;
        let digits = self.text[start..].trim_start();
        if digits.starts_with(|c: char| c.is_ascii_digit()) {
            self.at = start;
            self.space();
            let (at, word) = (self.at, self.word());
            let offset = number(word);
            let offset = offset.ok_or_else(|| Fault::new(at, format!("'{word}' is no offset")))?;
            return Ok(Some(Behind::Offset(offset)));
        }
        let at = self.at;
        match self.path("")? {
            Expr::Path(path)
                if !path
                    .steps
                    .iter()
                    .skip(1)
                    .any(|it| matches!(it, Step::Arrow(_))) =>
            {
                Ok(Some(Behind::Field(path.steps)))
            }
            _ => Err(Fault::new(at, "ids are behind one pointer at most")),
        }
    }

    /// Parses the fields after an argument's name.
    fn path(&mut self, root: &str) -> Result<Expr, Fault> {
        let mut path = Path {
            root: root.to_owned(),
            steps: Vec::new(),
        };
        loop {
            self.space();
            let arrow = self.rest().starts_with("->");
            // Two dots separate START and END.
            let dot = self.rest().starts_with('.') && !self.rest().starts_with("..");
            if !arrow && !dot {
                return Ok(Expr::Path(path));
            }
            self.at += if arrow { 2 } else { 1 };
            self.space();
            let at = self.at;
            let field = self.word();
            if field.is_empty() {
                return Err(Fault::new(at, "the name of a field is missing"));
            }
            if path.steps.len() >= MAX_DEPTH as usize {
                return Err(Fault::new(
                    at,
                    format!("more than {MAX_DEPTH} fields in a row"),
                ));
            }
            path.steps.push(if arrow {
                Step::Arrow(field.to_owned())
            } else {
                Step::Dot(field.to_owned())
            });
        }
    }

    /// `str(` was read.
    fn string(&mut self) -> Result<Expr, Fault> {
        let address = Box::new(self.sum()?);
        if !self.take(',') {
            self.need(')')?;
            return Ok(Expr::Str(address, None));
        }
        self.space();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let most = self.most()?;
            self.need(')')?;
            return Ok(Expr::Str(address, Some(most)));
        }
        let length = self.sum()?;
        let at = self.at;
        let length = self.suffix(length)?;
        if matches!(
            length,
            Expr::Str(..) | Expr::Text(..) | Expr::Deref(_, Some(Type::Str))
        ) {
            return Err(Fault::new(
                at,
                "the length of a string must not be a string",
            ));
        }
        let most = match self.take(',') {
            true => Some(self.most()?),
            false => None,
        };
        self.need(')')?;
        Ok(Expr::Text(address, Box::new(length), most))
    }

    /// Parses the maximum number of bytes of a string.
    fn most(&mut self) -> Result<u32, Fault> {
        self.space();
        let at = self.at;
        let value = number(self.word()).and_then(|n| u32::try_from(n).ok());
        let most = value.filter(|n| (1..=STRING_MAX).contains(n));
        most.ok_or_else(|| {
            Fault::new(at, format!("of a string 1 to {STRING_MAX} bytes are kept"))
                .hint("str(ADDRESS), str(ADDRESS, MOST), str(ADDRESS, LENGTH), str(ADDRESS, LENGTH, MOST)")
        })
    }

    /// Parses a type after a value that is not a dereference.
    fn suffix(&mut self, expr: Expr) -> Result<Expr, Fault> {
        self.space();
        let at = self.at;
        match self.type_suffix()? {
            None => Ok(expr),
            Some(Type::Str) => Err(Fault::new(at, "only a dereference reads a string")
                .hint("write str(X) for the string at address X")),
            Some(_) if matches!(expr, Expr::Str(..) | Expr::Text(..)) => {
                Err(Fault::new(at, "a string has no other type"))
            }
            Some(r#type) => Ok(Expr::Cast(Box::new(expr), r#type)),
        }
    }

    /// Parses `:TYPE`, if present.
    fn type_suffix(&mut self) -> Result<Option<Type>, Fault> {
        if !self.take(':') {
            return Ok(None);
        }
        self.space();
        let at = self.at;
        let word = self.word();
        type_named(word).map(Some).ok_or_else(|| {
            let names: Vec<&str> = type_names().collect();
            Fault::new(at, format!("no type '{word}'")).hint(format!("types: {}", names.join(" ")))
        })
    }
}

/// A decimal or `0x` number.
pub(crate) fn number(word: &str) -> Option<i64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with(['+', '-']) => i64::from_str_radix(hex, 16).ok(),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults have the position and say what is allowed there.
    #[test]
    fn faults_point() {
        let fault = |text: &str| parse(text, 0, text.len()).expect_err(text);
        let f = fault("*(%rzx+8):u32");
        assert_eq!((f.at, f.what.as_str()), (2, "no register '%rzx'"));
        assert!(f.hint.expect("hint").contains("%rdi"));
        let f = fault("*(arg1+8):u24");
        assert_eq!((f.at, f.what.as_str()), (10, "no type 'u24'"));
        assert!(f.hint.expect("hint").contains("u32"));
        assert_eq!(fault("arg0").at, 0);
        assert_eq!(fault("*(arg1+8").what, "expected ')', found the end");
        assert!(fault("pkt->").what.contains("field is missing"));
        assert!(fault("arg1->id").what.contains("only a named argument"));
        assert!(fault("retval->").what.contains("field is missing"));
        assert_eq!(parse("retval", 0, 6), Ok(Expr::Retval));
        assert!(parse("retval->a.b", 0, 11).is_ok_and(|it| it.uses_retval() && it.has_path()));
        assert!(
            fault(&format!("a{}", "->b".repeat(100)))
                .what
                .contains("16 fields")
        );
        assert_eq!(fault("").what, "a value is missing");
        assert!(fault("str(arg1, 9999)").what.contains("464"));
        assert!(fault("arg1+arg2").what.contains("only a number"));
        assert!(fault(&"(".repeat(10_000)).what.contains("levels"));
        assert!(fault(&"*".repeat(10_000)).what.contains("levels"));
    }
}
