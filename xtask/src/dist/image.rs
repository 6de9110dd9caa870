//! An image for containers, in the layout that the Open Container Initiative publishes: the program and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::tree::{settle, tar};
use super::{Arch, SUMMARY, VERSION, copy};
use crate::shell;

/// Largest size of the image, bytes.
const MOST_BYTES: u64 = 30_000_000;

/// Folder of the traces: one of the host's is mounted there.
const TRACES: &str = "/traces";

/// Writes the image as an archive that `podman load`, `docker load` and `skopeo copy` read.
pub fn make(dist: &Path, program: &Path, arch: Arch) -> Result<PathBuf> {
    let room = tempfile::tempdir()?;
    let root = room.path().join("root");
    for folder in ["usr/bin", "tmp", &TRACES[1..]] {
        fs::create_dir_all(root.join(folder))?;
    }
    copy(program, &root.join("usr/bin/pebs-trace"))?;
    settle(&root)?;
    shell::output(Command::new("chmod").arg("1777").arg(root.join("tmp")))?;

    let layout = Layout::new(room.path().join("image"))?;
    let layer = room.path().join("layer.tar");
    tar(&layer, &root, &["tmp", &TRACES[1..], "usr"])?;
    let content = sha256(&layer)?;
    shell::output(Command::new("gzip").args(["-9", "-n"]).arg(&layer))?;
    let packed = room.path().join("layer.tar.gz");
    let layer = layout.add(&packed, "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let created = shell::output(Command::new("date").args([
        "--utc",
        "--date",
        &format!("@{}", super::epoch()),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]))?;
    let labels = json!({
        "org.opencontainers.image.title": "pebs-trace",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
    });
    let config = json!({
        "created": created.trim_end(),
        "architecture": arch.container(),
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/pebs-trace"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin", "HOME=/tmp"],
            "WorkingDir": TRACES,
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{content}")] },
        "history": [{ "created": created.trim_end(), "created_by": "cargo xtask dist" }],
    });
    let config = layout.add_json(&config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = "application/vnd.oci.image.manifest.v1+json";
    let mut manifest = layout.add_json(
        &json!({ "schemaVersion": 2, "mediaType": manifest, "config": config, "layers": [layer] }),
        manifest,
    )?;
    let name = format!("pebs-trace:{VERSION}");
    manifest["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{name}"),
        "org.opencontainers.image.ref.name": name,
    });
    manifest["platform"] = json!({ "architecture": arch.container(), "os": "linux" });
    layout.write("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
    layout.write(
        "index.json",
        &json!({ "schemaVersion": 2, "manifests": [manifest] }),
    )?;
    settle(&layout.folder)?;
    let image = dist.join(format!("pebs-trace-{VERSION}-{arch}-image.tar"));
    tar(
        &image,
        &layout.folder,
        &["blobs", "index.json", "oci-layout"],
    )?;
    let bytes = fs::metadata(&image)?.len();
    anyhow::ensure!(
        bytes <= MOST_BYTES,
        "the image has {bytes} bytes, {MOST_BYTES} at most"
    );
    Ok(image)
}

/// A folder of files that are named by what is in them.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(folder.join("blobs/sha256"))?;
        Ok(Self { folder })
    }

    /// Adds a file; what names it.
    fn add(&self, file: &Path, media_type: &str) -> Result<Value> {
        let (digest, size) = (sha256(file)?, fs::metadata(file)?.len());
        copy(file, &self.folder.join("blobs/sha256").join(&digest))?;
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size }))
    }

    fn add_json(&self, value: &Value, media_type: &str) -> Result<Value> {
        self.write("added.json", value)?;
        let file = self.folder.join("added.json");
        let descriptor = self.add(&file, media_type)?;
        fs::remove_file(file)?;
        Ok(descriptor)
    }

    fn write(&self, name: &str, value: &Value) -> Result<()> {
        Ok(fs::write(self.folder.join(name), value.to_string())?)
    }
}

/// The SHA-256 of a file, in hexadecimal.
fn sha256(file: &Path) -> Result<String> {
    let line = shell::output(Command::new("sha256sum").arg("--").arg(file))?;
    let digest = line.split(' ').next().filter(|it| it.len() == 64);
    let digest = digest.context("sha256sum printed no checksum")?;
    Ok(digest.to_owned())
}
