//! Control groups of version 2, by path, by the id of a container, or by the name of a pod.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::binary::process;
use crate::failure::Hint;
use crate::units::Pid;

/// Type of the file system. Source: include/uapi/linux/magic.h.
#[doc(alias = "CGROUP2_SUPER_MAGIC")]
const CGROUP2: u64 = 0x6367_7270;

/// Letters of a container's id that are needed at least; `docker ps` shows 12.
const SHORTEST_ID: usize = 4;

/// Maximum number of directories searched for a container's.
const MOST_DIRECTORIES: usize = 100_000;

/// Maximum number of containers named in a message.
const LISTED: usize = 4;

/// Folders with a folder for each pod of the kubelet's machine, `NAMESPACE_NAME_UID`: here, and seen from a container
/// with the host's processes.
const POD_FOLDERS: [&str; 2] = ["/var/log/pods", "/proc/1/root/var/log/pods"];

/// A control group that exists.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// Its directory.
    pub path: PathBuf,
    /// The open directory, for the eBPF programs to compare with.
    pub directory: OwnedFd,
}

/// Errors of finding a control group.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    /// No file system of version 2.
    #[error("cannot trace a cgroup: no cgroup2 file system is mounted")]
    NotMounted,
    /// No such directory.
    #[error("cannot find cgroup {path}")]
    NotFound {
        /// The path that was searched.
        path: PathBuf,
        /// Mount point of the file system.
        root: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A directory of another file system.
    #[error("{path} is not a cgroup of version 2")]
    OtherKind {
        /// As typed.
        path: PathBuf,
        /// Mount point of version 2.
        root: PathBuf,
    },
    /// No cgroup is named like that.
    #[error("cannot find container '{id}': no cgroup has that id in its name")]
    NoContainer {
        /// As typed.
        id: String,
    },
    /// Too little of an id, or no id.
    #[error("'{id}' is not a container id")]
    NoId {
        /// As typed.
        id: String,
    },
    /// The kubelet has no folder of that pod.
    #[error("cannot find pod '{pod}' on this machine")]
    NoPod {
        /// As typed.
        pod: String,
        /// Pods that there are.
        known: Vec<String>,
    },
    /// No cgroup is named like the pod.
    #[error(
        "cannot find a cgroup of pod '{pod}': its containers have ended, or have one of version 1"
    )]
    NoCgroupOfPod {
        /// As typed.
        pod: String,
    },
    /// The container is only in cgroups of version 1.
    #[error("cannot trace container '{id}' by its cgroup: it has one of version 1 only")]
    VersionOne {
        /// As typed.
        id: String,
        /// Its first process.
        pid: Pid,
    },
    /// The beginning of several ids.
    #[error("container '{id}' could be any of {}", .found.len())]
    Several {
        /// As typed.
        id: String,
        /// Their directories.
        found: Vec<PathBuf>,
    },
}

impl Hint for CgroupError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotMounted => {
                "give -p PID for each process; its children are followed".to_owned()
            }
            Self::NotFound { root, .. } | Self::OtherKind { root, .. } => format!(
                "a cgroup is a directory below {}; 'systemd-cgls' and /proc/PID/cgroup (the line '0::') name them",
                root.display()
            ),
            Self::NoContainer { id } | Self::NoId { id } => format!(
                "'docker inspect -f {{{{.Id}}}} {id}', 'podman ps --no-trunc' or 'crictl ps --no-trunc' shows the id, which \
                 is in hexadecimal digits"
            ),
            Self::NoPod { known, .. } if known.is_empty() => format!(
                "pods are found by their folders in {}, and there is none",
                POD_FOLDERS[0]
            ),
            Self::NoPod { known, .. } => {
                let more = if known.len() > LISTED { ", .." } else { "" };
                let shown: Vec<&str> = known.iter().take(LISTED).map(String::as_str).collect();
                format!("NAMESPACE/NAME; there are {}{more}", shown.join(", "))
            }
            Self::NoCgroupOfPod { .. } => {
                "'kubectl get pod -o wide' shows where and whether it runs; -p PID needs no cgroup"
                    .to_owned()
            }
            Self::VersionOne { pid, .. } => {
                format!("give -p {}: its children are followed", pid.0)
            }
            Self::Several { found, .. } => {
                let shown = found.iter().take(LISTED);
                let shown: Vec<String> = shown.map(|path| path.display().to_string()).collect();
                let more = if found.len() > LISTED { ", .." } else { "" };
                format!("give more of its id: {}{more}", shown.join(", "))
            }
        })
    }
}

