//! Pushing, crashes in the middle, and reading back, in stores in memory and in directories.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path as FilePath;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::*;
use crate::failure::Hint as _;
use crate::store::argument::ArgType;
use crate::store::fixtures::{Did, Maker, VisitFixture, info, info_with};
use crate::store::run::RunInfo;
use crate::watch::Watch;

/// A store in memory that notes names that are written, and fails from some write on.
#[derive(Debug)]
struct Faulty {
    inner: Arc<InMemory>,
    written: Mutex<Vec<String>>,
    /// Writes until it fails.
    left: AtomicUsize,
    /// Whether what fails was written all the same: the answer got lost.
    writes_all_the_same: bool,
}

impl Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        at: &Path,
        data: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fails = self
            .left
            .fetch_update(SeqCst, SeqCst, |it| it.checked_sub(1))
            .is_err();
        if !fails || self.writes_all_the_same {
            let written = self.inner.put_opts(at, data, options).await?;
            self.written.lock().unwrap().push(at.to_string());
            if !fails {
                return Ok(written);
            }
        }
        Err(Error::Generic {
            store: "faulty",
            source: "503 of https://h/x?sig=secret".into(),
        })
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(names)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn address() -> Address {
    "s3://bucket/lake".parse().unwrap()
}

/// The lake in this memory, whose writes fail after some.
fn faulty(memory: &Arc<InMemory>, left: usize, writes_all_the_same: bool) -> (Lake, Arc<Faulty>) {
    let store = Arc::new(Faulty {
        inner: Arc::clone(memory),
        written: Mutex::default(),
        left: left.into(),
        writes_all_the_same,
    });
    let lake = Lake::with(address(), Arc::clone(&store) as _, "lake").unwrap();
    (lake, store)
}

fn in_memory(memory: &Arc<InMemory>) -> Lake {
    faulty(memory, usize::MAX, false).0
}

/// A recording of this host, without texts.
fn info_of(host: &str) -> RunInfo {
    let mut info = info_with(&["app:f"], &[("n", ArgType::U64)]);
    info.host.name = host.to_owned();
    info.wall_clock_ns = 1_772_334_000_000_000_000;
    info
}

/// A trace of four visits.
fn trace(dir: &FilePath, info: RunInfo) {
    let mut maker = Maker::within(dir, info);
    for n in 1..=4_u64 {
        let args = vec![Some(n.into())];
        maker.visit(&VisitFixture::with(args, &[Did::Ran(1, 50_000)]));
    }
    maker.finish(&[(1, "f", "app")]);
}

fn pushed(lake: &Lake, dir: &FilePath) -> Pushed {
    push(lake, dir, &Tags::default(), &Watch::default()).unwrap()
}

/// The manifest is the last object; a second push makes none, and has the same id.
#[test]
fn once() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("t");
    trace(&dir, info_of("web1"));
    let memory = Arc::new(InMemory::new());
    let (lake, store) = faulty(&memory, usize::MAX, false);
    let first = pushed(&lake, &dir);
    let written = store.written.lock().unwrap().clone();
    assert_eq!(written.len() as u64, first.objects);
    let at = format!("date=2026-03-01/host=web1/{}.parquet", first.id);
    assert_eq!(written.last().unwrap(), &format!("lake/traces/{at}"));
    assert!(
        written.contains(&format!("lake/visits/{at}")),
        "{written:?}"
    );
    assert!(
        !written.iter().any(|it| it.contains("batch_items")),
        "{written:?}"
    );
    let second = pushed(&lake, &dir);
    assert_eq!(
        (second.objects, second.there, &second.id),
        (0, first.objects, &first.id)
    );
    assert_eq!(store.written.lock().unwrap().len(), written.len());
    let found = find(&lake, None, &first.id).unwrap();
    assert_eq!(found, find(&lake, Some(&first.host), &first.id).unwrap());
    let manifest = found.manifest;
    assert_eq!(
        (manifest.items, manifest.from_ns, manifest.until_ns),
        (4, 0, None)
    );
    assert_eq!(manifest.objects.len() as u64 + 1, first.objects);
    assert_eq!(
        manifest.info.as_bytes(),
        fs::read(dir.join("trace.json")).unwrap()
    );
    for object in &manifest.objects {
        let there = lake.digest(&object.name).unwrap();
        assert_eq!(
            there,
            Some((object.bytes.unsigned_abs(), object.sha256.clone()))
        );
    }
}

