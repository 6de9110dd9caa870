//! Addresses of lakes, as typed.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::LakeError;

/// Address of a lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) place: Place,
    /// As typed, without a slash at its end.
    text: String,
}

/// Store behind an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A bucket, and the names of its objects begin so.
    Bucket {
        provider: Provider,
        bucket: String,
        prefix: String,
    },
    Folder(PathBuf),
}

/// Object stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    S3,
    Google,
    Azure,
}

impl FromStr for Address {
    type Err = LakeError;

    fn from_str(typed: &str) -> Result<Self, LakeError> {
        let fault = |why: &str| LakeError::Address {
            address: typed.to_owned(),
            why: why.to_owned(),
        };
        let text = match typed.trim_end_matches('/') {
            "" if typed.starts_with('/') => "/",
            "file:" => "file:///",
            text => text,
        };
        let place = match typed.split_once("://") {
            None if text.is_empty() => return Err(fault("it is empty")),
            None => Place::Folder(text.into()),
            Some(("file", path)) if path.starts_with('/') => Place::Folder(path.into()),
            Some(("file", _)) => return Err(fault("after file:// comes an absolute path")),
            Some((scheme, rest)) => {
                let provider = match scheme {
                    "s3" | "s3a" => Provider::S3,
                    "gs" => Provider::Google,
                    "az" | "abfs" | "abfss" => Provider::Azure,
                    _ => return Err(fault("there is no such kind of store")),
                };
                let rest = rest.trim_end_matches('/');
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let plain = |it: char| it.is_ascii_alphanumeric() || "._-=/".contains(it);
                if bucket.is_empty() || !bucket.chars().all(plain) {
                    return Err(fault("it names no bucket"));
                }
                if !prefix.chars().all(plain)
                    || prefix.split('/').any(|it| [".", ".."].contains(&it))
                {
                    return Err(fault(
                        "its prefix has other characters than letters, digits, '.', '_', '-', '='",
                    ));
                }
                Place::Bucket {
                    provider,
                    bucket: bucket.to_owned(),
                    prefix: prefix.to_owned(),
                }
            }
        };
        Ok(Self {
            place,
            text: text.to_owned(),
        })
    }
}

impl Address {
    /// The directory, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(path) => Some(path),
            Place::Bucket { .. } => None,
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Hint as _;

    /// An address names its store; slashes at the end do not matter, and what is no address is refused.
    #[test]
    fn addresses() {
        let bucket = |provider, bucket: &str, prefix: &str| Place::Bucket {
            provider,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        };
        for (text, place) in [
            ("s3://b/p/q/", bucket(Provider::S3, "b", "p/q")),
            ("s3://b", bucket(Provider::S3, "b", "")),
            ("gs://b/p", bucket(Provider::Google, "b", "p")),
            ("az://c/p", bucket(Provider::Azure, "c", "p")),
            ("file:///a/b", Place::Folder("/a/b".into())),
            ("file:///", Place::Folder("/".into())),
            ("a b/c/", Place::Folder("a b/c".into())),
            ("/", Place::Folder("/".into())),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().place, place, "{text}");
        }
        for text in [
            "",
            "file://host/x",
            "ftp://h/x",
            "s3://",
            "s3:///p",
            "s3://b/p?x",
            "s3://b/../x",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
        assert_eq!(
            "s3://b/p/".parse::<Address>().unwrap().to_string(),
            "s3://b/p"
        );
    }
}