impl Cgroup {
    /// Opens the cgroup at a path: an absolute one, or one below the cgroup mount (`/system.slice/nginx.service`).
    ///
    /// # Errors
    /// The path is not a cgroup of version 2.
    pub(crate) fn open(typed: &str) -> Result<Self, CgroupError> {
        let root = mount().ok_or(CgroupError::NotMounted)?;
        let path = Path::new(typed);
        if path.is_dir() && typed != "/" {
            return Self::at(path, &root);
        }
        let below = typed.trim_matches('/');
        Self::at(
            &if below.is_empty() {
                root.clone()
            } else {
                root.join(below)
            },
            &root,
        )
    }

    /// Opens the cgroup of a container, given by its id or a prefix of it.
    ///
    /// # Errors
    /// No cgroup has it in its name, or several have.
    pub(crate) fn of_container(id: &str) -> Result<Self, CgroupError> {
        let no_id = || CgroupError::NoId { id: id.to_owned() };
        if id.len() < SHORTEST_ID || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(no_id());
        }
        let root = mount().ok_or(CgroupError::NotMounted)?;
        let found = find(&root, |name| is_of(name, id));
        match found.as_slice() {
            [only] => Self::at(only, &root),
            [] => Err(match with_version_one(id) {
                Some(pid) => CgroupError::VersionOne {
                    id: id.to_owned(),
                    pid,
                },
                None => CgroupError::NoContainer { id: id.to_owned() },
            }),
            _ => Err(CgroupError::Several {
                id: id.to_owned(),
                found,
            }),
        }
    }

    /// Opens the cgroup of a Kubernetes pod on this machine, which has those of its containers below it.
    ///
    /// # Errors
    /// The pod or its cgroup can't be found.
    pub(crate) fn of_pod(pod: &str) -> Result<Self, CgroupError> {
        let root = mount().ok_or(CgroupError::NotMounted)?;
        let pods = POD_FOLDERS
            .iter()
            .flat_map(|it| fs::read_dir(it).into_iter());
        let folders = pods.flatten().flatten().map(|it| it.file_name());
        let uid = uid_of(pod, folders.map(|it| it.to_string_lossy().into_owned()))?;
        let found = find(&root, |name| is_of_pod(name, &uid));
        let gone = || CgroupError::NoCgroupOfPod {
            pod: pod.to_owned(),
        };
        Self::at(found.first().ok_or_else(gone)?, &root)
    }

    fn at(path: &Path, root: &Path) -> Result<Self, CgroupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
            CgroupError::NotFound {
                path: path.to_owned(),
                root: root.to_owned(),
                source: error.into(),
            }
        })?;
        let kind = rustix::fs::fstatfs(&directory).map(|it| it.f_type as u64);
        if kind != Ok(CGROUP2) {
            return Err(CgroupError::OtherKind {
                path: path.to_owned(),
                root: root.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            directory,
        })
    }

    /// The processes in it and below it now.
    #[must_use]
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let mut pids = Vec::new();
        walk(&self.path, |directory| {
            let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            pids.extend(list.lines().filter_map(|pid| pid.parse().ok().map(Pid)));
            true
        });
        // Processes of another pid namespace are listed as 0.
        pids.retain(|pid| pid.0 != 0);
        pids.sort_unstable();
        pids
    }
}

/// Mount point of version 2.
fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (path, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path.replace("\\040", " ")))
    })
}