/// Wherever it is cut off, there is no trace for readers until the rest is pushed, and then it is whole; also if the answer to
/// the last write got lost.
#[test]
fn cut_off() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("t");
    trace(&dir, info_of("web1"));
    let whole = Arc::new(InMemory::new());
    let all = pushed(&in_memory(&whole), &dir);
    for is_lost in [false, true] {
        for cut in 0..usize::try_from(all.objects).unwrap() {
            let memory = Arc::new(InMemory::new());
            let (lake, _) = faulty(&memory, cut, is_lost);
            let error = push(&lake, &dir, &Tags::default(), &Watch::default()).unwrap_err();
            assert!(!error.is_final() && error.hint().is_some());
            assert!(!error.to_string().contains("secret"), "{error}");
            let is_whole = is_lost && cut + 1 == usize::try_from(all.objects).unwrap();
            let listed = list(&lake, &Filter::default()).unwrap();
            assert_eq!(listed.len(), usize::from(is_whole));
            let lake = in_memory(&memory);
            let rest = pushed(&lake, &dir);
            let before = cut as u64 + u64::from(is_lost);
            assert_eq!((rest.there, rest.objects), (before, all.objects - before));
            assert_eq!(
                lake.objects("").unwrap(),
                in_memory(&whole).objects("").unwrap()
            );
            assert_eq!(list(&lake, &Filter::default()).unwrap().len(), 1);
        }
    }
}

/// Two that push the same trace at once make each object once.
#[test]
fn two_at_once() {
    let place = tempfile::tempdir().unwrap();
    let (dir, lake) = (place.path().join("t"), place.path().join("lake"));
    trace(&dir, info_of("web1"));
    let address: Address = lake.to_str().unwrap().parse().unwrap();
    let both = std::thread::scope(|scope| {
        let one = || pushed(&Lake::open_or_make(&address).unwrap(), &dir);
        let threads = [scope.spawn(one), scope.spawn(one)];
        threads.map(|it| it.join().unwrap())
    });
    let objects = Lake::open(&address).unwrap().objects("").unwrap();
    let made: u64 = both.iter().map(|it| it.objects).sum();
    assert_eq!(
        (both[0].id.clone(), made),
        (both[1].id.clone(), objects.len() as u64)
    );
    assert_eq!(
        both[0].objects + both[0].there,
        both[1].objects + both[1].there
    );
}

/// An object of another content under the name, which no manifest names, is replaced; one that a manifest names stays.
#[test]
fn foreign_object() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("t");
    trace(&dir, info_of("web1"));
    let id = pushed(&in_memory(&Arc::new(InMemory::new())), &dir).id;
    let memory = Arc::new(InMemory::new());
    let lake = in_memory(&memory);
    let name = format!("visits/date=2026-03-01/host=web1/{id}.parquet");
    assert!(lake.put(&name, "half".into()).unwrap());
    assert!(!lake.put(&name, "other".into()).unwrap());
    pushed(&lake, &dir);
    assert_ne!(lake.get(&name).unwrap().unwrap(), "half");
    lake.replace(&name, "half".into()).unwrap();
    assert_eq!(pushed(&lake, &dir).objects, 0);
}

