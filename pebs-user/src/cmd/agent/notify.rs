//! Tells systemd that the agent is ready, reloads, ends, and is alive.
//!
//! Source: sd_notify(3): a datagram to the socket in `NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The way to systemd, if it started the agent.
#[derive(Debug)]
pub(super) struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    pub(super) fn from_environment() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Self::to(name.as_deref())
    }

    fn to(name: Option<&OsStr>) -> Self {
        let open = |name: &OsStr| -> io::Result<_> {
            let address = match name.as_bytes().strip_prefix(b"@") {
                Some(hidden) => SocketAddr::from_abstract_name(hidden)?,
                None => SocketAddr::from_pathname(name)?,
            };
            Ok((UnixDatagram::unbound()?, address))
        };
        Self(name.and_then(|name| open(name).ok()))
    }

    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Also feeds the watchdog.
    pub(super) fn alive(&self, status: &str) {
        self.send(&format!("WATCHDOG=1\nSTATUS={status}"));
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // systemd itself says so if it hears nothing.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state is one datagram, to a socket in the file system or to one without a file.
    #[test]
    fn datagrams() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let hidden = format!("pebs-trace-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(hidden.as_bytes()).unwrap();
        for (heard, name) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&address).unwrap(),
                format!("@{hidden}").into(),
            ),
        ] {
            let notify = Notify::to(Some(&name));
            notify.ready();
            notify.alive("well");
            notify.reloading();
            let mut bytes = [0; 200];
            let mut next = || {
                let n = heard.recv(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..n]).into_owned()
            };
            assert_eq!(next(), "READY=1");
            assert_eq!(next(), "WATCHDOG=1\nSTATUS=well");
            assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        }
        Notify::to(None).ready();
    }
}
