//! Finds traces in a lake by their manifests.

use chrono::{DateTime, Days, NaiveDate, Utc};

use super::error::LakeError;
use super::layout::{Host, MANIFESTS, TraceId, manifest_object};
use super::manifest::Manifest;
use super::store::Lake;

/// Manifests that are held while they are read.
const AT_A_TIME: usize = 256;

/// Conditions on the traces to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those that went on after that.
    pub since: Option<DateTime<Utc>>,
    /// Only those that began before that.
    pub until: Option<DateTime<Utc>>,
    /// Only those of this host.
    pub host: Option<Host>,
}

impl Filter {
    /// Whether traces of a day can match. One that goes on beyond the day after it began is not looked for.
    fn has_day(&self, date: NaiveDate) -> bool {
        let day = |it: DateTime<Utc>| it.date_naive();
        let before = |it: DateTime<Utc>| day(it).checked_sub_days(Days::new(1));
        self.since.and_then(before).is_none_or(|it| date >= it)
            && self.until.is_none_or(|it| date <= day(it))
    }

    fn has(&self, manifest: &Manifest) -> bool {
        let end = manifest.end.unwrap_or(DateTime::<Utc>::MAX_UTC);
        self.since.is_none_or(|it| end >= it) && self.until.is_none_or(|it| manifest.begin < it)
    }
}

/// A trace in a lake.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub host: Host,
    pub manifest: Manifest,
}

/// Traces in the order of their begin, as far as manifests can be read.
///
/// Cost: lists the days that can match, of one host if one is given, and reads their manifests.
///
/// # Errors
/// The store failed.
pub fn list(lake: &Lake, filter: &Filter) -> Result<Vec<Listed>, LakeError> {
    let mut names = Vec::new();
    for folder in lake.folders(MANIFESTS)? {
        let date = folder.strip_prefix("date=").and_then(|it| it.parse().ok());
        if date.is_some_and(|it| filter.has_day(it)) {
            let of_host = filter.host.as_ref().map(|it| format!("/host={it}"));
            let place = format!("{MANIFESTS}/{folder}{}", of_host.unwrap_or_default());
            names.extend(
                lake.objects(&place)?
                    .into_iter()
                    .filter(|it| parsed(it).is_some()),
            );
        }
    }
    let mut listed = Vec::new();
    for names in names.chunks(AT_A_TIME) {
        for (name, file) in names.iter().zip(lake.get_all(names)?) {
            let (Some(file), Some((host, _))) = (file, parsed(name)) else {
                continue;
            };
            match Manifest::from_parquet(&lake.shown(name), file) {
                Ok(manifest) if filter.has(&manifest) => listed.push(Listed { host, manifest }),
                Ok(_) => {}
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
    listed.sort_by_key(|it| (it.manifest.begin, it.host.clone()));
    Ok(listed)
}

/// A trace by its id; without a host that is looked for among those of its day.
///
/// # Errors
/// There is none, or the store failed.
pub fn find(lake: &Lake, host: Option<&Host>, id: &TraceId) -> Result<Listed, LakeError> {
    let name = match host {
        Some(host) => Some(manifest_object(host, id)),
        None => {
            let objects = lake.objects(&format!("{MANIFESTS}/date={}", id.date()))?;
            let is_it = |it: &String| parsed(it).is_some_and(|it| it.1 == *id);
            objects.into_iter().find(is_it)
        }
    };
    let none = || LakeError::NoTrace {
        id: id.to_string(),
        lake: lake.address().to_string(),
    };
    let name = name.ok_or_else(none)?;
    let (host, _) = parsed(&name).ok_or_else(none)?;
    let file = lake.get(&name)?.ok_or_else(none)?;
    let manifest = Manifest::from_parquet(&lake.shown(&name), file)?;
    Ok(Listed { host, manifest })
}

/// Host and trace of a manifest by its name.
fn parsed(name: &str) -> Option<(Host, TraceId)> {
    let mut parts = name.rsplit('/');
    let id = parts.next()?.strip_suffix(".parquet")?.parse().ok()?;
    let host = parts.next()?.strip_prefix("host=")?.parse().ok()?;
    Some((host, id))
}
