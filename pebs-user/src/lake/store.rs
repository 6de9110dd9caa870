//! The objects of a lake: each is made once, and read in whole or in ranges.

use std::fs::{self, File};
use std::future::Future;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use ring::digest::{Context, SHA256};
use tokio::runtime::{Builder, Runtime};

use super::address::{Address, Place};
use super::buckets;
use super::error::{Fault, LakeError};
use super::layout::hex;

/// Bytes of a part of an object that is sent in parts.
const PART: usize = 8 << 20;

/// Parts that are sent at a time.
const PARTS_AT_A_TIME: usize = 2;

/// Objects that are read at a time.
const READ_AT_A_TIME: usize = 16;

/// Number of times that the reading of a list is repeated.
const REPEATS: u32 = 3;

/// A lake that is open.
#[derive(Debug)]
pub struct Lake {
    address: Address,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
    read: AtomicU64,
}

impl Lake {
    /// Opens a lake to read it.
    ///
    /// # Errors
    /// Its settings have a fault. Whether the store answers is not tried; a directory has to exist.
    pub fn open(address: &Address) -> Result<Self, LakeError> {
        let opened = |error: Error| LakeError::store(format!("open {address}"), &error);
        let (store, prefix): (Arc<dyn ObjectStore>, &str) = match &address.place {
            Place::Folder(path) => {
                let store = LocalFileSystem::new_with_prefix(path).map_err(opened)?;
                (Arc::new(store.with_fsync(true)), "")
            }
            Place::Bucket {
                provider,
                bucket,
                prefix,
            } => (buckets::open(*provider, bucket, address)?, prefix),
        };
        Self::with(address.clone(), store, prefix)
    }

    /// Opens a lake to push to it: a directory is made.
    ///
    /// # Errors
    /// As [`Lake::open`].
    pub fn open_or_make(address: &Address) -> Result<Self, LakeError> {
        if let Some(folder) = address.folder() {
            fs::create_dir_all(folder).map_err(|source| LakeError::Io {
                what: format!("make {}", folder.display()),
                source,
            })?;
        }
        Self::open(address)
    }

