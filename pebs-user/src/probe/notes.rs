//! Remarks on probes; functions with the same finding share one.

/// Maximum number of functions named in a remark.
const NAMED: usize = 3;

/// Remarks in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Note>);

#[derive(Debug, PartialEq, Eq)]
enum Note {
    Text(String),
    Returns {
        names: Vec<String>,
        how: String,
        reason: String,
    },
    Jumps {
        names: Vec<String>,
        first_target: String,
    },
    Clones(Vec<String>),
}

impl Notes {
    /// Adds a remark, once.
    pub(super) fn push(&mut self, text: String) {
        let new = Note::Text(text);
        if !self.0.contains(&new) {
            self.0.push(new);
        }
    }

    /// Notes that a function is probed at the target of its jump.
    pub(super) fn jumps(&mut self, name: &str, target: String) {
        let known = self.0.iter_mut().find_map(|note| match note {
            Note::Jumps { names, .. } => Some(names),
            _ => None,
        });
        match known {
            Some(names) if names.iter().any(|it| it == name) => {}
            Some(names) => names.push(name.to_owned()),
            None => self.0.push(Note::Jumps {
                names: vec![name.to_owned()],
                first_target: target,
            }),
        }
    }

    /// Notes that `argN` is read in a copy that the compiler made of a function.
    pub(super) fn clones(&mut self, name: &str) {
        let known = self.0.iter_mut().find_map(|note| match note {
            Note::Clones(names) => Some(names),
            _ => None,
        });
        match known {
            Some(names) if names.iter().any(|it| it == name) => {}
            Some(names) => names.push(name.to_owned()),
            None => self.0.push(Note::Clones(vec![name.to_owned()])),
        }
    }

    /// Notes how the returns of a function are marked, and why.
    pub(super) fn returns(&mut self, name: &str, how: String, reason: &str) {
        for note in &mut self.0 {
            if let Note::Returns {
                names,
                how: known,
                reason: same,
            } = note
                && *known == how
                && same == reason
            {
                // Instances of one generic function have the same name.
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
                return;
            }
        }
        self.0.push(Note::Returns {
            names: vec![name.to_owned()],
            how,
            reason: reason.to_owned(),
        });
    }

    /// The sentences.
    pub(super) fn texts(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|note| match note {
            Note::Text(text) => text,
            Note::Returns { names, how, reason } => {
                format!("returns of {} {how}: {reason}", listed(&names))
            }
            Note::Jumps {
                names,
                first_target,
            } => match names.as_slice() {
                [name] => format!(
                    "{name} only jumps to {first_target}: that is probed, whoever calls it"
                ),
                _ => format!(
                    "{} only jump to other functions (the first to {first_target}): those are probed, whoever calls them",
                    listed(&names)
                ),
            },
            Note::Clones(names) => format!(
                "argN is what {} got: the compiler may have moved or removed arguments in such a copy of a function; \
                 with debug information their names find them",
                listed(&names)
            ),
        })
    }
}

/// Some names and the number of the others, which is never one.
pub(super) fn listed(names: &[String]) -> String {
    match names.get(..NAMED).filter(|_| names.len() > NAMED + 1) {
        Some(first) => format!("{} and {} more", first.join(", "), names.len() - NAMED),
        None => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Similar functions share a sentence; other findings have their own.
    #[test]
    fn one_for_all() {
        let mut notes = Notes::default();
        for n in 0..120 {
            notes.returns(&format!("f{n}"), "by uretprobe".into(), "plain");
            notes.push("said once".into());
        }
        notes.returns("g", "at 1 ret".into(), "plain");
        notes.returns("h", "at 1 ret".into(), "plain");
        let texts: Vec<String> = notes.texts().collect();
        let expect = [
            "returns of f0, f1, f2 and 117 more by uretprobe: plain",
            "said once",
            "returns of g, h at 1 ret: plain",
        ];
        assert_eq!(texts, expect);
    }
}
