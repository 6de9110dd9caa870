//! Reports at once when a CPU may have come or gone, from the kernel's device events.
//!
//! They arrive once the CPU runs, and in containers perhaps never: only the list of CPUs is authoritative.
//! Source: `device_online`, drivers/base/core.c; `kobject_uevent_net_broadcast`, lib/kobject_uevent.c.
#![expect(unsafe_code, reason = "the runtime watches a descriptor of ours")]

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The group to which the kernel itself writes.
const KERNEL_GROUP: u32 = 1;

/// Maximum length of the kernel's messages.
#[doc(alias = "UEVENT_BUFFER_SIZE")]
const LONGEST: usize = 4096;

/// Messages about CPUs.
pub(crate) struct CpuMessages(AsyncFd<OwnedFd>);

impl CpuMessages {
    /// Receives events from now on. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The kernel refused the socket.
    #[doc(alias = "NETLINK_KOBJECT_UEVENT")]
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::KOBJECT_UEVENT);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        // SAFETY: the descriptor is owned, so it is open and the same until the value is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(socket.map_err(io::Error::from)?))
    }

    /// Waits for the next event. Cancel safe: dropping the future loses no event.
    pub(crate) async fn next(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                // No more events will come.
                return std::future::pending().await;
            };
            let is_one = self.drain();
            ready.clear_ready();
            if is_one {
                return;
            }
        }
    }

    /// Reads all messages; returns whether one may have been about a CPU.
    fn drain(&self) -> bool {
        let mut bytes = [0; LONGEST];
        let mut is_one = false;
        loop {
            match recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => is_one |= is_about_cpu(&bytes[..len.min(LONGEST)]),
                Err(rustix::io::Errno::INTR) => {}
                // The socket's buffer overflowed.
                Err(rustix::io::Errno::NOBUFS) => is_one = true,
                Err(_) => return is_one,
            }
        }
    }
}

/// Whether a message (`ACTION@PATH`, then NUL and more) is about a CPU.
fn is_about_cpu(message: &[u8]) -> bool {
    let head = message.split(|byte| *byte == 0).next();
    let path = head.and_then(|head| head.split(|byte| *byte == b'@').nth(1));
    path.is_some_and(|path| path.starts_with(b"/devices/system/cpu/cpu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs are distinguished from other devices; anything else is ignored.
    #[test]
    fn messages() {
        assert!(is_about_cpu(
            b"online@/devices/system/cpu/cpu1\0ACTION=online\0SEQNUM=7\0"
        ));
        assert!(!is_about_cpu(b"add@/devices/system/node/node0\0"));
        assert!(!is_about_cpu(b"change@/devices/cpu\0"));
        assert!(!is_about_cpu(b"libudev\0\xfe\xed\xca\xfe"));
        assert!(!is_about_cpu(b""));
    }

    /// A message triggered in the kernel arrives; one about another device does not end the wait.
    #[test]
    fn asked_for() {
        let path = |what: &str| format!("/sys/devices/system/{what}/uevent");
        let cpu = path("cpu/cpu0");
        if !rustix::process::geteuid().is_root() || !std::path::Path::new(&cpu).exists() {
            println!("SKIP needs root and sysfs");
            return;
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let messages = CpuMessages::open().unwrap();
            let asked = |path: &str| std::fs::write(path, "change").is_ok();
            let soon = std::time::Duration::from_millis(200);
            if asked("/sys/devices/virtual/mem/null/uevent") {
                let waited = tokio::time::timeout(soon, messages.next()).await;
                assert!(waited.is_err(), "not about a CPU");
            }
            if asked(&cpu) {
                messages.next().await;
            }
        });
    }
}