    /// A lake in a store of this kind.
    pub(super) fn with(
        address: Address,
        store: Arc<dyn ObjectStore>,
        prefix: &str,
    ) -> Result<Self, LakeError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            store,
            prefix: Path::from(prefix),
            runtime: runtime.map_err(|source| LakeError::Io {
                what: format!("open {address}"),
                source,
            })?,
            address,
            read: AtomicU64::new(0),
        })
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Bytes of objects that were read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Name of an object for messages.
    pub(super) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn path(&self, name: &str) -> Path {
        let parts = name.split('/').filter(|it| !it.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn wait<T>(
        &self,
        (doing, name): (&str, &str),
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, LakeError> {
        let done = self.runtime.block_on(work);
        done.map_err(|error| LakeError::store(format!("{doing} {}", self.shown(name)), &error))
    }

    /// The same again, if it failed for reasons that pass: `object_store` does not repeat a list whose answer was cut off.
    fn repeated<T, F: Future<Output = Result<T, Error>>>(
        &self,
        at: (&str, &str),
        work: impl Fn() -> F,
    ) -> Result<T, LakeError> {
        let mut left = REPEATS;
        loop {
            match self.wait(at, work()) {
                Err(LakeError::Store {
                    fault: Fault::Other,
                    ..
                }) if left > 0 => left -= 1,
                done => return done,
            }
        }
    }

    fn count(&self, bytes: &Bytes) {
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// Makes an object, unless there is one of this name: returns whether there was none.
    pub(super) fn put(&self, name: &str, bytes: Bytes) -> Result<bool, LakeError> {
        let options = PutOptions::from(PutMode::Create);
        let path = self.path(name);
        self.wait(("write", name), async {
            match self.store.put_opts(&path, bytes.into(), options).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Makes an object, in the place of the one that there is.
    pub(super) fn replace(&self, name: &str, bytes: Bytes) -> Result<(), LakeError> {
        let path = self.path(name);
        self.wait(("write", name), self.store.put(&path, bytes.into()))
            .map(drop)
    }

    /// Makes an object of a file of this length, in parts. There is no object of the name until the last part was sent.
    pub(super) fn put_file(&self, name: &str, file: &File, length: u64) -> Result<(), LakeError> {
        let path = self.path(name);
        let part = |at: u64| {
            let mut bytes = vec![0; PART.min(usize::try_from(length - at).unwrap_or(PART))];
            let read = file.read_exact_at(&mut bytes, at);
            read.map_err(|source| Error::Generic {
                store: "file",
                source: source.into(),
            })?;
            Ok::<_, Error>(bytes)
        };
        self.wait(("write", name), async {
            let mut upload = self.store.put_multipart(&path).await?;
            let sent = async {
                let parts = (0..length).step_by(PART).map(|at| {
                    let bytes = part(at);
                    let sent = bytes.map(|it| upload.put_part(it.into()));
                    async { sent?.await }
                });
                let sent = futures_util::stream::iter(parts).buffered(PARTS_AT_A_TIME);
                sent.try_collect::<Vec<()>>().await?;
                Ok(())
            };
            let sent: Result<(), Error> = sent.await;
            match sent {
                Ok(()) => upload.complete().await.map(drop),
                Err(error) => {
                    // Parts that stay are the store's to remove; the first error is the one to tell.
                    let _ = upload.abort().await;
                    Err(error)
                }
            }
        })
    }

    /// Size and SHA-256 of an object; `None`: there is none.
    pub(super) fn digest(&self, name: &str) -> Result<Option<(u64, String)>, LakeError> {
        let path = self.path(name);
        self.wait(("read", name), async {
            let got = match self.store.get(&path).await {
                Err(Error::NotFound { .. }) => return Ok(None),
                got => got?,
            };
            let (mut length, mut digest) = (0, Context::new(&SHA256));
            let mut chunks = got.into_stream();
            while let Some(chunk) = chunks.try_next().await? {
                self.count(&chunk);
                length += chunk.len() as u64;
                digest.update(&chunk);
            }
            Ok(Some((length, hex(digest.finish().as_ref()))))
        })
    }

    /// Size of an object; `None`: there is none.
    pub(super) fn size(&self, name: &str) -> Result<Option<u64>, LakeError> {
        let path = self.path(name);
        self.wait(("read", name), async {
            match self.store.head(&path).await {
                Err(Error::NotFound { .. }) => Ok(None),
                got => Ok(Some(got?.size)),
            }
        })
    }

    /// An object; `None`: there is none.
    pub(super) fn get(&self, name: &str) -> Result<Option<Bytes>, LakeError> {
        Ok(self
            .get_all(&[name.to_owned()])?
            .into_iter()
            .next()
            .flatten())
    }

    /// Objects, in order.
    pub(super) fn get_all(&self, names: &[String]) -> Result<Vec<Option<Bytes>>, LakeError> {
        let first = names.first().map_or("", |it| it);
        self.wait(("read", first), async {
            let each = names.iter().map(|name| async {
                let bytes = match self.store.get(&self.path(name)).await {
                    Err(Error::NotFound { .. }) => return Ok(None),
                    got => got?.bytes().await?,
                };
                self.count(&bytes);
                Ok(Some(bytes))
            });
            let got = futures_util::stream::iter(each).buffered(READ_AT_A_TIME);
            got.try_collect().await
        })
    }

    /// Ranges of an object.
    pub(super) fn ranges(
        &self,
        name: &str,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>, LakeError> {
        let path = self.path(name);
        let got = self.wait(("read", name), self.store.get_ranges(&path, ranges))?;
        got.iter().for_each(|it| self.count(it));
        Ok(got)
    }

    /// Names of folders in a folder, without that.
    pub(super) fn folders(&self, name: &str) -> Result<Vec<String>, LakeError> {
        let path = self.path(name);
        let list = || self.store.list_with_delimiter(Some(&path));
        let listed = self.repeated(("list", name), list)?;
        let folders = listed.common_prefixes.iter();
        Ok(folders
            .filter_map(|it| Some(it.filename()?.to_owned()))
            .collect())
    }

    /// Names of all objects below a folder.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<String>, LakeError> {
        let path = self.path(name);
        let list = || {
            self.store
                .list(Some(&path))
                .map_ok(|it| it.location)
                .try_collect()
        };
        let all: Vec<Path> = self.repeated(("list", name), list)?;
        let below = |it: &Path| {
            let parts = it.prefix_match(&self.prefix)?;
            let parts: Vec<String> = parts.map(|it| it.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(all.iter().filter_map(below).collect())
    }
}

/// SHA-256 of a file.
pub(super) fn digest_of_file(file: &File, path: &FilePath) -> Result<String, LakeError> {
    let mut digest = Context::new(&SHA256);
    let (mut room, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let read = file
            .read_at(&mut room, at)
            .map_err(|source| LakeError::Io {
                what: format!("read {}", path.display()),
                source,
            })?;
        if read == 0 {
            return Ok(hex(digest.finish().as_ref()));
        }
        digest.update(&room[..read]);
        at += read as u64;
    }
}
