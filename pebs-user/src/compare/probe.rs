//! The probe that was asked for.

use thiserror::Error;

use crate::store::reader::Trace;
use crate::units::ProbeId;

/// The trace has no such probe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct NoProbe {
    pub(crate) trace: String,
    pub(crate) probe: ProbeId,
    /// Numbers and SPECs of the probes of the trace.
    pub(crate) known: Vec<(ProbeId, String)>,
}

/// Fails if a probe was asked for that the trace does not have.
pub(super) fn check(trace: &Trace, asked: Option<ProbeId>) -> Result<(), NoProbe> {
    let probes = &trace.info.probes;
    match asked {
        Some(probe) if probes.iter().all(|known| known.id != probe) => Err(NoProbe {
            trace: trace.dir.display().to_string(),
            probe,
            known: probes
                .iter()
                .map(|it| (it.id, it.spec.to_string()))
                .collect(),
        }),
        _ => Ok(()),
    }
}