/// A trace that is being written, unfinished, or has texts that are not redacted is refused, with a way out.
#[test]
fn refused() {
    let place = tempfile::tempdir().unwrap();
    let lake = in_memory(&Arc::new(InMemory::new()));
    let refused = |dir: &FilePath, what: &str| {
        let error = push(&lake, dir, &Tags::default(), &Watch::default()).unwrap_err();
        assert!(error.is_final() && error.hint().is_some(), "{error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    };
    let at = |name: &str| place.path().join(name);
    let live = Maker::within(&at("live"), info_of("a"));
    refused(&at("live"), "being written");
    drop(live);
    refused(&at("live"), "not finished");
    crate::store::recover::recover(&at("live")).unwrap();
    pushed(&lake, &at("live"));
    refused(&at("none"), "no such directory");
    let mut texts = info(&["app:f"]);
    texts.host.name = "a".to_owned();
    let mut maker = Maker::within(&at("texts"), texts);
    maker.visit(&VisitFixture::new(1, "secret", &[Did::Ran(1, 50)]));
    maker.finish(&[(1, "f", "app")]);
    refused(&at("texts"), "not redacted: key");
    let with_texts = Tags {
        with_texts: true,
        ..Tags::default()
    };
    push(&lake, &at("texts"), &with_texts, &Watch::default()).unwrap();
    let mut redacted = info(&["app:f"]);
    redacted.host.name = "a b".to_owned();
    redacted.redacted = [("key".to_owned(), "hash".to_owned())].into();
    let mut maker = Maker::within(&at("redacted"), redacted);
    maker.visit(&VisitFixture::new(1, "ab", &[Did::Ran(1, 50)]));
    maker.finish(&[(1, "f", "app")]);
    refused(&at("redacted"), "'a b' cannot be the name of a host");
    let named = Tags {
        host: Some("a-b".parse().unwrap()),
        ..Tags::default()
    };
    assert_eq!(
        push(&lake, &at("redacted"), &named, &Watch::default())
            .unwrap()
            .host
            .to_string(),
        "a-b"
    );
}

/// Labels are keys with values; others are refused.
#[test]
fn labels() {
    let mut tags = Tags::default();
    tags.label("version=1.2 = \u{e9}").unwrap();
    assert_eq!(tags.labels["version"], "1.2 = \u{e9}");
    for text in ["", "version", "=1", "a b=1", "a=1\n2"] {
        assert!(tags.label(text).is_err(), "{text}");
    }
}

/// A list has the traces of a time and of a host, and does not read what the names of objects exclude.
#[test]
fn listed() {
    let place = tempfile::tempdir().unwrap();
    let memory = Arc::new(InMemory::new());
    let lake = in_memory(&memory);
    for (number, (host, day)) in [("a", 0), ("a", 1), ("b", 1), ("b", 5)]
        .into_iter()
        .enumerate()
    {
        let mut info = info_of(host);
        info.wall_clock_ns += day * 86_400_000_000_000;
        let dir = place.path().join(number.to_string());
        trace(&dir, info);
        pushed(&lake, &dir);
    }
    let shown = |filter: &Filter| {
        let lake = in_memory(&memory);
        let listed = list(&lake, filter).unwrap();
        let shown = listed
            .iter()
            .map(|it| format!("{}{}", it.host, it.manifest.begin.format("%d")));
        (shown.collect::<Vec<_>>().join(" "), lake.bytes_read())
    };
    let (all, all_bytes) = shown(&Filter::default());
    assert_eq!(all, "a01 a02 b02 b06");
    let (of_host, bytes) = shown(&Filter {
        host: Some("b".parse().unwrap()),
        ..Filter::default()
    });
    assert_eq!(of_host, "b02 b06");
    assert!(bytes < all_bytes * 2 / 3, "{bytes} of {all_bytes}");
    let time = |text: &str| Some(text.parse().unwrap());
    let (since, bytes) = shown(&Filter {
        since: time("2026-03-05T12:00:00Z"),
        ..Filter::default()
    });
    assert_eq!(since, "b06");
    assert!(bytes < all_bytes / 2, "{bytes} of {all_bytes}");
    let during = Filter {
        since: time("2026-03-02T02:30:00Z"),
        until: time("2026-03-02T03:40:00Z"),
        host: None,
    };
    assert_eq!(shown(&during).0, "a02 b02");
    let after = Filter {
        since: time("2026-03-02T03:30:00Z"),
        ..during
    };
    assert_eq!(shown(&after).0, "");
}
