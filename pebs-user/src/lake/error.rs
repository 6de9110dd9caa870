//! Errors of a lake.

use std::path::PathBuf;

use thiserror::Error;

use crate::failure::Hint;
use crate::store::reader::ReadError;

/// Longest text of a store that is shown.
const LONGEST: usize = 400;

/// An error of a lake.
#[derive(Debug, Error)]
pub enum LakeError {
    /// It is not the address of a lake.
    #[error("cannot use '{address}' as a lake: {why}")]
    Address { address: String, why: String },
    /// This program was compiled without what it takes.
    #[error("cannot open {address}: this program knows lakes in directories only")]
    NoStores { address: String },
    /// A host or a label has characters that it can't have.
    #[error("'{text}' cannot be {what}")]
    Name { text: String, what: &'static str },
    /// The store did not do what it was asked for.
    #[error("cannot {what}: {said}")]
    Store {
        what: String,
        said: String,
        fault: Fault,
    },
    /// The trace can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace is not pushed as it is.
    #[error("cannot push {}: {why}", trace.display())]
    Refused {
        trace: PathBuf,
        why: String,
        hint: String,
    },
    /// The lake has no such trace.
    #[error("no trace {id} in {lake}")]
    NoTrace { id: String, lake: String },
    /// An object is not as its manifest says.
    #[error("{object} is damaged: {why}")]
    Damaged { object: String, why: String },
    /// A file of this machine.
    #[error("cannot {what}")]
    Io {
        what: String,
        source: std::io::Error,
    },
}

/// Failure of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object or bucket.
    Missing,
    /// Credentials are missing, or do not suffice.
    Denied,
    /// Something else: it may work again later.
    Other,
}

impl LakeError {
    /// An error of the store, in one line and without what may be secret: queries of addresses can be signatures.
    pub(super) fn store(what: impl Into<String>, error: &object_store::Error) -> Self {
        use object_store::Error as E;
        let fault = match error {
            E::NotFound { .. } => Fault::Missing,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Fault::Denied,
            _ => Fault::Other,
        };
        Self::Store {
            what: what.into(),
            said: said(&error.to_string()),
            fault,
        }
    }

    /// Whether the same attempt fails as long as nobody changes anything about the trace.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::Read(_) | Self::Name { .. }
        )
    }
}

fn said(text: &str) -> String {
    let shown = |word: &str| match word.split_once("://") {
        Some(_) => word.split('?').next().unwrap_or_default().to_owned(),
        None => word.to_owned(),
    };
    let words: Vec<String> = text.split_whitespace().map(shown).collect();
    let text = words.join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text,
    }
}

impl Hint for LakeError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Address { .. } => {
                "there are s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///DIR and a path"
            }
            Self::NoStores { .. } => {
                "packages leave object stores out, for their size: 'cargo install pebs-trace' has them; or mount the bucket and give its directory"
            }
            Self::Name { .. } => {
                "a host has letters, digits, '.', '_' and '-'; a label is KEY=VALUE in one line, its key without spaces"
            }
            Self::Store {
                fault: Fault::Missing,
                ..
            } => "a bucket is not made: make it, or correct the address",
            Self::Store {
                fault: Fault::Denied,
                ..
            } => {
                "credentials are those of the environment (AWS_.., GOOGLE_.., AZURE_..) or of the instance; \
                 'pebs-trace guide lake' has what they must allow"
            }
            Self::Store { .. } => {
                "'pebs-trace guide lake' has the settings; a push goes on where it stopped"
            }
            Self::Read(error) => return error.hint(),
            Self::Refused { hint, .. } => hint,
            Self::NoTrace { .. } => "'pebs-trace traces LAKE' lists what there is",
            Self::Damaged { .. } => "push the trace again, if there is a copy of it",
            Self::Io { .. } => return None,
        };
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store's error becomes one line of bounded length, without what is behind the question mark of an address.
    #[test]
    fn one_line() {
        let text = "Error\n <Code>at https://h/x?sig=secret&y</Code>\t  end";
        assert_eq!(said(text), "Error <Code>at https://h/x end");
        assert!(said(&"long ".repeat(1000)).len() < LONGEST + 10);
    }
}