/// Visits a directory and those below it; `enter` returns whether to descend.
fn walk(root: &Path, mut enter: impl FnMut(&Path) -> bool) {
    let mut waiting = vec![root.to_owned()];
    let mut seen = 0;
    while let Some(directory) = waiting.pop() {
        seen += 1;
        if seen > MOST_DIRECTORIES || !enter(&directory) {
            continue;
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(below.map(|entry| entry.path()));
    }
}

/// The uid of a pod `NAMESPACE/NAME`, by the names of the kubelet's folders.
fn uid_of(pod: &str, folders: impl Iterator<Item = String>) -> Result<String, CgroupError> {
    let mut known = Vec::new();
    for folder in folders {
        // Names have no `_`.
        let Some((name, uid)) = folder.rsplit_once('_') else {
            continue;
        };
        let name = name.replacen('_', "/", 1);
        if name == pod {
            return Ok(uid.to_owned());
        }
        known.push(name);
    }
    known.sort();
    known.dedup();
    let pod = pod.to_owned();
    Err(CgroupError::NoPod { pod, known })
}

/// Whether a cgroup's name is that of a pod's cgroup: `podUID`, or `kubepods-burstable-podUID.slice` with `_` for `-` in it.
fn is_of_pod(name: &str, uid: &str) -> bool {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let last = name.rsplit('-').next().unwrap_or(name);
    name == format!("pod{uid}") || last == format!("pod{}", uid.replace('-', "_"))
}

/// The topmost directories whose names are right.
fn find(root: &Path, is_it: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(root, |directory| {
        let name = directory.file_name().unwrap_or_default();
        let is_it = is_it(&name.to_string_lossy());
        if is_it {
            found.push(directory.to_owned());
        }
        !is_it
    });
    found.sort();
    found
}

/// Whether a cgroup's name is that of a container's cgroup: `ID`, `docker-ID.scope`, `cri-containerd-ID.scope`,
/// `crio-ID.scope`, `libpod-ID.scope`, `SLICE:cri-containerd:ID`, `libpod-payload-ID`. Cgroups of monitor programs
/// (`conmon`) are not.
fn is_of(name: &str, id: &str) -> bool {
    if name.contains("conmon") {
        return false;
    }
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let last = name.rsplit(['-', ':']).next().unwrap_or(name);
    // A prefix matches only if the rest consists of hexadecimal digits.
    last.starts_with(id) && last.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A process whose cgroups of version 1 have the id in their names.
fn with_version_one(id: &str) -> Option<Pid> {
    let mut pids = process::all();
    pids.sort_unstable();
    pids.into_iter().find(|pid| {
        let list = fs::read_to_string(format!("/proc/{}/cgroup", pid.0)).unwrap_or_default();
        list.lines().any(|line| {
            let path = line.splitn(3, ':').nth(2).unwrap_or_default();
            path.split('/').any(|name| is_of(name, id))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that container engines give to cgroups.
    #[test]
    fn containers() {
        let id = "4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796";
        for name in [
            id.to_owned(),
            format!("docker-{id}.scope"),
            format!("cri-containerd-{id}.scope"),
            format!("crio-{id}.scope"),
            format!("libpod-{id}.scope"),
            format!("libpod-payload-{id}"),
            format!("kubepods-burstable-pod1.slice:cri-containerd:{id}"),
        ] {
            assert!(is_of(&name, id), "{name}");
            assert!(is_of(&name, &id[..12]), "{name}");
            assert!(!is_of(&name, &id[1..13]), "{name}");
        }
        assert!(!is_of(&format!("libpod-conmon-{id}.scope"), id));
        assert!(!is_of(&format!("crio-conmon-{id}.scope"), id));
        assert!(!is_of("docker-4f5e.mount", "4f5e"));
    }

    /// The topmost directory of an id is the container's, and the beginning of two ids is neither's.
    #[test]
    fn found() {
        let root = tempfile::tempdir().expect("dir");
        let make = |path: &str| fs::create_dir_all(root.path().join(path)).expect("mkdir");
        make("system.slice/docker-4f5e6d7c8b9a.scope/init-4f5e6d7c8b9a");
        make("system.slice/docker-4f5eaaaaaaaa.scope");
        let find = |id| find(root.path(), |name| is_of(name, id));
        let one = find("4f5e6d");
        assert_eq!(
            one,
            [root.path().join("system.slice/docker-4f5e6d7c8b9a.scope")]
        );
        assert_eq!(find("4f5e").len(), 2);
        assert!(find("5e6d").is_empty());
    }

    /// A pod's uid is in the name of the kubelet's folder, and in that of its cgroup with either driver.
    #[test]
    fn pods() {
        let uid = "0c8e9d2a-7b1f-4e3c-9a55-1f2e3d4c5b6a";
        let folders = || {
            [
                "kube-system_dns-1_ab".to_owned(),
                format!("shop_web-5_{uid}"),
                "x".to_owned(),
            ]
        };
        assert_eq!(
            uid_of("shop/web-5", folders().into_iter()).expect("found"),
            uid
        );
        let error = uid_of("shop/web", folders().into_iter()).expect_err("another name");
        let hint = error.hint().expect("hint");
        assert!(hint.contains("kube-system/dns-1, shop/web-5"), "{hint}");
        let error = uid_of("a/b", std::iter::empty()).expect_err("no pods");
        assert!(error.hint().expect("hint").contains("/var/log/pods"));
        let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        for name in [slice, format!("pod{uid}")] {
            assert!(is_of_pod(&name, uid), "{name}");
            assert!(!is_of_pod(&name, &uid[..30]), "{name}");
        }
        assert!(!is_of_pod("kubepods-burstable.slice", uid));
    }

    /// Paths that are no cgroup are refused with the mount point in the hint, and malformed ids without a search.
    #[test]
    fn refused() {
        if mount().is_none() {
            return println!("SKIP no cgroup2 file system");
        }
        let error = Cgroup::open("/tmp").expect_err("no cgroup");
        assert!(matches!(error, CgroupError::OtherKind { .. }), "{error}");
        let error = Cgroup::open("no-such-slice").expect_err("no cgroup");
        assert!(matches!(error, CgroupError::NotFound { .. }), "{error}");
        assert!(error.hint().expect("hint").contains("cgroup"));
        let error = Cgroup::of_container("my-nginx").expect_err("a name");
        assert!(matches!(error, CgroupError::NoId { .. }), "{error}");
        let error = Cgroup::of_container("0123456789abcdef0123").expect_err("none");
        assert!(matches!(error, CgroupError::NoContainer { .. }), "{error}");
    }
}
