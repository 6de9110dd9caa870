//! Errors of loading and attaching the eBPF programs.

use std::io;

use aya::EbpfError;
use aya::programs::ProgramError;

use crate::collect::btf::BtfError;
use crate::failure::Hint;
use crate::limits;

/// The programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramsError {
    /// The kernel's type information could not be used.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// aya could not parse the kernel's type information.
    #[error("cannot read the kernel's type information")]
    AyaBtf(#[source] aya::BtfError),
    /// The object could not be loaded: a map was refused.
    #[error("cannot load the eBPF object")]
    Object(#[source] EbpfError),
    /// A program or map is not in the object: it was built from other sources.
    #[error("the eBPF object has no '{0}'")]
    Missing(String),
    /// The kernel did not load a program.
    #[error("cannot load eBPF program '{name}'")]
    Load {
        name: String,
        /// Why, without the verifier's log.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a program.
    #[error("cannot load or attach eBPF program '{name}'")]
    Program {
        name: String,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// Interruptions can't be recorded: the kernel lacks this tracepoint.
    #[error("cannot record interruptions: this kernel has no tracepoint {0}")]
    NoInterruptions(String),
    /// The kernel refused a map operation.
    #[error("cannot {0}")]
    Map(&'static str, #[source] io::Error),
}

impl ProgramsError {
    /// The verifier's log, which has many lines, is for `-vv`.
    pub(super) fn refused(name: &str, error: ProgramError) -> Self {
        let name = name.to_owned();
        match error {
            ProgramError::LoadError {
                io_error: source,
                verifier_log,
            } => {
                tracing::debug!("the verifier on {name}: {verifier_log}");
                Self::Load { name, source }
            }
            source => Self::Program { name, source },
        }
    }

    /// Whether the limit of open files was reached.
    fn is_for_files(&self) -> bool {
        anyhow::Chain::new(self)
            .filter_map(|error| error.downcast_ref::<io::Error>())
            .any(|error| error.raw_os_error() == Some(libc::EMFILE))
    }
}

impl Hint for ProgramsError {
    fn hint(&self) -> Option<String> {
        if self.is_for_files() {
            return Some(limits::open_files().hint());
        }
        match self {
            Self::Btf(error) => error.hint(),
            Self::NoInterruptions(_) => Some("record without '--with irq,faults'".to_owned()),
            Self::AyaBtf(_) | Self::Missing(_) => None,
            Self::Object(_) | Self::Load { .. } | Self::Program { .. } | Self::Map(..) => Some(
                "'pebs-trace doctor' says what this kernel lacks; -vv shows the verifier's log"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the limit of open files the hint says which limit to raise.
    #[test]
    fn refused_for_files() {
        let attached = ProgramError::SyscallError(aya::sys::SyscallError {
            call: "bpf_raw_tracepoint_open",
            io_error: io::Error::from_raw_os_error(libc::EMFILE),
        });
        let hint = ProgramsError::refused("sched_process_exit", attached).hint();
        assert!(hint.unwrap().contains("ulimit -n"));
        let denied = ProgramsError::Map("fill it", io::ErrorKind::PermissionDenied.into()).hint();
        assert!(denied.unwrap().contains("doctor"));
    }
}
